//! Reports of rebuilds of the index: the number of records in the new index, and records that only the old one had.
//!
//! The index is the LMDB database of a store. It is rebuilt from the packs: append-only files with all objects and the
//! log, the sequence of all commits.

use std::path::PathBuf;

use serde::Serialize;

use crate::counts::IndexCounts;
use crate::damage::Damage;
use crate::id::{EpisodeId, SnapshotId};
use crate::snapshot::Timestamp;

/// Report of a rebuild of the index from the packs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RebuildReport {
    /// Number of records in the new index.
    pub index: IndexCounts,
    /// Number of commits at the end of the log that were dropped, because a machine crash has left them incomplete.
    pub commits_given_up: u64,
    /// True if commit records are missing from the middle of the log.
    pub log_damaged: bool,
    /// True if the old index could not be read, so that its content is unknown.
    pub old_unreadable: bool,
    /// Records of the old index that the packs no longer hold.
    pub lost: Loss,
    /// Rows of the old index that differed from the complete log. The new index has the right rows.
    #[serde(rename = "mended")]
    pub wrong_rows: Vec<Damage>,
    /// Directory of the old index, if it was kept.
    pub old_index: Option<PathBuf>,
}

/// Records that were lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Snapshots, oldest first.
    pub snapshots: Vec<LostSnapshot>,
    /// References (names of snapshots), sorted by name.
    pub references: Vec<LostReference>,
    /// Episodes (steps of searches), oldest first.
    pub episodes: Vec<EpisodeId>,
}

/// A snapshot that was lost, as the old index described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostSnapshot {
    /// Unique id.
    pub id: SnapshotId,
    /// Creation time; `None` if the record of the snapshot could not be decoded.
    pub time: Option<Timestamp>,
    /// Message; `None` if the record of the snapshot could not be decoded.
    pub message: Option<String>,
}

/// A reference that no longer exists, or that points to an earlier snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostReference {
    /// Name of the reference.
    pub name: String,
    /// Target in the old index; `None` if its row was damaged.
    pub was: Option<SnapshotId>,
    /// Current target; `None` if the reference no longer exists.
    pub is: Option<SnapshotId>,
}

impl RebuildReport {
    /// Describes everything about the rebuild that users should know, in one sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let lost = &self.lost;
        if !lost.is_empty() {
            problems.push(format!(
                "lost {} snapshots, {} references, {} episodes that the packs no longer hold",
                lost.snapshots.len(),
                lost.references.len(),
                lost.episodes.len()
            ));
        }
        if self.commits_given_up > 0 {
            problems.push(format!(
                "{} commits at the end of the log were incomplete and were dropped",
                self.commits_given_up
            ));
        }
        if self.log_damaged {
            problems.push("commit records are missing from the log".to_owned());
        }
        if self.old_unreadable {
            problems.push("the old index could not be read, so its content is unknown".to_owned());
        }
        if !self.wrong_rows.is_empty() {
            problems.push(format!("{} rows of the old index were wrong", self.wrong_rows.len()));
        }
        if let Some(old) = &self.old_index {
            problems.push(format!("the old index is kept in {}", old.display()));
        }
        problems
    }
}

impl Loss {
    /// Returns true if nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.snapshots.is_empty() && self.references.is_empty() && self.episodes.is_empty()
    }
}
