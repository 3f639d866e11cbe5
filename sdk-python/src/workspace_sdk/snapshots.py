"""Snapshots and references to them."""

from __future__ import annotations

from typing import AsyncIterator, Dict, List, Mapping, Optional, Union

from ._request import Request, file_path, segment
from ._runtime import Content
from ._service import Service, all_pages, page_of
from .results import Page
from .types import Diff, Reference, SetReference, Snapshot, TreeListing, UploadSnapshotResult

SNAPSHOTS = "/api/v1/snapshots"
REFERENCES = "/api/v1/references"


class SnapshotService(Service):
    """Snapshots of workspaces."""

    async def list(
        self,
        *,
        page: Optional[int] = None,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        label: Union[None, str, List[str]] = None,
        parent: Optional[str] = None,
        reference: Optional[str] = None,
        sort: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[Snapshot]:
        """Returns a page of the snapshots. `label` is `name=value`, or several of these."""
        data = await self._get(
            SNAPSHOTS,
            timeout,
            page=page,
            cursor=cursor,
            limit=limit,
            label=label,
            parent=parent,
            reference=reference,
            sort=sort,
        )
        return page_of(data, Snapshot.decode)

    def list_all(
        self,
        *,
        label: Union[None, str, List[str]] = None,
        parent: Optional[str] = None,
        reference: Optional[str] = None,
        sort: Optional[str] = None,
    ) -> AsyncIterator[Snapshot]:
        """Yields all snapshots."""
        return all_pages(
            lambda cursor: self.list(
                label=label,
                parent=parent,
                reference=reference,
                sort=sort,
                cursor=cursor,
                limit=100,
            )
        )

    async def get(self, snapshot: str, *, timeout: Optional[float] = None) -> Snapshot:
        """Returns a snapshot."""
        return Snapshot.decode(await self._get(_snapshot(snapshot), timeout))

    async def delete(self, snapshot: str, *, timeout: Optional[float] = None) -> None:
        """Deletes a snapshot that nothing uses."""
        await self._delete(_snapshot(snapshot), timeout)

    async def upload(
        self,
        archive: Content,
        *,
        message: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> UploadSnapshotResult:
        """Creates a snapshot from a tar archive, also compressed with gzip or zstd."""
        label = [f"{name}={value}" for name, value in (labels or {}).items()]
        query = {"message": message, "label": label}
        request = Request("POST", SNAPSHOTS, query=query, content=archive, timeout=timeout, transfer=True)
        return UploadSnapshotResult.decode(await self._transport.call(request))

    async def diff(
        self,
        a: str,
        b: str,
        *,
        insight: Optional[bool] = None,
        limit: Optional[int] = None,
        why: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> Diff:
        """Compares two snapshots. `why` adds the commands and notes that led to each difference."""
        query = {"insight": insight, "limit": limit, "why": why}
        request = Request("GET", _diff(a, b), query=query, timeout=timeout, slow=True)
        return Diff.decode(await self._transport.call(request))

    async def patch(self, a: str, b: str, *, limit: Optional[int] = None, timeout: Optional[float] = None) -> str:
        """Returns the differences of two snapshots as a unified diff."""
        request = Request("GET", _diff(a, b), query={"patch": True, "limit": limit}, timeout=timeout, slow=True)
        return (await self._transport.fetch(request)).content.decode("utf-8", "replace")

    def archive(
        self, snapshot: str, *, path: Optional[str] = None, timeout: Optional[float] = None
    ) -> AsyncIterator[bytes]:
        """Yields a tar archive of a snapshot, or of a directory of it."""
        path_of_archive = f"{_snapshot(snapshot)}/archive"
        return self._transport.chunks(Request("GET", path_of_archive, query={"path": path}, timeout=timeout))

    async def read(self, snapshot: str, path: str, *, timeout: Optional[float] = None) -> str:
        """Returns a file of a snapshot as text."""
        return (await self.read_bytes(snapshot, path, timeout=timeout)).decode("utf-8", "replace")

    async def read_bytes(self, snapshot: str, path: str, *, timeout: Optional[float] = None) -> bytes:
        """Returns the content of a file of a snapshot."""
        request = Request("GET", f"{_snapshot(snapshot)}/files/{file_path(path)}", timeout=timeout, slow=True)
        return (await self._transport.fetch(request)).content

    async def tree(
        self,
        snapshot: str,
        path: str = "",
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> TreeListing:
        """Returns an entry of a snapshot and, of a directory, a page of its entries."""
        below = f"/{file_path(path)}" if path.strip("/") else ""
        return TreeListing.decode(
            await self._get(f"{_snapshot(snapshot)}/tree{below}", timeout, page=page, limit=limit)
        )


class ReferenceService(Service):
    """References: names of snapshots, which can be moved."""

    async def list(
        self,
        *,
        prefix: Optional[str] = None,
        page: Optional[int] = None,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Page[Reference]:
        """Returns a page of the references."""
        data = await self._get(REFERENCES, timeout, prefix=prefix, page=page, cursor=cursor, limit=limit)
        return page_of(data, Reference.decode)

    def list_all(self, *, prefix: Optional[str] = None) -> AsyncIterator[Reference]:
        """Yields all references."""
        return all_pages(lambda cursor: self.list(prefix=prefix, cursor=cursor, limit=1000))

    async def get(self, name: str, *, timeout: Optional[float] = None) -> Reference:
        """Returns a reference."""
        return Reference.decode(await self._get(_reference(name), timeout))

    async def set(
        self,
        name: str,
        snapshot: str,
        *,
        if_match: Optional[str] = None,
        if_none_match: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Reference:
        """Creates a reference or moves it. With `if_none_match="*"`, it is only created."""
        headers: Dict[str, str] = {}
        if if_match is not None:
            headers["if-match"] = if_match
        if if_none_match is not None:
            headers["if-none-match"] = if_none_match
        body = SetReference(snapshot=snapshot)
        request = Request("PUT", _reference(name), json=body, headers=headers, timeout=timeout, repeatable=not headers)
        return Reference.decode(await self._transport.call(request))

    async def delete(self, name: str, *, if_match: Optional[str] = None, timeout: Optional[float] = None) -> None:
        """Deletes a reference; its snapshot stays."""
        headers = {} if if_match is None else {"if-match": if_match}
        await self._delete(_reference(name), timeout, headers=headers)


def _snapshot(snapshot: str) -> str:
    return f"{SNAPSHOTS}/{segment(snapshot)}"


def _diff(a: str, b: str) -> str:
    return f"{SNAPSHOTS}/{segment(a)}/diff/{segment(b)}"


def _reference(name: str) -> str:
    return f"{REFERENCES}/{segment(name)}"
