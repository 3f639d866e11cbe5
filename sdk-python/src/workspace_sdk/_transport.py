"""HTTP transport: retries, timeouts, errors, streams of events, and the debug log."""

from __future__ import annotations

import logging
import ssl
import time
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Optional, Tuple

from ._config import ClientConfig, logger
from ._lazy import LazyModule
from ._request import REFUSED, SLOW_TIMEOUT, Deadline, Failure, Request, backoff, may_repeat
from ._runtime import open_http, sleep
from ._sse import ServerSentEvent, SseParser
from ._version import __version__
from .errors import (
    ConfigurationError,
    NotFoundError,
    RequestTimeoutError,
    ServerError,
    ServerUnreachableError,
    UnexpectedResponseError,
    WorkspaceError,
    error_of_fields,
)

if TYPE_CHECKING:
    import httpx
else:
    httpx = LazyModule("httpx")

CONNECT_TIMEOUT = 30.0
"""Timeout of a connection attempt in seconds."""

STREAM_RETRY_DELAY = 0.05
"""Maximum delay in seconds before the first retry of a stream that made no progress since it was connected."""

_GATEWAY_STATUSES = (502, 503, 504)


class Transport:
    """Sends requests to one server."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.headers: Dict[str, str] = {
            "accept": "application/json",
            "user-agent": f"workspace-sdk-python/{__version__}",
            **(config.headers or {}),
            "authorization": f"Bearer {config.api_key}",
        }
        if config.agent is not None:
            self.headers["x-agent"] = config.agent
        # httpx imports it, too.
        from urllib.request import getproxies

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=15.0)
        # Reading the certificates of the machine takes 20 ms, which a client of `http://` need not wait for.
        needs_tls = config.api_url.startswith("https:") or bool(getproxies())
        self._http = open_http(limits=limits, follow_redirects=False, verify=needs_tls)

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, request: Request) -> Any:
        """Sends a request and returns the parsed body; `None` if it is empty."""
        return parse_json(await self.fetch(request))

    async def fetch(self, request: Request) -> httpx.Response:
        """Sends a request and returns the response with its body."""
        return await self._retry(request, with_body=True)

    async def fetch_any(self, request: Request, accepted: Tuple[int, ...]) -> httpx.Response:
        """Like `fetch`, but some error statuses are no errors."""
        return await self._retry(request, with_body=True, accepted=accepted)

    async def open(self, request: Request) -> httpx.Response:
        """Sends a request and returns the response, whose body is still to be read. The caller closes it."""
        response = await self._retry(request, with_body=False)
        # From now on, only silence is limited. The dictionary is that of the connection.
        response.request.extensions["timeout"]["read"] = self.config.idle_timeout or None
        return response

    async def chunks(self, request: Request) -> AsyncIterator[bytes]:
        """Sends a request and yields the pieces of the body."""
        response = await self.open(request)
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx.HTTPError as error:
            raise ServerUnreachableError(f"lost the connection in the middle of the response: {_why(error)}") from error
        finally:
            await response.aclose()

    async def events(self, request: Request) -> AsyncIterator[ServerSentEvent]:
        """Sends a request and yields the events of the response, also comments.

        Raises `ServerUnreachableError` when the connection breaks, but ends normally when the server ends the stream.
        """
        request.headers["accept"] = "text/event-stream"
        response = await self.open(request)
        try:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise UnexpectedResponseError("the server sent no stream of events", status=response.status_code)
            parser = SseParser()
            async for chunk in response.aiter_bytes():
                for event in parser.feed(chunk):
                    yield event
        except httpx.HTTPError as error:
            raise ServerUnreachableError(f"lost the connection to the stream: {_why(error)}") from error
        finally:
            await response.aclose()

    def delay(self, retry: int) -> float:
        """Returns the seconds to wait before the retry with this number, counted from 0."""
        config = self.config
        return backoff(retry, config.retry_delay, config.retry_backoff, config.max_retry_delay)

    async def _retry(self, request: Request, with_body: bool, accepted: Tuple[int, ...] = ()) -> httpx.Response:
        deadline = Deadline(request.limit(self.config.timeout))
        is_uncertain = False
        retry = 0
        while True:
            try:
                return await self._attempt(request, deadline, with_body, retry, accepted)
            except Failure as failure:
                if is_uncertain and request.method == "DELETE" and isinstance(failure.error, NotFoundError):
                    # An earlier attempt has deleted it, but its response was lost.
                    return httpx.Response(204)
                is_uncertain = is_uncertain or failure.kind == "lost"
                delay = self.delay(retry) if failure.retry_after is None else failure.retry_after
                if retry >= self.config.retries or not may_repeat(request, failure) or deadline.has_passed(delay):
                    raise failure.error from failure.error.__cause__
            retry += 1
            await sleep(delay)

    async def _attempt(
        self, request: Request, deadline: Deadline, with_body: bool, retry: int, accepted: Tuple[int, ...]
    ) -> httpx.Response:
        started = time.monotonic()
        content, described = request.body()
        sent = self._http.build_request(
            request.method,
            self.config.api_url + request.target(),
            content=content,
            headers={**self.headers, **described, **request.headers},
            timeout=self._timeouts(request, deadline),
        )
        response: Optional[httpx.Response] = None
        try:
            response = await self._http.send(sent, stream=True)
            if response.status_code >= 400 and response.status_code not in accepted:
                await response.aread()
                raise failure_of_response(response)
            if response.is_redirect or response.status_code in (301, 302, 303, 307, 308):
                location = "another address"
                raise Failure(UnexpectedResponseError(f"the server redirects to {location}"), "final")
            if with_body:
                await self._read_body(response, deadline)
            return response
        except httpx.HTTPError as error:
            raise failure_of_connection(error, self.config.api_url, deadline) from error
        except (httpx.InvalidURL, httpx.CookieConflict, UnicodeError) as error:
            raise ConfigurationError(f"the request cannot be sent: {error}") from error
        finally:
            if response is not None and (with_body or response.status_code >= 300):
                await response.aclose()
            if logger.isEnabledFor(logging.DEBUG):
                log_attempt(request, response, time.monotonic() - started, retry)

    def _timeouts(self, request: Request, deadline: Deadline) -> httpx.Timeout:
        """Returns the limits for each wait of an attempt."""
        limit = deadline.remaining()
        if limit is None and request.transfer and request.timeout is None and self.config.timeout > 0:
            limit = max(self.config.timeout, SLOW_TIMEOUT)
        connect = CONNECT_TIMEOUT if limit is None else min(limit, CONNECT_TIMEOUT)
        return httpx.Timeout(limit, connect=connect, pool=None)

    async def _read_body(self, response: httpx.Response, deadline: Deadline) -> None:
        pieces = []
        is_late = False
        async for piece in response.aiter_bytes():
            # A response that is there is not dropped: the server has done what it tells.
            if is_late:
                raise Failure(_timed_out(deadline), "final")
            pieces.append(piece)
            is_late = deadline.has_passed()
        # The attribute that `aread` sets.
        response._content = b"".join(pieces)


def parse_json(response: httpx.Response) -> Any:
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError as error:
        raise UnexpectedResponseError(
            "the response is not JSON: is this the URL of a workspace server?", status=response.status_code
        ) from error


def failure_of_response(response: httpx.Response) -> Failure:
    """Creates the failure for a response with an error status."""
    status = response.status_code
    retry_after = _seconds(response.headers.get("retry-after"))
    try:
        fields = response.json()["error"]
        error = error_of_fields(fields, status, retry_after)
    except (ValueError, KeyError, TypeError):
        message = f"the server responded with the HTTP status {status}"
        if status in _GATEWAY_STATUSES:
            error = ServerError(message, name="UNEXPECTED_RESPONSE", status=status, retryable=True)
            return Failure(error, "lost", retry_after)
        error = UnexpectedResponseError(f"{message}, but not with an error of the API", status=status)
        return Failure(error, "final")
    return Failure(error, "refused" if error.name in REFUSED else "final", retry_after)


def failure_of_connection(error: httpx.HTTPError, url: str, deadline: Deadline) -> Failure:
    """Creates the failure for a request without a response."""
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return Failure(_timed_out(deadline), "final")
    if isinstance(error, httpx.UnsupportedProtocol):
        return Failure(ConfigurationError(str(error)), "final")
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)):
        unreachable = ServerUnreachableError(f"cannot connect to the server at {url}: {_why(error)}")
        return Failure(unreachable, "final" if _is_untrusted(error) else "unreached")
    lost = ServerUnreachableError(f"lost the connection to the server at {url}: {_why(error)}")
    return Failure(lost, "lost")


def log_attempt(request: Request, response: Optional[httpx.Response], seconds: float, retry: int) -> None:
    """Logs an attempt, without query, headers and bodies, which may have secrets."""
    status = response.status_code if response is not None else "no response"
    request_id = response.headers.get("x-request-id", "-") if response is not None else "-"
    milliseconds = round(seconds * 1000)
    text = "%s %s status=%s ms=%d attempt=%d request_id=%s"
    logger.debug(text, request.method, request.path, status, milliseconds, retry + 1, request_id)


def is_disconnection(error: WorkspaceError) -> bool:
    """Returns true for an error after which a stream is connected again."""
    return isinstance(error, (ServerUnreachableError, RequestTimeoutError)) or error.retryable


def reconnect_delay(retry: int, config: ClientConfig) -> float:
    """Returns the seconds to wait before a stream is connected again; none after a connection with progress."""
    if retry == 0:
        return 0.0
    return backoff(retry - 1, min(STREAM_RETRY_DELAY, config.retry_delay), 2.0, min(2.0, config.max_retry_delay))


def _timed_out(deadline: Deadline) -> RequestTimeoutError:
    if deadline.limit is None:
        return RequestTimeoutError(f"the server was silent for {SLOW_TIMEOUT:g} s")
    return RequestTimeoutError(f"the call took longer than its timeout of {deadline.limit:g} s")


def _is_untrusted(error: BaseException) -> bool:
    cause: Optional[BaseException] = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _why(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


def _seconds(text: Optional[str]) -> Optional[float]:
    try:
        return max(float(text), 0.0) if text is not None else None
    except ValueError:
        return None
