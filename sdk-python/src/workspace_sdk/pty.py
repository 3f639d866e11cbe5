"""Terminals in a sandbox."""

from __future__ import annotations

import json
import time
from typing import Any, AsyncIterator, Mapping, Optional, Union

from ._output import Utf8Decoder
from ._request import Deadline, segment
from ._runtime import Lock, connect_websocket, sleep
from ._service import Service
from ._transport import Transport, is_disconnection, reconnect_delay
from ._websocket import failure_of_handshake, is_closed, websocket_url
from .errors import ServerUnreachableError, WorkspaceError
from .results import PTYErrorEvent, PTYEvent, PTYExitEvent, PTYGapEvent, PTYOutputEvent
from .types import CreateTicket, OpenTerminal, ResizeTerminal, TerminalInfo, TerminalTicket

STABLE_AFTER = 5.0
"""Seconds after which a connection is progress, although nothing was received."""


class PTYHandle:
    """Terminal. Iterate over it for its output; if the connection breaks, it continues where it stopped.

    Input is never sent twice: what was sent just before a connection broke may be lost.
    """

    def __init__(
        self, service: PTYService, pty_id: str, url: str, from_: int = 0, timeout: Optional[float] = None
    ) -> None:
        self.id = pty_id
        """Id of the terminal."""
        self.websocket_url = url
        """URL of its WebSocket."""
        self._service = service
        self._offset = from_
        self._timeout = timeout
        self._socket: Any = None
        self._dialling = Lock()
        self._was_connected = False
        self._is_closed = False
        # Attempts to connect since the last progress, and the time limit of them.
        self._attempts = 0
        self._connected_at = 0.0
        self._deadline: Optional[Deadline] = None
        self._size: Optional[ResizeTerminal] = None
        self._exit_code: Optional[int] = None
        self._events = self._all_events()

    def __repr__(self) -> str:
        return f"<PTYHandle {self.id}>"

    def __aiter__(self) -> PTYHandle:
        return self

    async def __anext__(self) -> PTYEvent:
        return await self._events.__anext__()

    async def __aenter__(self) -> PTYHandle:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def offset(self) -> int:
        """Offset after the output that was received, from which another connection can continue."""
        return self._offset

    async def connect(self) -> None:
        """Connects now, instead of with the first input or output."""
        await self._connection()

    async def write(self, data: Union[str, bytes]) -> None:
        """Sends input, such as `"ls\\n"`."""
        await self._send(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(data))

    async def resize(self, cols: int, rows: int) -> None:
        """Sets the size of the terminal."""
        self._size = ResizeTerminal(cols=cols, rows=rows)
        await self._service.resize(self.id, cols, rows)

    async def kill(self) -> None:
        """Closes the terminal and kills its processes."""
        await self._service.kill(self.id)

    async def wait(self) -> int:
        """Reads the output to its end, and returns the exit code of the shell."""
        async for _ in self:
            pass
        if self._exit_code is None:
            raise WorkspaceError("the terminal was closed before its shell exited", name="STREAM_CLOSED")
        return self._exit_code

    async def close(self) -> None:
        """Disconnects. The terminal stays; `pty.attach` connects to it again."""
        self._is_closed = True
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _connection(self, broken: Any = None) -> Any:
        """Returns the connection, or a new one if there is none or only the broken one."""
        async with self._dialling:
            self._check_open()
            if self._socket is None or self._socket is broken:
                self._socket = await self._dial(is_lost=self._socket is not None)
            return self._socket

    async def _dial(self, is_lost: bool) -> Any:
        """Opens a connection. Waits before each attempt to replace a lost one, but the first."""
        service = self._service
        failure: WorkspaceError = ServerUnreachableError("the connection to the terminal was lost")
        if is_lost and time.monotonic() - self._connected_at >= STABLE_AFTER:
            self._note_progress()
        while True:
            if is_lost:
                self._deadline = self._deadline or Deadline(service.config.reconnect_timeout or None)
                delay = reconnect_delay(self._attempts, service.config)
                if self._deadline.has_passed(delay):
                    raise failure
                self._attempts += 1
                await sleep(delay)
            self._check_open()
            try:
                if self._was_connected:
                    # After a restart of the server, input would be lost until the guest agent is connected.
                    await service.check(self.id, self._size)
                socket = await service.dial(self.id, self._offset, self._timeout)
                self._was_connected, self._connected_at = True, time.monotonic()
                if not self._is_closed:
                    return socket
                # It was closed meanwhile.
                await socket.close()
            except WorkspaceError as error:
                if not is_disconnection(error):
                    raise
                failure, is_lost = error, True

    def _check_open(self) -> None:
        if self._is_closed:
            raise WorkspaceError("the connection to the terminal is closed", name="STREAM_CLOSED")

    def _note_progress(self) -> None:
        self._attempts, self._deadline = 0, None

    async def _send(self, data: bytes) -> None:
        socket = await self._connection()
        while True:
            try:
                await socket.send(data)
                return
            except Exception as error:
                if not is_closed(error):
                    raise
            socket = await self._connection(broken=socket)

    async def _all_events(self) -> AsyncIterator[PTYEvent]:
        decoder = Utf8Decoder()
        socket = await self._connection()
        while True:
            try:
                message = await socket.recv()
            except Exception as error:
                if not is_closed(error):
                    raise
                if self._is_closed:
                    return
                try:
                    socket = await self._connection(broken=socket)
                except WorkspaceError:
                    if self._is_closed:
                        return
                    raise
                continue
            self._note_progress()
            if isinstance(message, bytes):
                offset, self._offset = self._offset, self._offset + len(message)
                yield PTYOutputEvent(decoder.decode(message), message, offset)
                continue
            data = json.loads(message)
            kind = data.get("type")
            if kind in ("gap", "exit"):
                rest = decoder.finish()
                if rest:
                    yield PTYOutputEvent(rest, b"", self._offset)
            if kind == "gap":
                self._offset = data["to"]
                yield PTYGapEvent(data["from"], data["to"])
            elif kind == "error":
                yield PTYErrorEvent(data.get("message", ""))
            elif kind == "exit":
                self._exit_code = data["exitCode"]
                await self.close()
                yield PTYExitEvent(data["exitCode"])
                return


