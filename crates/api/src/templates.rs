//! `/api/v1/templates`: templates of sandboxes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Template: the root filesystem of sandboxes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Name of the template, unique on the server.
    #[schema(example = "base")]
    pub name: String,
    /// Description in one line.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// Size on disk in bytes; null if the template is not present.
    pub size: Option<u64>,
    /// Time at which the template was imported or its image was built; null if it is not known.
    #[schema(format = DateTime)]
    pub created_at: Option<String>,
    /// True if the template is on this machine and can be used immediately.
    pub present: bool,
    /// Command that fetches the template. Only present if the template is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch: Option<String>,
}
