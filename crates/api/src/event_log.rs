//! `/api/v1/events`: events of sandboxes, snapshots, templates and projects, as pages and as a stream. The events of a
//! command's output are in `events.rs`.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::projects::CompletionConflict;
use crate::sandboxes::RevertedChanges;

/// Type of the message in a stream that reports missing events.
pub const GAP: &str = "gap";

/// Position and filters of a list or stream of events.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Id of the last event that you have: later events are returned. Without it, all stored events are returned. The
    /// header `Last-Event-ID` takes precedence.
    pub after: Option<u64>,
    /// Maximum number of events per page. Default: 100. Streams ignore it.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Filter by the id of the sandbox, which may be deleted.
    pub sandbox: Option<String>,
    /// Filter by type, such as `sandbox.created`.
    #[serde(rename = "type")]
    #[param(value_type = Option<EventType>)]
    pub kind: Option<String>,
    /// Filter by the name of the project, or of the project of the sandbox.
    pub project: Option<String>,
}

/// Page of events.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// Events in the order in which they occurred.
    pub items: Vec<Event>,
    /// Value of `after` for the next page, also if there are no further events yet.
    #[schema(example = 17)]
    pub next: u64,
    /// True if there may be further events now.
    pub more: bool,
    /// Events that are missing. Absent if there are none after `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<EventGap>,
}

/// Event of a sandbox, a snapshot, a template or a project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "id": 17,
    "type": "sandbox.created",
    "time": "2026-01-31T10:00:00.000Z",
    "owner": "alice",
    "sandboxId": "sbx-0190c2f1a5c07cc0a1b2c3d4e5f60718",
    "data": {"name": "work", "state": "running", "template": "base", "expiresAt": "2026-01-31T11:00:00.000Z"}
}))]
pub struct Event {
    /// Number of the event. A later event has a higher number. Numbers are not consecutive.
    pub id: u64,
    /// Type of the event. A string, so that clients read events of later servers.
    #[schema(value_type = EventType)]
    #[serde(rename = "type")]
    pub kind: String,
    /// Time of the event.
    #[schema(format = DateTime)]
    pub time: String,
    /// Owner of the event. Absent in events that earlier versions of the server recorded, which only admins see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Id of the sandbox, which may be deleted. Absent if the event has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Details, which depend on the type.
    pub data: EventData,
}

