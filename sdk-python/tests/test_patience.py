"""Calls that last longer than their timeout, and servers that stay away."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any, Dict, Iterator, List

import pytest
import websockets.sync.server

import workspace_sdk._request
from server import TestServer
from workspace_sdk.errors import ServerUnreachableError
from workspace_sdk.sync import Sandbox, WorkspaceClient
from workspace_sdk.sync.files import FileService
from workspace_sdk.sync.process import ProcessService
from workspace_sdk.sync.pty import PTYService

ENTRY: Dict[str, Any] = {
    "etag": '"1"',
    "gid": 0,
    "kind": "file",
    "mode": "0644",
    "modified": "2026-01-01T00:00:00Z",
    "path": "/workspace/file",
    "size": 3,
    "uid": 0,
}


class UploadServer:
    """Server that reads one upload in chunks, and responds after its end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            received = b""
            while not received.endswith(b"\r\n0\r\n\r\n"):
                received += connection.recv(65536)
            body = json.dumps(ENTRY).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    def __enter__(self) -> UploadServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join()


def pieces() -> Iterator[bytes]:
    for piece in (b"a", b"b", b"c"):
        time.sleep(0.05)
        yield piece


@pytest.mark.parametrize("timeout", [None, 0.1], ids=["default", "given"])
def test_an_upload_may_last_longer_than_calls(monkeypatch: pytest.MonkeyPatch, timeout: Any) -> None:
    monkeypatch.setattr(workspace_sdk._request, "SLOW_TIMEOUT", 0.1)
    with UploadServer() as server, WorkspaceClient(server.url, "some-key", timeout=0.1) as client:
        files = FileService(client._transport, "sbx-1")
        assert files.write("file", pieces(), timeout=timeout).size == 3


class BrokenServer:
    """Server that begins a stream, and breaks all connections after the first one."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                if self.connections == 1:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: cmd-1\n\n")

    def __enter__(self) -> BrokenServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def test_a_stream_gives_up_a_server_that_stays_away() -> None:
    options: Dict[str, Any] = {"retries": 0, "retry_delay": 0.001, "reconnect_timeout": 0.1}
    with BrokenServer() as server, WorkspaceClient(server.url, "some-key", **options) as client:
        with pytest.raises(ServerUnreachableError):
            list(ProcessService(client._transport, "sbx-1").run_stream("true"))
        assert server.connections > 5


def test_callbacks_get_output_while_input_is_sent(box: Sandbox) -> None:
    seen: List[str] = []

    def on_stdout(text: str) -> None:
        seen.append(text)
        if len(seen) == 1:
            box.files.write("go", "")

    # The input does not fit into the pipe, and is read only after the callback.
    command = "rm -f go; echo ready; until [ -e go ]; do sleep 0.01; done; wc -c"
    result = box.process.run(command, stdin=b"x" * 8_000_000, on_stdout=on_stdout, timeout=30)
    assert result.stdout == "ready\n8000000\n"
    assert "".join(seen) == result.stdout


def test_a_command_with_much_input_and_output_loses_none(box: Sandbox) -> None:
    data = b"0123456789abcdef" * 1_250_000
    result = box.process.run("cat", stdin=data, max_output_size=len(data))
    assert result.stdout_bytes == data
    assert not result.truncated


def test_input_that_cannot_be_sent_ends_the_command(server: TestServer, box: Sandbox) -> None:
    with WorkspaceClient(server.url, server.key) as client:
        service = ProcessService(client._transport, box.id)

        def fail(*_: Any, **__: Any) -> None:
            raise ServerUnreachableError("lost the connection")

        service.write_stdin = fail  # type: ignore[method-assign]
        with pytest.raises(ServerUnreachableError, match="lost the connection"):
            service.run("cat", stdin=b"input", timeout=0, tag="no-input")
    assert box.process.list(tag="no-input")[0].exit_code == 137


def test_a_terminal_whose_connections_break_at_once_is_connected_again_with_growing_delays() -> None:
    accepted = []

    def disconnect(connection: Any) -> None:
        accepted.append(connection.request.path)
        connection.socket.shutdown(socket.SHUT_RDWR)

    with websockets.sync.server.serve(disconnect, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        with WorkspaceClient(url, "some-key", reconnect_timeout=1.0) as client:
            terminal = PTYService(client.sandbox.transport, "sbx-1").attach("pty-1")
            with pytest.raises(ServerUnreachableError, match="the connection to the terminal was lost"):
                terminal.wait()
            terminal.close()
        server.shutdown()
        thread.join()
    # The first one, one at once, and then after at least 25, 50, 100, 200 and 400 ms.
    assert 3 <= len(accepted) <= 7
