//! `/api/v1/events`: events of sandboxes, snapshots, templates and projects, as pages and as a stream. The events of a
//! command's output are in `events.rs`.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::projects::CompletionConflict;

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
    /// Type; `docs/events.md` says what each means: `sandbox.starting`, `sandbox.running`, `sandbox.created`,
    /// `sandbox.restored`, `sandbox.base_moved`, `sandbox.rebased`, `sandbox.rebase_conflicted`, `sandbox.paused`,
    /// `sandbox.resumed`, `sandbox.expiring`, `sandbox.expired`, `sandbox.error`, `sandbox.deleted`, `agent.connected`,
    /// `agent.disconnected` (both of the guest agent), `snapshot.created`, `template.built`, `project.created`,
    /// `project.updated`, `project.deleted`, `project.advanced`, `completion.queued`, `completion.landed`,
    /// `completion.in_review`, `completion.refused`, `completion.failed`, `review.opened`, `review.resolved`,
    /// `review.escalated`, `review.expired` or `policy.changed`. Later versions may add types.
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
    /// Creation time of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub created_at: Option<String>,
    /// Time at which the sandbox is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Id of a snapshot: the created one; the one whose files the sandbox has now (restored, rebased) or has only there
    /// (paused to disk); in `project.advanced`, the head.
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