class PTYService(Service):
    """Terminals of one sandbox."""

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        super().__init__(transport)
        self._path = f"/api/v1/sandboxes/{segment(sandbox_id)}/pty"

    async def create(
        self,
        *,
        cols: int = 80,
        rows: int = 24,
        shell: Optional[str] = None,
        command: Optional[str] = None,
        cwd: Optional[str] = None,
        envs: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> PTYHandle:
        """Opens a terminal. Without `command`, its shell is interactive."""
        body = OpenTerminal(
            cols=cols, rows=rows, shell=shell, command=command, cwd=cwd, envs=dict(envs) if envs else None, user=user
        )
        terminal = TerminalInfo.decode(await self._post(self._path, body, timeout))
        return PTYHandle(self, terminal.id, terminal.websocket_url, timeout=timeout)

    async def attach(self, pty_id: str, *, from_: int = 0, timeout: Optional[float] = None) -> PTYHandle:
        """Connects to an open terminal; its output begins at the offset `from_`, or with what is retained."""
        url = websocket_url(self.config.api_url, self._socket_path(pty_id))
        handle = PTYHandle(self, pty_id, url, from_, timeout)
        await handle.connect()
        return handle

    async def resize(self, pty_id: str, cols: int, rows: int, *, timeout: Optional[float] = None) -> None:
        """Sets the size of a terminal."""
        body = ResizeTerminal(cols=cols, rows=rows)
        await self._post(f"{self._path}/{segment(pty_id)}/resize", body, timeout, repeatable=True)

    async def kill(self, pty_id: str, *, timeout: Optional[float] = None) -> None:
        """Closes a terminal and kills its processes."""
        await self._delete(f"{self._path}/{segment(pty_id)}", timeout)

    async def ticket(
        self, pty_id: str, *, read_only: Optional[bool] = None, timeout: Optional[float] = None
    ) -> TerminalTicket:
        """Creates a ticket for one connection to a terminal, for a browser: `?ticket=` of `websocket_url`."""
        path = f"{self._path}/{segment(pty_id)}/ticket"
        body = CreateTicket(read_only=read_only)
        return TerminalTicket.decode(await self._post(path, body, timeout, repeatable=True))

    @property
    def config(self) -> Any:
        """Configuration of the client."""
        return self._transport.config

    async def check(self, pty_id: str, size: Optional[ResizeTerminal]) -> None:
        """Checks that the guest agent is connected. Errors of a terminal that has ended are left to the connection."""
        try:
            if size is None:
                await self._get(self._path.rsplit("/", 1)[0] + "/process", None, limit=1)
            else:
                await self.resize(pty_id, size.cols, size.rows)
        except WorkspaceError as error:
            if is_disconnection(error):
                raise

    async def dial(self, pty_id: str, offset: int, timeout: Optional[float]) -> Any:
        """Opens the WebSocket of a terminal once."""
        path = f"{self._socket_path(pty_id)}?binary=true&from={offset}"
        return await open_websocket(self._transport, path, timeout)

    def _socket_path(self, pty_id: str) -> str:
        return f"{self._path}/{segment(pty_id)}/ws"


async def open_websocket(transport: Transport, path: str, timeout: Optional[float]) -> Any:
    """Opens a WebSocket of the API."""
    config = transport.config
    limit = (config.timeout if timeout is None else timeout) or None
    headers = {name: value for name, value in transport.headers.items() if name != "accept"}
    try:
        return await connect_websocket(websocket_url(config.api_url, path), headers, limit)
    except Exception as error:
        failure = failure_of_handshake(error, config.api_url, limit)
        if failure is None:
            raise
        raise failure from error
