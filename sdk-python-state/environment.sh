# Makes the virtual environment of the tools, which is that of `sdk-python`. To be sourced in `sdk-python-state/`.

set -eu
cd ../sdk-python
. scripts/environment.sh
cd ../sdk-python-state
tools=$PWD/../sdk-python/.venv/bin
PATH=$tools:$PATH
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../target}
export PATH CARGO_TARGET_DIR
locked=
if [ "${CI:-}" = true ]; then locked=--locked; fi
