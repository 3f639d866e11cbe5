"""Events of the server, to be told apart by `type`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Dict, Generic, List, Literal, Mapping, Optional, Tuple, Type, TypeVar, Union, cast

from .types import CompletionConflict, Event, EventGap, RevertedChanges
from .types import EventPage as WirePage

__all__ = [
    "AgentEventData",
    "ChangesRevertedData",
    "CompletionEventData",
    "CompletionFailedData",
    "CompletionMergedData",
    "EventOf",
    "EventPage",
    "PolicyEventData",
    "ProjectAdvancedData",
    "ProjectEventData",
    "RebaseConflictedData",
    "ReviewDecisionData",
    "ReviewEscalatedData",
    "ReviewEventData",
    "SandboxEndedData",
    "SandboxEventData",
    "SandboxRestoredData",
    "ServerEvent",
    "SnapshotEventData",
    "TemplateEventData",
]


@dataclass
class SandboxEventData:
    """Details of an event of a sandbox."""

    name: Optional[str]
    """Name of the sandbox; `None` if it has none."""
    state: Literal["starting", "running", "paused", "stopping", "stopped", "error"]
    """State of the sandbox after the event."""
    template: str
    """Template of the sandbox."""
    project: Optional[str]
    """Name of the project of the sandbox; `None` if it has none."""
    created_at: datetime
    """Creation time of the sandbox."""
    expires_at: datetime
    """Time at which the sandbox is deleted."""


@dataclass
class SandboxRestoredData(SandboxEventData):
    """Details of a restore or a rebase of a sandbox."""

    snapshot_id: str
    """Id of the snapshot whose files the sandbox has now."""


@dataclass
class RebaseConflictedData(SandboxEventData):
    """Details of a rebase that was not done because of conflicts."""

    conflicts: List[CompletionConflict]
    """Conflicts, at most 20."""


@dataclass
class ChangesRevertedData(SandboxEventData):
    """Details of refused changes that were reverted in the workspace."""

    snapshot_id: str
    """Id of the snapshot whose files the sandbox has now."""
    reverted: RevertedChanges
    """Changes that were reverted, and those that were not."""


@dataclass
class SandboxEndedData(SandboxEventData):
    """Details of a sandbox that was paused, or failed."""

    reason: Optional[str]
    """Reason for the state."""
    snapshot_id: Optional[str]
    """Id of the snapshot with the files of a sandbox that was paused to disk."""


@dataclass
class AgentEventData:
    """Details of an event of the guest agent, which has the sandbox only if it was just created."""

    name: Optional[str]
    """Name of the sandbox."""
    state: Optional[str]
    """State of the sandbox after the event."""
    template: Optional[str]
    """Template of the sandbox."""
    project: Optional[str]
    """Name of the project of the sandbox."""
    created_at: Optional[datetime]
    """Creation time of the sandbox."""
    expires_at: Optional[datetime]
    """Time at which the sandbox is deleted."""


@dataclass
class SnapshotEventData:
    """Details of a new snapshot."""

    snapshot_id: str
    """Id of the snapshot."""
    bytes: Optional[int]
    """Bytes that the snapshot added to the store; `None` if it belongs to the key of an agent."""


@dataclass
class TemplateEventData:
    """Details of a template that was built."""

    template: str
    """Name of the template, with its version."""


@dataclass
class ProjectEventData:
    """Details of an event of a project."""

    project: str
    """Name of the project."""
    project_id: Optional[str]
    """Id of the project; `None` for agents."""


@dataclass
class ProjectAdvancedData(ProjectEventData):
    """Details of a new head of a project."""

    sequence: int
    """Sequence of the head."""
    snapshot_id: str
    """Id of the snapshot of the head."""


@dataclass
class PolicyEventData(ProjectEventData):
    """Details of a new policy of a project."""

    policy_version: int
    """Version of the policy."""


@dataclass
class CompletionEventData(ProjectEventData):
    """Details of an event of a completion."""

    agent: str
    """Agent whose changes are completed."""
    completion_id: str
    """Id of the completion."""


@dataclass
class CompletionMergedData(CompletionEventData):
    """Details of a completion whose changes are in the head, all but those that wait for reviews."""

    sequence: Optional[int]
    """Sequence of the head with the changes; `None` if there are none."""


@dataclass
class CompletionFailedData(ProjectEventData):
    """Details of a completion that failed."""

    agent: str
    """Agent whose changes are not completed."""
    completion_id: Optional[str]
    """Id of the completion; `None` if a sandbox could not be completed because a quota is used up."""
    reason: str
    """Reason of the failure."""


@dataclass
class ReviewEventData(CompletionEventData):
    """Details of an event of a review."""

    review_id: str
    """Id of the review."""


@dataclass
class ReviewDecisionData(ReviewEventData):
    """Details of the decision about a review."""

    by: str
    """Person or agent that decided it; `system` if it expired."""
    choice: str
    """Decision: `ours`, `theirs`, `strategy`, `content` or `delete`."""
    sequence: Optional[int]
    """Sequence of the new head; `None` if the head did not change."""


@dataclass
class ReviewEscalatedData(ReviewEventData):
    """Details of a review that was not decided in time, and waits for somebody else."""

    escalated_to: str
    """Name of a key, or a glob, that may decide it from now on."""


Kind = TypeVar("Kind")
"""Type of an event."""
Data = TypeVar("Data")
"""Details of an event."""


@dataclass
class EventOf(Generic[Kind, Data]):
    """Event with the details of its type."""

    id: int
    """Number of the event. A later event has a higher number. Numbers are not consecutive."""
    type: Kind
    """Type; `docs/events.md` says what each means."""
    time: datetime
    """Time of the event."""
    data: Data
    """Details, which depend on the type."""
    owner: Optional[str] = None
    """Owner of the event; `None` if a former version of the server recorded it."""
    sandbox_id: Optional[str] = None
    """Id of the sandbox, which may be deleted; `None` if the event has none."""


ServerEvent = Union[
    EventOf[Literal["sandbox.starting"], SandboxEventData],
    EventOf[Literal["sandbox.running"], SandboxEventData],
    EventOf[Literal["sandbox.created"], SandboxEventData],
    EventOf[Literal["sandbox.base_moved"], SandboxEventData],
    EventOf[Literal["sandbox.resumed"], SandboxEventData],
    EventOf[Literal["sandbox.expiring"], SandboxEventData],
    EventOf[Literal["sandbox.expired"], SandboxEventData],
    EventOf[Literal["sandbox.deleted"], SandboxEventData],
    EventOf[Literal["sandbox.restored"], SandboxRestoredData],
    EventOf[Literal["sandbox.rebased"], SandboxRestoredData],
    EventOf[Literal["sandbox.rebase_conflicted"], RebaseConflictedData],
    EventOf[Literal["sandbox.changes_reverted"], ChangesRevertedData],
    EventOf[Literal["sandbox.paused"], SandboxEndedData],
    EventOf[Literal["sandbox.error"], SandboxEndedData],
    EventOf[Literal["agent.connected"], AgentEventData],
    EventOf[Literal["agent.disconnected"], AgentEventData],
    EventOf[Literal["snapshot.created"], SnapshotEventData],
    EventOf[Literal["template.built"], TemplateEventData],
    EventOf[Literal["project.created"], ProjectEventData],
    EventOf[Literal["project.updated"], ProjectEventData],
    EventOf[Literal["project.deleted"], ProjectEventData],
    EventOf[Literal["project.advanced"], ProjectAdvancedData],
    EventOf[Literal["policy.changed"], PolicyEventData],
    EventOf[Literal["completion.queued"], CompletionEventData],
    EventOf[Literal["completion.refused"], CompletionEventData],
    EventOf[Literal["completion.landed"], CompletionMergedData],
    EventOf[Literal["completion.in_review"], CompletionMergedData],
    EventOf[Literal["completion.failed"], CompletionFailedData],
    EventOf[Literal["review.opened"], ReviewEventData],
    EventOf[Literal["review.resolved"], ReviewDecisionData],
    EventOf[Literal["review.expired"], ReviewDecisionData],
    EventOf[Literal["review.escalated"], ReviewEscalatedData],
]
"""Event of the server: `type` tells which attributes `data` has.

