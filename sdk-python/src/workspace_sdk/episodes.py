"""Episodes: steps of searches over snapshots."""

from __future__ import annotations

from typing import Any, AsyncIterator, Optional

from ._request import segment
from ._service import Service, all_pages, page_of
from .results import Page
from .types import CreateEpisode, Episode, EpisodePath, EpisodeSubtree, Search

EPISODES = "/api/v1/episodes"


class EpisodeService(Service):
    """Episodes: steps of searches, each with its snapshot, action and reward."""

    async def create(
        self, params: Optional[CreateEpisode] = None, *, timeout: Optional[float] = None, **fields: Any
    ) -> Episode:
        """Records a step. The parameters are a `CreateEpisode`, or its attributes as keyword arguments."""
        body = CreateEpisode(**fields) if params is None else params
        return Episode.decode(await self._post(EPISODES, body, timeout))

    async def get(self, episode: str, *, timeout: Optional[float] = None) -> Episode:
        """Returns a step."""
        return Episode.decode(await self._get(f"{EPISODES}/{segment(episode)}", timeout))

    async def delete(self, episode: str, *, timeout: Optional[float] = None) -> None:
        """Deletes a step and those below it."""
        await self._delete(f"{EPISODES}/{segment(episode)}", timeout)

    async def list(
        self,
        *,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        sort: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[Search]:
        """Returns a page of the searches: their first steps."""
        return page_of(await self._get(EPISODES, timeout, cursor=cursor, limit=limit, sort=sort), Search.decode)

    def list_all(self, *, sort: Optional[str] = None) -> AsyncIterator[Search]:
        """Yields all searches."""
        return all_pages(lambda cursor: self.list(sort=sort, cursor=cursor, limit=1000))

    async def best(self, episode: str, *, timeout: Optional[float] = None) -> Episode:
        """Returns the step with the highest reward below a step, or that step."""
        return Episode.decode(await self._get(f"{EPISODES}/{segment(episode)}/best", timeout))

    async def children(
        self,
        episode: str,
        *,
        page: Optional[int] = None,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Page[Episode]:
        """Returns a page of the next steps."""
        path = f"{EPISODES}/{segment(episode)}/children"
        return page_of(await self._get(path, timeout, page=page, cursor=cursor, limit=limit), Episode.decode)

    async def path(
        self,
        episode: str,
        *,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> EpisodePath:
        """Returns the steps from the first one to this."""
        path = f"{EPISODES}/{segment(episode)}/path"
        return EpisodePath.decode(await self._get(path, timeout, cursor=cursor, limit=limit))

    async def subtree(
        self,
        episode: str,
        *,
        depth: Optional[int] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> EpisodeSubtree:
        """Returns the steps below a step, and the step."""
        path = f"{EPISODES}/{segment(episode)}/subtree"
        return EpisodeSubtree.decode(await self._get(path, timeout, depth=depth, limit=limit))
