//! Stored details of a review (a conflict that waits for a decision), and the reviews that the merge of a completion
//! (finished work of an agent) opens.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use workspace_catalog::{NewCompletion, NewReview, now};
use workspace_merge::{ConflictLocation, TreeConflict, TreeVersion};
use workspace_state::{SnapshotId, TreePath};

use crate::policy::AgentPolicy;
use crate::projects::completion_merge::MergeOutcome;
use crate::projects::error::{ProjectError, Result};
use crate::projects::parse_snapshot;

/// Maximum number of regions (conflicting lines or values) that are stored with a review.
const REGIONS_MAX: usize = 200;
/// Maximum length of a text in a region in bytes.
const REGION_TEXT_MAX: usize = 1 << 10;
/// Size in bytes of the regions of a review, as JSON, after which no further region is stored. Limits the time to read
/// a list of reviews.
const REGIONS_BYTES_MAX: usize = 16 << 10;

/// Details of a review, as they are stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewData {
    /// Snapshot that the agent started from.
    pub base_snapshot: String,
    /// Snapshot with the changes of the agent.
    pub theirs_snapshot: String,
    /// Path in the base; `None` if the base has no entry.
    pub base_path: Option<TreePath>,
    /// Path in the snapshot of the agent; `None` if the agent removed the entry.
    pub theirs_path: Option<TreePath>,
    /// Path of the agent's entry in the head, after a conflict for which the merge kept both entries; `None` for other
    /// conflicts.
    #[serde(rename = "beside")]
    pub theirs_path_in_head: Option<TreePath>,
    /// Sequence of the head when the review was opened.
    pub sequence: i64,
    /// Reason of the conflict; `None` if it is not about the content of a file.
    pub reason: Option<String>,
    /// Merge strategy that found the conflict.
    pub strategy: Option<String>,
    /// Conflicting lines or values; none if the whole entry is in conflict.
    pub regions: Vec<Value>,
    /// True if there are more regions than were stored.
    pub has_more_regions: bool,
}

impl ReviewData {
    /// Reads the details of a stored review.
    pub(super) fn parse(data: &Value) -> Result<Self> {
        Self::deserialize(data).map_err(|error| ProjectError::Record(format!("a review: {error}")))
    }

    fn new(
        conflict: &TreeConflict,
        outcome: &MergeOutcome,
        completion: &NewCompletion,
        sequence: i64,
    ) -> Self {
        let path = |version: &TreeVersion| TreePath(version.path.clone());
        // An addition that was kept under another name has its former name in the snapshot of the agent.
        let theirs_path = conflict.theirs.as_ref().map(path).map(|path| {
            let renamed = outcome.renamed.iter().find(|renamed| renamed.to == path);
            renamed.map_or(path, |renamed| renamed.from.clone())
        });
        let locations = conflict.file.as_ref().map_or(&[][..], |file| &file.locations);
        let regions = stored_regions(locations);
        Self {
            base_snapshot: outcome.base.to_string(),
            theirs_snapshot: completion.theirs_snapshot.clone(),
            base_path: conflict.base.as_ref().map(path),
            theirs_path,
            theirs_path_in_head: conflict.theirs_path_in_merged.clone(),
            sequence,
            reason: conflict.file.as_ref().map(|file| shortened(&file.reason)),
            strategy: conflict.file.as_ref().map(|file| file.strategy.to_owned()),
            has_more_regions: locations.len() > regions.len(),
            regions,
        }
    }
}

/// Returns the reviews to open for the conflicts of a completion. `sequence` is the sequence of the head after the
/// merge of the completion.
pub(in crate::projects) fn opened_reviews(
    outcome: &MergeOutcome,
    completion: &NewCompletion,
    policy: &AgentPolicy,
    sequence: i64,
) -> Result<Vec<NewReview>> {
    let time = now();
    let review = |conflict: &TreeConflict| {
        let data = ReviewData::new(conflict, outcome, completion, sequence);
        let timeout = policy.conflict_settings(&conflict.path.0).review_timeout;
        let timeout = timeout.and_then(|timeout| timeout.duration());
        Ok(NewReview {
            id: format!("rev-{}", uuid::Uuid::now_v7().simple()),
            completion: Some(completion.id.clone()),
            path: conflict.path.0.clone(),
            class: conflict.class.name().to_owned(),
            data: serde_json::to_value(data)
                .map_err(|error| ProjectError::Record(format!("a review: {error}")))?,
            author: completion.agent.clone(),
            assigned: None,
            expires_at: timeout.map(|timeout| time_after(time, timeout)),
        })
    };
    outcome.conflicts.iter().map(review).collect()
}

/// Adds a timeout to a time in milliseconds since 1970.
pub(super) fn time_after(time: i64, timeout: Duration) -> i64 {
    time.saturating_add(millis(timeout))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the first regions as JSON, within the limits.
fn stored_regions(locations: &[ConflictLocation]) -> Vec<Value> {
    let (mut regions, mut bytes) = (Vec::new(), 0);
    for location in locations.iter().take(REGIONS_MAX) {
        if bytes >= REGIONS_BYTES_MAX {
            break;
        }
        let region = region(location);
        bytes += region.to_string().len();
        regions.push(region);
    }
    regions
}

/// Returns a region as JSON. Values can be as large as the file, so they are shortened.
fn region(location: &ConflictLocation) -> Value {
    let mut location = location.clone();
    if let ConflictLocation::Value(value) = &mut location {
        for text in [&mut value.base, &mut value.ours, &mut value.theirs].into_iter().flatten() {
            *text = shortened(text);
        }
        value.path = shortened(&value.path);
    }
    serde_json::to_value(location).unwrap_or_default()
}

/// Returns a text that is cut after at most [`REGION_TEXT_MAX`] bytes.
fn shortened(text: &str) -> String {
    if text.len() <= REGION_TEXT_MAX {
        return text.to_owned();
    }
    let end = (0..=REGION_TEXT_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Returns the ids of two snapshots: the one that the agent started from, and the one with its changes.
pub(super) fn snapshots(data: &ReviewData) -> Result<(SnapshotId, SnapshotId)> {
    Ok((parse_snapshot(&data.base_snapshot)?, parse_snapshot(&data.theirs_snapshot)?))
}

#[cfg(test)]
mod tests {
    use workspace_merge::ValueConflict;

    use super::*;

    #[test]
    fn regions_are_bounded_in_number_and_size() {
        let value = |text: &str| {
            let text = Some(text.to_owned());
            let (base, ours, theirs) = (text.clone(), text.clone(), text);
            ConflictLocation::Value(ValueConflict { path: "a.b".to_owned(), base, ours, theirs })
        };
        assert_eq!(stored_regions(&vec![value("1"); 1_000]).len(), REGIONS_MAX);
        let long = stored_regions(&vec![value(&"文".repeat(1 << 20)); 1_000]);
        assert!(serde_json::to_string(&long).unwrap().len() < 2 * REGIONS_BYTES_MAX);
        assert_eq!(long[0]["ours"].as_str().unwrap().chars().last(), Some('…'));
        assert_eq!(stored_regions(&[value("1")])[0]["theirs"], "1");
    }
}
