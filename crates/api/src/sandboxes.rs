//! `/api/v1/sandboxes`: creating, listing, changing and deleting sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::nfs::NfsInfo;
use crate::pauses::{OnTimeout, PauseMode};
use crate::revision::Revision;

/// Request to create a sandbox.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"template": "base", "name": "my-sandbox", "timeoutSeconds": 3600}))]
pub struct CreateSandbox {
    /// Name of the template, which is the root filesystem. `GET /api/v1/templates` lists them.
    #[schema(example = "base", min_length = 1, max_length = 255)]
    pub template: String,
    /// Display name. Need not be unique unless `uniqueName` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub name: Option<String>,
    /// Environment variables of all commands in the sandbox.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Fails with `SANDBOX_NAME_TAKEN` if the owner already has a sandbox with this name. Default:
    /// false. `unique_name` is also accepted.
    #[serde(default, alias = "unique_name", skip_serializing_if = "std::ops::Not::not")]
    pub unique_name: bool,
    /// Lifetime in seconds, after which the sandbox is deleted, or paused (see `onTimeout`). At most
    /// the server's setting `MAX_SANDBOX_LIFETIME`; more fails with the error code `LIFETIME_EXCEEDED`. Default: the
    /// server's setting `DEFAULT_SANDBOX_TIMEOUT` (3600). `timeout_seconds` is also accepted.
    #[serde(default, alias = "timeout_seconds", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
    /// Treatment of the sandbox when its lifetime is over. Default: `delete`. `on_timeout` is also accepted.
    #[serde(default, alias = "on_timeout", skip_serializing_if = "OnTimeout::is_default")]
    pub on_timeout: OnTimeout,
    /// Treatment of changes that were not completed (submitted to be merged into the project) when the sandbox is
    /// deleted or expires. Only for a sandbox of a project. Default: `complete`. Forks inherit it.
    #[serde(default, alias = "on_end", skip_serializing_if = "Option::is_none")]
    pub on_end: Option<OnEnd>,
    /// Resource limits. The defaults of the server apply to fields that are omitted.
    #[serde(default)]
    pub resources: Resources,
    /// Network access. Default: `none`.
    #[serde(default)]
    pub network: NetworkChoice,
    /// Allowed destinations of the network `egress`: host names (`example.com`), all subdomains of a name
    /// (`*.example.com`), and IPv4 ranges (`10.1.0.0/16`). Without a list, all destinations are allowed except the
    /// machine itself and the ranges in the server's setting `EGRESS_DENY`. `egress_allow` is also accepted.
    #[serde(default, alias = "egress_allow", skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pypi.org", "*.pythonhosted.org", "10.1.0.0/16"]), min_items = 1, max_items = 256)]
    pub egress_allow: Option<Vec<String>>,
    /// Addresses and networks whose clients may use the NFS export of the workspace, in addition to being allowed by
    /// the server's setting `NFS_ALLOWED_IPS`. Without a list, that setting alone decides. Forks inherit it.
    #[serde(default, alias = "nfs_allowed_ips", skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["10.1.0.0/16", "fd00::7"]), min_items = 1, max_items = 64)]
    pub nfs_allowed_ips: Option<Vec<String>>,
    /// Labels. Lists can be filtered by them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Id of the snapshot that `/workspace` starts with. Without one, `/workspace` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Provider, the method of making the workspace: `overlay`, `clone` or `copy`. Default: chosen by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Mode of writing the snapshot's files to disk: `full` (before the sandbox runs), `lazy` (never;
    /// files are loaded when they are read) or `auto` (small trees before, large trees in the background). Default:
    /// `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub materialize: Option<String>,
    /// Treatment of changes outside `/workspace`. With `kept`, commits, forks and restores include the root filesystem,
    /// and if `snapshot` contains a root filesystem, the sandbox starts with that. The template must be an imported
    /// one, not `base`; otherwise the request fails with the error code `ROOT_UNAVAILABLE`. Default: `discarded`.
    #[serde(default, skip_serializing_if = "RootChoice::is_discarded")]
    pub root: RootChoice,
    /// Name or id of the project that the sandbox belongs to. The sandbox starts with the files of the project that the
    /// agent may see, so `snapshot` cannot be set. Lists can be filtered by it, and forks inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "checkout", min_length = 1, max_length = 128)]
    pub project: Option<String>,
    /// Agent that works in the sandbox: text of your choice, without control characters. The policy of the project has
    /// rules for it. Lists can be filtered by it, and forks inherit it. Default for the policy: the name of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "fixer-7", min_length = 1, max_length = 128)]
    pub agent: Option<String>,
    /// Automatic snapshots. Default: `off`. Forks inherit it.
    #[serde(default, skip_serializing_if = "TraceChoice::is_off")]
    pub trace: TraceChoice,
    /// Files of the project that `/workspace` shows later. With `head`, `/workspace` is read-only, and shows each new
    /// head of the project as soon as it is there, without ending a process. With `rebase`, the server merges the
    /// changes in `/workspace` with each new head while no command runs, unless they conflict. Needs `project`, and a
    /// runtime and kernel that support it; otherwise the request fails with the error code `PROVIDER_UNAVAILABLE`.
    /// Without it, the files are those that the project had when the sandbox was created. Forks inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<FollowChoice>,
    /// State of the project that `/workspace` starts with, as far as the agent may see it: a sequence, or the id of the
    /// snapshot that a change made. Keys of agents name it by their sequence. Needs `project`, and cannot be combined
    /// with `follow`. Completions merge the changes since then. Default: the present head.
    #[serde(default, alias = "base_snapshot", skip_serializing_if = "Option::is_none")]
    pub base_snapshot: Option<Revision>,
}

