"""The wheel, installed in a clean environment for each version of Python on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict

import pytest

from server import REPOSITORY, TestServer
from skipped import skip

SDK = REPOSITORY / "sdk-python"
OLDEST, NEWEST = 9, 14

PROGRAM = """
import asyncio, sys
import workspace_sdk
from workspace_sdk import WorkspaceClient, with_sandbox
from workspace_sdk.sync import WorkspaceClient as SyncClient, CreateSandboxParams

async def use():
    async with WorkspaceClient() as client, with_sandbox(client, template="base") as sandbox:
        async with await sandbox.pty.create(command="exit 4") as terminal:
            assert await terminal.wait() == 4
        return (await sandbox.process.run("echo hello")).stdout

assert "site-packages" in workspace_sdk.__file__
assert asyncio.run(use()) == "hello\\n"
with SyncClient() as client, client.sandbox.create(CreateSandboxParams(template="base")) as sandbox:
    with sandbox.pty.create(command="exit 4") as terminal:
        assert terminal.wait() == 4
    assert [event.type for event in sandbox.process.run_stream("echo hello")] == ["stdout", "exit"]
print(len(workspace_sdk.openai_tools()))
"""


def interpreters() -> Dict[int, str]:
    """Returns one interpreter for each minor version that is installed."""
    found = {}
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    directories = [*sorted(versions.glob("3.*/bin")), *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    candidates = {path.resolve() for directory in directories for path in directory.glob("python3.*")}
    for path in [*sorted(candidates), Path(sys.executable)]:
        if path != Path(sys.executable) and not re.fullmatch(r"python3\.\d+", path.name):
            continue
        code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
        asked = subprocess.run([str(path), "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        major, _, minor = asked.stdout.strip().partition(" ")
        if major == "3":
            found[int(minor)] = str(path)
    return found


INTERPRETERS = interpreters()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(SDK)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (made,) = target.glob("*.whl")
    return made


def test_the_wheel_has_what_it_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"workspace_sdk/py.typed", "workspace_sdk/tools.json", "workspace_sdk/sync/__init__.py"} <= names
    assert all(name.startswith(("workspace_sdk/", "elevo_workspace_sdk-")) for name in names)


@pytest.mark.parametrize("minor", range(OLDEST, max(NEWEST, *INTERPRETERS) + 1))
def test_the_wheel_works(server: TestServer, wheel: Path, tmp_path: Path, minor: int) -> None:
    python = INTERPRETERS.get(minor)
    if python is None:
        # A machine has the versions that it has.
        skip(f"Python 3.{minor}", required=False)
    version = subprocess.run([python, "-c", "import sys; print(sys.version)"], stdout=subprocess.PIPE, text=True).stdout
    # Dependencies are kept between runs, the wheel is not.
    environment = SDK / f".venv-{version.split()[0]}"
    installed = environment / "bin" / "python"
    if not (environment / "complete").exists():
        subprocess.run([python, "-m", "venv", "--clear", str(environment)], check=True)
        pip(installed, "install", str(wheel))
        (environment / "complete").touch()
    pip(installed, "install", "--force-reinstall", "--no-deps", str(wheel))
    command = [str(installed), "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("6\n", "")


def test_users_get_strict_types(wheel: Path, tmp_path: Path, mypy_cache: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from workspace_sdk import WorkspaceClient\n"
        "async def use(client: WorkspaceClient) -> str:\n"
        "    async with await client.sandbox.create(template='base') as sandbox:\n"
        "        async for event in sandbox.process.run_stream('true'):\n"
        "            if event.type == 'exit':\n"
        "                reveal_type(event.exit_code)\n"
        "        async for change in sandbox.files.watch():\n"
        "            if change.type == 'renamed':\n"
        "                reveal_type(change.from_)\n"
        "        async for build in client.templates.build('t', b''):\n"
        "            if build.type == 'done':\n"
        "                reveal_type(build.template.name)\n"
        "        return (await sandbox.process.run('true')).stdout\n"
    )
    environment = {**os.environ, "MYPYPATH": str(SDK / "src")}
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", mypy_cache, str(program)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    revealed = re.findall(r'Revealed type is "(?:builtins\.)?(\w+)"', done.stdout)
    assert revealed == ["int", "str", "str"], done.stdout
    assert done.returncode == 0, done.stdout


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
