#!/bin/sh
# Installs the servers of the tests from Debian: PostgreSQL, MariaDB, and OpenLDAP's slapd, without starting them as services.
#
# If nothing is missing it takes a few milliseconds. A failed installation is one line on standard error and exit status 1,
# never a skip.
set -eu

die() { echo "setup.sh: $*" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Package lists are updated only if the installation fails without them.
install() {
    command -v apt-get >/dev/null 2>&1 || die "$* is missing and there is no apt-get: install it by hand"
    sudo=
    if [ "$(id -u)" != 0 ]; then
        { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; } ||
            die "$* is missing: run 'apt-get install $*' as root"
        sudo="sudo -n"
    fi
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
