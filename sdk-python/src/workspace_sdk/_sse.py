"""Parser of server-sent events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

from .errors import UnexpectedResponseError

EVENT_MAX = 16 << 20
"""Maximum size of an event in bytes. The server sends output in pieces of 64 KiB."""


COMMENT = ":"
"""Kind of the events that stand for comments."""


@dataclass
class ServerSentEvent:
    """Event with the fields that the server uses; `id` is `None` if the event has none.

    A comment is an event of the kind `COMMENT`.
    """

    event: str
    data: str
    id: Optional[str]


class SseParser:
    """Incremental parser. An event counts only when the empty line after it has arrived."""

    def __init__(self) -> None:
        self._rest = b""
        self._searched = 0
        self._size = 0
        self._event = ""
        self._id: Optional[str] = None
        self._data: List[str] = []

    def feed(self, chunk: bytes) -> List[ServerSentEvent]:
        """Returns the events that the chunk completes."""
        buffer = self._rest + chunk if self._rest else chunk
        events: List[ServerSentEvent] = []
        position, searched = 0, self._searched
        while True:
            end = buffer.find(b"\n", max(position, searched))
            if end < 0:
                break
            line = buffer[position:end]
            position = end + 1
            if line.endswith(b"\r"):
                line = line[:-1]
            if line:
                if line.startswith(b":"):
                    events.append(ServerSentEvent(COMMENT, line[1:].strip().decode("utf-8", "replace"), None))
                    continue
                self._size += len(line)
                self._field(line)
            else:
                event = self._take()
                if event is not None:
                    events.append(event)
        self._rest = buffer[position:]
        self._searched = len(self._rest)
        if self._size + len(self._rest) > EVENT_MAX:
            raise UnexpectedResponseError("the server sent an event that is too long")
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            self._id = value.decode("utf-8", "replace")

    def _take(self) -> Optional[ServerSentEvent]:
        event = ServerSentEvent(self._event or "message", "\n".join(self._data), self._id) if self._data else None
        self._event, self._id, self._data, self._size = "", None, [], 0
        return event
