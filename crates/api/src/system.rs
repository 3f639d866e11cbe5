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

/// Paths on this server. All but `metrics` need no key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServerLinks {
    /// API browser, a page.
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
    /// Metrics for Prometheus; needs an admin key.
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

/// Readiness of the server.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReadinessReport {
    /// True if every check passed.
    pub ready: bool,
    /// The checks.
    pub checks: Vec<ReadinessCheck>,
}

/// Result of a check.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReadinessCheck {
    /// Name of the check.
    pub name: String,
    /// True if it passed.
    pub ok: bool,
    /// Details, which anyone may read.
    pub message: String,
}

/// Statistics of the server.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SystemStats {
    /// Number of sandboxes.
    pub sandboxes: SandboxCounts,
    /// Usage of the machine.
    pub resources: MachineUsage,
    /// State of NFS.
    pub nfs: NfsStats,
    /// Seconds since the server was started.
    pub uptime: u64,
}

/// Number of sandboxes by state.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxCounts {
    /// All sandboxes.
    pub total: u64,
    /// Running sandboxes.
    pub running: u64,
    /// Stopped sandboxes.
    pub stopped: u64,
    /// Sandboxes in the state `error`.
    pub error: u64,
}

/// Usage of the machine, in percent.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineUsage {
    /// Processors, in the last minute.
    pub cpu_usage: f64,
    /// Memory.
    pub memory_usage: f64,
    /// Disk that holds the server's data.
    pub disk_usage: f64,
}

/// State of NFS, which is not implemented yet.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NfsStats {
    /// Always `off`.
    #[schema(example = "off")]
    pub mode: String,
    /// Always 0.
    pub connections: u64,
}

/// Result of a garbage collection.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcReport {
    /// Sandboxes removed: expired or orphaned ones.
    pub cleaned_sandboxes: u64,
    /// Orphaned workspaces removed.
    pub cleaned_workspaces: u64,
    /// Layers removed that no workspace has needed for a while.
    pub cleaned_layers: u64,
    /// Bytes freed.
    pub freed_space: u64,
}
