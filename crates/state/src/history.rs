//! Snapshot queries: by id, by reference (a name of a snapshot), by tree, and along the history.

use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::commit_options::Durability;
use crate::error::{Result, StoreError};
use crate::id::{SnapshotId, TreeId};
use crate::log_record::Change;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// Result of resolving a text to a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Exactly one snapshot.
    One(SnapshotId),
    /// No snapshot.
    None,
    /// The text is a prefix of more than one id. Contains at most nine of these ids.
    Ambiguous(Vec<SnapshotId>),
}

impl Store {
    /// Returns the snapshot with this id. Fails with [`StoreError::UnknownSnapshot`] if there is none.
    pub fn snapshot(&self, id: &SnapshotId) -> Result<Snapshot> {
        self.find_snapshot(id)?.ok_or(StoreError::UnknownSnapshot(*id))
    }

    /// Returns the snapshot with this id; `None` if there is no such snapshot.
    pub fn find_snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        let txn = self.inner.index.read()?;
        self.inner.index.snapshot(&txn, id)
    }

    /// Returns all snapshots, oldest first. The order is that of their ids, not of [`Snapshot::time`], which the caller
    /// of a commit can set.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let txn = self.inner.index.read()?;
        let mut snapshots = Vec::new();
        self.inner.index.for_each_snapshot(&txn, |snapshot| snapshots.push(snapshot))?;
        // Ids are UUIDv7, which sort by the time at which they were generated.
        snapshots.sort_by_key(|snapshot| snapshot.id);
        Ok(snapshots)
    }

    /// Returns the ids of all snapshots that have this tree: several if the same content was committed repeatedly.
    pub fn snapshots_with_tree(&self, tree: &TreeId) -> Result<Vec<SnapshotId>> {
        let txn = self.inner.index.read()?;
        self.inner.index.snapshots_with_tree(&txn, tree)
    }

    /// Removes snapshots, also those that are pending: not yet recorded elsewhere
    /// ([`NewSnapshot::pending`](crate::NewSnapshot::pending)). Fails if one does not exist or a reference points to
    /// it; then none is removed. Garbage collection frees the content that no other snapshot has.
    pub fn remove_snapshots(&self, ids: &[SnapshotId]) -> Result<()> {
        let unique: HashSet<&SnapshotId> = ids.iter().collect();
        // The pins of pending snapshots are removed with the snapshots.
        let mut changes = self.changes_to_end_pending(ids)?;
        changes.extend(unique.into_iter().map(|id| Change::RemoveSnapshot(*id)));
        // On a full disk, removals use disk space that is reserved for them (`reserve.rs`).
        self.retry_with_disk_reserve(|| self.commit_changes(changes.clone(), Durability::Synced))
    }

    /// Resolves a reference, a snapshot id, or an unambiguous prefix of an id.
    pub fn resolve(&self, text: &str) -> Result<Resolution> {
        if let Some(id) = self.reference(text)? {
            return Ok(Resolution::One(id));
        }
        if let Ok(id) = text.parse::<SnapshotId>() {
            return Ok(self.find_snapshot(&id)?.map_or(Resolution::None, |found| Resolution::One(found.id)));
        }
        let Some(prefix) = IdPrefix::parse(text) else { return Ok(Resolution::None) };
        let txn = self.inner.index.read()?;
        let mut ids = Vec::new();
        self.inner.index.snapshots_with_prefix(&txn, &prefix.bytes, |id| {
            ids.extend(Some(id).filter(|id| prefix.matches(id)));
            // Stops at the ninth id: nobody reads a longer list.
            ids.len() <= 8
        })?;
        Ok(match ids.as_slice() {
            [] => Resolution::None,
            [one] => Resolution::One(*one),
            _ => Resolution::Ambiguous(ids),
        })
    }

    /// Returns the snapshot and its ancestors, newest first. Skips removed ancestors, and the ancestors that can be
    /// reached only through removed ones.
    pub fn history(&self, from: &SnapshotId) -> Result<History> {
        let mut history = History { store: self.clone(), queue: BinaryHeap::new(), seen: HashSet::new() };
        history.add(*from)?;
        Ok(history)
    }

    /// Returns the newest common ancestor of two snapshots, which may be one of the two; `None` if there is none.
    pub fn common_ancestor(&self, a: &SnapshotId, b: &SnapshotId) -> Result<Option<SnapshotId>> {
        // Both histories are walked together, newest first. A snapshot reached from both sides is a common ancestor.
        // The ancestors of a common ancestor do not count, even if a wrong clock makes them look newer.
        let mut walk = Walk::default();
        walk.reach(self.snapshot(a)?, FROM_A);
        walk.reach(self.snapshot(b)?, FROM_B);
        let mut common = Vec::new();
        while let Some((snapshot, mut flags)) = walk.next() {
            if flags & (FROM_A | FROM_B) == FROM_A | FROM_B {
                if flags & BELOW_COMMON == 0 {
                    common.push((snapshot.time, snapshot.id));
                }
                flags |= BELOW_COMMON;
            }
            for parent in &snapshot.parents {
                if let Some(parent) = self.find_snapshot(parent)? {
                    walk.reach(parent, flags);
                }
            }
        }
        common.retain(|(_, id)| walk.flags[id] & BELOW_COMMON == 0);
        Ok(common.into_iter().max().map(|(_, id)| id))
    }
}

