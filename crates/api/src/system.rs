//! `/`, `/health`, `/ready`, `/api/v1/stats` and `/api/v1/gc`: the server as a whole.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The server and its main paths.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServerInfo {
    /// Name of the product.
    #[schema(example = "Elevo Workspace")]
    pub name: String,
    /// Version of the server.
    pub version: String,
    /// The product in one sentence.
    pub description: String,
    /// Main paths.
    pub links: ServerLinks,
    /// Instructions for getting a key and sending it.
    pub key: String,
}

/// Paths on this server. Only `metrics` requires a key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServerLinks {
    /// API browser (HTML).
    #[schema(example = "/api/docs")]
    pub docs: String,
    /// OpenAPI document.
    #[schema(example = "/api/v1/openapi.json")]
    pub openapi: String,
    /// Liveness.
    #[schema(example = "/health")]
    pub health: String,
    /// Readiness.
    #[schema(example = "/ready")]
    pub ready: String,
    /// Metrics for Prometheus; requires an admin key.
    #[schema(example = "/metrics")]
    pub metrics: String,
}

/// Liveness of the server.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub status: String,
    /// Version of the server.
    pub version: String,
}

/// Readiness of the server, with the results of its checks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReadinessReport {
    /// True if every check passed.
    pub ready: bool,
    /// Results of the checks.
    pub checks: Vec<ReadinessCheck>,
}

/// Result of a readiness check.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReadinessCheck {
    /// Name of the check, such as `catalog`, `runtime` or `disk`.
    pub name: String,
    /// True if the check passed.
    pub ok: bool,
    /// Human-readable details. Anyone can read them.
    pub message: String,
}

/// Statistics of the server.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SystemStats {
    /// Number of sandboxes of this server by state.
    pub sandboxes: SandboxCounts,
    /// Resource usage of the machine.
    pub resources: MachineUsage,
    /// State of the NFS server.
    pub nfs: NfsStats,
    /// Seconds since the server was started.
    pub uptime: u64,
}

/// Number of sandboxes by state.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxCounts {
    /// Number of sandboxes in any state.
    pub total: u64,
    /// Number of sandboxes in the state `paused`.
    #[serde(default)]
    pub paused: u64,
    /// Number of sandboxes in the state `running`.
    pub running: u64,
    /// Number of sandboxes in the state `stopped`.
    pub stopped: u64,
    /// Number of sandboxes in the state `error`.
    pub error: u64,
}

/// Resource usage of the machine in percent.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineUsage {
    /// CPU usage over the last minute: load divided by the number of cores.
    pub cpu_usage: f64,
    /// Memory usage.
    pub memory_usage: f64,
    /// Usage of the disk of `DATA_DIR`.
    pub disk_usage: f64,
}

/// State of the NFS server.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NfsStats {
    /// `embedded`, `system` for the NFS server of the kernel, or `off` if there is none.
    #[schema(example = "embedded")]
    pub mode: String,
    /// Number of connections of clients.
    pub connections: u64,
}

/// Result of a garbage collection.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcReport {
    /// Number of removed sandboxes that had expired or were orphaned (not in the catalog).
    pub cleaned_sandboxes: u64,
    /// Number of removed workspaces that belonged to no sandbox in the catalog.
    pub cleaned_workspaces: u64,
    /// Number of removed layers (unpacked snapshots that workspaces share) that no workspace uses.
    pub cleaned_layers: u64,
    /// Disk space in bytes that the removed workspaces, layers and unreachable objects of the store used. That of
    /// removed sandboxes, including their workspaces, is not counted.
    pub freed_space: u64,
}
