//! `/api/v1/sandboxes/{id}/pause` and `resume`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request to pause a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"keep": "disk"}))]
pub struct PauseSandbox {
    /// Part of the sandbox that is kept.
    pub keep: Keep,
}

/// Part of a paused sandbox that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Processes and their memory: they are frozen, and continue where they were. The sandbox counts for all limits.
    Memory,
    /// The workspace: processes end, and only a snapshot of `/workspace` stays. It survives a restart of the machine.
    Disk,
}

/// Request to resume a sandbox.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"timeoutSeconds": 3600}))]
pub struct ResumeSandbox {
    /// Seconds from now until the sandbox expires, at most `MAX_SANDBOX_LIFETIME` of the server, else
    /// `LIFETIME_EXCEEDED`. Default: the time that was left when it was paused. If it was paused because it expired:
    /// `DEFAULT_SANDBOX_TIMEOUT` of the server.
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
