#!/bin/sh
# Runs every fuzz target for FUZZ_SECONDS (60), beginning with the inputs that the tests replay.

. "$(dirname "$0")/lib.sh"

have_cargo fuzz || die "cargo-fuzz is not installed" "cargo install cargo-fuzz --locked"
rustup toolchain list 2>/dev/null | grep -q '^nightly' ||
    die "fuzzing needs a nightly toolchain" "rustup toolchain install nightly"

for target in $(cargo +nightly fuzz list); do
    mkdir -p "fuzz/corpus/$target"
    set -- "fuzz/corpus/$target"
    for seeds in crates/*/tests/corpus/"$target" fuzz/seeds/"$target"; do
        [ ! -d "$seeds" ] || set -- "$@" "$seeds"
    done
    step "fuzzing $target" cargo +nightly fuzz run "$target" "$@" -- -max_total_time="${FUZZ_SECONDS:-60}"
done