/// Treatment of changes in a sandbox of a project that are not completed when the sandbox ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnEnd {
    /// They are completed: merged into the project.
    Complete,
    /// They are discarded.
    Discard,
}

/// Files of a project that a sandbox shows after its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FollowChoice {
    /// The present head of the project, read-only.
    Head,
    /// The changes of the agent, merged with the present head whenever the sandbox is idle.
    Rebase,
}

/// Treatment of changes to the root filesystem of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RootChoice {
    /// The root filesystem is read-only. Home directory and temporary directories are in memory.
    #[default]
    Discarded,
    /// Everything but `/tmp`, `/run` and `/dev` is writable and kept.
    Kept,
}

impl RootChoice {
    /// Returns true for the default.
    pub fn is_discarded(&self) -> bool {
        *self == Self::Discarded
    }
}

/// Automatic snapshots of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceChoice {
    /// None.
    #[default]
    Off,
    /// A snapshot after each command that changed files of `/workspace`. The snapshot's label `command` is the id of
    /// the command, and the command's field `snapshot` is the id of the snapshot. The newest are kept; the server's
    /// setting `TRACE_SNAPSHOTS_PER_SANDBOX` limits how many.
    Command,
}

impl TraceChoice {
    /// Returns true for `off`.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// Network access of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkChoice {
    /// Loopback only.
    #[default]
    None,
    /// Outgoing connections to the destinations in `egressAllow`; without that list, to everything that the machine can
    /// reach, except the machine itself and the ranges in the server's setting `EGRESS_DENY`.
    Egress,
}

/// Requested resource limits. The defaults of the server apply to fields that are omitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Number of CPU cores, such as `0.5` or `2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0.5")]
    pub cpu: Option<String>,
    /// Memory, such as `512m` or `2g`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "512m")]
    pub memory: Option<String>,
    /// Disk space of the workspace, such as `10g`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10g")]
    pub disk: Option<String>,
    /// Maximum number of processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub processes: Option<u32>,
}

/// Changes that the policy of a project refused, and that were reverted in `/workspace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevertedChanges {
    /// Id of the last completion before that.
    pub completion: String,
    /// Number of reverted changes.
    pub count: u64,
    /// Paths of reverted changes, at most 20.
    pub paths: Vec<String>,
    /// Number of refused changes that were left alone, because the entries had been changed again.
    pub kept_count: u64,
    /// Paths that were left alone, at most 20.
    pub kept: Vec<String>,
}

