"""Notes of agents about their steps."""

from __future__ import annotations

from typing import Any, AsyncIterator, Dict, Optional

from ._request import segment
from ._service import Service, all_pages, page_of
from ._transport import Transport
from .results import Page
from .types import CreateNote, Note


class NoteService(Service):
    """Notes of one sandbox."""

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        super().__init__(transport)
        self._path = f"/api/v1/sandboxes/{segment(sandbox_id)}/notes"

    async def create(
        self,
        text: str,
        *,
        command: Optional[str] = None,
        data: Optional[Dict[str, Any]] = None,
        timeout: Optional[float] = None,
    ) -> Note:
        """Creates a note, about a command if one is named."""
        return Note.decode(await self._post(self._path, CreateNote(text=text, command=command, data=data), timeout))

    async def list(
        self,
        *,
        command: Optional[str] = None,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        sort: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[Note]:
        """Returns a page of the notes."""
        data = await self._get(self._path, timeout, command=command, cursor=cursor, limit=limit, sort=sort)
        return page_of(data, Note.decode)

    def list_all(self, *, command: Optional[str] = None, sort: Optional[str] = None) -> AsyncIterator[Note]:
        """Yields all notes."""
        return all_pages(lambda cursor: self.list(command=command, sort=sort, cursor=cursor, limit=100))
