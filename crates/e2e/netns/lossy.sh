#!/bin/sh
# Network namespaces connected by links that lose packets.
#
# usage: lossy.sh up NAME PERCENT [NODES]     NAME-1 … NAME-NODES (2 without a number) with addresses 10.77.0.1 … on one bridge;
#                                             each drops PERCENT (such as 1 or 0.5) of its incoming packets. 0 drops nothing.
#        lossy.sh dropped NAME                number of packets dropped so far, one line per node: "NAME-1 123"
#        lossy.sh down NAME                   removes everything; no error if there is nothing
#
# Run programs with `ip netns exec NAME-1 PROGRAM …`. Needs root and iproute2; for the loss netem in the kernel (tc), else nft, else iptables.
# The first line of output is "method netem", "method nftables", "method iptables" or "method none". The setup is then
# verified by a flood of pings: the script fails if the share of lost replies does not match PERCENT in both directions.
#
# Packets are dropped on arrival: if they were dropped on output, the sender's TCP would notice and retransmit immediately.
# Pitfall: a virtual link carries segments of up to 64 kB, and a lost one counts as 44 lost packets. Hence gso_max_segs 1.
set -eu
PATH=$PATH:/usr/sbin:/sbin

die() { echo "lossy.sh: $*" >&2; exit 1; }
usage() { sed -n '3,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
have() { command -v "$1" >/dev/null 2>&1; }

# Everything of NAME: nodes are NAME-1, NAME-2, …, the bridge is in NAME-hub.
namespaces() { ip netns list | awk -v name="$1" 'index($1, name "-") == 1 { rest = substr($1, length(name) + 2); if (rest ~ /^([0-9]+|hub)$/) print $1 }'; }

down() {
    for space in $(namespaces "$1"); do
        ip netns delete "$space"
    done
}

# Drops incoming packets of `wire` of a namespace and prints the method. The share is in hundredths of a percent.
lose() {
    space=$1 share=$2
    # netem drops outgoing packets, so it is set at the hub's end.
    if tc -n "$hub" qdisc add dev "to-$space" root netem loss "$percent%" 2>/dev/null; then
        method=netem
    elif have nft && ip netns exec "$space" nft -f - 2>/dev/null <<EOF
table netdev lossy {
    chain in {
        type filter hook ingress device "wire" priority 0;
        numgen random mod 10000 < $share counter drop
    }
}
EOF
    then
        method=nftables
    elif have iptables && ip netns exec "$space" iptables -t raw -A PREROUTING -i wire \
            -m statistic --mode random --probability "$(awk "BEGIN { print $share / 10000 }")" -j DROP 2>/dev/null; then
        method=iptables
    else
        die "no way to lose packets here: no netem in the kernel, and neither nft nor iptables works (crates/xtask/peers/setup.sh nftables)"
    fi
}

up() {
    name=$1 percent=$2 nodes=$3
    case $name in '' | *[!a-z0-9]*) die "a name is of small letters and digits, not \"$name\"" ;; esac
    [ ${#name} -le 8 ] || die "\"$name\" is longer than 8 letters"
    case $nodes in '' | *[!0-9]*) usage ;; esac
    { [ "$nodes" -ge 2 ] && [ "$nodes" -le 99 ]; } || die "from 2 to 99 nodes, not $nodes"
    share=$(awk -v p="$percent" 'BEGIN { if (p !~ /^[0-9]+(\.[0-9]+)?$/ || p > 90) exit 1; printf "%d", p * 100 + 0.5 }') ||
        die "PERCENT is a number from 0 to 90, not \"$percent\""
    [ "$(id -u)" = 0 ] || die "only root can make network namespaces"
    have ip && have tc || die "iproute2 is missing: crates/xtask/peers/setup.sh iproute2"
    have ping || die "ping is missing: crates/xtask/peers/setup.sh iputils-ping"
    down "$name"
    trap 'status=$?; [ $status = 0 ] || down "$name"; exit $status' EXIT
    trap 'exit 130' INT TERM HUP
    hub=$name-hub
    ip netns add "$hub"
    ip -n "$hub" link add bridge type bridge
    ip -n "$hub" link set bridge up
    for node in $(seq "$nodes"); do
        space=$name-$node
        ip netns add "$space"
        ip -n "$hub" link add "to-$space" type veth peer name wire netns "$space"
        ip -n "$hub" link set "to-$space" gso_max_segs 1 master bridge up
        ip -n "$space" link set wire gso_max_segs 1 up
        ip -n "$space" address add "10.77.0.$node/24" dev wire
        ip -n "$space" link set lo up
    done
    method=none
    if [ "$share" -gt 0 ]; then
        for node in $(seq "$nodes"); do
            lose "$name-$node" "$share"
        done
    fi
    echo "method $method"
    prove "$name" "$share"
}

# 5000 pings: each must get there and back, so the share that gets lost is 1 - (1 - p)².
prove() {
    # The first packets wait for the address of the other end (ARP), which may get lost too.
    ip netns exec "$1-1" ping -q -c 20 -i 0.05 -W 1 10.77.0.2 >/dev/null 2>&1 || true
    answer=$(ip netns exec "$1-1" ping -q -f -c 5000 -W 1 10.77.0.2 2>&1) || true
    got=$(echo "$answer" | sed -n 's/^\([0-9]*\) packets transmitted, \([0-9]*\) received.*/\1 \2/p')
    echo "$got" | awk -v share="$2" '{
        want = 1 - (1 - share / 10000) ^ 2; lost = ($1 - $2) / $1
        printf "lost %.2f %% of %d pings, expected %.2f %%\n", lost * 100, $1, want * 100
        # Five standard deviations of that many throws, and one packet.
        slack = 5 * sqrt(want * (1 - want) / $1) + 1 / $1
        exit ($1 < 5000 || lost > want + slack || lost < want - slack) }' || die "the wires do not lose what they should: $answer"
}

dropped() {
    for space in $(namespaces "$1" | grep -v -- '-hub$' | sort -t- -k2n); do
        count=$(tc -n "$1-hub" -s qdisc show dev "to-$space" 2>/dev/null | sed -n '/netem/,$s/.*dropped \([0-9]*\).*/\1/p' | head -n1)
        [ -n "$count" ] || count=$(ip netns exec "$space" nft list ruleset 2>/dev/null | sed -n 's/.*counter packets \([0-9]*\).*/\1/p')
        [ -n "$count" ] || count=$(ip netns exec "$space" iptables -t raw -L PREROUTING -v -x 2>/dev/null | awk '/statistic/ { print $1 }')
        echo "$space ${count:-0}"
    done
}

case ${1:-} in
    up) [ $# -ge 3 ] && [ $# -le 4 ] || usage; up "$2" "$3" "${4:-2}" ;;
    dropped) [ $# = 2 ] || usage; dropped "$2" ;;
    down) [ $# = 2 ] || usage; down "$2" ;;
    *) usage ;;
esac
