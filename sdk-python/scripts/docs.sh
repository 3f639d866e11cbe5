#!/bin/sh
# Writes the API reference into `reference/`, or into the given directory. Warnings are errors.
#
#   scripts/docs.sh [DIRECTORY]
#   scripts/docs.sh --check        writes nothing, and leaves out the generated types, which take half a minute

cd "$(dirname "$0")/.."
. scripts/environment.sh
# `workspace_sdk.state` needs the native module; docs/python-state.md describes it.
modules=$(cd src && find workspace_sdk -maxdepth 1 -name '[a-z]*.py' ! -name state.py | sed 's/\.py$//; s/\//./g' | sort)
if [ "${1:-}" = --check ]; then
    target=$(mktemp -d)
    trap 'rm -rf "$target"' EXIT
    modules=$(echo "$modules" | grep -v '\.types$')
else
    target=${1:-reference}
fi
# shellcheck disable=SC2086
.venv/bin/python -W error -m pdoc --no-show-source --output-directory "$target" \
    workspace_sdk workspace_sdk.sync $modules
