#!/bin/sh
# Runs every fuzz target for FUZZ_SECONDS (60), beginning with the inputs that the tests replay.

. "$(dirname "$0")/lib.sh"

have_cargo fuzz || die "cargo-fuzz is not installed" "cargo install cargo-fuzz --locked"
if rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    toolchain=+nightly
else
    # Instrumentation is not stable; this makes the stable compiler accept it.
    say "there is no nightly toolchain; the stable one is used with RUSTC_BOOTSTRAP=1"
    export RUSTC_BOOTSTRAP=1
    toolchain=
fi

# FUZZ_TARGETS names some, separated by spaces.
# shellcheck disable=SC2086
for target in ${FUZZ_TARGETS:-$(cargo $toolchain fuzz list)}; do
    mkdir -p "fuzz/corpus/$target"
    set -- "fuzz/corpus/$target"
    for seeds in crates/*/tests/corpus/"$target" fuzz/seeds/"$target"; do
        [ ! -d "$seeds" ] || set -- "$@" "$seeds"
    done
    step "fuzzing $target" cargo $toolchain fuzz run "$target" "$@" -- -max_total_time="${FUZZ_SECONDS:-60}"
done
