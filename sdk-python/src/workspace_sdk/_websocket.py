"""URLs and errors of WebSockets."""

from __future__ import annotations

import json
from typing import Optional

from .errors import (
    RequestTimeoutError,
    ServerUnreachableError,
    UnexpectedResponseError,
    WorkspaceError,
    error_of_fields,
)


def websocket_url(api_url: str, path: str) -> str:
    """Returns the URL of a WebSocket of the API."""
    return "ws" + api_url[len("http") :] + path


def is_closed(error: BaseException) -> bool:
    """Returns true for the error of a connection that has ended, in whatever way."""
    from websockets.exceptions import ConnectionClosed

    return isinstance(error, (ConnectionClosed, ConnectionError))


def failure_of_handshake(error: BaseException, api_url: str, limit: Optional[float]) -> Optional[WorkspaceError]:
    """Creates the error for a WebSocket that could not be opened; `None` if it is an error of the program."""
    from websockets.exceptions import InvalidStatus, WebSocketException

    if isinstance(error, InvalidStatus):
        response = error.response
        try:
            return error_of_fields(json.loads(bytes(response.body or b""))["error"], response.status_code)
        except (ValueError, KeyError, TypeError):
            message = f"the server responded to a WebSocket with the HTTP status {response.status_code}"
            retryable = response.status_code in (502, 503, 504)
            return UnexpectedResponseError(message, status=response.status_code, retryable=retryable)
    if isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError":
        limit_text = f" of {limit:g} s" if limit is not None else ""
        return RequestTimeoutError(f"the connection took longer than its timeout{limit_text}")
    if isinstance(error, (OSError, WebSocketException, EOFError)):
        return ServerUnreachableError(f"cannot connect to the server at {api_url}: {error or type(error).__name__}")
    return None
