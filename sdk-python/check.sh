#!/bin/sh
# Everything that can be said about the Python SDK without a server: generated files, format, lints and types.

cd "$(dirname "$0")"
. scripts/environment.sh
python3 scripts/generate_types.py --check
python3 scripts/generate_sync.py --check
cmp ../sdk-scenarios/tools.json src/workspace_sdk/tools.json
.venv/bin/ruff check --quiet --no-cache .
.venv/bin/ruff format --quiet --no-cache --check .
# The comparison of `bench/sdk-lines`.
../bench/sdk-lines --check
.venv/bin/ruff check --quiet --no-cache --config pyproject.toml --ignore D1 ../bench/harness/sdk_lines
.venv/bin/ruff format --quiet --no-cache --config pyproject.toml --check ../bench/harness/sdk_lines
# Syntax and library of the oldest supported version.
.venv/bin/vermin --quiet --no-tips --target=3.9- --violations --eval-annotations --backport typing src
.venv/bin/mypy --no-error-summary
.venv/bin/mypy --no-error-summary ../bench/harness/sdk_lines/workspace.py
.venv/bin/pyright --warnings > .venv/pyright.log || {
    cat .venv/pyright.log
    exit 1
}
# `ruff` checks that everything public has a description.
scripts/docs.sh --check
