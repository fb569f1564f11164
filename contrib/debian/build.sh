#!/bin/sh
# Builds a Debian package of a program that was built before, without root.
#
# usage: build.sh [PROGRAM [DIRECTORY]]     PROGRAM defaults to target/dist/throng, DIRECTORY, for the package, to target
#
# Prints the path of the package. Needs dpkg-deb and, from binutils, strip and objdump.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
program=${1:-$target/dist/throng}
directory=${2:-$target}

die() { echo "build.sh: $*" >&2; exit 1; }

[ -x "$program" ] || die "$program is missing: run 'cargo build --profile dist -p throng-server'"
for tool in dpkg-deb strip objdump; do
    command -v $tool >/dev/null 2>&1 || die "$tool is missing: run 'apt-get install dpkg binutils' as root"
done

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
umask 022

# copy MODE FILE PATH
copy() { install -D -m "$1" "$2" "$stage$3"; }

copy 755 "$program" /usr/bin/throng
strip "$stage/usr/bin/throng"
copy 644 "$root/contrib/systemd/throng.service" /usr/lib/systemd/system/throng.service
copy 644 "$root/contrib/systemd/sysusers.conf" /usr/lib/sysusers.d/throng.conf
copy 644 "$root/contrib/systemd/tmpfiles.conf" /usr/lib/tmpfiles.d/throng.conf
# The maintainer script gives it to the group of the node.
copy 640 "$here/throng.toml" /etc/throng/throng.toml
copy 644 "$root/LICENSE" /usr/share/doc/throng/copyright
copy 644 "$root/CHANGELOG.md" /usr/share/doc/throng/CHANGELOG.md
for page in "$root"/docs/*.md; do
    copy 644 "$page" "/usr/share/doc/throng/$(basename "$page")"
done
for file in prometheus/alerts.yml prometheus/prometheus.yml grafana/throng.json; do
    copy 644 "$root/contrib/$file" "/usr/share/doc/throng/examples/$(basename "$file")"
done

for script in postinst prerm postrm; do
    copy 755 "$here/$script" /DEBIAN/$script
done
echo /etc/throng/throng.toml >"$stage/DEBIAN/conffiles"
# The newest version of a symbol of the C library that the program uses.
libc=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n1)
size=$(du -k -s --exclude=DEBIAN "$stage" | cut -f1)
cat >"$stage/DEBIAN/control" <<END
Package: throng
Version: $version
Architecture: $architecture
Maintainer: Throng maintainers <maintainers@localhost>
Installed-Size: $size
Depends: libc6 (>= ${libc:-2.36}), libgcc-s1, systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles
Recommends: ca-certificates
Section: net
Priority: optional
Description: XMPP server for very large services
 A node with SQLite, PostgreSQL, MySQL or MariaDB, a console and an HTTP API; several nodes share one database and NATS.
 The program is also a load generator for XMPP servers.
END

package=$directory/throng_${version}_$architecture.deb
mkdir -p "$directory"
dpkg-deb --root-owner-group -Zzstd -z9 --build "$stage" "$package" >/dev/null
echo "$package"
