//! `/api/v1/episodes`: searches over snapshots, such as the attempts of an agent at a task.
//!
//! An episode is one step of a search: an action, its reward, and the snapshot that it resulted in. A search is the
//! tree of steps that descend from one first step, which has no parent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

/// Request to add a step to a search, or to start a search.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"snapshot": "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718", "action": "run the tests", "reward": 0.5}))]
pub struct CreateEpisode {
    /// Id of the snapshot that the step resulted in.
    pub snapshot: String,
    /// Id of the previous step. Omit it to start a search.
    pub parent: Option<String>,
    /// Action of the step. `action` and `data` have at most 64 KiB of JSON together.
    pub action: String,
    /// Reward of the step. `GET /api/v1/episodes/{id}/best` finds the highest among the last steps, which no step
    /// follows.
    pub reward: f64,
    /// Number of times that the search visited the step. It breaks ties between equal rewards. Default: 1.
    pub visits: Option<u64>,
    /// Your own data, stored with the step. `action` and `data` have at most 64 KiB of JSON together.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
    /// Stores an insight diff between the snapshots of the parent and of this step: a diff with line counts, totals and
    /// risk notes, as `docs/insight.md` describes it. Entries beyond 64 KiB of JSON are omitted. Default: false.
    #[serde(default)]
    pub insight: bool,
}

/// Episode: one step of a search, with its action, its reward, and the snapshot that it resulted in.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Episode {
    /// Id of the step.
    pub id: String,
    /// Id of the snapshot that the step resulted in.
    pub snapshot: String,
    /// Id of the previous step; null for the first step of a search.
    pub parent: Option<String>,
    /// Action of the step.
    pub action: String,
    /// Reward of the step.
    pub reward: f64,
    /// Number of times that the search visited the step.
    pub visits: u64,
    /// Insight diff between the snapshots of the parent and of this step, as `docs/insight.md` describes it. Absent
    /// if it was not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub insight: Option<Value>,
    /// Data that was stored with the step. Absent if there is none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// Creation time.
    #[schema(format = DateTime)]
    pub time: String,
}

/// Search: a tree of steps, named by its first step.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Search {
    /// First step.
    #[serde(flatten)]
    pub first: Episode,
    /// Number of steps of the search that belong to you: other owners may have added steps. With an admin key, the
    /// number of all its steps, counted up to 10000.
    pub steps: u64,
}

/// Page of searches.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SearchList {
    /// Searches in the order of `sort`. Searches whose first snapshot was removed are omitted.
    pub items: Vec<Search>,
    /// Number of searches on all pages, including omitted ones.
    pub total: u64,
    /// Maximum number of searches per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page. A page that would exceed 1 MiB ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Page of a list of searches.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSearchesQuery {
    /// `next` of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of searches per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Order. Default: `newest`. Use a cursor with the order of the list that it is from.
    #[param(inline)]
    pub sort: Option<SearchSort>,
}

/// Order of a list of searches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchSort {
    /// Newest first.
    #[default]
    Newest,
    /// Oldest first.
    Oldest,
}

/// A step and the steps after it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EpisodeSubtree {
    /// Steps level by level, parents before children, oldest first in a level. Steps whose snapshots were removed are
    /// omitted.
    pub items: Vec<Episode>,
    /// True if there are more steps than `limit`, below `depth`, or than fit into 8 MiB.
    pub truncated: bool,
}

/// Bounds of a subtree of steps.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EpisodeSubtreeQuery {
    /// Maximum number of levels below the step. Default: 1000.
    #[param(maximum = 1000)]
    pub depth: Option<u32>,
    /// Maximum number of steps. Default: 1000.
    #[param(minimum = 1, maximum = 10000)]
    pub limit: Option<u32>,
}

/// Steps from the start of a search to one of its steps.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EpisodePath {
    /// Steps, earliest first. Steps whose snapshots were removed are omitted.
    pub items: Vec<Episode>,
    /// Value of `cursor` for the steps before these. Absent if these begin at the start of the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Query parameters of the path to a step.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EpisodePathQuery {
    /// `next` of the previous response, to get the steps that precede those of that response.
    pub cursor: Option<String>,
    /// Maximum number of steps, counted from the end of the path. Default: 1000. A response that would exceed 1 MiB
    /// has fewer.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Page of steps.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EpisodeList {
    /// Steps, oldest first. Steps whose snapshots were removed are omitted.
    pub items: Vec<Episode>,
    /// Number of steps on all pages, including omitted ones.
    pub total: usize,
    /// Page number, starting at 1.
    pub page: u32,
    /// Maximum number of steps per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page. A page that would exceed 1 MiB ends early; use
    /// the cursor to get the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Query parameters of the list of a step's children.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EpisodeChildrenQuery {
    /// Page number, starting at 1. Default: 1. Entries move between pages when steps are added or removed; use `cursor`
    /// to avoid that.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// `next` of the previous page. Cannot be combined with `page`.
    pub cursor: Option<String>,
    /// Maximum number of steps per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}
