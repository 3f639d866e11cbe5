"""Operations that block, under the names of the asynchronous `_runtime.py`."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, TypeVar, Union

from .._lazy import LazyModule

if TYPE_CHECKING:
    import httpx
else:
    httpx = LazyModule("httpx")

T = TypeVar("T")

__all__ = [
    "Cancelled",
    "Content",
    "Lock",
    "beside",
    "closing",
    "connect_websocket",
    "contextmanager",
    "in_thread",
    "open_http",
    "shielded",
    "sleep",
]

Lock = threading.Lock
sleep = time.sleep
Cancelled = (GeneratorExit, KeyboardInterrupt)
"""Exceptions by which a call is cancelled from outside."""

Content = Union[str, bytes, bytearray, Iterable[bytes]]
"""Content to upload."""


def open_http(**options: Any) -> httpx.Client:
    """Returns a new HTTP client."""
    return httpx.Client(**options)


def shielded(call: Callable[[], None]) -> None:
    """Makes a call, which nothing but a signal can interrupt here."""
    call()


def beside(other: Callable[[], None], call: Callable[[], T]) -> T:
    """Makes a call while another one runs in a thread, and returns its result when both are finished.

    If `call` fails, the other one is left alone.
    """
    failures: List[BaseException] = []

    def run() -> None:
        try:
            other()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    result = call()
    thread.join()
    if failures:
        raise failures[0]
    return result


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Runs a function that reads or writes files."""
    return function(*arguments)


def connect_websocket(url: str, headers: Dict[str, str], timeout: Optional[float]) -> Any:
    from websockets.sync.client import connect

    connection: Any = connect(
        url,
        additional_headers=headers,
        open_timeout=timeout,
        ping_interval=20,
        ping_timeout=20,
        close_timeout=2,
        max_size=None,
        max_queue=16,
        compression=None,
    )
    # Recent versions warn of connections that are not entered; `close` is what leaving does.
    return connection.__enter__()


def closing(iterator: Iterator[Any]) -> None:
    """Closes a generator."""
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
