//! `/api/v1/keys`: API keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Role of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyRole {
    /// May do everything, also with what belongs to others.
    Admin,
    /// May do everything with what belongs to its owner.
    User,
    /// May read what belongs to its owner.
    ReadOnly,
}

impl KeyRole {
    /// Returns the name of the role in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::User => "user",
            Self::ReadOnly => "read_only",
        }
    }
}

/// Limits of a key that differ from the server's settings. Admin keys have no rate limits but those given here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyLimits {
    /// Largest number of sandboxes of the key's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_sandboxes: Option<u32>,
    /// Sandboxes created per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub create_per_minute: Option<u32>,
    /// Commands run per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub run_per_minute: Option<u32>,
    /// Forks per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub fork_per_minute: Option<u32>,
    /// Other requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub other_per_minute: Option<u32>,
}

/// Request for a new key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateKey {
    /// Name for people.
    #[schema(max_length = 100, min_length = 1)]
    pub name: String,
    /// Owner whose sandboxes and snapshots the key gives access to.
    #[schema(max_length = 100, min_length = 1)]
    pub owner: String,
    /// Role of the key.
    pub role: KeyRole,
    /// Limits of the key.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// A key, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Unique id, for instance to revoke the key.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Owner whose sandboxes and snapshots the key gives access to.
    pub owner: String,
    /// Role of the key.
    pub role: KeyRole,
    /// Limits of the key.
    pub limits: KeyLimits,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of revocation.
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
}

/// A new key, with its secret, which is shown only once.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedKey {
    /// Unique id.
    pub id: String,
    /// The secret.
    pub key: String,
}

/// All keys.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// The keys, oldest first, revoked ones included.
    pub items: Vec<Key>,
}
