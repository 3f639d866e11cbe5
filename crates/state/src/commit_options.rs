//! Options of a commit: the description of its snapshot, references to move, and durability.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::id::SnapshotId;
use crate::new_root::NewRoot;
use crate::snapshot::Timestamp;

/// Description of a snapshot that is to be committed.
#[derive(Debug, Clone, Default)]
pub struct NewSnapshot {
    /// Parents. If empty, a virtual tree adds the snapshot it was restored from.
    pub parents: Vec<SnapshotId>,
    /// Author, free text.
    pub author: String,
    /// Message, free text.
    pub message: String,
    /// Creation time, for imported snapshots; `None` for the current time.
    pub time: Option<Timestamp>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// References to move to the new snapshot in the same commit.
    pub references: Vec<(String, Expect)>,
    /// Data that must be on disk before the commit is acknowledged.
    pub durability: Durability,
    /// True if this process has still to record the snapshot elsewhere, and calls
    /// [`Store::end_pending`](crate::Store::end_pending) then. If it ends before that,
    /// [`Store::abandoned_snapshots`](crate::Store::abandoned_snapshots) returns the snapshot.
    pub pending: bool,
    /// Counter to which the commit adds the bytes by which it made the store larger.
    pub stored_bytes: Option<Arc<AtomicU64>>,
    /// Root filesystem to commit with the snapshot. The first one raises the format of the store to 2, so that
    /// programs that know only format 1 no longer open it.
    pub root: Option<NewRoot>,
}

impl NewSnapshot {
    /// Creates a description with only a message.
    pub fn with_message(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }
}

/// Required state of a reference for a change to it to succeed (compare-and-set).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    /// Any state. For a reference that only one process moves.
    #[default]
    Anything,
    /// The reference must not exist.
    Absent,
    /// The reference must point to this snapshot.
    At(SnapshotId),
}

/// Data that must be on disk before a commit is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Durability {
    /// Everything up to and including this commit survives a crash of the machine.
    #[default]
    Synced,
    /// The commit survives a killed process; a crash of the machine may undo it and later commits.
    Buffered,
}
