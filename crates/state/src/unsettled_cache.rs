//! Content of unsettled rows: their encoding, and the cache that each process keeps.
//!
//! The index of a store has tables with the locations of objects, and a table of snapshots. The objects and snapshots
//! of a small commit first become one row of the table [`Index::unsettled`](crate::index::Index::unsettled). Later the
//! row is *settled*: they are moved into their tables (`unsettled_rows.rs`).

use std::collections::{BTreeMap, HashMap};

use parking_lot::RwLock;

use crate::child_objects::ObjectId;
use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::id::{IdHashBuilder, SnapshotId};
use crate::log_state::LogState;
use crate::pack::Location;
use crate::record::Kind;
use crate::snapshot::Snapshot;

/// Maximum number of objects and snapshots in a row. A larger commit puts them into their tables directly.
const ROW_ITEMS_MAX: usize = 64;
/// Maximum length of a row in bytes. If a row would be longer, for example because of the message of a snapshot, the
/// commit puts its objects and snapshots into their tables directly.
const ROW_MAX: usize = 6 << 10;
/// Tag of a snapshot in a row, in the position of an object's kind.
const SNAPSHOT_TAG: u8 = 3;

/// Content of the unsettled rows that this process has read.
#[derive(Default)]
pub(crate) struct UnsettledCache {
    pub(crate) rows: RwLock<CachedRows>,
}

#[derive(Default)]
pub(crate) struct CachedRows {
    /// Number of the last settled commit ([`LogState::settled_up_to`]) when the rows were read. If the current number
    /// differs, the cached rows are no longer in the table.
    pub(crate) settled_up_to: u64,
    /// Number of the last commit whose row was read.
    pub(crate) last_read: u64,
    pub(crate) objects: HashMap<ObjectId, Location, IdHashBuilder>,
    pub(crate) snapshots: BTreeMap<SnapshotId, Snapshot>,
}

/// Content of an unsettled row: objects and snapshots of one commit.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) objects: Vec<(ObjectId, Location)>,
    pub(crate) snapshots: Vec<Snapshot>,
}

impl Row {
    /// Returns the number of objects and snapshots.
    pub(crate) fn len(&self) -> usize {
        self.objects.len() + self.snapshots.len()
    }

    /// Encodes the row; `None` if it is empty, or too large for the table of unsettled rows.
    pub(crate) fn encode_if_small(&self) -> Option<Vec<u8>> {
        let few = (1..=ROW_ITEMS_MAX).contains(&self.len());
        few.then(|| self.encode()).filter(|row| row.len() <= ROW_MAX)
    }

    /// Encodes the objects (`kind u8, id, location` each), then the snapshots.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.objects.len() * 45 + self.snapshots.len() * 200);
        for ((kind, id), location) in &self.objects {
            row.push(*kind as u8);
            row.extend_from_slice(id);
            row.extend_from_slice(&location.encode());
        }
        for snapshot in &self.snapshots {
            row.push(SNAPSHOT_TAG);
            row.blob(&snapshot.encode());
        }
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(row);
        let mut content = Self::default();
        while !reader.is_empty() {
            let kind = match reader.u8()? {
                kind if kind == Kind::Chunk as u8 => Kind::Chunk,
                kind if kind == Kind::Node as u8 => Kind::Node,
                SNAPSHOT_TAG => {
                    content.snapshots.push(Snapshot::decode(reader.blob()?)?);
                    continue;
                }
                _ => return Err(DecodeError("neither a chunk, a node nor a snapshot")),
            };
            if !content.snapshots.is_empty() {
                return Err(DecodeError("an object behind a snapshot"));
            }
            let id = reader.array()?;
            let location = Location { pack: reader.u32()?, offset: reader.u32()?, len: reader.u32()? };
            content.objects.push(((kind, id), location));
        }
        Ok(content)
    }
}

impl CachedRows {
    /// Returns true if the cache has all unsettled rows that a transaction with this state of the log sees.
    pub(crate) fn covers(&self, state: &LogState) -> bool {
        self.settled_up_to == state.settled_up_to && self.last_read >= state.sequence
    }
}
