#!/bin/sh
# Fetches strophe.js for the page /chat by npm, for the next build of the server to take in.
#
# usage: fetch.sh [TARGET]     TARGET is cargo's target folder; absent: $CARGO_TARGET_DIR, or target of the workspace
#
# The library's built file and its licence go to TARGET/chat, where crates/api/build.rs looks. What is to be fetched, and its
# checksum, is in package-lock.json. Without npm or without a network it says so in one line and ends with 0: the server builds
# and runs without the page, and the page says what to do.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${1:-${CARGO_TARGET_DIR:-$here/../target}}
dir=$target/chat

without() { echo "fetch.sh: $*; /chat will say so, all else works" >&2; exit 0; }

stamp=$(cat "$here/package-lock.json")
[ "$stamp" = "$(cat "$dir/stamp" 2>/dev/null)" ] && exit 0
command -v npm >/dev/null 2>&1 || without "no npm"

mkdir -p "$target"
new=$(mktemp -d "$target/chat-XXXXXX")
trap 'rm -rf "$new"' EXIT
cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$new/"
npm ci --prefix "$new" --ignore-scripts --no-audit --no-fund --loglevel=error >"$new/log" 2>&1 </dev/null ||
    without "npm could not fetch strophe.js ($(grep -v '^ *$' "$new/log" | tail -n1))"
mkdir -p "$dir"
cp "$new/node_modules/strophe.js/LICENSE.txt" "$dir/strophe.LICENSE.txt"
cp "$new/node_modules/strophe.js/dist/strophe.umd.min.js" "$dir/strophe.js"
printf '%s\n' "$stamp" >"$dir/stamp"
