"""Mounts the workspace of a sandbox, writes a file there, and reads it in the sandbox.

Mounting needs root on Linux: `sudo -E python nfs_mount.py [DIRECTORY]`.
"""

import sys
import tempfile
from pathlib import Path

from workspace_sdk.errors import MountError
from workspace_sdk.sync import WorkspaceClient

with WorkspaceClient() as client, client.sandbox.create(template="base") as sandbox:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="workspace-"))
    try:
        with sandbox.nfs.mount(directory):
            (directory / "hello.txt").write_text("Hello over NFS\n")
            result = sandbox.process.run("cat hello.txt", check=True)
            print(f"the sandbox reads: {result.stdout}", end="")
    except MountError as error:
        print(error)
    finally:
        # Empty again, because the workspace is unmounted.
        if len(sys.argv) == 1:
            directory.rmdir()
