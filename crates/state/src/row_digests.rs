//! Digests (hashes) of the records of a store, to compare two copies of them: the index, which is an LMDB database, and
//! the log of all commits, replayed. Memory use depends on the number of records and not on their size.
//!
//! Records are snapshots, references (names of snapshots), episodes (steps of searches), and pins, which protect
//! snapshots from garbage collection.

use std::collections::{BTreeMap, BTreeSet};

use heed::RoTxn;

use crate::codec::DecodeError;
use crate::damage::Damage;
use crate::error::{Result, StoreError};
use crate::id::{EpisodeId, PinId, SnapshotId};
use crate::index::{Index, Table, concat_ids, episode_key};
use crate::log_record::Change;
use crate::snapshot::Snapshot;
use crate::unsettled_cache::Row;

type Digest = [u8; 16];

/// Returns the first half of the hash of a row.
fn digest(row: &[u8]) -> Digest {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(row).as_bytes()[..16]);
    digest
}

/// Digests of the records of an index, or of a replayed log.
#[derive(Debug, Default)]
pub(crate) struct RowDigests {
    snapshots: BTreeMap<SnapshotId, Digest>,
    /// Tree id and snapshot id of each snapshot: keys of the table `trees`.
    trees: BTreeSet<Vec<u8>>,
    /// Target of each reference, by name. Not a valid snapshot id if the row is damaged.
    references: BTreeMap<Vec<u8>, Vec<u8>>,
    episodes: BTreeMap<EpisodeId, Digest>,
    /// Parent id and id of each episode: keys of the table `episode_children`.
    children: BTreeSet<Vec<u8>>,
    pins: BTreeMap<PinId, Digest>,
    /// Keys in `trees` by snapshot, to remove them together with the snapshot.
    tree_keys: BTreeMap<SnapshotId, Vec<u8>>,
}

/// Difference between a row of the index and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowDifference {
    Changed,
    /// The row is in the log only.
    Missing,
    /// The row is in the index only.
    Unlogged,
}

impl RowDifference {
    fn description(self) -> &'static str {
        match self {
            Self::Changed => "its row in the index differs from the log",
            Self::Missing => "the log has it and the index does not",
            Self::Unlogged => "the index has it and the log does not",
        }
    }
}

