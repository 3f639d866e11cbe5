//! `POST /api/v1/projects/{project}/completions`: work on a project that was done outside a sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::revision::Revision;

/// Request to merge files that were changed outside a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({"snapshot": "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718", "base": 3, "message": "fix the parser"}))]
pub struct CompleteSnapshot {
    /// Id of a snapshot of yours with all files after the work. You may delete it when the request was answered.
    pub snapshot: String,
    /// State of the project on which the work was done: its sequence, or the id of the snapshot that a change made.
    pub base: Revision,
    /// Agent that did the work. Default: the name of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Message for the history of the project.
    #[serde(default)]
    pub message: String,
    /// Seconds to wait until the changes landed or were refused, at most 60. Default: 0; the answer is then `queued`.
    #[serde(default)]
    pub wait: u64,
}
