//! Objects of the latest small commits, on their way into the tables of the index.
//!
//! Ids are random: putting the dozen objects of a small commit into their tables would write a dozen pages.
//! So all of them become one row of the table `recent`, and each process keeps in memory what those rows
//! say. Once there are enough, they settle: they move into the tables together, in order of their ids.
//!
//! Whoever takes objects out of the tables settles first, in the same transaction. Otherwise a second copy
//! of an object would stand in for the one that was taken out.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use heed::{PutFlags, RoTxn, RwTxn};

use crate::codec::{DecodeError, Decoded, Reader};
use crate::error::{Result, StoreError};
use crate::id::ById;
use crate::index::{Index, LogState};
use crate::pack::Location;
use crate::record::Kind;
use crate::references_of::ObjectId;

/// A commit with more objects than this puts them into the tables itself.
pub(crate) const SMALL: usize = 64;
/// Objects that wait before they settle: enough to fill the pages they go to, few enough to be read by every
/// process that opens the store.
const WAITING_MAX: u32 = 4096;

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
}

impl Places {
    fn cover(&self, state: &LogState) -> bool {
        self.settled == state.settled && self.read >= state.sequence
    }
}

impl Index {
    /// Where an object lies that has not settled yet.
    pub(crate) fn recent_place(&self, txn: &RoTxn<'_>, object: &ObjectId) -> Result<Option<Location>> {
        let Some(state) = self.log_state(txn)? else { return Ok(None) };
        if state.waiting == 0 {
            return Ok(None);
        }
        {
            let places = self.memory.places.read().unwrap_or_else(PoisonError::into_inner);
            if places.cover(&state) {
                return Ok(places.of.get(object).copied());
            }
        }
        let mut places = self.memory.places.write().unwrap_or_else(PoisonError::into_inner);
        if !places.cover(&state) {
            self.read_places(txn, &state, &mut places)?;
        }
        Ok(places.of.get(object).copied())
    }

    /// Reads only rows of commits that `txn` knows to be done: one in the making may yet fail, and another
    /// take its number.
    fn read_places(&self, txn: &RoTxn<'_>, state: &LogState, places: &mut Places) -> Result<()> {
        if places.settled != state.settled {
            places.of.clear();
            (places.settled, places.read) = (state.settled, state.settled);
        }
        let (after, last) = (places.read.to_be_bytes(), state.sequence.to_be_bytes());
        let rows = (Bound::Excluded(&after[..]), Bound::Included(&last[..]));
        for row in self.recent.range(txn, &rows)? {
            for (object, location) in decode(row?.1).map_err(unreadable)? {
                places.of.entry(object).or_insert(location);
            }
        }
        places.read = state.sequence;
        Ok(())
    }

    /// Puts the objects of the commit `sequence`.
    pub(crate) fn put_recent(
        &self,
        txn: &mut RwTxn<'_>,
        sequence: u64,
        objects: &[(ObjectId, Location)],
    ) -> Result<()> {
        Ok(self.recent.put_with_flags(txn, PutFlags::APPEND, &sequence.to_be_bytes(), &encode(objects))?)
    }

    /// Calls `found` for every object that has not settled.
    pub(crate) fn for_each_recent(
        &self,
        txn: &RoTxn<'_>,
        mut found: impl FnMut(ObjectId, Location),
    ) -> Result<()> {
        for row in self.recent.iter(txn)? {
            for (object, location) in decode(row?.1).map_err(unreadable)? {
                found(object, location);
            }
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

    /// Moves all recent objects into their tables.
    pub(crate) fn settle(&self, txn: &mut RwTxn<'_>) -> Result<()> {
        let Some(mut state) = self.log_state(txn)? else { return Ok(()) };
        let mut objects = Vec::with_capacity(state.waiting as usize);
        self.for_each_recent(txn, |object, location| objects.push((object, location)))?;
        // Of two copies the older stays, as in memory.
        objects.sort_by_key(|(object, _)| *object);
        for (object, location) in objects {
            self.put_object(txn, &object, location)?;
        }
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

fn unreadable(source: DecodeError) -> StoreError {
    StoreError::Undecodable { what: "a row of recent objects".to_owned(), source }
}

/// `kind u8, id, location` for each object.
pub(crate) fn encode(objects: &[(ObjectId, Location)]) -> Vec<u8> {
    let mut row = Vec::with_capacity(objects.len() * 45);
    for ((kind, id), location) in objects {
        row.push(*kind as u8);
        row.extend_from_slice(id);
        row.extend_from_slice(&location.encode());
    }
    row
}

pub(crate) fn decode(row: &[u8]) -> Decoded<Vec<(ObjectId, Location)>> {
    let mut reader = Reader::new(row);
    let mut objects = Vec::with_capacity(row.len() / 45);
    while !reader.is_empty() {
        let kind = match reader.u8()? {
            kind if kind == Kind::Chunk as u8 => Kind::Chunk,
            kind if kind == Kind::Node as u8 => Kind::Node,
            _ => return Err(DecodeError("neither a chunk nor a node")),
        };
        let id = reader.array()?;
        let location = Location { pack: reader.u32()?, offset: reader.u32()?, len: reader.u32()? };
        objects.push(((kind, id), location));
    }
    Ok(objects)
}
