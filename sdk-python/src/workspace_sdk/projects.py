"""Projects, their policies and reviews, and workspaces of agents outside sandboxes."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Mapping, Optional, Union

from ._request import Request, file_path, segment
from ._runtime import Content
from ._service import Service, agent_header, all_pages, idempotency_header, page_of
from .events import follow_events, page_of_events
from .results import EventGapMessage, Page
from .sandbox import complete
from .types import (
    AgentWorkspace,
    AgentWorkspaceChanges,
    CompleteSnapshot,
    Completion,
    CreateAgentWorkspace,
    CreateProject,
    Diff,
    FileVersion,
    ImportResult,
    Operation,
    PolicyExplanation,
    Project,
    ProjectPolicy,
    ProjectSnapshot,
    RebaseAgentWorkspaceResult,
    ResolvedReview,
    ResolveReview,
    Review,
    ReviewDetails,
    Revision,
    Rollback,
    SyncResult,
    TreeListing,
    UpdateProject,
)

if TYPE_CHECKING:
    from .server_events import EventPage, ServerEvent

PROJECTS = "/api/v1/projects"


class ProjectService(Service):
    """Projects: trees of files that many agents change at once. A project is named by its name or its id."""

    async def create(
        self, params: Optional[CreateProject] = None, *, timeout: Optional[float] = None, **fields: Any
    ) -> Project:
        """Creates a project. The parameters are a `CreateProject`, or its attributes as keyword arguments."""
        body = CreateProject(**fields) if params is None else params
        return Project.decode(await self._post(PROJECTS, body, timeout))

    async def list(
        self,
        *,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[Project]:
        """Returns a page of the projects."""
        return page_of(await self._get(PROJECTS, timeout, agent, cursor=cursor, limit=limit), Project.decode)

    def list_all(self, *, agent: Optional[str] = None) -> AsyncIterator[Project]:
        """Yields all projects."""
        return all_pages(lambda cursor: self.list(agent=agent, cursor=cursor, limit=1000))

    async def get(self, project: str, *, agent: Optional[str] = None, timeout: Optional[float] = None) -> Project:
        """Returns a project."""
        return Project.decode(await self._get(_path(project), timeout, agent))

    async def update(
        self,
        project: str,
        changes: Optional[UpdateProject] = None,
        *,
        timeout: Optional[float] = None,
        **fields: Any,
    ) -> Project:
        """Changes the name or the settings. The changes are an `UpdateProject`, or its attributes as keywords."""
        body = UpdateProject(**fields) if changes is None else changes
        request = Request("PATCH", _path(project), json=body, timeout=timeout)
        return Project.decode(await self._transport.call(request))

    async def delete(self, project: str, *, timeout: Optional[float] = None) -> None:
        """Deletes a project with its history."""
        await self._delete(_path(project), timeout, slow=True)

    def archive(
        self,
        project: str,
        *,
        at: Optional[Revision] = None,
        path: Optional[str] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AsyncIterator[bytes]:
        """Yields a tar archive of a project, or of a directory of it."""
        query = {"at": at, "path": path}
        headers = agent_header(agent)
        return self._transport.chunks(
            Request("GET", f"{_path(project)}/archive", query=query, headers=headers, timeout=timeout)
        )

    async def diff(
        self,
        project: str,
        *,
        from_: Optional[Revision] = None,
        to: Optional[Revision] = None,
        insight: Optional[bool] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Diff:
        """Compares two states; without any, the last change."""
        query = {"from": from_, "to": to, "insight": insight, "limit": limit}
        route, headers = f"{_path(project)}/diff", agent_header(agent)
        request = Request("GET", route, query=query, headers=headers, timeout=timeout, slow=True)
        return Diff.decode(await self._transport.call(request))

    async def patch(
        self,
        project: str,
        *,
        from_: Optional[Revision] = None,
        to: Optional[Revision] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> str:
        """Returns the differences of two states as a unified diff."""
        query = {"from": from_, "to": to, "patch": True, "limit": limit}
        route, headers = f"{_path(project)}/diff", agent_header(agent)
        request = Request("GET", route, query=query, headers=headers, timeout=timeout, slow=True)
        return (await self._transport.fetch(request)).content.decode("utf-8", "replace")

    async def read(
        self,
        project: str,
        path: str,
        *,
        at: Optional[Revision] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> str:
        """Returns a file as text."""
        return (await self.read_bytes(project, path, at=at, agent=agent, timeout=timeout)).decode("utf-8", "replace")

    async def read_bytes(
        self,
        project: str,
        path: str,
        *,
        at: Optional[Revision] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Returns the content of a file."""
        route, headers = f"{_path(project)}/files/{file_path(path)}", agent_header(agent)
        request = Request("GET", route, query={"at": at}, headers=headers, timeout=timeout, slow=True)
        return (await self._transport.fetch(request)).content

    async def tree(
        self,
        project: str,
        path: str = "",
        *,
        at: Optional[Revision] = None,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> TreeListing:
        """Returns an entry and, of a directory, a page of its entries."""
        below = f"/{file_path(path)}" if path.strip("/") else ""
        route = f"{_path(project)}/tree{below}"
        return TreeListing.decode(await self._get(route, timeout, agent, at=at, page=page, limit=limit))

    async def versions(
        self,
        project: str,
        path: str,
        *,
        before: Optional[int] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[FileVersion]:
        """Returns a page of the history of a file, the newest first."""
        route = f"{_path(project)}/versions/{file_path(path)}"
        return page_of(await self._get(route, timeout, agent, before=before, limit=limit), FileVersion.decode)

    async def operations(
        self,
        project: str,
        *,
        operation: Optional[str] = None,
        author: Optional[str] = None,
        before: Optional[int] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[Operation]:
        """Returns a page of the history, the newest first."""
        route = f"{_path(project)}/operations"
        data = await self._get(route, timeout, agent, operation=operation, author=author, before=before, limit=limit)
        return page_of(data, Operation.decode)

    async def snapshots(
        self,
        project: str,
        *,
        before: Optional[int] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[ProjectSnapshot]:
        """Returns a page of the snapshots that were heads, the newest first."""
        route = f"{_path(project)}/snapshots"
        return page_of(await self._get(route, timeout, agent, before=before, limit=limit), ProjectSnapshot.decode)

    async def rollback(
        self,
        project: str,
        to: Revision,
        *,
        path: Optional[str] = None,
        message: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Optional[Operation]:
        """Restores a file, a directory or everything, as a new change. Returns `None` if nothing differs."""
        body = Rollback(to=to, path=path, message=message)
        data = await self._post(f"{_path(project)}/rollback", body, timeout, slow=True)
        return None if data is None else Operation.decode(data)

    async def import_archive(
        self,
        project: str,
        archive: Content,
        *,
        message: Optional[str] = None,
        author: Optional[str] = None,
        commit: Optional[str] = None,
        commit_time: Union[None, str, datetime] = None,
        expect: Optional[Revision] = None,
        timeout: Optional[float] = None,
    ) -> ImportResult:
        """Replaces the files of a project by those of a tar archive, also compressed with gzip or zstd."""
        query = {"message": message, "author": author, "commit": commit, "commitTime": commit_time, "expect": expect}
        route = f"{_path(project)}/import"
        request = Request("POST", route, query=query, content=archive, timeout=timeout, transfer=True)
        return ImportResult.decode(await self._transport.call(request))

    async def completions(
        self,
        project: str,
        *,
        state: Optional[str] = None,
        of_agent: Optional[str] = None,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[Completion]:
        """Returns a page of the completions, with `of_agent` only those of one agent."""
        query = {"state": state, "agent": of_agent, "cursor": cursor, "limit": limit}
        headers, route = agent_header(agent), f"{_path(project)}/completions"
        request = Request("GET", route, query=query, headers=headers, timeout=timeout)
        return page_of(await self._transport.call(request), Completion.decode)

    async def completion(
        self,
        project: str,
        completion: str,
        *,
        wait: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Completion:
        """Returns a completion. Waits up to `wait` seconds, at most 60, until it is not `queued` any more."""
        route, headers = f"{_path(project)}/completions/{segment(completion)}", agent_header(agent)
        request = Request("GET", route, query={"wait": wait}, headers=headers, timeout=timeout, slow=True)
        return Completion.decode(await self._transport.call(request))

    async def read_completed(
        self, project: str, completion: str, path: str, *, timeout: Optional[float] = None
    ) -> bytes:
        """Returns a file as an agent completed it, also if its change was refused. Only for the project's owner."""
        route = f"{_path(project)}/completions/{segment(completion)}/files/{file_path(path)}"
        request = Request("GET", route, timeout=timeout, slow=True)
        return (await self._transport.fetch(request)).content

    async def complete_snapshot(
        self,
        project: str,
        params: Optional[CompleteSnapshot] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        **fields: Any,
    ) -> Completion:
        """Merges a snapshot that was made elsewhere. The parameters are a `CompleteSnapshot`, or keywords."""
        body = CompleteSnapshot(**fields) if params is None else params
        headers, route = idempotency_header(idempotency_key), f"{_path(project)}/completions"
        return Completion.decode(await self._post(route, body, timeout, headers=headers, repeatable=True, slow=True))

    async def events(
        self,
        project: str,
        *,
        after: Optional[int] = None,
        limit: Optional[int] = None,
        type: Optional[str] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> EventPage:
        """Returns a page of the stored events of a project."""
        route = f"{_path(project)}/events"
        return page_of_events(await self._get(route, timeout, agent, after=after, limit=limit, type=type))

    def follow_events(
        self,
        project: str,
        *,
        after: Optional[int] = None,
        type: Optional[str] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AsyncIterator[Union[ServerEvent, EventGapMessage]]:
        """Yields the stored events of a project after `after`, and then new ones as they occur, each once."""
        route = f"{_path(project)}/events"
        return follow_events(self._transport, route, {"type": type}, after, timeout, agent_header(agent))


class PolicyService(Service):
    """Policies: which agents may see and change which files of a project."""

    async def get(self, project: str, *, timeout: Optional[float] = None) -> ProjectPolicy:
        """Returns the policy in force."""
        return ProjectPolicy.decode(await self._get(f"{_path(project)}/policy", timeout))

    async def set(
        self,
        project: str,
        policy: Mapping[str, Any],
        *,
        if_version: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> ProjectPolicy:
        """Sets the policy; with `if_version`, only if the one in force has that version."""
        headers: Dict[str, str] = {} if if_version is None else {"if-match": f'"{if_version}"'}
        request = Request(
            "PUT",
            f"{_path(project)}/policy",
            json=dict(policy),
            headers=headers,
            timeout=timeout,
            repeatable=if_version is None,
        )
        return ProjectPolicy.decode(await self._transport.call(request))

    async def explain(
        self, project: str, agent: str, path: str, *, timeout: Optional[float] = None
    ) -> PolicyExplanation:
        """Returns the access that an agent has to a path, and the rule that decides."""
        request = Request(
            "GET", f"{_path(project)}/policy/explain", query={"agent": agent, "path": path}, timeout=timeout
        )
        return PolicyExplanation.decode(await self._transport.call(request))


class ReviewService(Service):
    """Reviews: conflicts and critical changes that wait for a decision."""

    async def list(
        self,
        project: str,
        *,
        state: Optional[str] = None,
        completion: Optional[str] = None,
        path: Optional[str] = None,
        assigned: Optional[str] = None,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[Review]:
        """Returns a page of the reviews of a project."""
        query = {"state": state, "completion": completion, "path": path, "assigned": assigned}
        query.update(cursor=cursor, limit=limit)  # type: ignore[arg-type]
        request = Request("GET", f"{_path(project)}/reviews", query=query, headers=agent_header(agent), timeout=timeout)
        return page_of(await self._transport.call(request), Review.decode)

    async def get(
        self, project: str, review: str, *, agent: Optional[str] = None, timeout: Optional[float] = None
    ) -> ReviewDetails:
        """Returns a review with its versions, conflicting parts and choices."""
        return ReviewDetails.decode(await self._get(_review(project, review), timeout, agent))

    async def resolve(
        self,
        project: str,
        review: str,
        resolution: Optional[ResolveReview] = None,
        *,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
        **fields: Any,
    ) -> ResolvedReview:
        """Decides a review. The decision is a `ResolveReview`, or its attributes as keywords: `choice="theirs"`."""
        body = ResolveReview(**fields) if resolution is None else resolution
        path = f"{_review(project, review)}/resolve"
        return ResolvedReview.decode(await self._post(path, body, timeout, headers=agent_header(agent), slow=True))

    async def version(
        self,
        project: str,
        review: str,
        side: str,
        *,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Returns the content of one version: `base`, `ours`, `theirs` or `head`."""
        path = f"{_review(project, review)}/versions/{segment(side)}"
        request = Request("GET", path, headers=agent_header(agent), timeout=timeout, slow=True)
        return (await self._transport.fetch(request)).content


class WorkspaceService(Service):
    """Workspaces of agents that run outside sandboxes: directories on the machine of the server."""

    async def create(
        self,
        project: str,
        *,
        agent: Optional[str] = None,
        base_snapshot: Optional[Revision] = None,
        provider: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AgentWorkspace:
        """Creates the workspace of an agent, or returns the one that it has.

        It starts with the state `base_snapshot` of the project, by default its head.
        """
        body = CreateAgentWorkspace(agent=agent, base_snapshot=base_snapshot, provider=provider)
        path = f"{_path(project)}/workspaces"
        return AgentWorkspace.decode(await self._post(path, body, timeout, slow=True))

    async def list(
        self,
        project: str,
        *,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[AgentWorkspace]:
        """Returns a page of the workspaces of a project."""
        path = f"{_path(project)}/workspaces"
        return page_of(await self._get(path, timeout, agent, cursor=cursor, limit=limit), AgentWorkspace.decode)

    async def get(self, project: str, agent: str, *, timeout: Optional[float] = None) -> AgentWorkspace:
        """Returns the workspace of an agent."""
        return AgentWorkspace.decode(await self._get(_workspace(project, agent), timeout))

    async def delete(
        self, project: str, agent: str, *, discard: Optional[bool] = None, timeout: Optional[float] = None
    ) -> None:
        """Deletes the workspace of an agent; one with changes that are not completed only with `discard`."""
        await self._delete(_workspace(project, agent), timeout, query={"discard": discard}, slow=True)

    async def changes(self, project: str, agent: str, *, timeout: Optional[float] = None) -> AgentWorkspaceChanges:
        """Returns what differs from the files that the workspace was made from."""
        request = Request("GET", f"{_workspace(project, agent)}/changes", timeout=timeout, slow=True)
        return AgentWorkspaceChanges.decode(await self._transport.call(request))

    async def complete(
        self,
        project: str,
        agent: str,
        *,
        message: Optional[str] = None,
        wait: Optional[int] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Completion:
        """Merges the changes of a workspace into its project."""
        path = f"{_workspace(project, agent)}/complete"
        return await complete(self, path, message, wait, idempotency_key, timeout)

    async def rebase(self, project: str, agent: str, *, timeout: Optional[float] = None) -> RebaseAgentWorkspaceResult:
        """Merges the changes of a workspace with the present head of the project, in place."""
        path = f"{_workspace(project, agent)}/rebase"
        return RebaseAgentWorkspaceResult.decode(await self._post(path, None, timeout, slow=True))

    async def complete_only(
        self,
        agent: str,
        *,
        message: Optional[str] = None,
        wait: Optional[int] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Completion:
        """Merges the changes of the only workspace that the agent has."""
        path = f"/api/v1/workspace/{segment(agent)}/complete"
        return await complete(self, path, message, wait, idempotency_key, timeout)

    async def own(
        self, project: str, *, agent: Optional[str] = None, timeout: Optional[float] = None
    ) -> AgentWorkspace:
        """Returns the workspace that the agent of the key has of a project."""
        return AgentWorkspace.decode(await self._get(f"/api/v1/workspace/{segment(project)}/path", timeout, agent))

    async def sync(self, project: str, *, agent: Optional[str] = None, timeout: Optional[float] = None) -> SyncResult:
        """Moves workspaces without changes to the present head."""
        path, headers = f"{_path(project)}/sync", agent_header(agent)
        return SyncResult.decode(await self._post(path, None, timeout, headers=headers, repeatable=True, slow=True))


def _path(project: str) -> str:
    return f"{PROJECTS}/{segment(project)}"


def _review(project: str, review: str) -> str:
    return f"{_path(project)}/reviews/{segment(review)}"


def _workspace(project: str, agent: str) -> str:
    return f"{_path(project)}/workspaces/{segment(agent)}"
