"""TCP proxy that cuts, delays or truncates what a server sends."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Callable, List, Literal
from urllib.parse import urlsplit

Plan = Callable[[int], int]
"""Returns the number of bytes of a response to pass before the fault, by the number of the connection."""

Fault = Literal["reset", "truncated", "delayed"]
"""Fault of a connection: it is closed with a reset or in order, or passes the rest of its bytes after a delay."""

DELAY = 0.003

UNLIMITED = 1 << 62


class Proxy:
    """Proxy in front of a server. `plan` says when the `fault` of each connection happens."""

    def __init__(self, url: str, plan: Plan = lambda _: UNLIMITED, fault: Fault = "reset", piece: int = 65536) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._fault, self._piece = fault, piece
        self.plan = plan
        self.connections = 0
        self.passed: List[int] = []
        self._open: List[socket.socket] = []
        self._threads: List[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut_all()
        for thread in self._threads:
            thread.join()

    def cut_all(self) -> None:
        """Cuts all connections that are open."""
        for connection in self._open:
            end(connection, abort=True)
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            upstream = socket.create_connection(self._target)
            for connection in (client, upstream):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, upstream]
            self._start(self._pass_requests, client, upstream)
            self._start(self._pass_responses, upstream, client, self.plan(number))

    def _start(self, function: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pass_requests(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while True:
                data = client.recv(65536)
                if not data:
                    break
                upstream.sendall(data)
        except OSError:
            pass
        end(upstream, abort=False)

    def _pass_responses(self, upstream: socket.socket, client: socket.socket, limit: int) -> None:
        passed = 0
        try:
            while passed < limit:
                data = upstream.recv(min(self._piece, limit - passed))
                if not data:
                    break
                client.sendall(data)
                passed += len(data)
                if passed == limit and self._fault == "delayed":
                    time.sleep(DELAY)
                    limit = UNLIMITED
        except OSError:
            pass
        self.passed.append(passed)
        end(client, abort=self._fault == "reset" and passed >= limit)
        end(upstream, abort=True)


def end(connection: socket.socket, abort: bool) -> None:
    try:
        if abort:
            # A reset instead of an orderly end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()
