"""The programs of the requirements, as they are written there."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from server import TestServer
from skipped import skip
from workspace_sdk import ClientConfig, CreateSandboxParams, WorkspaceClient
from workspace_sdk.errors import (
    CommandFailedError,
    ProcessTimeoutError,
    PTYLimitExceededError,
    PTYNotFoundError,
    RateLimitedError,
    SandboxLimitExceededError,
    SandboxNotFoundError,
    TemplateNotFoundError,
    UnauthorizedError,
    WorkspaceError,
)
from workspace_sdk.nfs import NFSService

pytestmark = pytest.mark.usefixtures("server")


def mount_and_write(nfs: NFSService, name: str, text: str, directory: Path) -> None:
    """Writes a file over NFS, with a client that needs no mount and no root."""
    if shutil.which("nfs-cp") is None:
        skip("`nfs-cp` (libnfs-utils)")
    url = f"nfs://{nfs.host}{nfs.path}/{name}?version=3&nfsport={nfs.port}&mountport={nfs.port}"
    (directory / name).write_text(text)
    subprocess.run(["nfs-cp", str(directory / name), url], check=True, stdout=subprocess.DEVNULL)


def test_full_workflow(tmp_path: Path) -> None:
    async def workflow() -> None:
        client = WorkspaceClient()
        sandbox = await client.sandbox.create(CreateSandboxParams(template="base"))
        assert sandbox.state == "running"
        mount_and_write(sandbox.nfs, "main.py", "print('hello')", tmp_path)
        result = await sandbox.process.run("python3 /workspace/main.py")
        assert result.exit_code == 0
        assert "hello" in result.stdout
        output = []
        async for event in sandbox.process.run_stream("echo installed"):
            output.append(event)
        assert any(e.type == "exit" and e.exit_code == 0 for e in output)
        await client.sandbox.delete(sandbox.id)
        await client.close()

    asyncio.run(workflow())


# Programs of the requirements, word for word but for comments. `FILLED_IN` says what is put in for what they leave out.
CLIENT_PROGRAM = """
import asyncio
from workspace_sdk import WorkspaceClient, CreateSandboxParams

async def main():
    client = WorkspaceClient(
        api_url="http://workspace-server:8080",
        api_key=os.environ["WORKSPACE_API_KEY"],
        timeout=30.0,
        retries=3
    )

    sandbox = await client.sandbox.create(CreateSandboxParams(
        template="python:3.11",
        name="my-sandbox"
    ))

    print(f"Sandbox created: {sandbox.id}")
    print(f"NFS mount: {sandbox.nfs.mount_command}")

    result = await sandbox.process.run("python /workspace/main.py")
    print(f"Output: {result.stdout}")

    await client.sandbox.delete(sandbox.id)

asyncio.run(main())
"""

STREAM_PROGRAM = """
import asyncio
from workspace_sdk import WorkspaceClient, CreateSandboxParams

async def main():
    client = WorkspaceClient()
    sandbox = await client.sandbox.create(CreateSandboxParams(template="python:3.11"))

    async for event in sandbox.process.run_stream("pip install numpy pandas"):
        if event.type == "stdout":
            print(event.data, end="")
        elif event.type == "stderr":
            print(event.data, end="", file=sys.stderr)
        elif event.type == "exit":
            print(f"\\nExit code: {event.exit_code}")

    await client.sandbox.delete(sandbox.id)

asyncio.run(main())
"""

SYNC_PROGRAM = """
from workspace_sdk.sync import WorkspaceClient, CreateSandboxParams

client = WorkspaceClient()
sandbox = client.sandbox.create(CreateSandboxParams(template="python:3.11"))

result = sandbox.process.run("echo Hello")
print(result.stdout)

for event in sandbox.process.run_stream("pip install requests"):
    if event.type == "stdout":
        print(event.data, end="")

client.sandbox.delete(sandbox.id)
"""

ERROR_PROGRAM = """
from workspace_sdk.errors import (
    WorkspaceError,
    SandboxNotFoundError,
    TemplateNotFoundError,
    SandboxLimitExceededError,
    ProcessTimeoutError,
    CommandFailedError,
    PTYNotFoundError,
    PTYLimitExceededError,
    UnauthorizedError,
    RateLimitedError,
)

try:
    sandbox = await client.sandbox.get("sbx-not-exist")
except SandboxNotFoundError as e:
    print(f"Sandbox not found: {e}")
except WorkspaceError as e:
    print(f"Workspace error [{e.code}]: {e}")
"""

FILLED_IN = {
    "python:3.11": "base",
    "python /workspace": "python3 /workspace",
    # There is no registry in a sandbox without a network.
    "pip install ": "echo installing ",
}


def run_program(server: TestServer, text: str) -> List[str]:
    """Runs a program of the requirements. Returns its lines."""
    for written, filled_in in {**FILLED_IN, "http://workspace-server:8080": server.url}.items():
        text = text.replace(written, filled_in)
    command = [sys.executable, "-c", "import os, sys\n" + text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_asynchronous_program(server: TestServer) -> None:
    lines = run_program(server, CLIENT_PROGRAM)
    assert lines[0].startswith("Sandbox created: sbx-")
    assert lines[1].startswith("NFS mount: mount -t nfs ")
    # Nothing has written the program that it runs.
    assert lines[2:] == ["Output: "]


def test_the_program_that_streams(server: TestServer) -> None:
    assert run_program(server, STREAM_PROGRAM) == ["installing numpy pandas", "", "Exit code: 0"]


def test_the_synchronous_program(server: TestServer) -> None:
    assert run_program(server, SYNC_PROGRAM) == ["Hello", "", "installing requests"]


def test_the_program_that_handles_errors(server: TestServer) -> None:
    head, body = ERROR_PROGRAM.split("\n\ntry:")
    body = ("try:" + body).replace("\n", "\n    ")
    before = "import asyncio\nfrom workspace_sdk import WorkspaceClient\nclient = WorkspaceClient()\n"
    text = f"{before}{head}\nasync def main():\n    {body}\nasyncio.run(main())\n"
    (line,) = run_program(server, text)
    assert line.startswith("Sandbox not found: ")


def test_the_errors() -> None:
    classes: List[type] = [
        SandboxNotFoundError,
        TemplateNotFoundError,
        SandboxLimitExceededError,
        ProcessTimeoutError,
        CommandFailedError,
        PTYNotFoundError,
        PTYLimitExceededError,
        UnauthorizedError,
        RateLimitedError,
    ]
    assert all(issubclass(error, WorkspaceError) for error in classes)

    async def get() -> None:
        async with WorkspaceClient() as client:
            await client.sandbox.get("sbx-not-exist")

    with pytest.raises(SandboxNotFoundError) as raised:
        asyncio.run(get())
    assert raised.value.code == 2001


def test_the_configuration() -> None:
    config = ClientConfig(api_url="http://workspace-server:8080", api_key="key")
    assert (config.timeout, config.retries, config.retry_delay, config.retry_backoff) == (30.0, 3, 1.0, 2.0)
