//! `/api/v1/keys`: API keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Role of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyRole {
    /// Full access to the resources of all owners, and to the administration of the server.
    Admin,
    /// Full access to the resources of its owner.
    User,
    /// Read access to the resources of its owner.
    ReadOnly,
    /// Work of agents on the projects that the key is bound to. Of the files of a project, the key sees those that the
    /// access policy lets its agent read.
    Agent,
    /// Like `agent`, and may resolve reviews of these projects.
    Reviewer,
}

impl KeyRole {
    /// Returns the name of the role in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::User => "user",
            Self::ReadOnly => "read_only",
            Self::Agent => "agent",
            Self::Reviewer => "reviewer",
        }
    }
}

/// Limits of a key. They override the settings of the server. An admin key has only the rate limits that are set here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyLimits {
    /// Maximum number of sandboxes of the owner, on all servers that share the catalog. Those that are paused to disk
    /// do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_sandboxes: Option<u32>,
    /// Maximum number of sandboxes created per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub create_per_minute: Option<u32>,
    /// Maximum number of commands and terminals started per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub run_per_minute: Option<u32>,
    /// Maximum number of fork requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub fork_per_minute: Option<u32>,
    /// Maximum number of requests for files and ports per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub files_per_minute: Option<u32>,
    /// Maximum number of other requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub other_per_minute: Option<u32>,
}

/// Request to create a key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"name": "ci", "owner": "acme", "role": "user"}))]
pub struct CreateKey {
    /// Display name. Need not be unique.
    #[schema(max_length = 100, min_length = 1)]
    pub name: String,
    /// Owner (tenant) whose sandboxes and snapshots the key can access. Keys of the same owner share them. With the
    /// role `agent` or `reviewer`: owner of the projects. The key gets an owner of its own for its sandboxes and
    /// snapshots, `OWNER/agents/NAME-HASH`: name of the first agent, and hash of the bound projects and agents. Keys
    /// with equal bindings share it, and `OWNER` can access them, too.
    #[schema(max_length = 100, min_length = 1)]
    pub owner: String,
    /// Role of the key.
    pub role: KeyRole,
    /// Names or ids of the projects that a key with the role `agent` or `reviewer` is bound to. 1 to 16 with these
    /// roles, none with others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub projects: Vec<String>,
    /// Names of the agents that a key with the role `agent` or `reviewer` may act for, at most 16. Default: the name of
    /// the key. None with other roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub agents: Vec<String>,
    /// Limits that override the settings of the server.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// API key, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Id of the key, for instance to revoke it.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Owner whose sandboxes and snapshots the key can access. With the role `agent` or `reviewer`: the owner of its
    /// own, below that of the projects.
    pub owner: String,
    /// Role of the key.
    pub role: KeyRole,
    /// Ids of the projects that the key is bound to. Absent if it is bound to none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<String>,
    /// Names of the agents that the key may act for. Absent if it is bound to none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Limits that override the settings of the server.
    pub limits: KeyLimits,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Revocation time; null if the key is valid.
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
}

/// New API key with its secret.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewKey {
    /// Id of the key.
    pub id: String,
    /// Secret to send with requests. The server stores only its hash, so it cannot be read again.
    pub key: String,
}

/// List of all keys.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// Keys, oldest first, including revoked ones.
    pub items: Vec<Key>,
}
