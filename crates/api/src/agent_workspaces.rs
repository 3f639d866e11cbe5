//! Workspaces of agents that run in containers of their own: directories of the server's machine.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::projects::{CompletionConflict, MergedFile};
use crate::revision::Revision;
use crate::sandbox_snapshots::RebaseState;
use crate::snapshots::{EntryKind, SkippedEntry};

/// Request to create the workspace of an agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({"agent": "writer"}))]
pub struct CreateAgentWorkspace {
    /// Agent that works in it. Default: the agent of the key, or its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Provider, the method of making the directory: `clone` (files share their blocks on disk with those of the server
    /// until they are changed) or `copy`. Default: the first of these that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// State of the project that the workspace starts with, as far as the agent may see it: a sequence, or the id of the
    /// snapshot that a change made. Keys of agents name it by their sequence. Completions merge the changes since then.
    /// Default: the present head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_snapshot: Option<Revision>,
}

/// State of the workspace of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentWorkspaceState {
    /// Its directory is being made.
    Creating,
    /// The agent may use it.
    Ready,
    /// Its files are being replaced by those of a newer head.
    Moving,
    /// Its directory is being removed.
    Removing,
}

/// Workspace of an agent: a directory of the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentWorkspace {
    /// Id of the workspace.
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Agent that works in it.
    pub agent: String,
    /// State.
    pub state: AgentWorkspaceState,
    /// Name of the server that has the directory.
    pub server: String,
    /// Absolute path of the directory. Absent until it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Provider: `clone` or `copy`. Absent until the directory is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// UID and GID that own the files, such as `1000:1000`. A container should run as this user. Absent until the
    /// directory is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Id of the snapshot that it was made from, moved to or rebased onto: the files that the agent may see.
    pub base_snapshot: String,
    /// Sequence of the project that it was made from, moved to or rebased onto.
    pub sequence: u64,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Page of workspaces of agents.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AgentWorkspaceList {
    /// Workspaces, ordered by agent.
    pub items: Vec<AgentWorkspace>,
    /// Maximum number of workspaces per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Page of a list of workspaces.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListAgentWorkspacesQuery {
    /// `next` of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of workspaces per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Changes in the workspace of an agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentWorkspaceChanges {
    /// Agent that works in it.
    pub agent: String,
    /// Id of the snapshot that it was made from, with which it is compared.
    pub base_snapshot: String,
    /// Sequence of the project that it was made from.
    pub sequence: u64,
    /// False if the workspace has changes that were not completed (submitted to be merged into the project).
    pub completed: bool,
    /// Added and changed entries, with content up to a limit. A renamed entry is one that was added and one that was
    /// deleted.
    pub modified: Vec<ModifiedEntry>,
    /// Paths of deleted entries.
    pub deleted: Vec<String>,
    /// Number of all added, changed and deleted entries.
    pub total: usize,
    /// True if not all of them are listed.
    pub truncated: bool,
    /// Entries that a snapshot cannot contain, such as sockets. At most 1000.
    pub skipped: Vec<SkippedEntry>,
    /// Total number of entries that a snapshot cannot contain.
    #[schema(value_type = usize)]
    pub skipped_count: u64,
}

/// Added or changed entry of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModifiedEntry {
    /// Path. If it has control characters, quotes, backslashes or bytes that are not UTF-8, it is in double quotes with
    /// C escapes.
    pub path: String,
    /// Kind: `file`, `directory` or `symlink`.
    #[schema(value_type = String)]
    pub kind: EntryKind,
    /// Permission bits, such as `0644`.
    pub mode: String,
    /// Size of a file or symlink in bytes.
    pub size: u64,
    /// Content of a file, or target of a symlink, if it is UTF-8. Absent for directories, and if it is too large: a
    /// file of more than 64 KiB, or beyond 1 MiB of the whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Content or target in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_base64: Option<String>,
}

/// Rebased workspace of an agent, or the conflicts because of which it was not rebased.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebaseAgentWorkspaceResult {
    /// Result.
    pub state: RebaseState,
    /// Workspace after the request.
    pub workspace: AgentWorkspace,
    /// Sequence of the head. With a bound key (role `agent` or `reviewer`), the number of changes that the agent can see.
    pub sequence: u64,
    /// Id of a snapshot with the former files. Absent unless a rule of the policy decided a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<String>,
    /// Files that a merge strategy combined.
    pub merged: Vec<MergedFile>,
    /// Conflicts that no rule of the policy decides.
    pub conflicts: Vec<CompletionConflict>,
}

/// Options of deleting the workspace of an agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteAgentWorkspaceQuery {
    /// Deletes it even if it has changes that were not completed. Default: false.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    pub discard: bool,
}

/// Result of moving workspaces to the present head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncResult {
    /// Number of workspaces that were moved to the head.
    pub synced: u64,
    /// Number of workspaces that were left as they are: they have changes that are not completed and merged, have the
    /// files of the head, are being changed by another request, are on another server, or could not be moved (the log
    /// of the server says why).
    pub skipped: u64,
    /// Sum of `synced` and `skipped`.
    pub total: u64,
}