A newer server may send other types, whose `data` is a `workspace_sdk.types.EventData`. So a program that is to run with
it ignores types that it does not know.
"""


def _types_of_data() -> Dict[str, Tuple[Type[Any], Tuple[str, ...]]]:
    """Returns the class of the details of each type of event, and its attributes."""
    found: Dict[str, Tuple[Type[Any], Tuple[str, ...]]] = {}
    for member in ServerEvent.__args__:  # type: ignore[attr-defined]
        kind, data = member.__args__
        found[kind.__args__[0]] = (data, tuple(field.name for field in fields(data)))
    return found


DATA_TYPES = _types_of_data()


def narrow_event(event: Event) -> ServerEvent:
    """Returns an event with the details of its type. Those that an older server did not record are `None`."""
    details: Any = event.data
    known = DATA_TYPES.get(event.type)
    if known is not None:
        data, names = known
        details = data(**{name: getattr(details, name) for name in names})
    return cast(ServerEvent, EventOf(event.id, event.type, event.time, details, event.owner, event.sandbox_id))


def decode_event(wire: Any) -> ServerEvent:
    """Creates an event from parsed JSON."""
    return narrow_event(Event.decode(wire))


@dataclass
class EventPage:
    """Page of events."""

    items: List[ServerEvent]
    """Events in the order in which they occurred."""
    more: bool
    """True if there may be further events now."""
    next: int
    """Value of `after` for the next page, also if there are no further events yet."""
    gap: Optional[EventGap] = None
    """Events that are missing; `None` if there are none after `after`."""


def decode_page(wire: Mapping[str, Any]) -> EventPage:
    """Creates a page from parsed JSON."""
    page = WirePage.decode(wire)
    return EventPage([narrow_event(event) for event in page.items], page.more, page.next, page.gap)
