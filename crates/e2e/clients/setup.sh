#!/bin/sh
# Installs the third-party clients: slixmpp, nbxmpp, schemathesis and kubernetes-validate in one venv each, xmpp.js, strophe.js,
# Converse.js and playwright-core in node_modules, and profanity, tmux, chromium, prometheus, prosody, ejabberd, tools for the network, for packages
# and for units of systemd from Debian.
#
# usage: setup.sh [DIR]     DIR defaults to $CARGO_TARGET_DIR/e2e, or target/e2e of the workspace.
#
# It may run repeatedly and concurrently; if nothing is missing it takes a few milliseconds. A failed installation is one line on
# standard error and exit status 1, never a skip.
# Pitfall: a venv contains its own path. If DIR was moved, remove it and run this again.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
dir=${1:-${CARGO_TARGET_DIR:-$root/target}/e2e}

die() { echo "setup.sh: $*" >&2; exit 1; }

mkdir -p "$dir" || die "cannot make $dir"
dir=$(cd "$dir" && pwd)
log=$dir/setup.log

# One installer at a time; the others then find everything installed. flock is in util-linux, which is essential on Debian.
exec 9>"$dir/setup.lock"
flock 9

have() { command -v "$1" >/dev/null 2>&1; }

# Installs one Debian package. Package lists are updated only if the installation fails without them.
install() {
    have apt-get || die "$1 is missing and there is no apt-get: install it by hand"
    sudo=
    if [ "$(id -u)" != 0 ]; then
        { have sudo && sudo -n true 2>/dev/null; } || die "$1 is missing: run 'apt-get install $1' as root"
        sudo="sudo -n"
    fi
    echo "setup.sh: installing $1" >&2
    apt="$sudo env DEBIAN_FRONTEND=noninteractive ${RUNLEVEL:+RUNLEVEL=$RUNLEVEL} apt-get -o DPkg::Lock::Timeout=300 -qq"
    # shellcheck disable=SC2086 # the words of $apt are meant to be split
    $apt install -y --no-install-recommends "$1" >"$log" 2>&1 </dev/null && return
    # shellcheck disable=SC2086
    { $apt update && $apt install -y --no-install-recommends "$1"; } >>"$log" 2>&1 </dev/null ||
        die "cannot install Debian's $1: $(grep -m1 '^E:' "$log" || tail -n1 "$log")"
}

# Runs a command quietly; its output goes to the log, and the last line of it to standard error on failure.
quietly() {
    what=$1; shift
    "$@" >"$log" 2>&1 </dev/null || die "$what failed: $(grep -v '^ *$' "$log" | tail -n1) (see $log)"
}

have tmux || install tmux
have profanity || install profanity-light    # The same program without GTK and the desktop.

# For interrupted networks: namespaces and links, their verification, and a router that loses its state.
PATH=$PATH:/usr/sbin:/sbin
have ip || install iproute2
have ping || install iputils-ping
have nft || install nftables

# The servers whose data are imported. RUNLEVEL=1 keeps their packages from starting services.
have prosody || RUNLEVEL=1 install prosody
have ejabberdctl || RUNLEVEL=1 install ejabberd
ls -d /usr/lib/erlang/lib/p1_pgsql-* >/dev/null 2>&1 || install erlang-p1-pgsql
ls -d /usr/lib/erlang/lib/p1_mysql-* >/dev/null 2>&1 || install erlang-p1-mysql

have python3 || install python3
stamp=$(cat "$here/slixmpp/requirements.txt"; python3 --version)
if [ ! -x "$dir/venv/bin/python" ] || [ "$stamp" != "$(cat "$dir/venv/stamp" 2>/dev/null)" ]; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || install python3-venv
    rm -rf "$dir/venv"
    quietly "python3 -m venv" python3 -m venv "$dir/venv"
    quietly "pip install" "$dir/venv/bin/pip" install --quiet --disable-pip-version-check \
        --only-binary :all: --requirement "$here/slixmpp/requirements.txt"
    printf '%s\n' "$stamp" >"$dir/venv/stamp"
fi

# Generates requests to the HTTP API from its OpenAPI document.
stamp=$(cat "$here/schemathesis/requirements.txt"; python3 --version)
if [ ! -x "$dir/schemathesis/bin/schemathesis" ] || [ "$stamp" != "$(cat "$dir/schemathesis/stamp" 2>/dev/null)" ]; then
    rm -rf "$dir/schemathesis"
    quietly "python3 -m venv" python3 -m venv "$dir/schemathesis"
    quietly "pip install" "$dir/schemathesis/bin/pip" install --quiet --disable-pip-version-check \
        --only-binary :all: --requirement "$here/schemathesis/requirements.txt"
    printf '%s\n' "$stamp" >"$dir/schemathesis/stamp"