/// Sandbox: isolated processes around a workspace.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// Id of the sandbox.
    #[schema(example = "sbx-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    pub id: String,
    /// Display name. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Owner of the key that created the sandbox.
    pub owner: String,
    /// State: `starting`, `running`, `paused`, `stopping` (it is being deleted), `stopped` (its processes have ended)
    /// or `error`.
    pub state: String,
    /// Part of a paused sandbox that is kept. Absent if it is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<PauseMode>,
    /// Reason for the state, for instance of an error. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
    /// Name of the template.
    pub template: String,
    /// Runtime: `embedded`, `docker` or `oci`.
    pub runtime: String,
    /// Network access: `none` or `egress`.
    pub network: String,
    /// Allowed destinations of the network `egress`. Absent if there is no list; then all destinations are allowed
    /// except those that the server denies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_allow: Option<Vec<String>>,
    /// Labels. Lists can be filtered by them.
    pub labels: BTreeMap<String, String>,
    /// Effective resource limits.
    pub resources: ResourceLimits,
    /// Id of the snapshot from which the workspace was created, or by which a restore or rebase last replaced it.
    /// Absent if it started empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Provider of the workspace: `overlay`, `clone` or `copy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Treatment of changes outside `/workspace`: `discarded` or `kept`.
    #[serde(default)]
    pub root: RootChoice,
    /// Id of the sandbox that this one is a fork of. Absent if it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<String>,
    /// Name of the key that created the sandbox. Absent for sandboxes of older servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Project that the sandbox belongs to. Absent if none was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Agent that works in the sandbox. Absent if none was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Sequence of the project's head whose files `/workspace` shows, was made from, or was rebased onto. Absent
    /// without a project, and in sandboxes that were created with a bound key (role `agent` or `reviewer`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// Files of the project that `/workspace` shows. Absent if it does not follow the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<FollowChoice>,
    /// True if the head of the project has changes of others that the agent may see and `/workspace` does not have. A
    /// rebase brings them. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub base_moved: bool,
    /// Refused changes that the server reverted in `/workspace` when it last replaced files there. Absent if it did not
    /// do that, and after a rebase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted: Option<RevertedChanges>,
    /// True if `/workspace` cannot be changed: it follows the head, or the agent may change nothing. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub read_only: bool,
    /// Automatic snapshots. Absent for `off`.
    #[serde(default, skip_serializing_if = "TraceChoice::is_off")]
    #[schema(required = false)]
    pub trace: TraceChoice,
    /// Address of the workspace for NFS clients. Absent if it is not exported: the server's setting `NFS_MODE` is off, the
    /// sandbox follows the head of a project or is paused to disk, or the caller's token lacks a right to files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsInfo>,
    /// Requested limits that this machine cannot enforce, each with the reason.
    pub not_applied: Vec<String>,
    /// True if the guest agent is connected, so that commands can run.
    pub agent_connected: bool,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time at which the sandbox expires: then it is deleted, or paused (see `onTimeout`). A paused sandbox is deleted.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// Treatment of the sandbox when it expires.
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Treatment of changes that are not completed when the sandbox is deleted or expires. Absent if its changes are
    /// merged into no project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_end: Option<OnEnd>,
}

/// Effective resource limits.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ResourceLimits {
    /// Number of CPU cores, as a decimal number.
    pub cpu: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Disk space of the workspace in bytes.
    pub disk: u64,
    /// Maximum number of processes and threads.
    pub processes: u32,
}

/// Filters and page of a list of sandboxes.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSandboxesQuery {
    /// Page number, starting at 1. Default: 1. Entries move between pages when sandboxes are created or deleted; use
    /// `cursor` to avoid that.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// `next` of the previous page. Cannot be combined with `page`.
    pub cursor: Option<String>,
    /// Maximum number of sandboxes per page. Default: 20.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// Filter by state: `starting`, `running`, `paused`, `stopping`, `stopped` or `error`; see `state` of a sandbox.
    pub state: Option<String>,
    /// Filter by the start of the name. `namePrefix` is also accepted.
    #[serde(alias = "namePrefix")]
    pub name_prefix: Option<String>,
    /// Filter by labels, all of which must match: `name=value,name=value`.
    pub labels: Option<String>,
    /// Filter by project.
    pub project: Option<String>,
    /// Filter by agent.
    pub agent: Option<String>,
}

/// Page of sandboxes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxList {
    /// Sandboxes, newest first.
    pub items: Vec<Sandbox>,
    /// Number of sandboxes on all pages.
    pub total: u64,
    /// Page number, starting at 1.
    pub page: u32,
    /// Maximum number of sandboxes per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Request to change a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSandbox {
    /// New labels. They replace all labels of the sandbox.
    pub labels: BTreeMap<String, String>,
}

/// Options of a deletion.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteSandboxQuery {
    /// Keeps the workspace as a snapshot. With an admin key, a workspace of the provider `clone` or `copy` is kept as a
    /// directory on the server instead. Default: false. `keepWorkspace` is also accepted.
    #[serde(default, alias = "keepWorkspace")]
    pub keep_workspace: bool,
    /// Completes the changes of a sandbox of a project that are not completed, or with `false` discards them. Default:
    /// as the sandbox was created (`onEnd`).
    pub complete: Option<bool>,
}

/// Remains of a deleted sandbox: its workspace if that was kept, and the completion of its changes.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteSandboxResult {
    /// Id of the sandbox.
    pub id: String,
    /// Path of the directory on the server. Absent if the workspace was kept as a snapshot, or not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_path: Option<String>,
    /// Id of the snapshot. Absent if the workspace was kept as a directory, or not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Id of the completion of its changes, which are merged into its project. Absent if there were none that were not
    /// completed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// Id of the project of the completion. Absent without a completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// Request to delete several sandboxes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"ids": ["sbx-0190c2f1a5c07cc0a1b2c3d4e5f60718"]}))]
