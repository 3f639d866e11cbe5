//! Unsettled rows: objects and snapshots of the latest small commits that are not in their tables yet.
//!
//! The index is an LMDB database with tables of objects (chunks of file content, and nodes of trees) and of snapshots.
//! The id of an object is a hash, so adding the dozen objects of a small commit to their tables would write a dozen
//! pages of the database. Instead, the objects and snapshots of the commit become one row of another table (`recent`
//! on disk), and each process caches these rows in memory. Once they have enough objects, they are *settled*: the
//! content of all rows is moved into the tables together, sorted by id.
//!
//! Code that removes objects or snapshots from their tables settles first, in the same transaction. Otherwise an
//! unsettled row might still have another copy of a removed object.

use std::collections::HashSet;
use std::ops::Bound;

use heed::{PutFlags, RoTxn, RwTxn};

use crate::child_objects::ObjectId;
use crate::codec::DecodeError;
use crate::counts::IndexCounts;
use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::id::{SnapshotId, TreeId};
use crate::index::Index;
use crate::log_record::Change;
use crate::log_state::LogState;
use crate::pack::Location;
use crate::snapshot::Snapshot;
use crate::unsettled_cache::{CachedRows, Row};

/// Number of objects and snapshots in unsettled rows above which the rows are settled. A larger number puts more
/// objects into each written page; a smaller one is faster to read for a process that has just opened the store.
const UNSETTLED_MAX: u32 = 4096;

impl Index {
    /// Returns the location of an object that is in an unsettled row.
    pub(crate) fn unsettled_location(&self, txn: &RoTxn<'_>, object: &ObjectId) -> Result<Option<Location>> {
        self.query_cache(txn, |rows| rows.objects.get(object).copied())
    }

    /// Returns the snapshot with this id, settled or not.
    pub(crate) fn snapshot(&self, txn: &RoTxn<'_>, id: &SnapshotId) -> Result<Option<Snapshot>> {
        if let Some(record) = self.snapshots.get(txn, id.as_bytes())? {
            return decode_snapshot(record).map(Some);
        }
        self.query_cache(txn, |rows| rows.snapshots.get(id).cloned())
    }

    /// Calls `visit` with the ids of snapshots that begin with `prefix`, settled ones first, until it returns false.
    pub(crate) fn snapshots_with_prefix(
        &self,
        txn: &RoTxn<'_>,
        prefix: &[u8],
        mut visit: impl FnMut(SnapshotId) -> bool,
    ) -> Result<()> {
        for row in self.snapshots.prefix_iter(txn, prefix)? {
            let id = row?.0.try_into().ok().map(SnapshotId::from_bytes);
            if id.is_some_and(|id| !visit(id)) {
                return Ok(());
            }
        }
        let begins = |id: &&SnapshotId| id.as_bytes().starts_with(prefix);
        let unsettled: Vec<SnapshotId> =
            self.query_cache(txn, |rows| rows.snapshots.keys().filter(begins).copied().collect())?;
        unsettled.into_iter().all(visit);
        Ok(())
    }

    /// Returns the ids of all snapshots that have this tree.
    pub(crate) fn snapshots_with_tree(&self, txn: &RoTxn<'_>, tree: &TreeId) -> Result<Vec<SnapshotId>> {
        let mut ids = Vec::new();
        for row in self.trees.prefix_iter(txn, tree.as_bytes())? {
            ids.extend(row?.0[32..].try_into().ok().map(SnapshotId::from_bytes));
        }
        ids.extend(self.query_cache(txn, |rows| -> Vec<SnapshotId> {
            let with_tree = rows.snapshots.values().filter(|snapshot| snapshot.tree == *tree);
            with_tree.map(|snapshot| snapshot.id).collect()
        })?);
        Ok(ids)
    }

    /// Calls `visit` for every snapshot that `txn` sees, settled ones first.
    pub(crate) fn for_each_snapshot(&self, txn: &RoTxn<'_>, mut visit: impl FnMut(Snapshot)) -> Result<()> {
        for row in self.snapshots.iter(txn)? {
            visit(decode_snapshot(row?.1)?);
        }
        self.for_each_row(txn, |row| row.snapshots.into_iter().for_each(&mut visit))
    }

    /// Queries the cached content of the unsettled rows that `txn` sees, after reading new rows if necessary.
    /// Snapshots in the cache are not in the table of snapshots. Objects may also be in their table, with another
    /// location.
    fn query_cache<T: Default>(&self, txn: &RoTxn<'_>, query: impl FnOnce(&CachedRows) -> T) -> Result<T> {
        let Some(state) = self.log_state(txn)? else { return Ok(T::default()) };
        if state.unsettled_count == 0 {
            return Ok(T::default());
        }
        {
            let rows = self.unsettled_cache.rows.read();
            if rows.covers(&state) {
                return Ok(query(&rows));
            }
        }
        let mut rows = self.unsettled_cache.rows.write();
        if !rows.covers(&state) {
            self.read_rows(txn, &state, &mut rows)?;
        }
        Ok(query(&rows))
    }