impl RowDigests {
    /// Applies a change as [`Index::apply`] does.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::PutSnapshot(snapshot) => self.put_snapshot(snapshot),
            Change::RemoveSnapshot(id) => {
                self.snapshots.remove(id);
                if let Some(key) = self.tree_keys.remove(id) {
                    self.trees.remove(&key);
                }
            }
            Change::SetReference { name, to, .. } => {
                self.references.insert(name.as_bytes().to_vec(), to.as_bytes().to_vec());
            }
            Change::RemoveReference { name, .. } => {
                self.references.remove(name.as_bytes());
            }
            Change::PutEpisode { id, parent, record } => {
                self.episodes.insert(*id, digest(record));
                self.children.insert(child_key(*id, *parent));
            }
            Change::RemoveEpisode { id, parent } => {
                self.episodes.remove(id);
                self.children.remove(&child_key(*id, *parent));
            }
            Change::PutPin { id, record } => {
                self.pins.insert(*id, digest(record));
            }
            Change::RemovePin(id) => {
                self.pins.remove(id);
            }
        }
    }

    fn put_snapshot(&mut self, snapshot: &Snapshot) {
        let key = concat_ids(snapshot.tree.as_bytes(), snapshot.id.as_bytes());
        self.snapshots.insert(snapshot.id, digest(&snapshot.encode()));
        self.trees.insert(key.clone());
        self.tree_keys.insert(snapshot.id, key);
    }

    /// Reads the rows that `txn` sees. Does not decode them, except unsettled rows, which have the objects and
    /// snapshots of a small commit until these are moved to their tables.
    pub(crate) fn of_index(index: &Index, txn: &RoTxn<'_>) -> Result<Self> {
        let mut records = Self::default();
        for_each_row(txn, &index.snapshots, |key, row| {
            records.snapshots.insert(SnapshotId::from_bytes(parse_id(key)?), digest(row));
            Ok(())
        })?;
        for_each_row(txn, &index.trees, |key, _| {
            records.trees.insert(key.to_vec());
            Ok(())
        })?;
        for_each_row(txn, &index.unsettled, |_, row| {
            Row::decode(row)?.snapshots.iter().for_each(|snapshot| records.put_snapshot(snapshot));
            Ok(())
        })?;
        for_each_row(txn, &index.references, |name, target| {
            records.references.insert(name.to_vec(), target.to_vec());
            Ok(())
        })?;
        for_each_row(txn, &index.episodes, |key, row| {
            records.episodes.insert(EpisodeId::from_bytes(parse_id(key)?), digest(row));
            Ok(())
        })?;
        for_each_row(txn, &index.episode_children, |key, _| {
            records.children.insert(key.to_vec());
            Ok(())
        })?;
        for_each_row(txn, &index.pins, |key, row| {
            records.pins.insert(PinId::from_bytes(parse_id(key)?), digest(row));
            Ok(())
        })?;
        Ok(records)
    }

    /// Returns all differences between these records, which are from an index, and those of the log.
    pub(crate) fn differences_from(&self, log: &Self) -> Vec<Damage> {
        let mut differences = Vec::new();
        let mut report = |snapshot, problem| differences.push(Damage { snapshot, path: None, problem });
        for (id, difference) in row_differences(&self.snapshots, &log.snapshots) {
            report(Some(*id), difference.description().to_owned());
        }
        for (name, difference) in row_differences(&self.references, &log.references) {
            let target = |records: &Self| records.references.get(name).map(|target| format_target(target));
            let name = String::from_utf8_lossy(name);
            let problem = match (difference, target(self), target(log)) {
                (RowDifference::Changed, Some(index), Some(log)) => {
                    format!("reference `{name}` is at {index} in the index, and at {log} in the log")
                }
                _ => format!("reference `{name}`: {}", difference.description()),
            };
            report(None, problem);
        }
        for (id, difference) in row_differences(&self.episodes, &log.episodes) {
            report(None, format!("episode {id}: {}", difference.description()));
        }
        for (id, difference) in row_differences(&self.pins, &log.pins) {
            report(None, format!("pin {id}: {}", difference.description()));
        }
        for (what, index, log) in
            [("trees", &self.trees, &log.trees), ("parents of episodes", &self.children, &log.children)]
        {
            let wrong = index.symmetric_difference(log).count();
            if wrong > 0 {
                report(None, format!("the index's table of {what} differs from the log in {wrong} rows"));
            }
        }
        differences
    }

    /// Returns the snapshots that `later` lacks.
    pub(crate) fn snapshots_missing_in(&self, later: &Self) -> Vec<SnapshotId> {
        self.snapshots.keys().filter(|id| !later.snapshots.contains_key(id)).copied().collect()
    }

    /// Returns the episodes that `later` lacks or has with another record.
    pub(crate) fn episodes_missing_in(&self, later: &Self) -> Vec<EpisodeId> {
        let lost = self.episodes.iter().filter(|(id, row)| later.episodes.get(id) != Some(row));
        lost.map(|(id, _)| *id).collect()
    }

    /// Returns the references that `later` lacks or has with another target: name, target in these records, and target
    /// in `later`, which is `None` if `later` lacks the reference.
    pub(crate) fn references_missing_in(&self, later: &Self) -> Vec<(String, Vec<u8>, Option<Vec<u8>>)> {
        let changed =
            self.references.iter().filter(|(name, target)| later.references.get(*name) != Some(target));
        changed
            .map(|(name, target)| {
                let later_target = later.references.get(name).cloned();
                (String::from_utf8_lossy(name).into_owned(), target.clone(), later_target)
            })
            .collect()
    }
}

/// Returns the keys of rows that differ, in no particular order.
fn row_differences<'a, K: Ord, V: PartialEq>(
    index: &'a BTreeMap<K, V>,
    log: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, RowDifference)> {
    let in_index = index.iter().filter_map(|(key, row)| match log.get(key) {
        Some(logged) if logged == row => None,
        Some(_) => Some((key, RowDifference::Changed)),
        None => Some((key, RowDifference::Unlogged)),
    });
    in_index.chain(log.keys().filter(|key| !index.contains_key(key)).map(|key| (key, RowDifference::Missing)))
}

fn format_target(target: &[u8]) -> String {
    match target.try_into() {
        Ok(id) => SnapshotId::from_bytes(id).to_string(),
        Err(_) => "no snapshot id".to_owned(),
    }
}

/// Returns the key of an episode in the table `episode_children`.
fn child_key(id: EpisodeId, parent: Option<EpisodeId>) -> Vec<u8> {
    episode_key(parent.as_ref().map(EpisodeId::as_bytes), id.as_bytes())
}

fn parse_id(key: &[u8]) -> std::result::Result<[u8; 16], DecodeError> {
    key.try_into().map_err(|_| DecodeError("not an id"))
}

fn for_each_row(
    txn: &RoTxn<'_>,
    table: &Table,
    mut visit: impl FnMut(&[u8], &[u8]) -> std::result::Result<(), DecodeError>,
) -> Result<()> {
    for entry in table.iter(txn)? {
        let (key, value) = entry?;
        visit(key, value)
            .map_err(|source| StoreError::Undecodable { what: "a row of the index".to_owned(), source })?;
    }
    Ok(())
}