pub struct BatchDelete {
    /// Ids of the sandboxes.
    #[schema(min_items = 1, max_items = 1000)]
    pub ids: Vec<String>,
    /// Keeps the workspaces as snapshots. With an admin key, those of the provider `clone` or `copy` are kept as
    /// directories on the server instead. Default: false. `keep_workspace` is also accepted.
    #[serde(default, alias = "keep_workspace")]
    pub keep_workspace: bool,
    /// Completes the changes of sandboxes of projects that are not completed, or with `false` discards them. Default:
    /// as each sandbox was created (`onEnd`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
}

/// Result of a batch deletion.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchDeleteResult {
    /// Ids of the deleted sandboxes.
    pub succeeded: Vec<String>,
    /// Sandboxes that could not be deleted.
    pub failed: Vec<BatchFailure>,
    /// Completions of changes of the deleted sandboxes. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completions: Vec<BatchCompletion>,
}

/// Completion of the changes of a deleted sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchCompletion {
    /// Id of the sandbox.
    pub id: String,
    /// Id of the completion.
    pub completion: String,
    /// Id of the project.
    pub project: String,
}

/// Sandbox that could not be deleted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchFailure {
    /// Id of the sandbox.
    pub id: String,
    /// Human-readable error message.
    pub error: String,
}

/// Request to extend the lifetime of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"seconds": 600}))]
pub struct ExtendSandbox {
    /// Seconds to add. The whole lifetime is at most the server's setting `MAX_SANDBOX_LIFETIME`; more fails with the
    /// error code `LIFETIME_EXCEEDED`.
    #[schema(minimum = 1, maximum = 3600)]
    pub seconds: u64,
}

/// Request to set the time at which a sandbox expires. Exactly one field is required.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"timeoutSeconds": 600}))]
pub struct SetTimeout {
    /// Time at which the sandbox expires, in RFC 3339. It must be in the future. The whole lifetime is at most
    /// the server's setting `MAX_SANDBOX_LIFETIME`; more fails with the error code `LIFETIME_EXCEEDED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Seconds from now until the sandbox expires, with the same limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
}

/// Range of the logs of a sandbox.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogsQuery {
    /// Maximum number of lines, counted from the end. Default: 100.
    #[param(minimum = 1, maximum = 10000)]
    pub tail: Option<usize>,
    /// Earliest time of a line, in RFC 3339.
    pub since: Option<String>,
    /// Latest time of a line, in RFC 3339.
    pub until: Option<String>,
}

/// Output of the commands of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    /// Lines of stdout and stderr of all commands, ordered by time.
    pub logs: String,
    /// True if earlier lines were omitted.
    pub truncated: bool,
}

/// Resource usage of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStats {
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// CPU usage.
    pub cpu: CpuStats,
    /// Memory usage.
    pub memory: MemoryStats,
    /// Disk usage of the workspace and of retained output.
    pub disk: DiskStats,
    /// Network usage.
    pub network: NetworkStats,
    /// Number of processes and threads.
    pub processes: u64,
    /// Time of the measurement.
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// CPU usage.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CpuStats {
    /// Percent of one core; 200 for two busy cores.
    pub usage: f64,
    /// Number of cores that the sandbox may use, as a decimal number.
    pub limit: String,
}

/// Memory usage.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct MemoryStats {
    /// Used memory in bytes.
    pub usage: u64,
    /// Maximum memory in bytes.
    pub limit: u64,
    /// Used memory in percent of the limit.
    pub percent: f64,
}

/// Disk usage of the workspace and of the retained output of commands.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskStats {
    /// Used disk space in bytes. If the filesystem has no project quotas (limits of the disk space of directories),
    /// every file and directory counts as at least 4096 bytes.
    pub usage: u64,
    /// Time of the last measurement. A running sandbox is measured every few seconds, less often if it has many
    /// files.
    #[schema(format = DateTime)]
    pub measured_at: String,
    /// Bytes of retained output, included in `usage`.
    pub output: u64,
    /// Maximum disk space in bytes. Absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Network usage since the start of the sandbox, without loopback.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStats {
    /// Received bytes; 0 if they are not measured, as with the runtime `oci`.
    pub rx_bytes: u64,
    /// Sent bytes; 0 if they are not measured, as with the runtime `oci`.
    pub tx_bytes: u64,
}
