//! `/api/v1/episodes`: the steps of a search over snapshots.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

/// Request to add a step to a search, or to begin one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEpisode {
    /// Id of the snapshot that the step led to.
    pub snapshot: String,
    /// Id of the previous step; none for the first step of a search.
    pub parent: Option<String>,
    /// Action taken. With `data`, at most 64 KiB of JSON.
    pub action: String,
    /// Reward of the step.
    pub reward: f64,
    /// Number of visits, 1 by default.
    pub visits: Option<u64>,
    /// Free data of the search. With `action`, at most 64 KiB of JSON.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
    /// Store the insight diff against the parent's snapshot, too: as many of its entries as fit in 64 KiB.
    #[serde(default)]
    pub insight: bool,
}

/// A step of a search.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Episode {
    /// Unique id.
    pub id: String,
    /// Id of the snapshot that the step led to.
    pub snapshot: String,
    /// Id of the previous step; none for the first step of a search.
    pub parent: Option<String>,
    /// Action taken.
    pub action: String,
    /// Reward of the step.
    pub reward: f64,
    /// Number of visits.
    pub visits: u64,
    /// Insight diff against the parent's snapshot; `docs/insight.md` describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub insight: Option<Value>,
    /// Free data of the search.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub time: String,
}

/// Steps from the start of a search.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EpisodePath {
    /// The steps, the first one first.
    pub items: Vec<Episode>,
    /// The `cursor` of the steps before these; none if these begin at the start of the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Page of a path.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EpisodePathQuery {
    /// `next` of the previous response, for the steps before those.
    pub cursor: Option<String>,
    /// Largest number of steps, the last ones of the path. Fewer if they are large.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// A page of steps.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EpisodeList {
    /// The steps, oldest first. Those whose snapshots were removed are left out.
    pub items: Vec<Episode>,
    /// Number of all steps, including those left out.
    pub total: usize,
    /// Page, from 1.
    pub page: u32,
    /// Length of a page.
    pub limit: u32,
    /// The `cursor` of the next page; none on the last one. A page that would be very large ends early: then only the
    /// cursor leads to the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Page of the steps after one.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EpisodeChildrenQuery {
    /// Page, from 1. Pages shift when steps are added or removed meanwhile; `cursor` does not.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// `next` of the previous page, instead of `page`.
    pub cursor: Option<String>,
    /// Length of a page.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}
