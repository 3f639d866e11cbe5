"""Templates of sandboxes."""

from __future__ import annotations

import json
from typing import AsyncIterator, List, Optional

from ._request import Request, segment
from ._runtime import Content, closing
from ._service import Service
from ._sse import COMMENT
from .errors import ServerUnreachableError, error_of_fields
from .results import BuildEvent, decode_build_event
from .types import Template, TemplateDetails


class TemplateService(Service):
    """Templates of sandboxes."""

    async def list(self, *, timeout: Optional[float] = None) -> List[Template]:
        """Returns the templates."""
        return [Template.decode(item) for item in await self._get("/api/v1/templates", timeout)]

    async def get(self, name: str, *, timeout: Optional[float] = None) -> TemplateDetails:
        """Returns a template."""
        return TemplateDetails.decode(await self._get(_path(name), timeout))

    async def import_archive(self, name: str, archive: Content, *, timeout: Optional[float] = None) -> Template:
        """Imports a tar archive: a root filesystem, the output of `docker save`, or an OCI layout. Admins only."""
        request = Request("PUT", _path(name), content=archive, timeout=timeout, transfer=True)
        return Template.decode(await self._transport.call(request))

    async def delete(self, name: str, *, timeout: Optional[float] = None) -> None:
        """Deletes a template. Admins only."""
        await self._delete(_path(name), timeout)

    async def build(
        self,
        name: str,
        archive: Content,
        *,
        recipe: Optional[str] = None,
        no_cache: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> AsyncIterator[BuildEvent]:
        """Builds a template from a tar archive with a recipe, and yields the events of the build. Admins only.

        The last event is `done`; a build that fails raises an error. Leaving the iteration cancels the build.
        """
        query = {"recipe": recipe, "noCache": no_cache}
        request = Request("POST", f"{_path(name)}/build", query=query, content=archive, timeout=timeout, transfer=True)
        events = self._transport.events(request)
        try:
            async for message in events:
                if message.event == COMMENT:
                    continue
                data = json.loads(message.data)
                if data["type"] == "error" and data.get("error"):
                    raise error_of_fields(data["error"])
                yield decode_build_event(data)
                if data["type"] == "done":
                    return
        finally:
            await closing(events)
        raise ServerUnreachableError("the stream of the build ended before the build")


def _path(name: str) -> str:
    return f"/api/v1/templates/{segment(name)}"
