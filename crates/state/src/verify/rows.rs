//! Comparison of the index with the log, which is the source of truth for records.

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
use crate::records::Records;
use crate::snapshot::Snapshot;
use crate::store::Inner;

use super::Verify;

/// Number of attempts. A garbage collection may remove the packs of an old log while they are read.
const ATTEMPTS: usize = 8;

impl Verify<'_> {
    /// Compares all rows that can be derived from the log.
    pub(super) fn verify_rows(&self, progress: &dyn Progress) -> Result<()> {
        let inner = &self.store.inner;
        progress.begin("comparing the index with the log", None);
        let mut damages = inner.compare_with_log();
        for _ in 1..ATTEMPTS {
            match &damages {
                Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    damages = inner.compare_with_log();
                }
                _ => break,
            }
        }
        progress.end();
        for Damage { snapshot, path, problem } in damages? {
            self.report(snapshot, path.as_deref(), problem);
        }
        Ok(())
    }
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

    /// Compares the records of the index with a replay of the log. Returns the differences.
    fn compare_with_log(&self) -> Result<Vec<Damage>> {
        let txn = self.index.read()?;
        let Some(state) = self.index.log_state(&txn)? else { return Ok(Vec::new()) };
        let mut damages = self.find_unlisted_packs(&txn, &state)?;
        let rows = Records::of_index(&self.index, &txn);
        drop(txn);
        let log = LogRecords::read_back(&self.packs, LogPosition { pack: state.pack, offset: state.end })?;
        let (logged, gaps) = replay(&self.packs, &log, &state)?;
        damages.extend(gaps.into_iter().map(damage));
        match rows {
            Ok(rows) => damages.extend(rows.differences_from(&logged)),
            Err(error @ StoreError::Undecodable { .. }) => damages.push(damage(error.to_string())),
            Err(error) => return Err(error),
        }
        Ok(damages)
    }

    /// Reports packs in use that are not in the table of packs: garbage collection would remove them.
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

    /// Returns the snapshots whose records can be decoded, oldest first.
    pub(super) fn decodable_snapshots(&self) -> Result<Vec<Snapshot>> {
        let txn = self.index.read()?;
        let mut snapshots = Vec::new();
        for row in self.index.snapshots.iter(&txn)? {
            snapshots.extend(Snapshot::decode(row?.1));
        }
        for row in self.index.unsettled.iter(&txn)? {
            snapshots.extend(
                crate::unsettled_cache::Row::decode(row?.1).map(|row| row.snapshots).unwrap_or_default(),
            );
        }
        snapshots.sort_by_key(|snapshot| snapshot.id);
        Ok(snapshots)
    }
}

/// Replays the log. Returns the resulting records and descriptions of missing commits.
fn replay(packs: &Packs, log: &LogRecords, state: &LogState) -> Result<(Records, Vec<String>)> {
    let (mut records, mut gaps) = (Records::default(), Vec::new());
    let (mut sequence, mut previous) = (0, [0; 32]);
    let tail = log.tail();
    if let Some(commit) = tail.incomplete_checkpoint {
        gaps.push(format!("the log is damaged: parts of the checkpoint at commit {commit} are missing"));
    }
    for part in &tail.checkpoint {
        (sequence, previous) = (part.sequence, part.previous);
        part.read_changes(packs)?.iter().for_each(|change| records.apply(change));
    }
    for commit in tail.commits {
        if commit.previous != previous {
            gaps.push(describe_gap(sequence, commit.sequence - 1));
        }
        (sequence, previous) = (commit.sequence, commit.id);
        commit.read_changes(packs)?.iter().for_each(|change| records.apply(change));
    }
    if (sequence, previous) != (state.sequence, state.previous) {
        gaps.push(describe_gap(sequence, state.sequence));
    }
    Ok((records, gaps))
}

fn describe_gap(last_present: u64, last: u64) -> String {
    format!("the log is damaged: records of commits {} to {last} are missing", last_present + 1)
}

fn damage(problem: String) -> Damage {
    Damage { snapshot: None, path: None, problem }
}
