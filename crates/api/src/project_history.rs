//! `/api/v1/projects/{project}/snapshots`, `/diff` and `/events`: former heads of a project, and what happened to it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::revision::Revision;

/// Snapshot that was the head of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectSnapshot {
    /// Sequence of the project.
    pub sequence: u64,
    /// Id of the snapshot. Absent for agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Kind of the change that made it: `import`, `merge` (of a completion), `rollback` or `resolve` (a review was
    /// decided).
    #[schema(example = "merge")]
    pub operation: String,
    /// Name of the agent or person that made the change.
    pub author: String,
    /// Time of the change.
    #[schema(format = DateTime)]
    pub time: String,
}

/// Page of snapshots that were the head of a project.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ProjectSnapshotList {
    /// Snapshots, newest first.
    pub items: Vec<ProjectSnapshot>,
    /// Number of snapshots on all pages.
    #[serde(default)]
    pub total: u64,
    /// Maximum number of snapshots per page.
    pub limit: u32,
    /// Value of `before` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Position and size of a page of former heads of a project.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListProjectSnapshotsQuery {
    /// Sequence before which snapshots are listed: `next` of the previous page.
    pub before: Option<u64>,
    /// Maximum number of snapshots per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// States of a project to compare, and form of the result.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProjectDiffQuery {
    /// Old state of the project: its sequence, or the id of the snapshot that a change made. Default: the one before
    /// `to`.
    #[param(value_type = Option<String>)]
    pub from: Option<Revision>,
    /// New state of the project: its sequence, or the id of the snapshot that a change made. Default: the head.
    #[param(value_type = Option<String>)]
    pub to: Option<Revision>,
    /// Adds line counts, totals and risk notes. Default: false.
    #[serde(default)]
    pub insight: bool,
    /// Returns a unified diff for `git apply` (`text/x-diff`) instead of JSON. Default: false.
    #[serde(default)]
    pub patch: bool,
    /// Maximum number of differences, ordered by path. Default: 1000.
    #[param(minimum = 1, maximum = 10000)]
    pub limit: Option<usize>,
}

/// Position and filter of the events of a project.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProjectEventsQuery {
    /// Id of the last event that you have: later events are returned. Without it, all stored events are returned. The
    /// header `Last-Event-ID` takes precedence.
    pub after: Option<u64>,
    /// Maximum number of events per page. Default: 100. Streams ignore it.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Filter by type, such as `completion.landed`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}
