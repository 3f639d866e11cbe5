//! Episodes: the steps of a search, a program that tries actions from saved states and rates the results. An episode
//! is a single step; the chain of its parents is the trajectory.

use serde::{Deserialize, Serialize};

use crate::codec::{DecodeError, Decoded};
use crate::id::{EpisodeId, SnapshotId};
use crate::log_record::Change;
use crate::snapshot::Timestamp;

/// One step of a search: its action, the resulting state, and its reward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Episode {
    /// Unique id.
    pub id: EpisodeId,
    /// Snapshot of the resulting state.
    pub snapshot: SnapshotId,
    /// Previous step; `None` for the start of a search.
    pub parent: Option<EpisodeId>,
    /// Action, free text.
    pub action: String,
    /// Reward of the step.
    pub reward: f64,
    /// Number of times that the search has visited this step. The search counts them, not the store.
    pub visits: u64,
    /// [`InsightDiff`](crate::InsightDiff) (line counts, sizes and risk notes) against the parent's snapshot as
    /// JSON; `None` if the search did not request it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insight: Option<serde_json::Value>,
    /// Arbitrary data of the search.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub data: serde_json::Value,
    /// Time at which the episode was added.
    pub time: Timestamp,
}

impl Episode {
    /// Creates a step with one visit and no data.
    pub fn new(
        snapshot: SnapshotId,
        parent: Option<EpisodeId>,
        action: impl Into<String>,
        reward: f64,
    ) -> Self {
        Self {
            id: EpisodeId::generate(),
            snapshot,
            parent,
            action: action.into(),
            reward,
            visits: 1,
            insight: None,
            data: serde_json::Value::Null,
            time: Timestamp::now(),
        }
    }
}

/// Summary of an episode, without the fields that may be large.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EpisodeSummary {
    /// Unique id.
    pub id: EpisodeId,
    /// Snapshot of the resulting state.
    pub snapshot: SnapshotId,
    /// Previous step; `None` for the start of a search.
    pub parent: Option<EpisodeId>,
    /// Reward of the step.
    pub reward: f64,
    /// Number of times that the search has visited this step.
    pub visits: u64,
}

/// Ids of an episode and of its parent; `None` for the start of a search.
pub type EpisodeLink = (EpisodeId, Option<EpisodeId>);

/// Decodes a stored episode, which is JSON.
pub(crate) fn decode(record: &[u8]) -> Decoded<Episode> {
    serde_json::from_slice(record).map_err(|_| DecodeError("not an episode"))
}

/// Decodes only the parent of a stored episode, because other fields may be large.
pub(crate) fn parent_of(record: &[u8]) -> Decoded<Option<EpisodeId>> {
    #[derive(Deserialize)]
    struct Link {
        parent: Option<EpisodeId>,
    }
    let link: Link = serde_json::from_slice(record).map_err(|_| DecodeError("not an episode"))?;
    Ok(link.parent)
}

/// Converts a row of the index to the change that adds this episode. For a checkpoint, a copy of all episodes and
/// other records at the start of a new log pack.
pub(crate) fn as_change(key: &[u8], record: Vec<u8>) -> Decoded<Change> {
    let id =
        EpisodeId::from_bytes(key.try_into().map_err(|_| DecodeError("episode id of the wrong length"))?);
    let parent = parent_of(&record)?;
    Ok(Change::PutEpisode { id, parent, record })
}