/// Flag of the first snapshot and its ancestors.
const FROM_A: u8 = 1;
/// Flag of the second snapshot and its ancestors.
const FROM_B: u8 = 2;
/// Flag of the common ancestors that were found, and of their ancestors.
const BELOW_COMMON: u8 = 4;

/// A walk along two histories at once, newest first.
#[derive(Default)]
struct Walk {
    /// Snapshots that were reached and not returned yet.
    queue: BinaryHeap<ByTime>,
    /// Flags of all snapshots that were reached.
    flags: HashMap<SnapshotId, u8>,
}

impl Walk {
    /// Adds flags to a snapshot and queues it if any of them is new.
    fn reach(&mut self, snapshot: Snapshot, flags: u8) {
        let reached_flags = self.flags.entry(snapshot.id).or_insert(0);
        if *reached_flags | flags != *reached_flags {
            *reached_flags |= flags;
            self.queue.push(ByTime(snapshot));
        }
    }

    /// Returns the next snapshot with its flags; `None` once only ancestors of common ancestors are left.
    fn next(&mut self) -> Option<(Snapshot, u8)> {
        if self.queue.iter().all(|ByTime(snapshot)| self.flags[&snapshot.id] & BELOW_COMMON != 0) {
            return None;
        }
        let ByTime(snapshot) = self.queue.pop()?;
        let flags = self.flags[&snapshot.id];
        Some((snapshot, flags))
    }
}

/// Prefix of a snapshot id: 4 to 32 hexadecimal digits. The hyphens of a UUID are optional.
struct IdPrefix {
    /// The complete bytes, to look up candidates. An odd last digit is left out.
    bytes: Vec<u8>,
    /// All digits in lower case, to check candidates.
    digits: String,
}

impl IdPrefix {
    fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != '-').collect::<String>().to_ascii_lowercase();
        if digits.len() < 4 || digits.len() > 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let bytes = (0..digits.len() / 2)
            .map(|byte| u8::from_str_radix(&digits[byte * 2..byte * 2 + 2], 16))
            .collect::<std::result::Result<_, _>>()
            .ok()?;
        Some(Self { bytes, digits })
    }

    fn matches(&self, id: &SnapshotId) -> bool {
        id.to_string().replace('-', "").starts_with(&self.digits)
    }
}

/// Iterator over a snapshot and its ancestors, newest first.
pub struct History {
    store: Store,
    queue: BinaryHeap<ByTime>,
    seen: HashSet<SnapshotId>,
}

impl History {
    fn add(&mut self, id: SnapshotId) -> Result<()> {
        if self.seen.insert(id) {
            self.queue.extend(self.store.find_snapshot(&id)?.map(ByTime));
        }
        Ok(())
    }
}

impl Iterator for History {
    type Item = Result<Snapshot>;

    fn next(&mut self) -> Option<Self::Item> {
        let ByTime(snapshot) = self.queue.pop()?;
        for parent in &snapshot.parents {
            if let Err(error) = self.add(*parent) {
                return Some(Err(error));
            }
        }
        Some(Ok(snapshot))
    }
}

/// A snapshot that is ordered by its time, then by its id.
struct ByTime(Snapshot);

impl PartialEq for ByTime {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ByTime {}

impl PartialOrd for ByTime {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByTime {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0.time, self.0.id).cmp(&(other.0.time, other.0.id))
    }
}
