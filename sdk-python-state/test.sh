#!/bin/sh
# Builds the wheel, installs it and tests it. Arguments are passed to pytest.

set -eu
cd "$(dirname "$0")"
./install.sh
. ./environment.sh
exec "$tools/pytest" "$@"
