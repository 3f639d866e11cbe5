//! What the latest small commits brought, on its way into the tables of the index.
//!
//! Ids are random: putting the dozen objects of a small commit and its snapshot into their tables would write
//! a dozen pages and more. So all of them become one row of the table `recent`, and each process keeps in
//! memory what those rows say. Once there are enough, they settle: they move into the tables together, in order
//! of their ids.
//!
//! Whoever takes objects or snapshots out of the tables settles first, in the same transaction. Otherwise a
//! second copy of an object would stand in for the one that was taken out.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use heed::{PutFlags, RoTxn, RwTxn};

use crate::change::Change;
use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::id::{ById, SnapshotId, TreeId};
use crate::index::{Index, LogState};
use crate::pack::Location;
use crate::record::Kind;
use crate::references_of::ObjectId;
use crate::snapshot::Snapshot;

/// A commit with more objects than this puts them into the tables itself.
const SMALL: usize = 64;
/// So does one whose row would be longer than this, for the message of its snapshot.
const ROW_MAX: usize = 6 << 10;
/// What waits before it settles: enough to fill the pages it goes to, little enough to be read by every process
/// that opens the store.
const WAITING_MAX: u32 = 4096;
/// What a snapshot in a row begins with, where objects have their kind.
const SNAPSHOT: u8 = 3;

/// What the rows say, as far as this process has read them.
#[derive(Default)]
pub(crate) struct Memory {
    places: RwLock<Places>,
}

#[derive(Default)]
struct Places {
    /// [`LogState::settled`] when they were read: rows behind another one are other rows.
    settled: u64,
    /// The last commit whose row was read.
    read: u64,
    of: HashMap<ObjectId, Location, ById>,
    snapshots: BTreeMap<SnapshotId, Snapshot>,
}

/// What a commit brought.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) objects: Vec<(ObjectId, Location)>,
    pub(crate) snapshots: Vec<Snapshot>,
}

impl Row {
    /// How much waits with it to settle.
    pub(crate) fn len(&self) -> usize {
        self.objects.len() + self.snapshots.len()
    }

    /// Its encoding, if it is small enough to wait.
    pub(crate) fn encode_small(&self) -> Option<Vec<u8>> {
        let few = (1..=SMALL).contains(&self.len());
        few.then(|| self.encode()).filter(|row| row.len() <= ROW_MAX)
    }

    /// First the objects, `kind u8, id, location` each, then the snapshots.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.objects.len() * 45 + self.snapshots.len() * 200);
        for ((kind, id), location) in &self.objects {
            row.push(*kind as u8);
            row.extend_from_slice(id);
            row.extend_from_slice(&location.encode());
        }
        for snapshot in &self.snapshots {
            row.push(SNAPSHOT);
            row.blob(&snapshot.encode());
        }
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(row);
        let mut found = Self::default();
        while !reader.is_empty() {
            let kind = match reader.u8()? {
                kind if kind == Kind::Chunk as u8 => Kind::Chunk,
                kind if kind == Kind::Node as u8 => Kind::Node,
                SNAPSHOT => {
                    found.snapshots.push(Snapshot::decode(reader.blob()?)?);
                    continue;
                }
                _ => return Err(DecodeError("neither a chunk, a node nor a snapshot")),
            };
            if !found.snapshots.is_empty() {
                return Err(DecodeError("an object behind a snapshot"));
            }
            let id = reader.array()?;
            let location = Location { pack: reader.u32()?, offset: reader.u32()?, len: reader.u32()? };
            found.objects.push(((kind, id), location));
        }
        Ok(found)
    }
}

impl Places {
    fn cover(&self, state: &LogState) -> bool {
        self.settled == state.settled && self.read >= state.sequence
    }
}

impl Index {
    /// Where an object lies that has not settled yet.
    pub(crate) fn recent_place(&self, txn: &RoTxn<'_>, object: &ObjectId) -> Result<Option<Location>> {
        self.recall(txn, |places| places.of.get(object).copied())
    }

    /// The snapshot with this id, be it settled or not.
    pub(crate) fn snapshot(&self, txn: &RoTxn<'_>, id: &SnapshotId) -> Result<Option<Snapshot>> {
        if let Some(record) = self.snapshots.get(txn, id.as_bytes())? {
            return decode_snapshot(record).map(Some);
        }
        self.recall(txn, |places| places.snapshots.get(id).cloned())
    }

    /// Snapshots whose ids begin with `start`, oldest first, as long as `more` says so.
    pub(crate) fn snapshots_from(
        &self,
        txn: &RoTxn<'_>,
        start: &[u8],
        mut more: impl FnMut(SnapshotId) -> bool,
    ) -> Result<()> {
        for row in self.snapshots.prefix_iter(txn, start)? {
            let id = row?.0.try_into().ok().map(SnapshotId::from_bytes);
            if id.is_some_and(|id| !more(id)) {
                return Ok(());
            }
        }
        let begins = |id: &&SnapshotId| id.as_bytes().starts_with(start);
        let recent: Vec<SnapshotId> =
            self.recall(txn, |places| places.snapshots.keys().filter(begins).copied().collect())?;
        recent.into_iter().all(more);
        Ok(())
    }

    /// The snapshots that have a tree.
    pub(crate) fn snapshots_with_tree(&self, txn: &RoTxn<'_>, tree: &TreeId) -> Result<Vec<SnapshotId>> {
        let mut found = Vec::new();
        for row in self.trees.prefix_iter(txn, tree.as_bytes())? {
            found.extend(row?.0[32..].try_into().ok().map(SnapshotId::from_bytes));
        }
        found.extend(self.recall(txn, |places| -> Vec<SnapshotId> {
            let with_tree = places.snapshots.values().filter(|snapshot| snapshot.tree == *tree);
            with_tree.map(|snapshot| snapshot.id).collect()
        })?);
        Ok(found)
    }

