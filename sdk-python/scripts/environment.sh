# Makes the virtual environment of the tools, if it is missing or old. To be sourced in `sdk-python/`.

set -eu
python=${PYTHON:-python3}
wanted=$({ cat requirements-dev.txt; grep '^dependencies' pyproject.toml; } | cksum)
if [ "$(cat .venv/installed 2>/dev/null || true)" != "$wanted" ]; then
    # Those of `tests/test_packaging.py` have the dependencies of the former package.
    rm -rf .venv-*
    "$python" -m venv --clear .venv
    .venv/bin/pip install --quiet --disable-pip-version-check -r requirements-dev.txt -e .
    printf '%s\n' "$wanted" > .venv/installed
fi
