//! Compares the rows of the index with the log.
//!
//! The log (the sequence of commit records in the packs) is the source of truth; all rows of snapshots, references,
//! pins and episodes can be derived from it. A replay starts at the last checkpoint: the records at the start of a new
//! log with all of these rows.

use std::collections::BTreeSet;
use std::io;

use heed::RoTxn;

use crate::damage::Damage;
use crate::error::{Result, StoreError};
use crate::log_record::LogPosition;
use crate::log_scan::LogRecords;
use crate::log_state::LogState;
use crate::pack::{Location, Packs};
use crate::progress::Progress;
use crate::record::Kind;
use crate::row_digests::RowDigests;
use crate::snapshot::Snapshot;
use crate::store::Inner;

use super::Verify;

/// Maximum number of comparisons. A comparison is repeated if a garbage collection has removed the log packs while they
/// were read.
const ATTEMPTS: usize = 8;

impl Verify<'_> {
    /// Compares the index with the log, and reports the differences.
    pub(super) fn verify_rows(&self, progress: &dyn Progress) -> Result<()> {
        let inner = &self.store.inner;
        progress.begin("comparing the index with the log", None);
        let damages = inner.compare_with_log();
        progress.end();
        for Damage { snapshot, path, problem } in damages? {
            self.report(snapshot, path.as_deref(), problem);
        }
        Ok(())
    }
}

/// Rows of the index, read in one transaction.
struct IndexRows {
    /// End of the log according to the index.
    state: LogState,
    /// Damages that were found in the index alone.
    damages: Vec<Damage>,
    /// Digests (hashes) of the rows; an error if a row cannot be decoded.
    digests: Result<RowDigests>,
}

impl Inner {
    /// Fails if the index contradicts the log.
    pub(crate) fn check_against_log(&self) -> Result<()> {
        match self.compare_with_log()?.into_iter().next() {
            Some(Damage { snapshot, problem, .. }) => {
                let prefix = snapshot.map_or_else(String::new, |id| format!("snapshot {id}: "));
                Err(StoreError::IndexDiffers { problem: format!("{prefix}{problem}") })
            }
            None => Ok(()),
        }
    }

    /// Compares the rows of the index with a replay of the log. Returns the differences. Compares again if a garbage
    /// collection of another process has replaced the log and removed its packs after the index was read.
    fn compare_with_log(&self) -> Result<Vec<Damage>> {
        let mut attempt = 1;
        loop {
            let Some(rows) = self.read_index_rows()? else { return Ok(Vec::new()) };
            let state = rows.state.clone();
            let compared = self.compare(rows);
            let must_repeat = match &compared {
                Ok(damages) => !damages.is_empty() && self.has_new_log(&state)?,
                Err(StoreError::Io { source, .. }) => source.kind() == io::ErrorKind::NotFound,
                Err(_) => false,
            };
            if !must_repeat || attempt == ATTEMPTS {
                return compared;
            }
            attempt += 1;
        }
    }

    /// Reads the rows of the index in one transaction; `None` if the store has no log yet.
    fn read_index_rows(&self) -> Result<Option<IndexRows>> {
        let txn = self.index.read()?;
        let Some(state) = self.index.log_state(&txn)? else { return Ok(None) };
        let damages = self.find_unlisted_packs(&txn, &state)?;
        let digests = RowDigests::of_index(&self.index, &txn);
        Ok(Some(IndexRows { state, damages, digests }))
    }

    /// Compares the rows with a replay of the log up to the end in `rows.state`.
    fn compare(&self, rows: IndexRows) -> Result<Vec<Damage>> {
        let IndexRows { state, mut damages, digests } = rows;
        let end = LogPosition { pack: state.pack, offset: state.end };
        let log = LogRecords::read_since_checkpoint(&self.packs, end)?;
        let (logged, gaps) = replay(&self.packs, &log, &state)?;
        damages.extend(gaps.into_iter().map(damage));
        match digests {
            Ok(digests) => damages.extend(digests.differences_from(&logged)),
            Err(error @ StoreError::Undecodable { .. }) => damages.push(damage(error.to_string())),
            Err(error) => return Err(error),
        }
        Ok(damages)
    }

    /// Returns true if another log pack was started since `state` was read. The packs of an old log are removed only
    /// after a checkpoint, which starts a new pack.
    fn has_new_log(&self, state: &LogState) -> Result<bool> {
        let txn = self.index.read()?;
        let now = self.index.log_state(&txn)?;
        Ok(now.is_some_and(|now| now.pack != state.pack))
    }