    /// Calls `found` for every snapshot that `txn` sees, settled ones first.
    pub(crate) fn for_each_snapshot(&self, txn: &RoTxn<'_>, mut found: impl FnMut(Snapshot)) -> Result<()> {
        for row in self.snapshots.iter(txn)? {
            found(decode_snapshot(row?.1)?);
        }
        self.for_each_row(txn, |row| row.snapshots.into_iter().for_each(&mut found))
    }

    /// Asks what is remembered of the rows that `txn` sees. Nothing of it is in the tables.
    fn recall<T: Default>(&self, txn: &RoTxn<'_>, ask: impl FnOnce(&Places) -> T) -> Result<T> {
        let Some(state) = self.log_state(txn)? else { return Ok(T::default()) };
        if state.waiting == 0 {
            return Ok(T::default());
        }
        {
            let places = self.memory.places.read().unwrap_or_else(PoisonError::into_inner);
            if places.cover(&state) {
                return Ok(ask(&places));
            }
        }
        let mut places = self.memory.places.write().unwrap_or_else(PoisonError::into_inner);
        if !places.cover(&state) {
            self.read_places(txn, &state, &mut places)?;
        }
        Ok(ask(&places))
    }

    /// Reads only rows of commits that `txn` knows to be done: one in the making may yet fail, and another
    /// take its number.
    fn read_places(&self, txn: &RoTxn<'_>, state: &LogState, places: &mut Places) -> Result<()> {
        if places.settled != state.settled {
            places.of.clear();
            places.snapshots.clear();
            (places.settled, places.read) = (state.settled, state.settled);
        }
        let (after, last) = (places.read.to_be_bytes(), state.sequence.to_be_bytes());
        let rows = (Bound::Excluded(&after[..]), Bound::Included(&last[..]));
        for row in self.recent.range(txn, &rows)? {
            let row = Row::decode(row?.1).map_err(unreadable)?;
            for (object, location) in row.objects {
                places.of.entry(object).or_insert(location);
            }
            places.snapshots.extend(row.snapshots.into_iter().map(|snapshot| (snapshot.id, snapshot)));
        }
        places.read = state.sequence;
        Ok(())
    }

    /// Puts what the commit `sequence` brought, as an encoded [`Row`].
    pub(crate) fn put_recent(&self, txn: &mut RwTxn<'_>, sequence: u64, row: &[u8]) -> Result<()> {
        Ok(self.recent.put_with_flags(txn, PutFlags::APPEND, &sequence.to_be_bytes(), row)?)
    }

    /// Calls `found` for every object that has not settled.
    pub(crate) fn for_each_recent(
        &self,
        txn: &RoTxn<'_>,
        mut found: impl FnMut(ObjectId, Location),
    ) -> Result<()> {
        self.for_each_row(txn, |row| {
            row.objects.into_iter().for_each(|(object, location)| found(object, location));
        })
    }

    fn for_each_row(&self, txn: &RoTxn<'_>, mut found: impl FnMut(Row)) -> Result<()> {
        for row in self.recent.iter(txn)? {
            found(Row::decode(row?.1).map_err(unreadable)?);
        }
        Ok(())
    }

    /// Settles when enough is waiting.
    pub(crate) fn settle_if_many(&self, txn: &mut RwTxn<'_>) -> Result<()> {
        match self.log_state(txn)? {
            Some(state) if state.waiting > WAITING_MAX => self.settle(txn),
            _ => Ok(()),
        }
    }

    /// Moves everything recent into the tables.
    pub(crate) fn settle(&self, txn: &mut RwTxn<'_>) -> Result<()> {
        let Some(mut state) = self.log_state(txn)? else { return Ok(()) };
        let mut objects = Vec::with_capacity(state.waiting as usize);
        let mut snapshots = Vec::new();
        self.for_each_row(txn, |row| {
            objects.extend(row.objects);
            snapshots.extend(row.snapshots);
        })?;
        // Of two copies the older stays, as in memory.
        objects.sort_by_key(|(object, _)| *object);
        for (object, location) in objects {
            self.put_object(txn, &object, location)?;
        }
        for snapshot in snapshots {
            self.apply(txn, &Change::PutSnapshot(snapshot))?;
        }
        failpoint::hit("settle").at("write the index in", self.env.path())?;
        self.recent.clear(txn)?;
        (state.settled, state.waiting) = (state.sequence, 0);
        self.put_log_state(txn, &state)
    }

    /// Puts an object into its table. Who stored it first wins; a second copy is dead weight until its pack
    /// is rewritten.
    pub(crate) fn put_object(
        &self,
        txn: &mut RwTxn<'_>,
        (kind, id): &ObjectId,
        location: Location,
    ) -> Result<()> {
        let table = self.objects(*kind);
        match table.put_with_flags(txn, PutFlags::NO_OVERWRITE, id, &location.encode()) {
            Err(heed::Error::Mdb(heed::MdbError::KeyExist)) => Ok(()),
            other => Ok(other?),
        }
    }
}

fn decode_snapshot(record: &[u8]) -> Result<Snapshot> {
    Snapshot::decode(record)
        .map_err(|source| StoreError::Undecodable { what: "a snapshot".to_owned(), source })
}

fn unreadable(source: DecodeError) -> StoreError {
    StoreError::Undecodable { what: "a row of recent commits".to_owned(), source }
}
