//! `/api/v1/templates`: templates of sandboxes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A template, from which sandboxes are created.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Unique name.
    #[schema(example = "base")]
    pub name: String,
    /// Description in one line.
    pub description: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Bytes on disk; none if it is not present.
    pub size: Option<u64>,
    /// Time of its import.
    #[schema(format = DateTime)]
    pub created_at: Option<String>,
    /// True if it is on this machine and can be used at once.
    pub present: bool,
    /// Command that fetches it, if it is not present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch: Option<String>,
}
