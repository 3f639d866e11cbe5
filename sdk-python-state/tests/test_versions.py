"""The wheel, installed in a clean environment for each version of Python on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, List

import pytest

MODULE = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = 9, 14

PROGRAM = """
import sys, tempfile
from workspace_sdk import state
from workspace_sdk.errors import PathNotFoundError

with tempfile.TemporaryDirectory() as directory, state.Store(directory + "/store") as store:
    tree = store.empty_tree()
    tree.write("caf\\udce9", memoryview(b"x"))
    snapshot = tree.clone().commit(durability="buffered")
    assert store.restore(snapshot).read(b"caf\\xe9") == "x"
    assert snapshot.time.utcoffset().total_seconds() == 0
    try:
        tree.read("missing")
    except PathNotFoundError as error:
        print(error.name)
"""


def interpreters() -> List[str]:
    """Returns one interpreter for each supported version that is installed."""
    found: Dict[int, str] = {}
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [*versions.glob("3.*/bin/python3"), *Path("/usr/bin").glob("python3.*"), Path(sys.executable)]
    for path in candidates:
        if path.name.endswith("config"):
            continue
        code = "import sys, venv; print(*sys.version_info[:2])"
        asked = subprocess.run([str(path), "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        major, _, minor = asked.stdout.strip().partition(" ")
        if major == "3" and OLDEST <= int(minor) <= NEWEST:
            found[int(minor)] = str(path)
    return [found[minor] for minor in sorted(found)]


def wheel() -> Path:
    """Returns the wheel that `install.sh` built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", MODULE.parent / "target"))
    (built,) = (target / "wheels" / "state").glob("*.whl")
    return built


def test_the_wheel_has_what_it_needs() -> None:
    assert "-cp39-abi3-" in wheel().name
    names = set(zipfile.ZipFile(wheel()).namelist())
    package = {"py.typed", "__init__.py", "errors.py", "_state.pyi", "_state.abi3.so"}
    assert {f"workspace_state/{name}" for name in package} <= names
    assert all(name.startswith(("workspace_state/", "elevo_workspace_state-")) for name in names)


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.replace("/", "_"))
def test_the_wheel_works(python: str) -> None:
    version = subprocess.run([python, "-c", "import sys; print(sys.version)"], stdout=subprocess.PIPE, text=True).stdout
    # Dependencies are kept between runs, the wheel is not.
    environment = MODULE / f".venv-{version.split()[0]}"
    installed = environment / "bin" / "python"
    if not (environment / "complete").exists():
        # The `pip` of the tools installs for all: `venv` would hide why its own could not be installed.
        subprocess.run([python, "-m", "venv", "--without-pip", "--clear", str(environment)], check=True)
        pip(installed, "install", str(MODULE.parent / "sdk-python"))
        (environment / "complete").touch()
    pip(installed, "install", "--force-reinstall", "--no-deps", str(wheel()))
    done = subprocess.run([str(installed), "-W", "error", "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "PATH_NOT_FOUND\n")


def pip(python: Path, *arguments: str) -> None:
    options = ["--python", str(python), "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *options, *arguments], check=True, stdout=subprocess.DEVNULL)
