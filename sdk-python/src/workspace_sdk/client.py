"""Client of a server."""

from __future__ import annotations

from typing import Any, AsyncIterator, Mapping, Optional

from ._config import create_config, enable_debug_log
from ._runtime import contextmanager
from ._transport import Transport
from .episodes import EpisodeService
from .events import EventService
from .projects import PolicyService, ProjectService, ReviewService, WorkspaceService
from .sandbox import Sandbox, SandboxService
from .snapshots import ReferenceService, SnapshotService
from .system import KeyService, SystemService
from .templates import TemplateService
from .types import CreateSandboxParams


class WorkspaceClient:
    """Client of a server.

    Without arguments, the URL and the key are read from WORKSPACE_API_URL and WORKSPACE_API_KEY. Durations are in
    seconds, and 0 means that there is no limit. `ClientConfig` describes the options. With `debug`, or if
    WORKSPACE_DEBUG is 1, requests are logged to stderr, without secrets.
    """

    def __init__(
        self,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        retry_delay: float = 1.0,
        retry_backoff: float = 2.0,
        max_retry_delay: float = 30.0,
        idle_timeout: float = 45.0,
        reconnect_timeout: float = 60.0,
        agent: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        debug: Optional[bool] = None,
    ) -> None:
        self.config = create_config(
            api_url,
            api_key,
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
        """Configuration of the client."""
        enable_debug_log(debug)
        self._transport = Transport(self.config)
        self.sandbox = SandboxService(self._transport)
        """Sandboxes."""
        self.templates = TemplateService(self._transport)
        """Templates of sandboxes."""
        self.snapshots = SnapshotService(self._transport)
        """Snapshots of workspaces."""
        self.references = ReferenceService(self._transport)
        """Names of snapshots."""
        self.episodes = EpisodeService(self._transport)
        """Steps of searches."""
        self.projects = ProjectService(self._transport)
        """Projects that agents change at once."""
        self.policies = PolicyService(self._transport)
        """Access of agents to the files of projects."""
        self.reviews = ReviewService(self._transport)
        """Changes that wait for a decision."""
        self.workspaces = WorkspaceService(self._transport)
        """Workspaces of agents outside sandboxes."""
        self.events = EventService(self._transport)
        """Events of sandboxes, snapshots and projects."""
        self.keys = KeyService(self._transport)
        """API keys."""
        self.system = SystemService(self._transport)
        """The server."""

    def __repr__(self) -> str:
        return f"<WorkspaceClient {self.config.api_url}>"

    async def __aenter__(self) -> WorkspaceClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections of the client."""
        await self._transport.close()


@contextmanager
async def with_sandbox(
    client: WorkspaceClient, params: Optional[CreateSandboxParams] = None, **fields: Any
) -> AsyncIterator[Sandbox]:
    """Creates a sandbox for a block, and deletes it at its end."""
    async with await client.sandbox.create(params, **fields) as sandbox:
        yield sandbox
