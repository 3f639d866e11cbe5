#!/bin/sh
# Runs every test. With CI=true nothing is skipped: ignored tests run too, and a test that lacks what it
# needs fails.

. "$(dirname "$0")/lib.sh"

scripts/deps.sh test

run_tests() {
    if have_cargo nextest; then
        if ci; then set -- --run-ignored all; fi
        cargo nextest run $locked --workspace --no-fail-fast "$@"
    else
        if ci; then set -- --include-ignored; fi
        cargo test $locked --workspace --tests --no-fail-fast -- "$@"
    fi
}

step "building the tests" cargo build $locked --workspace --all-targets
step "tests" run_tests
step "the API against its description" scripts/schemathesis.sh
step "documentation tests" cargo test $locked --workspace --doc
