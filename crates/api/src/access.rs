//! `/api/v1/me`, `/api/v1/sandboxes/{id}/token` and `/api/v1/sandboxes/{id}/signed-url`: the caller, and access to one
//! sandbox that it passes on.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::keys::KeyRole;

/// Right of a sandbox token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Reading files and changes.
    #[serde(rename = "files:read")]
    FilesRead,
    /// Writing files.
    #[serde(rename = "files:write")]
    FilesWrite,
    /// Commands and processes, with their input and output, logs, and notes: texts of an agent about its steps.
    Process,
    /// Terminals.
    Terminal,
    /// Listing TCP ports, connections to them, and previews: URLs for HTTP servers in the sandbox.
    Ports,
    /// Moving the expiry of the sandbox (`extend` and `timeout`), pausing, resuming, labelling and deleting it.
    /// Deleting it with `keep_workspace` also needs `snapshot`.
    Lifecycle,
    /// Commits, and restoring snapshots of the same sandbox.
    Snapshot,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 7] = [
        Self::FilesRead,
        Self::FilesWrite,
        Self::Process,
        Self::Terminal,
        Self::Ports,
        Self::Lifecycle,
        Self::Snapshot,
    ];

    /// Returns the name of the right in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FilesRead => "files:read",
            Self::FilesWrite => "files:write",
            Self::Process => "process",
            Self::Terminal => "terminal",
            Self::Ports => "ports",
            Self::Lifecycle => "lifecycle",
            Self::Snapshot => "snapshot",
        }
    }
}

/// Request to create a token for a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"rights": ["process", "terminal"], "expiresInSeconds": 900}))]
pub struct CreateToken {
    /// Rights of the token.
    #[schema(min_items = 1)]
    pub rights: Vec<Right>,
    /// Lifetime in seconds. Default: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub expires_in_seconds: Option<u64>,
}

/// Token for one sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxToken {
    /// Secret to send as `Authorization: Bearer TOKEN`. The server does not store it, so it cannot be read again.
    #[schema(example = "wst_AQwAAAGaVQ5IAARrZXktMWEyYgBzYngtMWEyYjNj")]
    pub token: String,
    /// Rights of the token.
    pub rights: Vec<Right>,
    /// Time at which the token expires. It ends earlier if its key is revoked or its sandbox is deleted.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// Method of a signed URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum SignedMethod {
    /// Download; `HEAD` is allowed, too.
    Get,
    /// Upload.
    Put,
}

impl SignedMethod {
    /// Returns the name of the method in HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
        }
    }
}

/// Request for a URL with which one file can be read or written without a key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "/workspace/report.pdf", "method": "GET", "expiresInSeconds": 900}))]
pub struct CreateSignedUrl {
    /// Absolute path of the file in the sandbox, without `..`.
    #[schema(min_length = 2, max_length = 1025)]
    pub path: String,
    /// Method of the requests that the URL allows.
    pub method: SignedMethod,
    /// Lifetime in seconds. Default: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub expires_in_seconds: Option<u64>,
    /// Maximum size of an upload in bytes. Only with `PUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// URL with which one file can be read or written without a key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedUrl {
    /// The URL. Everybody who has it can use it, any number of times.
    pub url: String,
    /// Time at which the URL expires. It ends earlier if its key is revoked or its sandbox is deleted.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// The caller of a request: its key, limits and usage.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Id of the key; with a token, of the key that created it.
    pub key_id: String,
    /// Display name of the key.
    pub name: String,
    /// Owner of the key.
    pub owner: String,
    /// Role of the key.
    pub role: KeyRole,
    /// True if the caller may administer the server. Tokens may not, whatever the role of their key.
    pub admin: bool,
    /// Limits of the caller.
    pub limits: IdentityLimits,
    /// Current usage of the owner. Absent with a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<OwnerUsage>,
    /// Sandbox and rights of the token. Absent with a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenInfo>,
}

/// Effective limits of a caller. Absent fields have no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityLimits {
    /// Maximum number of sandboxes of the owner on all servers, without those that are paused to disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sandboxes: Option<u64>,
    /// Maximum number of snapshots of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_snapshots: Option<u64>,
    /// Maximum total size of the snapshots and projects of the owner in the store, in bytes. Content that several of
    /// them share counts once; deleted content counts until the next garbage collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_snapshot_bytes: Option<u64>,
    /// Maximum number of episodes (steps of searches over snapshots) of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_episodes: Option<u64>,
    /// Maximum total size of the records of the owner's episodes in bytes, without their snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_episode_bytes: Option<u64>,
    /// Maximum number of sandboxes created per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_per_minute: Option<u64>,
    /// Maximum number of commands and terminals started per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_per_minute: Option<u64>,
    /// Maximum number of fork requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork_per_minute: Option<u64>,
    /// Maximum number of requests for files and ports per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_per_minute: Option<u64>,
    /// Maximum number of other requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_per_minute: Option<u64>,
}

/// Current usage of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerUsage {
    /// Number of sandboxes on all servers, without those that are paused to disk.
    pub sandboxes: u64,
    /// Number of snapshots.
    pub snapshots: u64,
    /// Total size of the snapshots and projects in the store, in bytes. Content that several of them share counts once;
    /// deleted content counts until the next garbage collection. Absent with a bound key (role `agent` or `reviewer`),
    /// because its agent may share content with files that it may not see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes: Option<u64>,
    /// Number of episodes (steps of searches over snapshots).
    pub episodes: u64,
    /// Total size of the records of the episodes in bytes, without their snapshots.
    pub episode_bytes: u64,
}

/// Sandbox and rights of a token.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenInfo {
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Rights of the token.
    pub rights: Vec<Right>,
    /// Time at which the token expires.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_have_the_same_name_in_json_and_in_text() {
        for right in Right::ALL {
            assert_eq!(serde_json::to_value(right).unwrap(), right.as_str());
        }
        assert_eq!(serde_json::from_str::<Right>("\"files:read\"").unwrap(), Right::FilesRead);
        assert!(serde_json::from_str::<Right>("\"filesread\"").is_err());
    }
}
