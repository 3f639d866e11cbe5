//! Losses of a rebuild: compares the old index with the one rebuilt from the packs.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::counts::IndexCounts;
use crate::error::Result;
use crate::id::{EpisodeId, SnapshotId};
use crate::index::{Index, LogState};
use crate::records::Records;
use crate::recovery::remove_directory;
use crate::snapshot::Timestamp;
use crate::verify::Damage;

/// Prefix of the names of kept old indexes, followed by a number.
const OLD_INDEX_PREFIX: &str = "index.old-";
/// Most old indexes that are kept. The first ones know the most, so the last one is replaced.
const OLD_INDEXES_MAX: u32 = 4;

/// Report of a rebuild of the index from the packs: its result, and what was lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RebuildReport {
    /// Contents of the new index.
    pub index: IndexCounts,
    /// Commits at the end of the log that a machine crash left incomplete, and that were dropped.
    pub commits_given_up: u64,
    /// Commit records are missing from the middle of the log.
    pub log_damaged: bool,
    /// The old index could not be read, so its content is unknown.
    pub old_unreadable: bool,
    /// Records of the old index that the packs no longer hold.
    pub lost: Loss,
    /// Rows of the old index that were wrong.
    pub mended: Vec<Damage>,
    /// Directory of the old index, if it was kept.
    pub old_index: Option<PathBuf>,
}

/// Records that were lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Snapshots, oldest first.
    pub snapshots: Vec<LostSnapshot>,
    /// References by name.
    pub references: Vec<LostReference>,
    /// Episodes, oldest first.
    pub episodes: Vec<EpisodeId>,
}

/// A snapshot that was lost, as the old index described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostSnapshot {
    /// Unique id.
    pub id: SnapshotId,
    /// Creation time; `None` if its record could not be decoded.
    pub time: Option<Timestamp>,
    /// Message; `None` if its record could not be decoded.
    pub message: Option<String>,
}

/// A reference that is gone, or reset to an earlier snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostReference {
    /// Name of the reference.
    pub name: String,
    /// Target in the old index; `None` if its row was damaged.
    pub was: Option<SnapshotId>,
    /// Current target; `None` if it is gone.
    pub is: Option<SnapshotId>,
}

impl RebuildReport {
    /// Describes everything about the rebuild that a person should know, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let lost = &self.lost;
        if !lost.is_empty() {
            problems.push(format!(
                "lost {} snapshots, {} references, {} episodes that the packs do not hold any more",
                lost.snapshots.len(),
                lost.references.len(),
                lost.episodes.len()
            ));
        }
        if self.commits_given_up > 0 {
            problems.push(format!(
                "{} commits at the end of the log were incomplete and are gone",
                self.commits_given_up
            ));
        }
        if self.log_damaged {
            problems.push("commit records are missing from the log".to_owned());
        }
        if self.old_unreadable {
            problems.push("the old index could not be read, so what it held is not known".to_owned());
        }
        if !self.mended.is_empty() {
            problems.push(format!("{} rows of the old index were wrong", self.mended.len()));
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

/// Returns a free name for the old index. If all names are taken, removes the last old index.
pub(crate) fn name_for_old_index(store: &Path) -> Result<PathBuf> {
    let name = |number: u32| store.join(format!("{OLD_INDEX_PREFIX}{number}"));
    for number in 1..=OLD_INDEXES_MAX {
        let path = name(number);
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok(path);
        }
    }
    let last = name(OLD_INDEXES_MAX);
    remove_directory(&last)?;
    Ok(last)
}

/// Completes the report of a rebuild with the differences to the `old` index, and removes that index if it is
/// of no use.
pub(crate) fn compare(
    store: &Path,
    old: Option<PathBuf>,
    mut report: RebuildReport,
    trusted: bool,
) -> Result<RebuildReport> {
    let Some(old) = old else { return Ok(report) };
    if !trusted {
        remove_directory(&old)?;
        return Ok(report);
    }
    let kept = match IndexRecords::read(&old) {
        Ok(before) => before.compare(&IndexRecords::read(&store.join("index"))?, &mut report),
        // Its damage caused the rebuild. It is kept for a manual inspection.
        Err(_) => {
            report.old_unreadable = true;
            true
        }
    };
    if kept {
        report.old_index = Some(old);
    } else {
        remove_directory(&old)?;
    }
    Ok(report)
}

/// An index and its records.
struct IndexRecords {
    index: Index,
    records: Records,
    state: LogState,
}

impl IndexRecords {
    fn read(directory: &Path) -> Result<Self> {
        let index = Index::open_to_read(directory)?;
        let (records, state) = {
            let txn = index.read()?;
            (Records::of_index(&index, &txn)?, index.log_state(&txn)?.unwrap_or_default())
        };
        Ok(Self { index, records, state })
    }

    /// Adds the differences to the rebuilt index to the report. Returns true if there are any.
    fn compare(&self, new: &Self, report: &mut RebuildReport) -> bool {
        let differences = self.records.differences_from(&new.records);
        let differs = !differences.is_empty();
        if !report.log_damaged && new.state.sequence >= self.state.sequence {
            // The log is complete, so the old rows were wrong.
            report.mended = differences;
        } else {
            report.lost = self.lost(&new.records);
        }
        differs
    }

    fn lost(&self, later: &Records) -> Loss {
        let snapshot = |bytes: Vec<u8>| Some(SnapshotId::from_bytes(bytes.try_into().ok()?));
        let reference = |(name, was, is): (String, Vec<u8>, Option<Vec<u8>>)| LostReference {
            name,
            was: snapshot(was),
            is: is.and_then(snapshot),
        };
        Loss {
            snapshots: self.records.snapshots_gone(later).into_iter().map(|id| self.describe(id)).collect(),
            references: self.records.references_gone(later).into_iter().map(reference).collect(),
            episodes: self.records.episodes_gone(later),
        }
    }

    fn describe(&self, id: SnapshotId) -> LostSnapshot {
        let found = self.index.read().and_then(|txn| self.index.snapshot(&txn, &id)).ok().flatten();
        match found {
            Some(snapshot) => LostSnapshot { id, time: Some(snapshot.time), message: Some(snapshot.message) },
            None => LostSnapshot { id, time: None, message: None },
        }
    }
}