    /// Reads the rows of completed commits into the cache. If `txn` writes a commit, the row of this commit is not
    /// read, because the commit may fail and another one may get its number.
    fn read_rows(&self, txn: &RoTxn<'_>, state: &LogState, rows: &mut CachedRows) -> Result<()> {
        if rows.settled_up_to != state.settled_up_to {
            rows.objects.clear();
            rows.snapshots.clear();
            (rows.settled_up_to, rows.last_read) = (state.settled_up_to, state.settled_up_to);
        }
        let (after, last) = (rows.last_read.to_be_bytes(), state.sequence.to_be_bytes());
        let range = (Bound::Excluded(&after[..]), Bound::Included(&last[..]));
        for row in self.unsettled.range(txn, &range)? {
            let row = Row::decode(row?.1).map_err(unreadable)?;
            for (object, location) in row.objects {
                rows.objects.entry(object).or_insert(location);
            }
            rows.snapshots.extend(row.snapshots.into_iter().map(|snapshot| (snapshot.id, snapshot)));
        }
        rows.last_read = state.sequence;
        Ok(())
    }

    /// Stores the encoded [`Row`] of commit `sequence`.
    pub(crate) fn put_unsettled(&self, txn: &mut RwTxn<'_>, sequence: u64, row: &[u8]) -> Result<()> {
        Ok(self.unsettled.put_with_flags(txn, PutFlags::APPEND, &sequence.to_be_bytes(), row)?)
    }

    /// Calls `visit` for every object in an unsettled row.
    pub(crate) fn for_each_unsettled(
        &self,
        txn: &RoTxn<'_>,
        mut visit: impl FnMut(ObjectId, Location),
    ) -> Result<()> {
        self.for_each_row(txn, |row| {
            row.objects.into_iter().for_each(|(object, location)| visit(object, location));
        })
    }

    /// Counts the records, settled or not.
    pub(crate) fn counts(&self, txn: &RoTxn<'_>) -> Result<IndexCounts> {
        let mut snapshots = 0;
        self.for_each_snapshot(txn, |_| snapshots += 1)?;
        let mut unsettled: HashSet<ObjectId> = HashSet::new();
        self.for_each_unsettled(txn, |object, _| {
            unsettled.insert(object);
        })?;
        let mut objects = self.chunks.len(txn)? + self.nodes.len(txn)?;
        for (kind, id) in unsettled {
            // Another copy of the object may be in its table.
            objects += u64::from(self.objects(kind).get(txn, &id)?.is_none());
        }
        Ok(IndexCounts {
            objects,
            snapshots,
            references: self.references.len(txn)?,
            episodes: self.episodes.len(txn)?,
        })
    }

    /// Calls `visit` for every unsettled row, oldest first.
    fn for_each_row(&self, txn: &RoTxn<'_>, mut visit: impl FnMut(Row)) -> Result<()> {
        for row in self.unsettled.iter(txn)? {
            visit(Row::decode(row?.1).map_err(unreadable)?);
        }
        Ok(())
    }

    /// Settles all rows if they have more than [`UNSETTLED_MAX`] objects and snapshots.
    pub(crate) fn settle_if_many(&self, txn: &mut RwTxn<'_>) -> Result<()> {
        match self.log_state(txn)? {
            Some(state) if state.unsettled_count > UNSETTLED_MAX => self.settle(txn),
            _ => Ok(()),
        }
    }

    /// Moves the content of all unsettled rows into the tables.
    pub(crate) fn settle(&self, txn: &mut RwTxn<'_>) -> Result<()> {
        let Some(mut state) = self.log_state(txn)? else { return Ok(()) };
        let mut objects = Vec::with_capacity(state.unsettled_count as usize);
        let mut snapshots = Vec::new();
        self.for_each_row(txn, |row| {
            objects.extend(row.objects);
            snapshots.extend(row.snapshots);
        })?;
        // The sort is stable, so of two copies of an object the older one is put first and stays, as in the cache.
        objects.sort_by_key(|(object, _)| *object);
        for (object, location) in objects {
            self.put_object(txn, &object, location)?;
        }
        for snapshot in snapshots {
            self.apply(txn, &Change::PutSnapshot(snapshot))?;
        }
        failpoint::hit("settle").context("write the index in", self.env.path())?;
        self.unsettled.clear(txn)?;
        (state.settled_up_to, state.unsettled_count) = (state.sequence, 0);
        self.put_log_state(txn, &state)
    }

    /// Puts the location of an object into its table. Does nothing if the table already has another copy of the object.
    /// Garbage collection removes the unused copy when it rewrites the pack, the file with the copy.
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