    /// Returns damage for each pack that is in use but not in the table of packs. Garbage collection would remove
    /// these packs.
    fn find_unlisted_packs(&self, txn: &RoTxn<'_>, state: &LogState) -> Result<Vec<Damage>> {
        let mut used_packs = BTreeSet::from([state.pack]);
        for kind in [Kind::Chunk, Kind::Node] {
            for row in self.index.objects(kind).iter(txn)? {
                used_packs.extend(Location::decode(row?.1).map(|location| location.pack));
            }
        }
        let mut damages = Vec::new();
        for pack in used_packs {
            if self.index.packs.get(txn, &pack.to_be_bytes())?.is_none() {
                damages.push(damage(format!(
                    "pack {pack} is in use, but not in the table of packs of the index"
                )));
            }
        }
        Ok(damages)
    }

    /// Returns the snapshots whose rows can be decoded, oldest first.
    pub(super) fn decodable_snapshots(&self) -> Result<Vec<Snapshot>> {
        let txn = self.index.read()?;
        let mut snapshots = Vec::new();
        for row in self.index.snapshots.iter(&txn)? {
            snapshots.extend(Snapshot::decode(row?.1));
        }
        // An unsettled row has the objects and snapshots of a small commit that are not in the tables yet.
        for row in self.index.unsettled.iter(&txn)? {
            snapshots.extend(
                crate::unsettled_cache::Row::decode(row?.1).map(|row| row.snapshots).unwrap_or_default(),
            );
        }
        snapshots.sort_by_key(|snapshot| snapshot.id);
        Ok(snapshots)
    }
}

/// Replays the log. Returns the digests of the resulting rows, and descriptions of missing commits. Each commit record
/// has the id of the previous one, so a gap is detected. `state` has the last commit.
fn replay(packs: &Packs, log: &LogRecords, state: &LogState) -> Result<(RowDigests, Vec<String>)> {
    let (mut digests, mut gaps) = (RowDigests::default(), Vec::new());
    let (mut sequence, mut last_commit_id) = (0, [0; 32]);
    let plan = log.replay_plan();
    if let Some(commit) = plan.incomplete_checkpoint {
        gaps.push(format!("the log is damaged: parts of the checkpoint at commit {commit} are missing"));
    }
    for part in &plan.checkpoint {
        (sequence, last_commit_id) = (part.sequence, part.last_commit_id);
        part.read_changes(packs)?.iter().for_each(|change| digests.apply(change));
    }
    for commit in plan.commits {
        if commit.previous != last_commit_id {
            gaps.push(describe_gap(sequence, commit.sequence - 1));
        }
        (sequence, last_commit_id) = (commit.sequence, commit.id);
        commit.read_changes(packs)?.iter().for_each(|change| digests.apply(change));
    }
    if (sequence, last_commit_id) != (state.sequence, state.last_commit_id) {
        gaps.push(describe_gap(sequence, state.sequence));
    }
    Ok((digests, gaps))
}

/// Describes missing commits, from the one after `last_present` to `last`.
fn describe_gap(last_present: u64, last: u64) -> String {
    format!("the log is damaged: records of commits {} to {last} are missing", last_present + 1)
}

/// Returns damage that belongs to no snapshot.
fn damage(problem: String) -> Damage {
    Damage { snapshot: None, path: None, problem }
}

#[cfg(test)]
mod tests {
    use crate::checkpoint;
    use crate::commit_options::NewSnapshot;
    use crate::log_record::CheckpointOrigin;
    use crate::store::Store;

    #[test]
    fn a_log_that_is_replaced_after_the_index_was_read_is_no_damage() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        for content in ["one", "two"] {
            let mut tree = store.empty_tree().unwrap();
            tree.write("file", content).unwrap();
            tree.commit(NewSnapshot::default()).unwrap();
        }
        let inner = &store.inner;
        let rows = inner.read_index_rows().unwrap().unwrap();
        let state = rows.state.clone();
        assert!(!inner.has_new_log(&state).unwrap());
        // A garbage collection of another process writes a checkpoint, and removes the old log.
        let mut txn = inner.index.write().unwrap();
        inner.close_log(&state).unwrap();
        let origin = CheckpointOrigin::GarbageCollection;
        checkpoint::write(&inner.packs, &inner.index, &mut txn, state.clone(), origin).unwrap();
        inner.index.commit(txn).unwrap();
        inner.packs.remove(state.pack).unwrap();
        // The rows that were read before cannot be compared with the new log, so `compare_with_log` must read them
        // again.
        assert_ne!(inner.compare(rows).unwrap().len(), 0);
        assert!(inner.has_new_log(&state).unwrap());
        assert!(inner.compare_with_log().unwrap().is_empty());
    }
}
