#!/bin/sh
# Builds the wheel and installs it in the virtual environment of `sdk-python`. WORKSPACE_STATE_PROFILE is the profile of
# Cargo: `dev` by default, which is optimised, too, but builds faster; `release` for benchmarks.

cd "$(dirname "$0")"
. ./environment.sh
wheels=$CARGO_TARGET_DIR/wheels/state
rm -rf "$wheels"
log=$wheels.log
mkdir -p "$CARGO_TARGET_DIR/wheels"
"$tools/maturin" build --profile "${WORKSPACE_STATE_PROFILE:-dev}" $locked --interpreter "$tools/python" \
    --out "$wheels" > "$log" 2>&1 || {
    cat "$log"
    exit 1
}
"$tools/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
