#!/bin/sh
# Fetches strophe.js for the page /chat by npm, for the next build of the server to take in.
#
# usage: fetch.sh
#
# The library's built file and its licence go to chat/node_modules, where crates/api/build.rs looks: beside the page, so that every
# target folder and every profile finds the same. What is to be fetched, and its checksum, is in package-lock.json. Without npm
# or without a network it says so in one line and ends with 0: the server builds and runs without the page, and the page says
# what to do.
#
# The trap: a build that runs meanwhile must not take in half of the library, so its folder appears whole, by one rename.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
modules=$here/node_modules
dir=$modules/strophe.js

without() { echo "fetch.sh: $*; /chat will say so, all else works" >&2; exit 0; }

stamp=$(cat "$here/package-lock.json")
[ "$stamp" = "$(cat "$dir/stamp" 2>/dev/null)" ] && exit 0
command -v npm >/dev/null 2>&1 || without "no npm"

mkdir -p "$modules" 2>/dev/null && new=$(mktemp -d "$modules/.fetch-XXXXXX" 2>/dev/null) ||
    without "$here cannot be written"
trap 'rm -rf "$new"' EXIT
cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$new/"
npm ci --prefix "$new" --ignore-scripts --no-audit --no-fund --loglevel=error >"$new/log" 2>&1 </dev/null ||
    without "npm could not fetch strophe.js ($(grep -v '^ *$' "$new/log" | tail -n1))"
mkdir "$new/strophe.js"
cp "$new/node_modules/strophe.js/LICENSE.txt" "$new/strophe.js/LICENSE.txt"
cp "$new/node_modules/strophe.js/dist/strophe.umd.min.js" "$new/strophe.js/strophe.js"
printf '%s\n' "$stamp" >"$new/strophe.js/stamp"
rm -rf "$dir"
# Where two fetch at once both have the same, and what the second moves into the first's folder does no harm.
mv "$new/strophe.js" "$modules/" 2>/dev/null || [ -f "$dir/stamp" ] || without "$dir cannot be written"
