#!/bin/sh
# Builds the SDK and runs its tests against a server of their own.
#
#   ./test.sh [TEST…]    names of files in test/ without `.test.ts`; by default all
#
# WORKSPACE_SERVER and WORKSPACE_AGENT name the programs; by default those in target/debug.

set -eu
cd "$(dirname "$0")"
. ./install.sh

node scripts/build.mjs
if [ "${VERBOSE:-}" = 1 ]; then
    exec node test/run.mjs "$@"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
node test/run.mjs "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
}
sed -n 's/^. \(tests\|pass\) /\1 /p' "$log" | paste -sd ' '
