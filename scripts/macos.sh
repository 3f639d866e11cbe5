#!/bin/sh
# Type-checks the crates that must build on macOS, on any machine. Nothing is linked and nothing is run.

. "$(dirname "$0")/lib.sh"

target=aarch64-apple-darwin

if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "the standard library of $target is not installed, so nothing was checked; to add it: rustup target add $target"
    exit 0
fi

stand_in=$PWD/scripts/macos-cc.sh
export CC_aarch64_apple_darwin="$stand_in" CXX_aarch64_apple_darwin="$stand_in" AR_aarch64_apple_darwin="$stand_in"
export RUSTFLAGS='-D warnings'
# A directory of its own: other flags would have everything else built anew.
CARGO_TARGET_DIR=$(target_directory)/macos
export CARGO_TARGET_DIR

check() {
    # What runs here to build them is not worth optimising.
    cargo --config 'profile.dev.package."*".opt-level=0' check $locked --target "$target" "$@"
}

check -p workspace-cli -p workspace-server
# Tests as well where some are for macOS alone.
check --tests -p workspace-state
check --lib --profile test -p workspace-host -p workspace-workspace
