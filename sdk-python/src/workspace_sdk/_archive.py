"""Archives of directories on this machine."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Callable, Iterator, Optional, Union

from ._lazy import LazyModule
from .results import Progress, ProgressCallback

if TYPE_CHECKING:
    import tarfile
else:
    tarfile = LazyModule("tarfile")

CHUNK_SIZE = 256 << 10
"""Size in bytes of the pieces of an upload."""

_QUEUE_MAX = 8


class _Cancelled(Exception):
    """The reader of an archive has stopped."""


class _QueueFile:
    """File that passes what is written to a queue, in pieces of at least `CHUNK_SIZE` bytes."""

    def __init__(self, pieces: queue.Queue[Any], stopped: threading.Event) -> None:
        self._pieces, self._stopped = pieces, stopped
        self._buffer = bytearray()

    def write(self, data: bytes) -> int:
        self._buffer += data
        if len(self._buffer) >= CHUNK_SIZE:
            self.flush()
        return len(data)

    def flush(self) -> None:
        if self._buffer:
            put(self._pieces, bytes(self._buffer), self._stopped)
            self._buffer.clear()


def put(pieces: queue.Queue[Any], item: Any, stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            return pieces.put(item, timeout=0.1)
        except queue.Full:
            continue
    raise _Cancelled


class ArchiveReader:
    """Tar archive of a directory, made by a thread while it is read. Needs no temporary file."""

    def __init__(self, directory: Union[str, os.PathLike[str]], on_progress: Optional[ProgressCallback]) -> None:
        self._directory = os.fspath(directory)
        self._on_progress = on_progress
        self._pieces: queue.Queue[Any] = queue.Queue(_QUEUE_MAX)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, name="workspace-archive", daemon=True)
        self._thread.start()

    def read(self) -> Optional[bytes]:
        """Returns the next piece; `None` at the end. Blocks."""
        item = self._pieces.get()
        if isinstance(item, BaseException):
            raise item
        return item  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the thread. Does not wait for it, since it may read from a slow disk."""
        self._stopped.set()

    def _write(self) -> None:
        end: Any = None
        try:
            self._write_archive()
        except _Cancelled:
            return
        except BaseException as error:
            end = error
        try:
            put(self._pieces, end, self._stopped)
        except _Cancelled:
            pass

    def _write_archive(self) -> None:
        files = size = 0
        output = _QueueFile(self._pieces, self._stopped)
        with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for path, name in walk(self._directory):
                member = archive.gettarinfo(path, name)
                if member is None:
                    # Sockets cannot be archived.
                    continue
                # Owners have no meaning in the sandbox. A hard link may point out of the directory.
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                if member.islnk():
                    member.type, member.linkname = tarfile.REGTYPE, ""
                    member.size = os.stat(path).st_size
                if member.isreg():
                    with open(path, "rb") as content:
                        archive.addfile(member, content)
                    files, size = files + 1, size + member.size
                    if self._on_progress is not None:
                        self._on_progress(Progress(files, size))
                elif member.isdir() or member.issym():
                    archive.addfile(member)
        output.flush()


def walk(directory: str) -> Iterator[Any]:
    """Yields path and name of all entries, in order of their names. Symlinks are not followed."""
    pending = [("", directory)]
    while pending:
        prefix, current = pending.pop()
        with os.scandir(current) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            name = f"{prefix}{entry.name}"
            yield entry.path, name
            if entry.is_dir(follow_symlinks=False):
                pending.append((f"{name}/", entry.path))


class _IteratorFile:
    """Readable file over pieces of bytes."""

    def __init__(self, next_piece: Callable[[], bytes]) -> None:
        self._next, self._rest = next_piece, b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            piece = self._next()
            if not piece:
                break
            self._rest += piece
        size = len(self._rest) if size < 0 else size
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


class ArchiveWriter:
    """Unpacks an archive into a directory while it arrives, in a thread of its own."""

    def __init__(self, directory: Union[str, os.PathLike[str]], on_progress: Optional[ProgressCallback]) -> None:
        self._root = Path(directory)
        self._on_progress = on_progress
        self._pieces: queue.Queue[Any] = queue.Queue(_QUEUE_MAX)
        self._stopped = threading.Event()
        self._error: Optional[BaseException] = None
        self._has_ended = False
        self.progress = Progress(0, 0)
        self._thread = threading.Thread(target=self._run, name="workspace-archive", daemon=True)
        self._thread.start()

    def write(self, piece: bytes) -> None:
        """Passes a piece of the archive on. Blocks while the disk is slower than the network."""
        try:
            put(self._pieces, piece, self._stopped)
        except _Cancelled:
            self._raise()

    def finish(self) -> Progress:
        """Waits until everything is unpacked."""
        try:
            put(self._pieces, b"", self._stopped)
        except _Cancelled:
            pass
        self._thread.join()
        self._raise()
        return self.progress

    def close(self) -> None:
        """Stops in the middle of the archive."""
        try:
            self._pieces.put_nowait(_Cancelled())
        except queue.Full:
            pass
        self._stopped.set()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _next(self) -> bytes:
        while not self._has_ended:
            try:
                item = self._pieces.get(timeout=0.1)
            except queue.Empty:
                if self._stopped.is_set():
                    raise _Cancelled from None
                continue
            if isinstance(item, BaseException):
                raise item
            self._has_ended = not item
            return item  # type: ignore[no-any-return]
        return b""

    def _run(self) -> None:
        try:
            self._unpack()
            while self._next():
                # Padding after the end of the archive.
                pass
        except _Cancelled:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._stopped.set()

    def _unpack(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        times = []
        source: Any = _IteratorFile(self._next)
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                path = self._inside(member.name)
                if path is None:
                    continue
                if member.isdir():
                    if path.is_symlink() or not path.is_dir():
                        self._clear(path)
                        path.mkdir(parents=True)
                    times.append((path, member))
                elif member.issym():
                    self._clear(path)
                    os.symlink(member.linkname, path)
                elif member.isreg():
                    content = archive.extractfile(member)
                    assert content is not None
                    self._write_file(path, member, content)
        for path, member in reversed(times):
            os.chmod(path, member.mode & 0o777)
            os.utime(path, (member.mtime, member.mtime))

    def _write_file(self, path: Path, member: tarfile.TarInfo, content: IO[bytes]) -> None:
        self._clear(path)
        # Not through a symlink, and never with set-ID bits.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            while True:
                piece = content.read(CHUNK_SIZE)
                if not piece:
                    break
                file.write(piece)
        os.chmod(path, member.mode & 0o777)
        os.utime(path, (member.mtime, member.mtime))
        self.progress = Progress(self.progress.files + 1, self.progress.bytes + member.size)
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _inside(self, name: str) -> Optional[Path]:
        """Returns the path of a member; `None` for the directory itself. No member is written through a symlink."""
        parts = [part for part in PurePosixPath(name).parts if part != "."]
        if not parts:
            return None
        if ".." in parts or PurePosixPath(name).is_absolute():
            raise ValueError(f"the archive has a member outside the directory: {name!r}")
        path = self._root
        for part in parts[:-1]:
            path = path / part
            if path.is_symlink():
                raise ValueError(f"the archive has a member below a symlink: {name!r}")
            path.mkdir(exist_ok=True)
        return path / parts[-1]

    @staticmethod
    def _clear(path: Path) -> None:
        """Makes room for a file. A directory with content is not removed."""
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            path.rmdir()
