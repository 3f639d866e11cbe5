"""Shows the output of a build while it runs, and stops at its first error."""

import asyncio
import sys

from workspace_sdk import WorkspaceClient, with_sandbox

BUILD = """
for part in parser compiler linker; do
    echo "building the $part"
    test "$part" != linker || { echo "error: no main function" >&2; exit 2; }
done
"""


async def main() -> None:
    async with WorkspaceClient() as client, with_sandbox(client, template="base") as sandbox:
        await sandbox.files.write("build.sh", BUILD)
        async for event in sandbox.process.run_stream(["sh", "build.sh"], timeout=600):
            if event.type == "stdout":
                print(event.data, end="")
            elif event.type == "stderr":
                print(event.data, end="", file=sys.stderr)
            elif event.type == "exit":
                print(f"the build ended with {event.exit_code}")


asyncio.run(main())
