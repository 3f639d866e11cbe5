"""Events of sandboxes, snapshots and projects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Optional, Union

from ._request import Deadline, Request
from ._runtime import closing, sleep
from ._service import Service
from ._sse import COMMENT
from ._transport import Transport, is_disconnection, reconnect_delay
from .errors import ServerUnreachableError, WorkspaceError
from .results import EventGapMessage

if TYPE_CHECKING:
    # Loaded with the first event, because its dataclasses take time.
    from .server_events import EventPage, ServerEvent

EVENTS = "/api/v1/events"


class EventService(Service):
    """Events, in the order in which they occurred."""

    async def list(
        self,
        *,
        after: Optional[int] = None,
        limit: Optional[int] = None,
        sandbox: Optional[str] = None,
        type: Optional[str] = None,
        project: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> EventPage:
        """Returns a page of stored events. Pass its `next` as `after` to get those that follow."""
        data = await self._get(EVENTS, timeout, after=after, limit=limit, sandbox=sandbox, type=type, project=project)
        return page_of_events(data)

    def follow(
        self,
        *,
        after: Optional[int] = None,
        sandbox: Optional[str] = None,
        type: Optional[str] = None,
        project: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AsyncIterator[Union[ServerEvent, EventGapMessage]]:
        """Yields the stored events after `after`, and then new ones as they occur, each once."""
        query = {"sandbox": sandbox, "type": type, "project": project}
        return follow_events(self._transport, EVENTS, query, after, timeout)


async def follow_events(
    transport: Transport,
    path: str,
    query: Dict[str, Any],
    after: Optional[int],
    timeout: Optional[float],
    headers: Optional[Dict[str, str]] = None,
) -> AsyncIterator[Union[ServerEvent, EventGapMessage]]:
    """Yields events over as many connections as that takes."""
    from .server_events import decode_event

    retry, deadline = -1, None
    while True:
        failure: WorkspaceError = ServerUnreachableError("the stream of events ended")
        request = Request("GET", path, query={**query, "after": after}, headers=headers or {}, timeout=timeout)
        events = transport.events(request)
        try:
            async for message in events:
                retry, deadline = -1, None
                if message.event == COMMENT:
                    continue
                data = json.loads(message.data)
                if message.event == "gap":
                    yield EventGapMessage(data["from"], data["to"])
                    continue
                event = decode_event(data)
                after = event.id
                yield event
        except WorkspaceError as error:
            if not is_disconnection(error):
                raise
            failure = error
        finally:
            await closing(events)
        retry += 1
        deadline = deadline or Deadline(transport.config.reconnect_timeout or None)
        delay = reconnect_delay(retry, transport.config)
        if deadline.has_passed(delay):
            raise failure
        await sleep(delay)


def page_of_events(data: Any) -> EventPage:
    """Creates a page from parsed JSON."""
    from .server_events import decode_page

    return decode_page(data)
