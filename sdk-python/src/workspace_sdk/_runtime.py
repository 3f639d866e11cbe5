"""Operations that wait. `sync/_runtime.py` has the same names for the synchronous SDK."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager as contextmanager
from typing import TYPE_CHECKING, Any, AsyncIterable, AsyncIterator, Awaitable, Callable, Dict, Optional, TypeVar, Union

from ._lazy import LazyModule

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

Lock = asyncio.Lock
sleep = asyncio.sleep
Cancelled = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)
"""Exceptions by which a call is cancelled from outside."""

Content = Union[str, bytes, bytearray, AsyncIterable[bytes]]
"""Content to upload."""


def open_http(**options: Any) -> httpx.AsyncClient:
    """Returns a new HTTP client."""
    return httpx.AsyncClient(**options)


async def shielded(call: Callable[[], Awaitable[None]]) -> None:
    """Makes a call, and finishes it although the task is being cancelled."""
    task = asyncio.ensure_future(call())
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def beside(other: Callable[[], Awaitable[None]], call: Callable[[], Awaitable[T]]) -> T:
    """Makes a call while another one runs, and returns its result when both are finished.

    If `call` fails, or is cancelled, the other one is cancelled.
    """
    task = asyncio.ensure_future(other())
    try:
        result = await call()
        await task
        return result
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Runs a function that reads or writes files, without blocking the event loop."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


async def connect_websocket(url: str, headers: Dict[str, str], timeout: Optional[float]) -> Any:
    from websockets.asyncio.client import connect

    return await connect(
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


async def closing(iterator: AsyncIterator[Any]) -> None:
    """Closes a generator."""
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()
