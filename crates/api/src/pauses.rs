//! `/api/v1/sandboxes/{id}/pause` and `resume`: pausing a sandbox in memory or to disk, and its treatment when it
//! expires.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request to pause a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"keep": "disk"}))]
pub struct PauseSandbox {
    /// Part of the sandbox that is kept.
    pub keep: PauseMode,
}

/// Part of a paused sandbox that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Keep)]
pub enum PauseMode {
    /// Processes and their memory: they are frozen, and continue where they stopped. The sandbox still counts towards
    /// all limits.
    Memory,
    /// The workspace: processes are killed, and a snapshot of `/workspace` is kept; for a sandbox that was created with
    /// `root: kept`, also of the root filesystem. The output of commands is kept, too. The paused sandbox survives a
    /// restart of the machine.
    Disk,
}

/// Request to resume a sandbox.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"timeoutSeconds": 3600}))]
pub struct ResumeSandbox {
    /// Seconds from now until the sandbox expires, at most the server's setting `MAX_SANDBOX_LIFETIME`; more fails with
    /// the error code `LIFETIME_EXCEEDED`. Default: the time that was left when it was paused. If it was paused because
    /// it expired: the server's setting `DEFAULT_SANDBOX_TIMEOUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
}

/// Treatment of a sandbox that expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// The sandbox is deleted.
    #[default]
    Delete,
    /// The sandbox is paused to disk. If that fails, it is tried again; nothing is deleted.
    Pause,
}

impl OnTimeout {
    /// Returns true for the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