/// Type of an event; `docs/events.md` says more about each. Later versions may add types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum EventType {
    /// A sandbox was created.
    #[serde(rename = "sandbox.created")]
    SandboxCreated,
    /// Processes of the sandbox are being started.
    #[serde(rename = "sandbox.starting")]
    SandboxStarting,
    /// The guest agent of the sandbox is ready.
    #[serde(rename = "sandbox.running")]
    SandboxRunning,
    /// The workspace of the sandbox was replaced by a snapshot.
    #[serde(rename = "sandbox.restored")]
    SandboxRestored,
    /// The head of the project of the sandbox has changes that its workspace does not have.
    #[serde(rename = "sandbox.base_moved")]
    SandboxBaseMoved,
    /// The changes in the workspace of the sandbox were merged with a newer head of its project.
    #[serde(rename = "sandbox.rebased")]
    SandboxRebased,
    /// The changes in the workspace of the sandbox conflict with the head of its project, so it was not rebased.
    #[serde(rename = "sandbox.rebase_conflicted")]
    SandboxRebaseConflicted,
    /// Refused changes were reverted in the workspace of the sandbox.
    #[serde(rename = "sandbox.changes_reverted")]
    SandboxChangesReverted,
    /// The sandbox was paused.
    #[serde(rename = "sandbox.paused")]
    SandboxPaused,
    /// The sandbox was resumed.
    #[serde(rename = "sandbox.resumed")]
    SandboxResumed,
    /// The sandbox will expire soon.
    #[serde(rename = "sandbox.expiring")]
    SandboxExpiring,
    /// The sandbox expired and is about to be removed.
    #[serde(rename = "sandbox.expired")]
    SandboxExpired,
    /// The sandbox was removed.
    #[serde(rename = "sandbox.deleted")]
    SandboxDeleted,
    /// The sandbox failed.
    #[serde(rename = "sandbox.error")]
    SandboxError,
    /// The guest agent connected.
    #[serde(rename = "agent.connected")]
    AgentConnected,
    /// The guest agent disconnected.
    #[serde(rename = "agent.disconnected")]
    AgentDisconnected,
    /// A snapshot was created, in a sandbox or by an upload.
    #[serde(rename = "snapshot.created")]
    SnapshotCreated,
    /// A template was built.
    #[serde(rename = "template.built")]
    TemplateBuilt,
    /// A project was created.
    #[serde(rename = "project.created")]
    ProjectCreated,
    /// The name or the settings of a project changed.
    #[serde(rename = "project.updated")]
    ProjectUpdated,
    /// A project was deleted.
    #[serde(rename = "project.deleted")]
    ProjectDeleted,
    /// The head of a project moved.
    #[serde(rename = "project.advanced")]
    ProjectAdvanced,
    /// A completion waits to be merged.
    #[serde(rename = "completion.queued")]
    CompletionQueued,
    /// The changes of a completion are in the head, and none of its reviews is undecided.
    #[serde(rename = "completion.landed")]
    CompletionLanded,
    /// A completion waits for reviews.
    #[serde(rename = "completion.in_review")]
    CompletionInReview,
    /// No change of a completion was allowed.
    #[serde(rename = "completion.refused")]
    CompletionRefused,
    /// A completion could not be merged, and is not tried again.
    #[serde(rename = "completion.failed")]
    CompletionFailed,
    /// A review waits for a decision.
    #[serde(rename = "review.opened")]
    ReviewOpened,
    /// A review was decided.
    #[serde(rename = "review.resolved")]
    ReviewResolved,
    /// A review was not decided in time, and waits for somebody else.
    #[serde(rename = "review.escalated")]
    ReviewEscalated,
    /// A review was not decided in time: the head keeps its version.
    #[serde(rename = "review.expired")]
    ReviewExpired,
    /// A project has a new version of its policy.
    #[serde(rename = "policy.changed")]
    PolicyChanged,
}

/// Details of an event. A field is absent if the event does not have it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventData {
    /// Name of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// State of the sandbox after the event: `starting`, `running`, `paused`, `stopping`, `stopped` or `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Reason for the state, or of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Template of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Name of the project, or of the project of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Id of the project, in events about projects, completions, reviews and policies: another project may get the name
    /// later. Absent for agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// Creation time of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub created_at: Option<String>,
    /// Time at which the sandbox is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Id of a snapshot: the created one; the one whose files the sandbox has now (restored, rebased, changes reverted) or
    /// has only there (paused to disk); in `project.advanced`, the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Bytes that the snapshot added to the store. Absent if it belongs to a bound key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Sequence of the project's head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Version of the project's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<u64>,
    /// Name of the agent of the project whose changes are completed or reviewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Id of the completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_id: Option<String>,
    /// Id of the review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review_id: Option<String>,
    /// `escalateTo` of the policy: name of a key, or a glob, that may decide the review from now on, besides its
    /// reviewers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated_to: Option<String>,
    /// Person or agent that decided a review; `system` if it expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Decision about a review: `ours` (the project keeps its version), `theirs` (that of the agent), `strategy` (both,
    /// merged), `content` (a new version) or `delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// Conflicts because of which a sandbox was not rebased, at most 20. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub conflicts: Vec<CompletionConflict>,
    /// Refused changes that were reverted in the workspace of a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted: Option<RevertedChanges>,
}

/// Range of numbers in which events were deleted because they were too old or too many. Some events in the range may
/// still be stored; they are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventGap {
    /// First number of the range.
    pub from: u64,
    /// Last number of the range.
    pub to: u64,
}

/// Server-sent event of the stream of events. The stream is text; this schema describes its fields.
#[derive(Debug, ToSchema)]
pub struct EventMessage {
    /// Type of the event, or `gap`.
    pub event: String,
    /// Number of the event; in a `gap`, of the last event before it. Send it as `Last-Event-ID` to resume the stream.
    pub id: String,
    /// `Event` as JSON; in a `gap`, `EventGap`.
    pub data: String,
}
