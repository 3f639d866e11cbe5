"""Configuration of a client, from arguments and from the environment."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, field
from typing import Mapping, Optional
from urllib.parse import urlsplit

from .errors import ConfigurationError

DEFAULT_API_URL = "http://127.0.0.1:8080"

logger = logging.getLogger("workspace_sdk")
"""Logger of the SDK. Requests are logged at the level DEBUG, without secrets."""


@dataclass
class ClientConfig:
    """Configuration of a client. Durations are in seconds; 0 means that there is no limit."""

    api_url: str
    """URL of the server, such as `https://workspace.example.org`."""
    api_key: str = field(repr=False)
    """API key, or token of one sandbox."""
    timeout: float = 30.0
    """Limit for a call as a whole, including retries. Calls that copy files have at least 300 seconds."""
    retries: int = 3
    """Maximum number of retries of a call. Only calls that are safe to repeat are retried."""
    retry_delay: float = 1.0
    """Delay before the first retry."""
    retry_backoff: float = 2.0
    """Factor by which the delay grows with each retry."""
    max_retry_delay: float = 30.0
    """Maximum delay before a retry."""
    idle_timeout: float = 45.0
    """Time after which a stream without any data is connected again. The server sends a comment every 15 seconds."""
    reconnect_timeout: float = 60.0
    """Time for which a lost stream or terminal is connected again without success. A restarted server is back sooner.
    """
    agent: Optional[str] = None
    """Agent as which projects are read, if the key may act for several agents."""
    headers: Optional[Mapping[str, str]] = field(default=None, repr=False)
    """Further headers of all requests, such as those that a proxy needs."""


def create_config(
    api_url: Optional[str],
    api_key: Optional[str],
    timeout: float,
    retries: int,
    retry_delay: float,
    retry_backoff: float,
    max_retry_delay: float,
    idle_timeout: float,
    reconnect_timeout: float,
    agent: Optional[str],
    headers: Optional[Mapping[str, str]],
) -> ClientConfig:
    """Completes the arguments of a client from the environment, and checks them."""
    url = normalise_url(api_url or os.environ.get("WORKSPACE_API_URL") or DEFAULT_API_URL)
    key = api_key or os.environ.get("WORKSPACE_API_KEY") or ""
    if not key:
        raise ConfigurationError("there is no API key: pass `api_key`, or set WORKSPACE_API_KEY")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("the API key has characters that no key has")
    durations = {
        "timeout": timeout,
        "retries": retries,
        "retry_delay": retry_delay,
        "max_retry_delay": max_retry_delay,
        "idle_timeout": idle_timeout,
        "reconnect_timeout": reconnect_timeout,
    }
    for name, value in durations.items():
        if not value >= 0:
            raise ConfigurationError(f"`{name}` must not be negative")
    if not retry_backoff >= 1:
        raise ConfigurationError("`retry_backoff` must be at least 1")
    return ClientConfig(
        url,
        key,
        timeout,
        retries,
        retry_delay,
        retry_backoff,
        max_retry_delay,
        idle_timeout,
        reconnect_timeout,
        agent,
        headers,
    )


def normalise_url(url: str) -> str:
    """Checks the URL of a server, and removes a slash or `/api/v1` at its end."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"`api_url` must begin with http:// or https:// and name a host: {url!r}")
    if parts.query or parts.fragment or parts.username is not None:
        raise ConfigurationError("`api_url` must not have a user, a query or a fragment")
    url = url.rstrip("/")
    if url.endswith("/api/v1"):
        url = url[: -len("/api/v1")]
    return url.rstrip("/")


def enable_debug_log(debug: Optional[bool]) -> None:
    """Logs requests to stderr if `debug` is true, or `None` and WORKSPACE_DEBUG is set."""
    if debug is None:
        debug = os.environ.get("WORKSPACE_DEBUG", "").lower() in ("1", "on", "true", "yes")
    if debug and not any(isinstance(handler, _DebugHandler) for handler in logger.handlers):
        handler = _DebugHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)


class _DebugHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Handler of the option `debug`, so that it is added once."""
