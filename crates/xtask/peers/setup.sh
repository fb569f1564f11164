#!/bin/sh
# Installs missing Debian packages of the comparisons: ejabberd, Prosody, Tsung, Chromium (pictures of reports),
# nftables and iproute2 (lossy networks).
#
# usage: setup.sh [PACKAGE…]     without names: all of them
#
# Takes milliseconds if nothing is missing. Package lists are updated only if the installation fails without them. Services of the
# packages are not started, because they use the standard ports; `cargo xtask peers` starts the servers that are measured. An
# existing policy-rc.d is not changed.
set -eu

die() { echo "setup.sh: $*" >&2; exit 1; }

# The program whose presence shows that a package is installed.
program() {
    case $1 in
        ejabberd) echo ejabberdctl ;;
        nftables) echo nft ;;
        iproute2) echo tc ;;
        iputils-ping) echo ping ;;
        *) echo "$1" ;;
    esac
}

[ $# -gt 0 ] || set -- ejabberd prosody tsung chromium nftables iproute2 iputils-ping
PATH=$PATH:/usr/sbin:/sbin
missing=
for package in "$@"; do
    command -v "$(program "$package")" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null 2>&1 || die "there is no apt-get: install$missing by hand"
sudo=
if [ "$(id -u)" != 0 ]; then
    { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; } || die "run 'apt-get install$missing' as root"
    sudo="sudo -n"
fi

# invoke-rc.d asks policy-rc.d before it starts a service; 101 forbids it.
policy=/usr/sbin/policy-rc.d
ours=
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
    $sudo chmod 755 "$policy"
    ours=yes
fi
log=$(mktemp)
cleanup() {
    [ -z "$ours" ] || $sudo rm -f "$policy"
    rm -f "$log"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

echo "setup.sh: installing$missing" >&2
apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq"
# shellcheck disable=SC2086 # words of $apt and $missing are meant to be split
$apt install -y --no-install-recommends $missing >"$log" 2>&1 </dev/null && exit 0
# shellcheck disable=SC2086
{ $apt update && $apt install -y --no-install-recommends $missing; } >>"$log" 2>&1 </dev/null ||
    die "cannot install$missing: $(grep -m1 '^E:' "$log" || tail -n1 "$log")"
