"""Server for tests, with the embedded runtime and a data directory of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Optional

REPOSITORY = Path(__file__).resolve().parent.parent.parent
LIMITS = {
    "MAX_COMMANDS": "2000",
    "MAX_CONCURRENT_CREATIONS": "20",
    "POOL_SIZE": "2",
    "RATE_LIMIT": "off",
}


class TestServer:
    """Running server. `close` deletes its sandboxes and stops it."""

    __test__ = False

    def __init__(self) -> None:
        server = Path(os.environ.get("WORKSPACE_SERVER") or REPOSITORY / "target/debug/workspace-server")
        agent = Path(os.environ.get("WORKSPACE_AGENT") or REPOSITORY / "target/debug/workspace-agent")
        self.directory = tempfile.mkdtemp(prefix="workspace-sdk-")
        self.log = open(os.path.join(self.directory, "log"), "wb")  # noqa: SIM115 (closed by `close`)
        settings = {
            "DATA_DIR": os.path.join(self.directory, "data"),
            "AGENT_PROGRAM": str(agent.resolve()),
            "API_PORT": "0",
            "RUNTIME": "embedded",
            "RUST_LOG": "warn",
            **LIMITS,
        }
        self.process = subprocess.Popen(
            [str(server.resolve())],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.url = self._wait_for_address()
        self.key = Path(settings["DATA_DIR"], "api-key").read_text().strip()

    def _wait_for_address(self) -> str:
        assert self.process.stdout is not None
        url: Optional[str] = None
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["API"]:
                url = words[1]
            if words[:2] == ["Try", "it:"]:
                break
        if url is None:
            raise RuntimeError(f"the server did not start: {Path(self.log.name).read_text()}")
        return url

    def close(self) -> None:
        from workspace_sdk.sync import WorkspaceClient

        try:
            with WorkspaceClient(self.url, self.key) as client:
                for sandbox in list(client.sandbox.list_all()):
                    sandbox.delete(complete=False if sandbox.project else None)
        finally:
            self.process.terminate()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.log.close()
            shutil.rmtree(self.directory, ignore_errors=True)
