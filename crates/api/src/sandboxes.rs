//! `/api/v1/sandboxes`: creating, listing, changing and deleting sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Request for a new sandbox.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSandbox {
    /// Template of the root filesystem.
    #[schema(example = "base", min_length = 1, max_length = 255)]
    pub template: String,
    /// Name for people; need not be unique unless `uniqueName` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub name: Option<String>,
    /// Environment variables of every command in the sandbox.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Refuse the request with `SANDBOX_NAME_TAKEN` if the owner has a sandbox of that name. Also `unique_name`.
    #[serde(default, alias = "unique_name", skip_serializing_if = "std::ops::Not::not")]
    pub unique_name: bool,
    /// Seconds until the sandbox expires. Also `timeout_seconds`.
    #[serde(default, alias = "timeout_seconds", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
    /// Resource limits.
    #[serde(default)]
    pub resources: Resources,
    /// Network access.
    #[serde(default)]
    pub network: NetworkChoice,
    /// Allowlist for the network `egress`: host names (`example.com` itself, `*.example.com` for all its subdomains)
    /// and ranges of IPv4 addresses. Without a list, everything is allowed but the machine itself and what the server
    /// denies. Also `egress_allow`.
    #[serde(default, alias = "egress_allow", skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pypi.org", "*.pythonhosted.org", "10.1.0.0/16"]), min_items = 1, max_items = 256)]
    pub egress_allow: Option<Vec<String>>,
    /// Labels, by which lists can be filtered.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Snapshot that `/workspace` starts with; without one it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Workspace provider: `overlay`, `clone` or `copy`. The server chooses by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// When the files of the snapshot are written to disk: `full` before the sandbox runs, `lazy` never (they are
    /// loaded as they are read), `auto` one or the other, and in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub materialize: Option<String>,
}

/// Network access of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkChoice {
    /// Loopback only.
    #[default]
    None,
    /// Everything that the machine can reach, but not the machine itself.
    Egress,
}

/// Requested resource limits. The server's defaults apply to those that are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Number of processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0.5")]
    pub cpu: Option<String>,
    /// Memory, with a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "512m")]
    pub memory: Option<String>,
    /// Size of the workspace, with a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10g")]
    pub disk: Option<String>,
    /// Number of processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub processes: Option<u32>,
}

/// A sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// Unique id.
    #[schema(example = "sbx-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    pub id: String,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Owner, from the key that created it.
    pub owner: String,
    /// State: starting, running, stopping, stopped or error.
    pub state: String,
    /// Reason for the state, if there is one to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
    /// Template of the root filesystem.
    pub template: String,
    /// Runtime that runs it.
    pub runtime: String,
    /// Network access: none or egress.
    pub network: String,
    /// Allowlist of the network; everything is allowed if there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_allow: Option<Vec<String>>,
    /// Labels, by which lists can be filtered.
    pub labels: BTreeMap<String, String>,
    /// Resource limits in force.
    pub resources: ResourceLimits,
    /// Snapshot that its workspace was created from, or last restored to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Provider of its workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Requested limits that this machine could not apply, each with its reason.
    pub not_applied: Vec<String>,
    /// True if its guest agent is connected.
    pub agent_connected: bool,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of expiry.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// Resource limits in force.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ResourceLimits {
    /// Number of processors.
    pub cpu: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes in its workspace.
    pub disk: u64,
    /// Number of processes and threads.
    pub processes: u32,
}

/// Filters and page of a list of sandboxes.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSandboxesQuery {
    /// Page, from 1. Pages shift when sandboxes are created or deleted meanwhile; `cursor` does not.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// `next` of the previous page, instead of `page`.
    pub cursor: Option<String>,
    /// Length of a page.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// State of the sandboxes.
    pub state: Option<String>,
    /// Prefix of their names. Also `namePrefix`.
    #[serde(alias = "namePrefix")]
    pub name_prefix: Option<String>,
    /// Labels that they have: `name=value,name=value`.
    pub labels: Option<String>,
}

/// A page of sandboxes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxList {
    /// The sandboxes, newest first.
    pub items: Vec<Sandbox>,
    /// Number of sandboxes on all pages.
    pub total: u64,
    /// Page, from 1.
    pub page: u32,
    /// Length of a page.
    pub limit: u32,
    /// The `cursor` of the next page; none on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Change of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSandbox {
    /// New labels, which replace all present ones.
    pub labels: BTreeMap<String, String>,
}

/// Options of a deletion.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteSandboxQuery {
    /// Keep the workspace: as a snapshot, or with an admin key as a directory where it is one. Also `keepWorkspace`.
    #[serde(default, alias = "keepWorkspace")]
    pub keep_workspace: bool,
}

/// A deleted sandbox whose workspace is kept.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletedSandbox {
    /// Id of the sandbox.
    pub id: String,
    /// Path of its workspace on the server, if it is kept as a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_path: Option<String>,
    /// Snapshot of its workspace, if it is kept as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// Sandboxes to delete.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchDelete {
    /// Ids of the sandboxes.
    #[schema(min_items = 1, max_items = 1000)]
    pub ids: Vec<String>,
    /// Keep their workspaces. Also `keep_workspace`.
    #[serde(default, alias = "keep_workspace")]
    pub keep_workspace: bool,
}

/// Result of a batch deletion.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchDeleted {
    /// Ids of the sandboxes that were deleted.
    pub succeeded: Vec<String>,
    /// Sandboxes that were not deleted.
    pub failed: Vec<BatchFailure>,
}

/// A sandbox that was not deleted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchFailure {
    /// Id of the sandbox.
    pub id: String,
    /// Error message.
    pub error: String,
}

/// Extension of a sandbox's lifetime.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendSandbox {
    /// Seconds to add.
    #[schema(minimum = 1, maximum = 3600)]
    pub seconds: u64,
}

/// Range of a sandbox's logs.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogsQuery {
    /// Largest number of lines, 100 by default. The last ones are returned.
    #[param(minimum = 1, maximum = 10000)]
    pub tail: Option<usize>,
    /// Earliest time of a line, RFC 3339.
    pub since: Option<String>,
    /// Latest time of a line, RFC 3339.
    pub until: Option<String>,
}

/// Output of the commands of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    /// The lines.
    pub logs: String,
    /// True if earlier lines were left out.
    pub truncated: bool,
}

/// Resource usage of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStats {
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Processor usage.
    pub cpu: CpuStats,
    /// Memory usage.
    pub memory: MemoryStats,
    /// Disk usage.
    pub disk: DiskStats,
    /// Network usage.
    pub network: NetworkStats,
    /// Number of processes and threads.
    pub processes: u64,
    /// Time of the measurement.
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// Processor usage.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CpuStats {
    /// Percent of one processor.
    pub usage: f64,
    /// Number of processors that it may use.
    pub limit: String,
}

/// Memory usage.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct MemoryStats {
    /// Bytes in use.
    pub usage: u64,
    /// Largest number of bytes that it may use.
    pub limit: u64,
    /// Percent of the limit.
    pub percent: f64,
}

/// Size of the workspace and of the stored output of commands.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskStats {
    /// Bytes in use. Where no project quota counts them, a file or directory counts as 4096 at least.
    pub usage: u64,
    /// Time of the last measurement: every few seconds while the sandbox runs, less often the more files it has.
    #[schema(format = DateTime)]
    pub measured_at: String,
    /// Bytes of output among those.
    pub output: u64,
    /// Largest number of bytes that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Network usage.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStats {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}
