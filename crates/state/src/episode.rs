//! Episodes: the steps of a search. An episode is a single step; the chain of its parents is the trajectory.

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
    /// Resulting state.
    pub snapshot: SnapshotId,
    /// Previous step; `None` for the start of a search.
    pub parent: Option<EpisodeId>,
    /// Action, free text.
    pub action: String,
    /// Reward of the step.
    pub reward: f64,
    /// Number of visits, counted by the search; the store does not change it.
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
    /// Resulting state.
    pub snapshot: SnapshotId,
    /// Previous step; `None` for the start of a search.
    pub parent: Option<EpisodeId>,
    /// Reward of the step.
    pub reward: f64,
    /// Number of visits, counted by the search; the store does not change it.
    pub visits: u64,
}

/// Ids of an episode and of its parent.
pub type EpisodeLink = (EpisodeId, Option<EpisodeId>);

pub(crate) fn decode(record: &[u8]) -> Decoded<Episode> {
    serde_json::from_slice(record).map_err(|_| DecodeError("not an episode"))
}

/// Decodes only the parent of a stored episode: other fields may be large.
pub(crate) fn parent_of(record: &[u8]) -> Decoded<Option<EpisodeId>> {
    #[derive(Deserialize)]
    struct Link {
        parent: Option<EpisodeId>,
    }
    let link: Link = serde_json::from_slice(record).map_err(|_| DecodeError("not an episode"))?;
    Ok(link.parent)
}

/// Converts an episode of the index to the log change that adds it, for a checkpoint (a copy of all records in a
/// new log, after which older logs can be deleted).
pub(crate) fn as_change(key: &[u8], record: Vec<u8>) -> Decoded<Change> {
    let id =
        EpisodeId::from_bytes(key.try_into().map_err(|_| DecodeError("episode id of the wrong length"))?);
    let parent = parent_of(&record)?;
    Ok(Change::PutEpisode { id, parent, record })
}
