#!/bin/sh
# Tests of the Python SDK against a real server, whose programs WORKSPACE_SERVER and WORKSPACE_AGENT name.
# Arguments are passed to pytest.

cd "$(dirname "$0")"
. scripts/environment.sh
exec .venv/bin/pytest "$@"
