"""Requests to the server: paths, queries, bodies, and what may be repeated."""

from __future__ import annotations

import json
import random
import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import quote

from ._model import encode, format_time
from .errors import WorkspaceError

SLOW_TIMEOUT = 300.0
"""Minimum timeout in seconds of calls that copy files or wait, unless the caller gives another."""

REFUSED = frozenset(
    {
        "CATALOG_UNAVAILABLE",
        "QUEUE_FULL",
        "RATE_LIMITED",
        "SHUTTING_DOWN",
        "UPLOADS_BUSY",
        "UPLOAD_LIMIT_EXCEEDED",
    }
)
"""Names of errors with which the server refuses a request before it does anything, and only for a moment."""

Query = Mapping[str, Union[None, str, int, float, bool, datetime, List[str]]]


@dataclass
class Request:
    """Request to the server."""

    method: str
    path: str
    query: Optional[Query] = None
    json: Any = None
    """Body as JSON; attributes that are `None` are left out."""
    content: Any = None
    """Body as bytes, or as an iterable of bytes, which can be sent only once."""
    headers: Dict[str, str] = field(default_factory=dict)
    repeatable: Optional[bool] = None
    """True if the request may be sent again although the server may have performed it. Default: by the method."""
    timeout: Optional[float] = None
    """Timeout of the call in seconds; 0 for none, `None` for that of the client."""
    slow: bool = False
    """True for calls that copy files or wait: their default timeout is at least `SLOW_TIMEOUT`."""
    transfer: bool = False
    """True for calls that send content: without a timeout of the caller, they may last as long as bytes are accepted.
    """

    def __post_init__(self) -> None:
        if self.repeatable is None:
            self.repeatable = self.method != "POST" and self.method != "PATCH"

    @property
    def can_be_sent_again(self) -> bool:
        return self.content is None or isinstance(self.content, (bytes, bytearray))

    def limit(self, default: float) -> Optional[float]:
        """Returns the timeout of the call; `None` for none."""
        if self.timeout is not None:
            return self.timeout or None
        if self.transfer:
            return None
        return (max(default, SLOW_TIMEOUT) if self.slow else default) or None

    def target(self) -> str:
        """Returns path and query."""
        query = encode_query(self.query or {})
        return f"{self.path}?{query}" if query else self.path

    def body(self) -> Tuple[Any, Dict[str, str]]:
        """Returns the body and the headers that describe it."""
        if self.json is not None:
            text = json.dumps(encode(self.json), separators=(",", ":"), ensure_ascii=False)
            # Lone surrogates cannot be encoded; names that are not UTF-8 are written with C escapes instead.
            return text.encode("utf-8", "replace"), {"content-type": "application/json"}
        if self.content is not None:
            return self.content, {"content-type": "application/octet-stream"}
        return None, {}


def encode_query(query: Query) -> str:
    pairs: List[str] = []
    for name, value in query.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        pairs += [f"{name}={quote(_text(item), safe='')}" for item in values if item is not None]
    return "&".join(pairs)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_time(value) if isinstance(value, datetime) else str(value)


def segment(text: str) -> str:
    """Encodes text as one segment of a path."""
    # Clients remove the segments `.` and `..`, which would lead to another route.
    if text in (".", ".."):
        return "%2E" * len(text)
    return quote(text.encode("utf-8", "surrogateescape"), safe="")


def file_path(path: str) -> str:
    """Encodes the path of a file for the end of a route. Bytes that are not UTF-8 are lone surrogates, as in `os`."""
    return "/".join(segment(part) for part in path.strip("/").split("/"))


def sandbox_path(path: str) -> str:
    """Returns the absolute path in a sandbox. A relative path starts in `/workspace`."""
    if path.startswith(("/", '"')):
        return path
    return "/workspace" if path in ("", ".") else f"/workspace/{path}"


def new_idempotency_key() -> str:
    return uuid.uuid4().hex


class Deadline:
    """Point in time at which a call has to be finished."""

    def __init__(self, limit: Optional[float]) -> None:
        self.limit = limit
        self._end = None if limit is None else time.monotonic() + limit

    def remaining(self) -> Optional[float]:
        """Returns the seconds that are left, at least a small number; `None` without a limit."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.001)

    def has_passed(self, after: float = 0.0) -> bool:
        return self._end is not None and time.monotonic() + after >= self._end


@dataclass
class Failure(Exception):
    """Failed attempt of a request."""

    error: WorkspaceError
    kind: str
    """`unreached`: the server has not seen the request; `refused`: it did nothing; `lost`: nobody knows; or `final`."""
    retry_after: Optional[float] = None


def may_repeat(request: Request, failure: Failure) -> bool:
    """Returns true if the request can be sent again after this failure."""
    if not request.can_be_sent_again or failure.kind == "final":
        return False
    return failure.kind != "lost" or bool(request.repeatable)


def backoff(retry: int, delay: float, factor: float, maximum: float) -> float:
    """Returns the seconds to wait before a retry, counted from 0, with jitter."""
    return min(delay * factor ** min(retry, 64), maximum) * random.uniform(0.5, 1.0)
