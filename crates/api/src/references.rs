//! `/api/v1/references`: names for snapshots.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Reference: a name for a snapshot. A snapshot with a reference cannot be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reference {
    /// Name, unique among the references of the owner.
    #[schema(example = "runs/42")]
    pub name: String,
    /// Id of the snapshot that it points to.
    #[schema(example = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718")]
    pub snapshot: String,
}

/// Request to create a reference or to move it to another snapshot.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"snapshot": "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718"}))]
pub struct SetReference {
    /// Full id of the snapshot to point to.
    pub snapshot: String,
}

/// Page of references.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReferenceList {
    /// References, ordered by name.
    pub items: Vec<Reference>,
    /// Number of references on all pages.
    pub total: usize,
    /// Page number, starting at 1; always 1 with `cursor`.
    pub page: u32,
    /// Maximum number of references per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Filter and page of a list of references.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListReferencesQuery {
    /// Filter by the start of the name, such as `runs/`.
    pub prefix: Option<String>,
    /// Page number, starting at 1. Default: 1. Entries move between pages when references are created or deleted; use
    /// `cursor` to avoid that.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// `next` of the previous page. Cannot be combined with `page`.
    pub cursor: Option<String>,
    /// Maximum number of references per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}
