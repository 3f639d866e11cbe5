#!/bin/sh
# Builds the guest agent so that it runs in any root filesystem: linked statically, and small.
#
# Prints the path of the program.

. "$(dirname "$0")/lib.sh"

scripts/deps.sh build >&2

target=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS='-C target-feature=+crt-static' \
    cargo build $locked --profile agent --target "$target" -p workspace-agent >&2
echo "${CARGO_TARGET_DIR:-target}/$target/agent/workspace-agent"
