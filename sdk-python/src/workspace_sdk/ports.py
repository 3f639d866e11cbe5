"""Ports of a sandbox: connections and previews."""

from __future__ import annotations

from typing import Any, List, Optional

from ._request import segment
from ._runtime import Lock
from ._service import Service
from ._transport import Transport
from ._websocket import is_closed
from .errors import ServerUnreachableError
from .pty import open_websocket
from .types import CreatePreview, HostHeader, ListeningPort, Preview

MESSAGE_MAX = 256 << 10
"""Maximum size of a message in bytes."""


class PortConnection:
    """TCP connection to a port of a sandbox. Iterate over it for the bytes that arrive."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._has_ended = False
        self._peer_has_ended = False
        self._writing = Lock()

    def __aiter__(self) -> PortConnection:
        return self

    async def __anext__(self) -> bytes:
        if self._peer_has_ended:
            raise StopAsyncIteration
        try:
            message = await self._socket.recv()
        except Exception as error:
            if not is_closed(error):
                raise
            if getattr(getattr(error, "rcvd", None), "code", None) in (1000, None) and self._has_ended:
                raise StopAsyncIteration from None
            raise ServerUnreachableError(f"the connection to the port was lost: {error}") from error
        if not message:
            self._peer_has_ended = True
            raise StopAsyncIteration
        return bytes(message)

    async def __aenter__(self) -> PortConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def write(self, data: bytes) -> None:
        """Sends bytes. Waits while the program in the sandbox does not read."""
        async with self._writing:
            for start in range(0, len(data), MESSAGE_MAX):
                await self._send(bytes(data[start : start + MESSAGE_MAX]))

    async def end(self) -> None:
        """Ends this direction, as `shutdown` of a socket. The other one stays open."""
        async with self._writing:
            if not self._has_ended:
                self._has_ended = True
                await self._send(b"")

    async def read(self) -> bytes:
        """Returns everything until the program in the sandbox ends its direction."""
        pieces = []
        async for piece in self:
            pieces.append(piece)
        return b"".join(pieces)

    async def close(self) -> None:
        """Closes the connection in both directions."""
        await self._socket.close()

    async def _send(self, data: bytes) -> None:
        try:
            await self._socket.send(data)
        except Exception as error:
            if not is_closed(error):
                raise
            raise ServerUnreachableError(f"the connection to the port was lost: {error}") from error


class PortService(Service):
    """TCP ports on which programs of one sandbox listen."""

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        super().__init__(transport)
        self._path = f"/api/v1/sandboxes/{segment(sandbox_id)}/ports"

    async def list(self, *, timeout: Optional[float] = None) -> List[ListeningPort]:
        """Returns the ports on which programs listen."""
        data = await self._get(self._path, timeout)
        return [ListeningPort.decode(item) for item in data["items"]]

    async def preview(
        self,
        port: int,
        *,
        expires_in_seconds: Optional[int] = None,
        host_header: Optional[HostHeader] = None,
        timeout: Optional[float] = None,
    ) -> Preview:
        """Creates a URL that shows the HTTP server on a port to everybody who has it, without a key."""
        body = CreatePreview(expires_in_seconds=expires_in_seconds, host_header=host_header)
        return Preview.decode(await self._post(f"{self._path}/{int(port)}", body, timeout, repeatable=True))

    async def connect(self, port: int, *, timeout: Optional[float] = None) -> PortConnection:
        """Connects to a port on the loopback of the sandbox."""
        socket = await open_websocket(self._transport, f"{self._path}/{int(port)}/connect", timeout)
        return PortConnection(socket)
