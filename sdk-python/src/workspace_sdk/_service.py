"""Base of the services."""

from __future__ import annotations

from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Optional, TypeVar

from ._request import Request, new_idempotency_key
from ._transport import Transport
from .results import Page

T = TypeVar("T")


class Service:
    """Group of methods that share a transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def _get(self, path: str, timeout: Optional[float], agent: Optional[str] = None, **query: Any) -> Any:
        return await self._transport.call(
            Request("GET", path, query=query, timeout=timeout, headers=agent_header(agent))
        )

    async def _post(self, path: str, body: Any, timeout: Optional[float], **options: Any) -> Any:
        return await self._transport.call(Request("POST", path, json=body, timeout=timeout, **options))

    async def _delete(self, path: str, timeout: Optional[float], **options: Any) -> Any:
        return await self._transport.call(Request("DELETE", path, timeout=timeout, **options))


def agent_header(agent: Optional[str]) -> Dict[str, str]:
    return {} if agent is None else {"x-agent": agent}


def idempotency_header(key: Optional[str]) -> Dict[str, str]:
    return {"idempotency-key": key or new_idempotency_key()}


def page_of(data: Any, decode: Callable[[Any], T]) -> Page[T]:
    """Creates a page from the parsed response."""
    return Page(
        items=[decode(item) for item in data["items"]],
        limit=data.get("limit"),
        total=data.get("total"),
        page=data.get("page"),
        next=data.get("next"),
    )


async def all_pages(fetch: Callable[[Optional[str]], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """Yields the items of all pages."""
    cursor: Optional[str] = None
    while True:
        page = await fetch(cursor)
        for item in page.items:
            yield item
        if page.next is None:
            return
        cursor = str(page.next)
