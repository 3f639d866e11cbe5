//! `/api/v1/sandboxes/{id}/commit`, `restore`, `rebase`, `fork` and `changes`: the workspace of a sandbox and its
//! snapshots.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::diff::Diff;
use crate::projects::{CompletionConflict, MergedFile};
use crate::sandboxes::{OnEnd, Sandbox};
use crate::snapshots::{SkippedEntry, Snapshot};

/// Request to commit the workspace of a sandbox as a snapshot.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"message": "tests pass"}))]
pub struct CommitSandbox {
    /// Message of the snapshot.
    #[serde(default)]
    #[schema(max_length = 65536)]
    pub message: String,
    /// Labels of the snapshot.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Durability of the snapshot when the response is sent. Default: `synced`.
    #[serde(default)]
    pub durability: Durability,
}

/// Durability of a commit when its response is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Survives a crash of the machine.
    #[default]
    Synced,
    /// Survives a crash of the server. A crash of the machine may lose it.
    Buffered,
}

/// Freeze of the processes of a sandbox while its workspace was read.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Freeze {
    /// Method: `cgroup` (freezer of the control group), `signals` (SIGSTOP to every process) or `none` (no process
    /// was running).
    #[schema(example = "cgroup")]
    pub method: String,
    /// Number of frozen processes. Absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// Duration in milliseconds.
    pub milliseconds: f64,
}

/// Snapshot of a sandbox, and entries that it does not contain.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitSandboxResult {
    /// New snapshot.
    pub snapshot: Snapshot,
    /// Entries that a snapshot cannot contain, such as sockets. At most 1000.
    pub skipped: Vec<SkippedEntry>,
    /// Total number of entries that a snapshot cannot contain.
    #[schema(value_type = usize)]
    pub skipped_count: u64,
    /// Freeze of the processes during the operation.
    pub frozen: Freeze,
}

/// Request to restore a snapshot in a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreSandbox {
    /// Id of the snapshot.
    pub snapshot: String,
    /// Kills processes whose working directory is below `/workspace`, or that have a file of it open or mapped. If
    /// false, such processes make the request fail with `WORKSPACE_IN_USE`. Default: true.
    #[serde(default = "default_force")]
    pub force: bool,
}

fn default_force() -> bool {
    true
}

/// Restored sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RestoreSandboxResult {
    /// Sandbox after the restore.
    pub sandbox: Sandbox,
    /// Processes that were killed because they used the workspace before the restore.
    pub ended: Vec<WorkspaceProcess>,
    /// Freeze of the processes during the operation.
    pub frozen: Freeze,
}

/// Request to rebase a sandbox: the changes in its workspace are merged with the present head of its project.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebaseSandbox {
    /// Kills processes whose working directory is below `/workspace`, or that have a file of it open or mapped. If
    /// false, such processes make the request fail with `WORKSPACE_IN_USE`. Default: false.
    #[serde(default)]
    pub force: bool,
}

/// Result of a rebase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RebaseState {
    /// The workspace has the changes of the agent on top of the head.
    Rebased,
    /// The workspace had everything that the head has. Its files are as they were.
    Current,
    /// The changes of the agent conflict with the head. The workspace is as it was.
    Conflicts,
}

/// Rebased sandbox, or the conflicts because of which it was not rebased.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebaseSandboxResult {
    /// Result.
    pub state: RebaseState,
    /// Sandbox after the request.
    pub sandbox: Sandbox,
    /// Sequence of the head. In a sandbox that was created with a bound key (role `agent` or `reviewer`), the number of
    /// changes that its agent can see.
    pub sequence: u64,
    /// Id of the snapshot with the new files. Absent unless `state` is `rebased`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Id of a snapshot with the former files. Absent unless a rule of the policy decided a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<String>,
    /// Files that a merge strategy combined.
    pub merged: Vec<MergedFile>,
    /// Conflicts that no rule of the policy decides.
    pub conflicts: Vec<CompletionConflict>,
    /// Processes that were killed because they used the workspace.
    pub ended: Vec<WorkspaceProcess>,
    /// Freeze of the processes during the operation. Absent if nothing was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<Freeze>,
}

/// Process that used the workspace.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceProcess {
    /// PID inside the sandbox.
    pub pid: i32,
    /// Name of the program.
    pub command: String,
    /// Reason why the process counts as a user of the workspace. Its working directory (`cwd`), its root directory
    /// (`root`), an open file (`descriptor`) or a mapped file (`mapping`) is in the workspace, or the process could not
    /// be inspected (`hidden`).
    pub why: String,
}

/// Request to fork a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"count": 2}))]
pub struct ForkSandbox {
    /// Number of new sandboxes. Default: 1.
    #[serde(default = "default_count")]
    #[schema(minimum = 1, maximum = 1000)]
    pub count: u32,
    /// Lifetime of the new sandboxes in seconds. Default: the server's setting `DEFAULT_SANDBOX_TIMEOUT` (3600).
    /// `timeout_seconds` is also accepted.
    #[serde(default, alias = "timeout_seconds", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
    /// Treatment of changes in the new sandboxes that are not completed when they are deleted or expire. Default: that
    /// of the forked one. Forks that change nothing complete nothing.
    #[serde(default, alias = "on_end", skip_serializing_if = "Option::is_none")]
    pub on_end: Option<OnEnd>,
    /// Labels of the new sandboxes, in addition to those of the forked one.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Message of the snapshot from which they are created.
    #[serde(default)]
    pub message: String,
}

fn default_count() -> u32 {
    1
}

impl Default for ForkSandbox {
    fn default() -> Self {
        let count = default_count();
        Self { count, timeout_seconds: None, on_end: None, labels: BTreeMap::new(), message: String::new() }
    }
}

/// New sandboxes of a fork.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ForkSandboxResult {
    /// Snapshot from which the sandboxes were created.
    pub snapshot: Snapshot,
    /// New sandboxes. All are running.
    pub sandboxes: Vec<Sandbox>,
    /// Freeze of the processes during the operation.
    pub frozen: Freeze,
}

/// Changes in the workspace of a sandbox since it was created or last restored, or compared with the head that it was
/// rebased onto.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxChanges {
    /// Id of the snapshot that the workspace is compared with; null if the workspace started empty.
    pub base: Option<String>,
    /// Differences between the base and the workspace.
    #[serde(flatten)]
    pub diff: Diff,
    /// Entries that a snapshot cannot contain, such as sockets. At most 1000.
    pub skipped: Vec<SkippedEntry>,
    /// Total number of entries that a snapshot cannot contain.
    #[schema(value_type = usize)]
    pub skipped_count: u64,
    /// Freeze of the processes during the operation.
    pub frozen: Freeze,
}
