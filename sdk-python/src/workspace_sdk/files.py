"""Files of a sandbox."""

from __future__ import annotations

import json
import os
from typing import Any, AsyncIterator, Dict, Optional, Sequence, Union

from ._archive import CHUNK_SIZE, ArchiveReader, ArchiveWriter
from ._model import encode
from ._request import Deadline, Request, file_path, sandbox_path, segment
from ._runtime import Content, closing, in_thread, sleep
from ._service import Service
from ._sse import COMMENT
from ._transport import Transport, is_disconnection, reconnect_delay
from .errors import NotFoundError, ServerUnreachableError, WorkspaceError, error_of_fields
from .results import Progress, ProgressCallback, WatchDroppedEvent, WatchEvent, decode_watch_event
from .types import (
    CreateSignedUrl,
    FileBatchResult,
    FileEntry,
    FileListing,
    FileOperation,
    FileOperationChmod,
    FileOperationCopy,
    FileOperationMkdir,
    FileOperationMove,
    SignedMethod,
    SignedUrl,
    TreeResult,
)

LocalPath = Union[str, "os.PathLike[str]"]


class FileService(Service):
    """Files of one sandbox. Relative paths start in `/workspace`."""

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        super().__init__(transport)
        self._path = f"/api/v1/sandboxes/{segment(sandbox_id)}"

    async def read(
        self,
        path: str,
        *,
        start: Optional[int] = None,
        end: Optional[int] = None,
        if_match: Optional[str] = None,
        encoding: str = "utf-8",
        errors: str = "replace",
        timeout: Optional[float] = None,
    ) -> str:
        """Returns a file as text. `start` and `end` are offsets in bytes, as in a slice."""
        data = await self.read_bytes(path, start=start, end=end, if_match=if_match, timeout=timeout)
        return data.decode(encoding, errors)

    async def read_bytes(
        self,
        path: str,
        *,
        start: Optional[int] = None,
        end: Optional[int] = None,
        if_match: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Returns the content of a file."""
        if is_empty_range(start, end):
            return b""
        pieces = []
        async for piece in self.read_stream(path, start=start, end=end, if_match=if_match, timeout=timeout):
            pieces.append(piece)
        return b"".join(pieces)

    async def read_stream(
        self,
        path: str,
        *,
        start: Optional[int] = None,
        end: Optional[int] = None,
        if_match: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AsyncIterator[bytes]:
        """Yields the content of a file in pieces."""
        if is_empty_range(start, end):
            return
        request = Request("GET", self._file(path), timeout=timeout, headers=read_headers(start, end, if_match))
        chunks = self._transport.chunks(request)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await closing(chunks)

    async def write(
        self,
        path: str,
        content: Content,
        *,
        mode: Optional[str] = None,
        mkdirs: Optional[bool] = None,
        if_match: Optional[str] = None,
        if_none_match: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> FileEntry:
        """Writes a file, atomically: text, bytes, or an iterator of bytes, which is read while it is sent.

        `mode` is octal, such as `"0755"`. With `if_match`, the file is replaced only if it has that `etag`; with
        `if_none_match="*"`, it is only created.
        """
        body = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        if isinstance(body, bytearray):
            body = bytes(body)
        headers = {"if-match": if_match, "if-none-match": if_none_match}
        request = Request(
            "PUT",
            self._file(path),
            query={"mode": mode, "mkdirs": mkdirs},
            content=body,
            headers={name: value for name, value in headers.items() if value is not None},
            timeout=timeout,
            # After a lost connection the condition may not hold any more, because the file was written.
            repeatable=if_match is None and if_none_match is None,
            transfer=True,
        )
        return FileEntry.decode(await self._transport.call(request))

    async def list(
        self,
        path: str = "",
        *,
        depth: Optional[int] = None,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        follow: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> FileListing:
        """Returns an entry and, of a directory, a page of the entries below it."""
        route = f"{self._path}/entries/{file_path(sandbox_path(path))}"
        data = await self._get(route, timeout, depth=depth, page=page, limit=limit, follow=follow)
        return FileListing.decode(data)

    async def list_all(
        self, path: str = "", *, depth: Optional[int] = None, follow: Optional[bool] = None
    ) -> AsyncIterator[FileEntry]:
        """Yields all entries below a directory, ordered by path."""
        page = seen = 0
        while True:
            page += 1
            listing = await self.list(path, depth=depth, page=page, limit=1000, follow=follow)
            for entry in listing.items or []:
                yield entry
            seen += listing.limit
            if seen >= listing.total:
                return

    async def stat(self, path: str, *, follow: Optional[bool] = None, timeout: Optional[float] = None) -> FileEntry:
        """Returns one entry."""
        return (await self.list(path, limit=1, follow=follow, timeout=timeout)).entry

    async def exists(self, path: str, *, timeout: Optional[float] = None) -> bool:
        """Returns true if there is an entry at the path."""
        try:
            await self.stat(path, timeout=timeout)
        except NotFoundError as error:
            if error.name != "PATH_NOT_FOUND":
                raise
            return False
        return True

    async def remove(self, path: str, *, recursive: Optional[bool] = None, timeout: Optional[float] = None) -> None:
        """Removes a file or directory; one with content only if `recursive` is true."""
        await self._delete(self._file(path), timeout, query={"recursive": recursive})

    async def batch(
        self, operations: Sequence[FileOperation], *, check: bool = True, timeout: Optional[float] = None
    ) -> FileBatchResult:
        """Performs operations in order, up to the first that fails. Earlier ones are not undone.

        The error of that one is raised, with `index` and `completed` in its details; without `check`, it is in the
        result.
        """
        body = {"operations": [absolute(encode(operation)) for operation in operations]}
        data = await self._post(f"{self._path}/files", body, timeout, slow=True)
        result = FileBatchResult.decode(data)
        if check and result.failed is not None:
            failed = data["failed"]
            error = error_of_fields(failed["error"])
            error.details.update(index=failed["index"], completed=result.completed)
            raise error
        return result

    async def mkdir(
        self,
        path: str,
        *,
        mode: Optional[str] = None,
        parents: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """Creates a directory; with `parents`, also those above it, and an existing one is no error."""
        operation = FileOperationMkdir(path=path, mode=mode, parents=parents)
        await self.batch([operation], timeout=timeout)

    async def move(
        self, from_: str, to: str, *, replace: Optional[bool] = None, timeout: Optional[float] = None
    ) -> None:
        """Renames a file or directory."""
        operation = FileOperationMove(from_=from_, to=to, replace=replace)
        await self.batch([operation], timeout=timeout)

    async def copy(
        self,
        from_: str,
        to: str,
        *,
        replace: Optional[bool] = None,
        recursive: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """Copies a file, or with `recursive` a directory."""
        operation = FileOperationCopy(from_=from_, to=to, replace=replace, recursive=recursive)
        await self.batch([operation], timeout=timeout)

    async def chmod(self, path: str, mode: str, *, timeout: Optional[float] = None) -> None:
        """Changes permission bits, in octal."""
        await self.batch([FileOperationChmod(path=path, mode=mode)], timeout=timeout)

    async def watch(
        self, path: str = "", *, recursive: Optional[bool] = None, timeout: Optional[float] = None
    ) -> AsyncIterator[WatchEvent]:
        """Yields changes below a directory, until an event `ended`.

        Changes while the connection is lost are not repeated: after it was made again, there is an event `dropped`.
        List the directory then.
        """
        retry, deadline, was_open = -1, None, False
        while True:
            route = f"{self._path}/watch/{file_path(sandbox_path(path))}"
            request = Request("GET", route, query={"recursive": recursive}, timeout=timeout)
            failure: WorkspaceError = ServerUnreachableError("the stream of changes ended")
            events = self._transport.events(request)
            try:
                async for message in events:
                    if retry >= 0 and was_open:
                        yield WatchDroppedEvent()
                    retry, deadline, was_open = -1, None, True
                    if message.event == COMMENT:
                        continue
                    event = decode_watch_event(json.loads(message.data))
                    if event is None:
                        continue
                    yield event
                    if event.type == "ended":
                        return
            except WorkspaceError as error:
                if not is_disconnection(error):
                    raise
                failure = error
            finally:
                await closing(events)
            retry += 1
            config = self._transport.config
            deadline = deadline or Deadline(config.reconnect_timeout or None)
            delay = reconnect_delay(retry, config)
            if deadline.has_passed(delay):
                raise failure
            await sleep(delay)

    async def upload(
        self,
        local: LocalPath,
        path: str = "",
        *,
        mkdirs: Optional[bool] = None,
        on_progress: Optional[ProgressCallback] = None,
        timeout: Optional[float] = None,
    ) -> Union[TreeResult, FileEntry]:
        """Copies a file, or a directory with its content as one archive, into the sandbox.

        Files that exist are replaced; others stay. `on_progress` is called from another thread.
        """
        if not os.path.isdir(local):
            mode = f"{os.stat(local).st_mode & 0o777:04o}"
            content = read_file(local, on_progress)
            return await self.write(path, content, mode=mode, mkdirs=mkdirs, timeout=timeout)
        reader = ArchiveReader(local, on_progress)
        try:
            return await self.upload_archive(path, read_archive(reader), mkdirs=mkdirs, timeout=timeout)
        finally:
            reader.close()

    async def download(
        self,
        path: str,
        local: LocalPath,
        *,
        on_progress: Optional[ProgressCallback] = None,
        timeout: Optional[float] = None,
    ) -> Progress:
        """Copies a file, or a directory with its content as one archive, to this machine.

        Files that exist are replaced; others stay. Returns the number and size of the files.
        """
        entry = await self.stat(path, timeout=timeout)
        if entry.kind != "directory":
            return await self._download_file(path, os.fspath(local), on_progress, timeout)
        writer = ArchiveWriter(local, on_progress)
        try:
            async for piece in self.download_archive(path, timeout=timeout):
                await in_thread(writer.write, piece)
            return await in_thread(writer.finish)
        finally:
            writer.close()

    async def upload_archive(
        self, path: str, archive: Content, *, mkdirs: Optional[bool] = None, timeout: Optional[float] = None
    ) -> TreeResult:
        """Writes the members of a tar archive, also compressed with gzip or zstd, into a directory."""
        query = {"archive": "tar", "mkdirs": mkdirs}
        request = Request("PUT", self._file(path), query=query, content=archive, timeout=timeout, transfer=True)
        return TreeResult.decode(await self._transport.call(request))

    async def download_archive(self, path: str = "", *, timeout: Optional[float] = None) -> AsyncIterator[bytes]:
        """Yields a tar archive of a directory, with paths relative to it."""
        request = Request("GET", self._file(path), query={"archive": "tar"}, timeout=timeout)
        chunks = self._transport.chunks(request)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await closing(chunks)

    async def signed_url(
        self,
        path: str,
        *,
        method: SignedMethod = "GET",
        expires_in_seconds: Optional[int] = None,
        max_bytes: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> SignedUrl:
        """Creates a URL with which a program without a key reads or writes one file."""
        body = CreateSignedUrl(
            path=sandbox_path(path), method=method, expires_in_seconds=expires_in_seconds, max_bytes=max_bytes
        )
        return SignedUrl.decode(await self._post(f"{self._path}/signed-url", body, timeout, repeatable=True))

    def _file(self, path: str) -> str:
        return f"{self._path}/files/{file_path(sandbox_path(path))}"

    async def _download_file(
        self, path: str, local: str, on_progress: Optional[ProgressCallback], timeout: Optional[float]
    ) -> Progress:
        # The file is complete or absent.
        partial = f"{local}.{os.getpid()}.part"
        size = 0
        try:
            with open(partial, "wb") as file:
                async for piece in self.read_stream(path, timeout=timeout):
                    await in_thread(file.write, piece)
                    size += len(piece)
                    if on_progress is not None:
                        on_progress(Progress(0, size))
            os.replace(partial, local)
        finally:
            if os.path.exists(partial):
                os.unlink(partial)
        return Progress(1, size)


def absolute(operation: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the operation with absolute paths."""
    is_path = {"path", "from", "to"}
    return {name: sandbox_path(value) if name in is_path else value for name, value in operation.items()}


def read_headers(start: Optional[int], end: Optional[int], if_match: Optional[str]) -> Dict[str, str]:
    """Returns the headers for a part of a file: `start` inclusive, `end` exclusive."""
    headers: Dict[str, str] = {}
    if start is not None or end is not None:
        last = "" if end is None else str(end - 1)
        headers["range"] = f"bytes={start or 0}-{last}"
    if if_match is not None:
        headers["if-match"] = if_match
    return headers


def is_empty_range(start: Optional[int], end: Optional[int]) -> bool:
    """Returns true for a range without bytes, which HTTP cannot express."""
    if (start or 0) < 0 or (end or 0) < 0:
        raise ValueError("`start` and `end` must not be negative")
    return end is not None and end <= (start or 0)


async def read_file(local: LocalPath, on_progress: Optional[ProgressCallback]) -> AsyncIterator[bytes]:
    """Yields the content of a file of this machine."""
    size = 0
    with open(local, "rb") as file:
        while True:
            piece = await in_thread(file.read, CHUNK_SIZE)
            if not piece:
                return
            yield piece
            size += len(piece)
            if on_progress is not None:
                on_progress(Progress(0, size))


async def read_archive(reader: ArchiveReader) -> AsyncIterator[bytes]:
    """Yields the pieces of an archive."""
    while True:
        piece = await in_thread(reader.read)
        if piece is None:
            return
        yield piece
