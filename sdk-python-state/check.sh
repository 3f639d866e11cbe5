#!/bin/sh
# Everything that can be said about the Python module of the state engine without building it: format, lints and types.

cd "$(dirname "$0")"
. ./environment.sh
cargo fmt --check
cargo clippy --quiet $locked --all-targets -- -D warnings
"$tools/ruff" check --quiet --no-cache .
"$tools/ruff" format --quiet --no-cache --check .
"$tools/vermin" --quiet --no-tips --target=3.9- --violations --eval-annotations --backport typing python
"$tools/mypy" --no-error-summary
"$tools/pyright" --warnings > "$CARGO_TARGET_DIR/pyright-state.log" || {
    cat "$CARGO_TARGET_DIR/pyright-state.log"
    exit 1
}
