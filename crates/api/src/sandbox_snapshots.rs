//! `/api/v1/sandboxes/{id}/commit`, `restore`, `fork` and `changes`: the workspace of a sandbox and its snapshots.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::diff::Diff;
use crate::sandboxes::Sandbox;
use crate::snapshots::{SkippedEntry, Snapshot};

/// Request to commit the workspace of a sandbox.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitSandbox {
    /// Message of the snapshot.
    #[serde(default)]
    #[schema(max_length = 65536)]
    pub message: String,
    /// Labels of the snapshot.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Durability of the snapshot when the response is sent.
    #[serde(default)]
    pub durability: Durability,
}

/// Durability of a commit when its response is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// It is on disk.
    #[default]
    Synced,
    /// A crash of the machine may lose it.
    Buffered,
}

/// Freeze of the processes of a sandbox while its workspace was read.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Freeze {
    /// Method: `cgroup` for the freezer of its control group, `signals` for signals to every process, `none` if
    /// nothing ran.
    #[schema(example = "cgroup")]
    pub method: String,
    /// Number of processes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// Duration in milliseconds.
    pub milliseconds: f64,
}

/// A snapshot of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommittedSandbox {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Entries that are not in it, the first thousand.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all entries that are not in it.
    #[schema(value_type = usize)]
    pub skipped_count: u64,
    /// Freeze of the sandbox.
    pub frozen: Freeze,
}

/// Request to restore a snapshot in a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreSandbox {
    /// Id of the snapshot.
    pub snapshot: String,
    /// End processes whose working directory is below the workspace, or that have a file of it open or mapped.
    /// Otherwise such processes make the request fail.
    #[serde(default = "default_force")]
    pub force: bool,
}

fn default_force() -> bool {
    true
}

/// A sandbox that was restored.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RestoredSandbox {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Processes that were ended.
    pub ended: Vec<WorkspaceUser>,
    /// Freeze of the sandbox.
    pub frozen: Freeze,
}

/// A process that used the workspace.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceUser {
    /// PID inside the sandbox.
    pub pid: i32,
    /// Name of the process.
    pub command: String,
    /// Use of the workspace: `cwd`, `root`, `descriptor`, `mapping`, or `hidden` if it could not be inspected.
    pub why: String,
}

/// Request to fork a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkSandbox {
    /// Number of new sandboxes.
    #[serde(default = "default_count")]
    #[schema(minimum = 1, maximum = 1000)]
    pub count: u32,
    /// Seconds until they expire. Also `timeout_seconds`.
    #[serde(default, alias = "timeout_seconds", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
    /// Labels in addition to those of the sandbox.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Message of the snapshot that they are created from.
    #[serde(default)]
    pub message: String,
}

fn default_count() -> u32 {
    1
}

impl Default for ForkSandbox {
    fn default() -> Self {
        let count = default_count();
        Self { count, timeout_seconds: None, labels: BTreeMap::new(), message: String::new() }
    }
}

/// Sandboxes that were forked from another one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ForkedSandbox {
    /// Snapshot that they were created from.
    pub snapshot: Snapshot,
    /// The new sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Freeze of the sandbox.
    pub frozen: Freeze,
}

/// Changes in the workspace of a sandbox since it was created or restored.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxChanges {
    /// Snapshot that the workspace was created from; none if it began empty.
    pub base: Option<String>,
    /// The changes.
    #[serde(flatten)]
    pub diff: Diff,
    /// Entries that no snapshot can hold, the first thousand.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all entries that no snapshot can hold.
    #[schema(value_type = usize)]
    pub skipped_count: u64,
    /// Freeze of the sandbox.
    pub frozen: Freeze,
}
