"""Tries twenty fixes at once, each in a fork of the same sandbox, and keeps the one that passes the test."""

import asyncio
from typing import Optional

from workspace_sdk import Sandbox, WorkspaceClient, with_sandbox

COUNT = 20


async def try_fix(sandbox: Sandbox, number: int) -> Optional[int]:
    async with sandbox:
        await sandbox.files.write("answer", f"{number}\n")
        result = await sandbox.process.run("sh test.sh")
        return number if result.ok else None


async def main() -> None:
    async with WorkspaceClient() as client, with_sandbox(client, template="base") as origin:
        await origin.files.write("test.sh", "test $(cat answer) -eq 17\n")
        forks = (await origin.fork(COUNT)).sandboxes
        results = await asyncio.gather(*(try_fix(fork, number) for number, fork in enumerate(forks)))
        passed = [number for number in results if number is not None]
        print(f"{len(forks)} forks, passed: {passed}")


asyncio.run(main())
