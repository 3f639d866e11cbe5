"""Types into a terminal, and reads what it shows."""

import asyncio

from workspace_sdk import WorkspaceClient, with_sandbox


async def main() -> None:
    async with WorkspaceClient() as client, with_sandbox(client, template="base") as sandbox:
        async with await sandbox.pty.create(cols=80, rows=24, shell="/bin/sh") as terminal:
            await terminal.resize(100, 40)
            await terminal.write("stty size; exit 3\n")
            async for event in terminal:
                if event.type == "output":
                    print(event.data, end="")
                elif event.type == "exit":
                    print(f"the shell exited with {event.exit_code}")


asyncio.run(main())