fi

# nbxmpp uses GLib, whose Python binding is available for Debian's own Python only.
[ -e /usr/lib/python3/dist-packages/gi ] || install python3-gi
ls /usr/lib/*/girepository-1.0/Soup-3.0.typelib >/dev/null 2>&1 || install gir1.2-soup-3.0
ls /usr/lib/*/gio/modules/libgiognutls.so >/dev/null 2>&1 || install glib-networking
stamp=$(cat "$here/nbxmpp/requirements.txt"; /usr/bin/python3 --version)
if [ ! -x "$dir/gvenv/bin/python" ] || [ "$stamp" != "$(cat "$dir/gvenv/stamp" 2>/dev/null)" ]; then
    /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null || install python3-venv
    rm -rf "$dir/gvenv"
    quietly "python3 -m venv" /usr/bin/python3 -m venv --system-site-packages "$dir/gvenv"
    quietly "pip install" "$dir/gvenv/bin/pip" install --quiet --disable-pip-version-check \
        --only-binary :all: --no-deps --requirement "$here/nbxmpp/requirements.txt"
    printf '%s\n' "$stamp" >"$dir/gvenv/stamp"
fi

# xmpp.js needs node 20.10 or newer. Where the machine has none or an older one (Debian 12), a newer one comes from npm
# as a package. The tests start $dir/bin/node, whichever that is.
recent() {
    "$1" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 10) ? 0 : 1)' 2>/dev/null
}
have node || install nodejs
have npm || install npm
mkdir -p "$dir/bin"
if ! { [ -x "$dir/bin/node" ] && recent "$dir/bin/node"; }; then
    node=$(command -v node)
    if ! recent "$node"; then
        case $(uname -m) in
            x86_64) machine=x64 ;;
            aarch64) machine=arm64 ;;
            *) die "xmpp.js needs node 20.10 or newer and this is $(node --version): install a newer one" ;;
        esac
        quietly "npm install of node" npm install --prefix "$dir/node" --ignore-scripts --no-audit --no-fund \
            --loglevel=error "node-linux-$machine@22.23.3"
        node=$dir/node/node_modules/node-linux-$machine/bin/node
        recent "$node" || die "the node that npm brought does not run: $node"
    fi
    ln -sf "$node" "$dir/bin/node"
fi
# The packages that a folder's lock file names.
modules() {
    stamp=$(cat "$here/$1/package.json" "$here/$1/package-lock.json" "$here/$1/.npmrc"; "$dir/bin/node" --version)
    if [ ! -d "$dir/$1/node_modules" ] || [ "$stamp" != "$(cat "$dir/$1/stamp" 2>/dev/null)" ]; then
        rm -rf "${dir:?}/$1"
        mkdir -p "$dir/$1"
        cp "$here/$1/package.json" "$here/$1/package-lock.json" "$here/$1/.npmrc" "$dir/$1/"
        quietly "npm ci" npm ci --prefix "$dir/$1" --ignore-scripts --no-audit --no-fund --loglevel=error
        printf '%s\n' "$stamp" >"$dir/$1/stamp"
    fi
}
modules xmppjs
modules strophe
modules converse

# For the tests of contrib: they verify the unit, and build and install the package. systemd is not started.
have systemd-analyze || install systemd
have systemd-sysusers || install systemd-standalone-sysusers
have systemd-tmpfiles || install systemd-standalone-tmpfiles
have objdump || install binutils
# The schemas of Kubernetes.
stamp=$(cat "$here/kubernetes/requirements.txt"; python3 --version)
if [ ! -x "$dir/kubernetes/bin/kubernetes-validate" ] || [ "$stamp" != "$(cat "$dir/kubernetes/stamp" 2>/dev/null)" ]; then
    rm -rf "$dir/kubernetes"
    quietly "python3 -m venv" python3 -m venv "$dir/kubernetes"
    quietly "pip install" "$dir/kubernetes/bin/pip" install --quiet --disable-pip-version-check \
        --only-binary :all: --requirement "$here/kubernetes/requirements.txt"
    printf '%s\n' "$stamp" >"$dir/kubernetes/stamp"
fi

# For the tests of metrics. The package starts a service if there is an init system; the tests start their own.
have promtool || install prometheus

# For report pages. A browser without fonts draws empty boxes.
have chromium || install chromium
[ -d /usr/share/fonts/truetype/dejavu ] || install fonts-dejavu-core
modules browser
