#!/bin/sh
# Writes the generated files that are checked in: docs/man, docs/completions, and what describes the server:
# docs/settings.md, docs/errors.md, docs/openapi.json. The code of the guest protocol is checked by a test.
#
#   scripts/generate.sh            write them
#   scripts/generate.sh --check    fail when they are not what would be written

. "$(dirname "$0")/lib.sh"

generate() {
    for kind in man completions; do
        rm -rf "$1/$kind"
        mkdir -p "$1/$kind"
        "$workspace" generate "$kind" "$1/$kind"
    done
    "$workspace-server" generate "$1"
}

generate_protocol() {
    WORKSPACE_TEST_WRITE_GENERATED=1 cargo test $locked --quiet --workspace --test compatible
}

# The same build as that of the tests, so that checking and testing build everything once.
cargo build $locked --quiet --workspace --all-targets
workspace=$(target_directory)/debug/workspace

case ${1:-} in
'')
    generate_protocol
    generate docs
    ;;
--check)
    fresh=$(mktemp -d)
    trap 'rm -rf "$fresh"' EXIT
    generate "$fresh"
    for kind in man completions settings.md errors.md openapi.json; do
        diff -ru "docs/$kind" "$fresh/$kind" || die "docs/$kind is out of date" "make generate"
    done
    ;;
*) die "unknown option \`$1\`" "--check, or none" ;;
esac
