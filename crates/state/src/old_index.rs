//! Old index, after a rebuild has replaced it: its backup, and its comparison with the new index.
//!
//! The index is the LMDB database of a store. A rebuild makes it anew from the log, the sequence of all commits.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::file_ops::remove_directory;
use crate::id::SnapshotId;
use crate::index::Index;
use crate::log_state::LogState;
use crate::rebuild_report::{Loss, LostReference, LostSnapshot, RebuildReport};
use crate::row_digests::RowDigests;

/// Prefix of the directory names of old indexes that are kept. A number follows.
const OLD_INDEX_PREFIX: &str = "index.old-";
/// Maximum number of old indexes that are kept. If there are more, the newest one is replaced, because the oldest ones
/// are likely to have the most records.
const OLD_INDEXES_MAX: u32 = 4;

/// State of the old index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OldIndexState {
    Consistent,
    /// The machine may have crashed. Reading the index could kill the process, because LMDB uses a memory map.
    MaybeInconsistent,
}

/// Returns an unused path for the old index. If all are in use, removes the index with the highest number.
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

/// Completes the report of a rebuild with the differences between the `old` index and the new one. Keeps the old index
/// if it differs or cannot be read, else removes it. Removes it without a comparison if it may be inconsistent.
pub(crate) fn compare(
    store: &Path,
    old: Option<PathBuf>,
    mut report: RebuildReport,
    old_state: OldIndexState,
) -> Result<RebuildReport> {
    let Some(old) = old else { return Ok(report) };
    if old_state == OldIndexState::MaybeInconsistent {
        remove_directory(&old)?;
        return Ok(report);
    }
    let kept = match IndexRecords::read(&old) {
        Ok(before) => before.compare(&IndexRecords::read(&store.join("index"))?, &mut report),
        // The old index is damaged, and is kept for a manual inspection.
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
    /// Digests of the records, to compare them.
    records: RowDigests,
    state: LogState,
}

impl IndexRecords {
    fn read(directory: &Path) -> Result<Self> {
        let index = Index::open_read_only(directory)?;
        let (records, state) = {
            let txn = index.read()?;
            (RowDigests::of_index(&index, &txn)?, index.log_state(&txn)?.unwrap_or_default())
        };
        Ok(Self { index, records, state })
    }

    /// Adds the differences from the `new` index to the report. Returns true if there are any.
    fn compare(&self, new: &Self, report: &mut RebuildReport) -> bool {
        let differences = self.records.differences_from(&new.records);
        let differs = !differences.is_empty();
        if !report.log_damaged && new.state.sequence >= self.state.sequence {
            // The log is complete, so the old rows were wrong.
            report.wrong_rows = differences;
        } else {
            report.lost = self.lost(&new.records);
        }
        differs
    }

    /// Returns the records that `later` lacks, or has in another state.
    fn lost(&self, later: &RowDigests) -> Loss {
        let snapshot = |bytes: Vec<u8>| Some(SnapshotId::from_bytes(bytes.try_into().ok()?));
        let reference = |(name, was, is): (String, Vec<u8>, Option<Vec<u8>>)| LostReference {
            name,
            was: snapshot(was),
            is: is.and_then(snapshot),
        };
        Loss {
            snapshots: self
                .records
                .snapshots_missing_in(later)
                .into_iter()
                .map(|id| self.describe(id))
                .collect(),
            references: self.records.references_missing_in(later).into_iter().map(reference).collect(),
            episodes: self.records.episodes_missing_in(later),
        }
    }

    /// Describes a lost snapshot, as far as its record in this index can be decoded.
    fn describe(&self, id: SnapshotId) -> LostSnapshot {
        let found = self.index.read().and_then(|txn| self.index.snapshot(&txn, &id)).ok().flatten();
        match found {
            Some(snapshot) => LostSnapshot { id, time: Some(snapshot.time), message: Some(snapshot.message) },
            None => LostSnapshot { id, time: None, message: None },
        }
    }
}
