#!/bin/sh
# Downloads strophe.js for the web chat with npm; the next build of the server embeds it.
#
# usage: fetch.sh
#
# The library and its licence are stored in chat/node_modules, where crates/api/build.rs looks: one place for all target
# directories and profiles. Version and checksum are in package-lock.json. Without npm or a network it prints one line and exits
# with 0: the server is built without the web chat, and the page explains what to do.
#
# Pitfall: a concurrent build must not embed half of the library, so its folder appears by one rename.
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
# Concurrent downloads have the same content, so it does not matter which one is kept.
mv "$new/strophe.js" "$modules/" 2>/dev/null || [ -f "$dir/stamp" ] || without "$dir cannot be written"
