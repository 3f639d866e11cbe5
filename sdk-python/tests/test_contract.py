"""The programs of the requirements, as they are written there, but with the template `base`."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import List

import pytest

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


def test_the_asynchronous_program() -> None:
    async def main() -> None:
        client = WorkspaceClient(
            api_url=os.environ["WORKSPACE_API_URL"],
            api_key=os.environ["WORKSPACE_API_KEY"],
            timeout=30.0,
            retries=3,
        )
        sandbox = await client.sandbox.create(CreateSandboxParams(template="base", name="my-sandbox"))
        print(f"Sandbox created: {sandbox.id}")
        print(f"NFS mount: {sandbox.nfs.mount_command}")
        result = await sandbox.process.run("echo Hello")
        print(f"Output: {result.stdout}")
        async for event in sandbox.process.run_stream("echo numpy; echo pandas >&2"):
            if event.type == "stdout":
                print(event.data, end="")
            elif event.type == "stderr":
                print(event.data, end="", file=sys.stderr)
            elif event.type == "exit":
                print(f"\nExit code: {event.exit_code}")
        await client.sandbox.delete(sandbox.id)
        await client.close()

    printed = io.StringIO()
    with redirect_stdout(printed):
        asyncio.run(main())
    lines = printed.getvalue().splitlines()
    assert lines[0].startswith("Sandbox created: sbx-")
    assert lines[1].startswith("NFS mount: mount -t nfs ")
    assert lines[2:] == ["Output: Hello", "", "numpy", "", "Exit code: 0"]


def test_the_synchronous_program() -> None:
    from workspace_sdk.sync import CreateSandboxParams, WorkspaceClient

    client = WorkspaceClient()
    sandbox = client.sandbox.create(CreateSandboxParams(template="base"))
    assert sandbox.process.run("echo Hello").stdout == "Hello\n"
    streamed = [event.data for event in sandbox.process.run_stream("echo requests") if event.type == "stdout"]
    assert streamed == ["requests\n"]
    client.sandbox.delete(sandbox.id)
    client.close()


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
