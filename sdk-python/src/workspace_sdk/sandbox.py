"""Sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Union

from ._request import Request, segment
from ._runtime import shielded
from ._service import Service, agent_header, all_pages, idempotency_header, page_of
from ._transport import Transport
from .errors import SandboxGoneError
from .files import FileService
from .nfs import NFSService
from .notes import NoteService
from .ports import PortService
from .process import ProcessService
from .pty import PTYService
from .results import Page
from .types import (
    BatchDelete,
    BatchDeleteResult,
    CommitSandbox,
    CommitSandboxResult,
    CompleteSandbox,
    Completion,
    CompletionConflict,
    CreateSandboxParams,
    CreateToken,
    DeleteSandboxResult,
    Durability,
    ExtendSandbox,
    ForkSandbox,
    Freeze,
    Keep,
    Logs,
    MergedFile,
    MetricSeries,
    OnEnd,
    PauseSandbox,
    RebaseSandbox,
    RebaseState,
    RestoreSandbox,
    ResumeSandbox,
    Right,
    SandboxChanges,
    SandboxInfo,
    SandboxStats,
    SandboxToken,
    SetTimeout,
    Snapshot,
    UpdateSandbox,
    WorkspaceProcess,
)


class Sandbox(SandboxInfo):
    """Sandbox: isolated processes around a workspace.

    Used with `async with`, it is deleted at the end of the block. The attributes are those of the last response;
    `refresh` reads them again.
    """

    process: ProcessService
    """Commands."""
    files: FileService
    """Files."""
    ports: PortService
    """Ports and previews."""
    pty: PTYService
    """Terminals."""
    notes: NoteService
    """Notes of agents."""
    nfs: NFSService  # type: ignore[assignment]
    """Address of the workspace for NFS clients, and mounts of it."""

    def __init__(self, service: SandboxService, info: SandboxInfo) -> None:
        self._service = service
        self._update(info)
        transport, sandbox_id = service.transport, info.id
        self.process = ProcessService(transport, sandbox_id)
        self.files = FileService(transport, sandbox_id)
        self.ports = PortService(transport, sandbox_id)
        self.pty = PTYService(transport, sandbox_id)
        self.notes = NoteService(transport, sandbox_id)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __repr__(self) -> str:
        name = f" name={self.name!r}" if self.name else ""
        return f"<Sandbox {self.id}{name} state={self.state} template={self.template!r}>"

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await shielded(self._delete_at_end)

    async def delete(
        self,
        *,
        keep_workspace: Optional[bool] = None,
        complete: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> Optional[DeleteSandboxResult]:
        """Deletes the sandbox; see `SandboxService.delete`."""
        return await self._service.delete(self.id, keep_workspace=keep_workspace, complete=complete, timeout=timeout)

    async def refresh(self, *, timeout: Optional[float] = None) -> Sandbox:
        """Reads the attributes again."""
        return self._update(await self._service.get(self.id, timeout=timeout))

    async def logs(
        self,
        *,
        tail: Optional[int] = None,
        since: Union[None, str, datetime] = None,
        until: Union[None, str, datetime] = None,
        timeout: Optional[float] = None,
    ) -> Logs:
        """Returns the output of all commands."""
        return await self._service.logs(self.id, tail=tail, since=since, until=until, timeout=timeout)

    async def stats(self, *, timeout: Optional[float] = None) -> SandboxStats:
        """Measures the sandbox now."""
        return await self._service.stats(self.id, timeout=timeout)

    async def metrics(
        self,
        *,
        from_: Union[None, str, datetime] = None,
        to: Union[None, str, datetime] = None,
        timeout: Optional[float] = None,
    ) -> MetricSeries:
        """Returns the measurements of the last hour."""
        return await self._service.metrics(self.id, from_=from_, to=to, timeout=timeout)

    async def extend(self, seconds: int, *, timeout: Optional[float] = None) -> Sandbox:
        """Lets the sandbox expire later."""
        return self._update(await self._service.extend(self.id, seconds, timeout=timeout))

    async def set_timeout(
        self,
        *,
        timeout_seconds: Optional[int] = None,
        expires_at: Optional[datetime] = None,
        timeout: Optional[float] = None,
    ) -> Sandbox:
        """Sets the time at which the sandbox expires, from now or as a point in time."""
        changed = await self._service.set_timeout(
            self.id, timeout_seconds=timeout_seconds, expires_at=expires_at, timeout=timeout
        )
        return self._update(changed)

    async def set_labels(self, labels: Mapping[str, str], *, timeout: Optional[float] = None) -> Sandbox:
        """Replaces the labels."""
        return self._update(await self._service.set_labels(self.id, labels, timeout=timeout))

    async def changes(
        self, *, insight: Optional[bool] = None, limit: Optional[int] = None, timeout: Optional[float] = None
    ) -> SandboxChanges:
        """Returns the changes in the workspace since it was created or last restored."""
        return await self._service.changes(self.id, insight=insight, limit=limit, timeout=timeout)

    async def patch(self, *, limit: Optional[int] = None, timeout: Optional[float] = None) -> str:
        """Returns the changes in the workspace as a unified diff."""
        return await self._service.patch(self.id, limit=limit, timeout=timeout)

    async def commit(
        self,
        *,
        message: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        durability: Optional[Durability] = None,
        timeout: Optional[float] = None,
    ) -> CommitSandboxResult:
        """Commits the workspace as a snapshot."""
        return await self._service.commit(
            self.id, message=message, labels=labels, durability=durability, timeout=timeout
        )

    async def fork(
        self,
        count: Optional[int] = None,
        *,
        message: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        timeout_seconds: Optional[int] = None,
        on_end: Optional[OnEnd] = None,
        timeout: Optional[float] = None,
    ) -> ForkResult:
        """Creates sandboxes with a copy of the workspace; processes are not copied."""
        return await self._service.fork(
            self.id,
            count=count,
            message=message,
            labels=labels,
            timeout_seconds=timeout_seconds,
            on_end=on_end,
            timeout=timeout,
        )

    async def restore(
        self, snapshot: str, *, force: Optional[bool] = None, timeout: Optional[float] = None
    ) -> RestoreResult:
        """Replaces the workspace by a snapshot. `force` kills processes that use the workspace."""
        result = await self._service.restore(self.id, snapshot, force=force, timeout=timeout)
        result.sandbox = self._update(result.sandbox)
        return result

    async def rebase(self, *, force: Optional[bool] = None, timeout: Optional[float] = None) -> RebaseResult:
        """Merges the changes of others in the project into the workspace."""
        result = await self._service.rebase(self.id, force=force, timeout=timeout)
        result.sandbox = self._update(result.sandbox)
        return result

    async def complete(
        self,
        *,
        message: Optional[str] = None,
        wait: Optional[int] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Completion:
        """Merges the changes of the workspace into its project. Waits up to `wait` seconds until they are merged."""
        return await self._service.complete(
            self.id, message=message, wait=wait, idempotency_key=idempotency_key, timeout=timeout
        )

    async def pause(self, *, keep: Keep = "disk", timeout: Optional[float] = None) -> Sandbox:
        """Pauses the sandbox, and keeps its workspace or also the memory of its processes."""
        return self._update(await self._service.pause(self.id, keep=keep, timeout=timeout))

    async def resume(self, *, timeout_seconds: Optional[int] = None, timeout: Optional[float] = None) -> Sandbox:
        """Resumes the sandbox after a pause."""
        return self._update(await self._service.resume(self.id, timeout_seconds=timeout_seconds, timeout=timeout))

    async def create_token(
        self, rights: Sequence[Right], *, expires_in_seconds: Optional[int] = None, timeout: Optional[float] = None
    ) -> SandboxToken:
        """Creates a token with some rights on this sandbox only."""
        return await self._service.create_token(self.id, rights, expires_in_seconds=expires_in_seconds, timeout=timeout)

    def _update(self, info: SandboxInfo) -> Sandbox:
        for name, _, _, _ in SandboxInfo._wire:
            setattr(self, name, getattr(info, name))
        if not isinstance(self.nfs, NFSService):
            self.nfs = NFSService(info.nfs)  # pyright: ignore[reportIncompatibleVariableOverride]
        return self

    async def _delete_at_end(self) -> None:
        try:
            await self.delete()
        except SandboxGoneError:
            pass


@dataclass
class ForkResult:
    """Result of a fork."""

    sandboxes: List[Sandbox]
    """New sandboxes, which are running."""
    snapshot: Snapshot
    """Snapshot of the workspace that they began with."""
    frozen: Freeze
    """How long the processes were frozen, and by which method."""


@dataclass
class RestoreResult:
    """Result of a restore."""

    sandbox: Sandbox
    """Sandbox after the restore."""
    ended: List[WorkspaceProcess]
    """Processes that were killed because they used the workspace."""
    frozen: Freeze
    """How long the processes were frozen, and by which method."""


@dataclass
class RebaseResult:
    """Result of a rebase."""

    sandbox: Sandbox
    """Sandbox after the rebase."""
    state: RebaseState
    """`rebased`, `current` if there was nothing to merge, or `conflicts` if nothing was changed."""
    sequence: int
    """Sequence of the project with which the workspace was merged."""
    conflicts: List[CompletionConflict]
    """Conflicts that no rule decides."""
    merged: List[MergedFile]
    """Files that both sides changed."""
    ended: List[WorkspaceProcess]
    """Processes that were killed because they used the workspace."""
    snapshot: Optional[str] = None
    """Id of the snapshot with the merged files."""
    former: Optional[str] = None
    """Id of a snapshot with the files from before, if a rule dropped a version of the agent."""
    frozen: Optional[Freeze] = None
    """How long the processes were frozen, and by which method."""


class SandboxService(Service):
    """Sandboxes. `Sandbox` has the same methods without the id."""

    @property
    def transport(self) -> Transport:
        """Transport of the client."""
        return self._transport

    async def create(
        self,
        params: Optional[CreateSandboxParams] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        **fields: Any,
    ) -> Sandbox:
        """Creates a sandbox, which is running when this returns.

        The parameters are a `CreateSandboxParams`, or its attributes as keyword arguments.
        """
        if params is None:
            fields.setdefault("template", "base")
            params = CreateSandboxParams(**fields)
        elif fields:
            raise TypeError("pass either `params` or keyword arguments")
        headers = idempotency_header(idempotency_key)
        data = await self._post("/api/v1/sandboxes", params, timeout, headers=headers, repeatable=True, slow=True)
        return self._sandbox(data)

    async def get(self, sandbox_id: str, *, timeout: Optional[float] = None) -> Sandbox:
        """Returns a sandbox."""
        return self._sandbox(await self._get(self._path(sandbox_id), timeout))

    async def list(
        self,
        *,
        page: Optional[int] = None,
        cursor: Optional[str] = None,
        limit: Optional[int] = None,
        state: Optional[str] = None,
        name_prefix: Optional[str] = None,
        labels: Union[None, str, Mapping[str, str]] = None,
        project: Optional[str] = None,
        agent: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Page[Sandbox]:
        """Returns a page of the sandboxes, the newest first."""
        if labels is not None and not isinstance(labels, str):
            labels = ",".join(f"{name}={value}" for name, value in labels.items())
        query: Dict[str, Any] = {"page": page, "cursor": cursor, "limit": limit, "state": state, "labels": labels}
        query.update(name_prefix=name_prefix, project=project, agent=agent)
        data = await self._transport.call(Request("GET", "/api/v1/sandboxes", query=query, timeout=timeout))
        return page_of(data, self._sandbox)

    def list_all(
        self,
        *,
        state: Optional[str] = None,
        name_prefix: Optional[str] = None,
        labels: Union[None, str, Mapping[str, str]] = None,
        project: Optional[str] = None,
        agent: Optional[str] = None,
    ) -> AsyncIterator[Sandbox]:
        """Yields all sandboxes, the newest first."""
        return all_pages(
            lambda cursor: self.list(
                state=state,
                name_prefix=name_prefix,
                labels=labels,
                project=project,
                agent=agent,
                cursor=cursor,
                limit=100,
            )
        )

    async def delete(
        self,
        sandbox_id: str,
        *,
        keep_workspace: Optional[bool] = None,
        complete: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> Optional[DeleteSandboxResult]:
        """Deletes a sandbox and kills its processes.

        Returns what is left of it: the snapshot with `keep_workspace`, and the completion of its changes if it
        belongs to a project. `complete=False` discards these changes.
        """
        query = {"keep_workspace": keep_workspace, "complete": complete}
        data = await self._delete(self._path(sandbox_id), timeout, query=query, slow=True)
        return None if data is None else DeleteSandboxResult.decode(data)

    async def batch_delete(
        self,
        ids: Sequence[str],
        *,
        keep_workspace: Optional[bool] = None,
        complete: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> BatchDeleteResult:
        """Deletes several sandboxes. The result names those that could not be deleted."""
        body = BatchDelete(ids=list(ids), keep_workspace=keep_workspace, complete=complete)
        path = "/api/v1/sandboxes/batch-delete"
        return BatchDeleteResult.decode(await self._post(path, body, timeout, repeatable=True, slow=True))

    async def logs(
        self,
        sandbox_id: str,
        *,
        tail: Optional[int] = None,
        since: Union[None, str, datetime] = None,
        until: Union[None, str, datetime] = None,
        timeout: Optional[float] = None,
    ) -> Logs:
        """Returns the output of all commands of a sandbox."""
        path = f"{self._path(sandbox_id)}/logs"
        return Logs.decode(await self._get(path, timeout, tail=tail, since=since, until=until))

    async def stats(self, sandbox_id: str, *, timeout: Optional[float] = None) -> SandboxStats:
        """Measures a sandbox now."""
        return SandboxStats.decode(await self._get(f"{self._path(sandbox_id)}/stats", timeout))

    async def metrics(
        self,
        sandbox_id: str,
        *,
        from_: Union[None, str, datetime] = None,
        to: Union[None, str, datetime] = None,
        timeout: Optional[float] = None,
    ) -> MetricSeries:
        """Returns the measurements of the last hour."""
        query = {"from": from_, "to": to}
        request = Request("GET", f"{self._path(sandbox_id)}/metrics", query=query, timeout=timeout)
        return MetricSeries.decode(await self._transport.call(request))

    async def extend(self, sandbox_id: str, seconds: int, *, timeout: Optional[float] = None) -> Sandbox:
        """Lets a sandbox expire later."""
        body = ExtendSandbox(seconds=seconds)
        return self._sandbox(await self._post(f"{self._path(sandbox_id)}/extend", body, timeout))

    async def set_timeout(
        self,
        sandbox_id: str,
        *,
        timeout_seconds: Optional[int] = None,
        expires_at: Optional[datetime] = None,
        timeout: Optional[float] = None,
    ) -> Sandbox:
        """Sets the time at which a sandbox expires, from now or as a point in time."""
        body = SetTimeout(timeout_seconds=timeout_seconds, expires_at=expires_at)
        request = Request("PUT", f"{self._path(sandbox_id)}/timeout", json=body, timeout=timeout)
        return self._sandbox(await self._transport.call(request))

    async def set_labels(
        self, sandbox_id: str, labels: Mapping[str, str], *, timeout: Optional[float] = None
    ) -> Sandbox:
        """Replaces the labels of a sandbox."""
        body = UpdateSandbox(labels=dict(labels))
        request = Request("PATCH", self._path(sandbox_id), json=body, timeout=timeout, repeatable=True)
        return self._sandbox(await self._transport.call(request))

    async def changes(
        self,
        sandbox_id: str,
        *,
        insight: Optional[bool] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> SandboxChanges:
        """Returns the changes in the workspace since it was created or last restored."""
        query = {"insight": insight, "limit": limit}
        request = Request("GET", f"{self._path(sandbox_id)}/changes", query=query, timeout=timeout, slow=True)
        return SandboxChanges.decode(await self._transport.call(request))

    async def patch(self, sandbox_id: str, *, limit: Optional[int] = None, timeout: Optional[float] = None) -> str:
        """Returns the changes in the workspace as a unified diff."""
        query = {"patch": True, "limit": limit}
        request = Request("GET", f"{self._path(sandbox_id)}/changes", query=query, timeout=timeout, slow=True)
        return (await self._transport.fetch(request)).content.decode("utf-8", "replace")

    async def commit(
        self,
        sandbox_id: str,
        *,
        message: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        durability: Optional[Durability] = None,
        timeout: Optional[float] = None,
    ) -> CommitSandboxResult:
        """Commits the workspace as a snapshot."""
        body = CommitSandbox(message=message, labels=_dict(labels), durability=durability)
        data = await self._post(f"{self._path(sandbox_id)}/commit", body, timeout, slow=True)
        return CommitSandboxResult.decode(data)

    async def fork(
        self,
        sandbox_id: str,
        *,
        count: Optional[int] = None,
        message: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        timeout_seconds: Optional[int] = None,
        on_end: Optional[OnEnd] = None,
        timeout: Optional[float] = None,
    ) -> ForkResult:
        """Creates sandboxes with a copy of the workspace; processes are not copied."""
        body = ForkSandbox(
            count=count, message=message, labels=_dict(labels), timeout_seconds=timeout_seconds, on_end=on_end
        )
        data = await self._post(f"{self._path(sandbox_id)}/fork", body, timeout, slow=True)
        sandboxes = [self._sandbox(item) for item in data["sandboxes"]]
        return ForkResult(sandboxes, Snapshot.decode(data["snapshot"]), Freeze.decode(data["frozen"]))

    async def restore(
        self, sandbox_id: str, snapshot: str, *, force: Optional[bool] = None, timeout: Optional[float] = None
    ) -> RestoreResult:
        """Replaces the workspace by a snapshot. `force` kills processes that use the workspace."""
        body = RestoreSandbox(snapshot=snapshot, force=force)
        data = await self._post(f"{self._path(sandbox_id)}/restore", body, timeout, slow=True)
        ended = [WorkspaceProcess.decode(item) for item in data["ended"]]
        return RestoreResult(self._sandbox(data["sandbox"]), ended, Freeze.decode(data["frozen"]))

    async def rebase(
        self, sandbox_id: str, *, force: Optional[bool] = None, timeout: Optional[float] = None
    ) -> RebaseResult:
        """Merges the changes of others in the project into the workspace."""
        body = RebaseSandbox(force=force)
        data = await self._post(f"{self._path(sandbox_id)}/rebase", body, timeout, slow=True)
        frozen = data.get("frozen")
        return RebaseResult(
            sandbox=self._sandbox(data["sandbox"]),
            state=data["state"],
            sequence=data["sequence"],
            conflicts=[CompletionConflict.decode(item) for item in data["conflicts"]],
            merged=[MergedFile.decode(item) for item in data["merged"]],
            ended=[WorkspaceProcess.decode(item) for item in data["ended"]],
            snapshot=data.get("snapshot"),
            former=data.get("former"),
            frozen=None if frozen is None else Freeze.decode(frozen),
        )

    async def complete(
        self,
        sandbox_id: str,
        *,
        message: Optional[str] = None,
        wait: Optional[int] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Completion:
        """Merges the changes of the workspace into its project. Waits up to `wait` seconds until they are merged."""
        path = f"{self._path(sandbox_id)}/complete"
        return await complete(self, path, message, wait, idempotency_key, timeout)

    async def pause(self, sandbox_id: str, *, keep: Keep = "disk", timeout: Optional[float] = None) -> Sandbox:
        """Pauses a sandbox, and keeps its workspace or also the memory of its processes."""
        path = f"{self._path(sandbox_id)}/pause"
        return self._sandbox(await self._post(path, PauseSandbox(keep=keep), timeout, repeatable=True, slow=True))

    async def resume(
        self, sandbox_id: str, *, timeout_seconds: Optional[int] = None, timeout: Optional[float] = None
    ) -> Sandbox:
        """Resumes a sandbox after a pause."""
        body = ResumeSandbox(timeout_seconds=timeout_seconds)
        path = f"{self._path(sandbox_id)}/resume"
        return self._sandbox(await self._post(path, body, timeout, repeatable=True, slow=True))

    async def create_token(
        self,
        sandbox_id: str,
        rights: Sequence[Right],
        *,
        expires_in_seconds: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> SandboxToken:
        """Creates a token with some rights on one sandbox only."""
        body = CreateToken(rights=list(rights), expires_in_seconds=expires_in_seconds)
        path = f"{self._path(sandbox_id)}/token"
        return SandboxToken.decode(await self._post(path, body, timeout, repeatable=True))

    def _path(self, sandbox_id: str) -> str:
        return f"/api/v1/sandboxes/{segment(sandbox_id)}"

    def _sandbox(self, data: Any) -> Sandbox:
        return Sandbox(self, SandboxInfo.decode(data))


async def complete(
    service: Service,
    path: str,
    message: Optional[str],
    wait: Optional[int],
    idempotency_key: Optional[str],
    timeout: Optional[float],
    agent: Optional[str] = None,
) -> Completion:
    """Sends a request to complete work."""
    body = CompleteSandbox(message=message, wait=wait)
    headers = {**idempotency_header(idempotency_key), **agent_header(agent)}
    data = await service._post(path, body, timeout, headers=headers, repeatable=True, slow=True)
    return Completion.decode(data)


def _dict(labels: Optional[Mapping[str, str]]) -> Optional[Dict[str, str]]:
    return None if labels is None else dict(labels)
