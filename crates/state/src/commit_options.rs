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
    /// Parents. If empty, a virtual tree sets the snapshot that it was restored from or last committed as.
    pub parents: Vec<SnapshotId>,
    /// Author, free text.
    pub author: String,
    /// Message, free text.
    pub message: String,
    /// Creation time, for imported snapshots; `None` for the current time.
    pub time: Option<Timestamp>,
    /// Labels: texts by name, for the caller.
    pub labels: BTreeMap<String, String>,
    /// References to set to the new snapshot in the same commit: names, and the state that each must have before.
    pub references: Vec<(String, Expect)>,
    /// Guarantee when the commit is acknowledged.
    pub durability: Durability,
    /// True if this process must still record the snapshot elsewhere, such as in a database. Afterwards, the process
    /// calls [`Store::end_pending`](crate::Store::end_pending). If the process ends before that,
    /// [`Store::abandoned_snapshots`](crate::Store::abandoned_snapshots) returns the snapshot.
    pub pending: bool,
    /// Counter to which the commit adds the size in bytes of the objects that it has written.
    pub stored_bytes: Option<Arc<AtomicU64>>,
    /// Root filesystem of the sandbox, to be committed with the snapshot; `None` if the snapshot has only the files of
    /// a directory. The first root filesystem in a store raises the format of the store to 2. Programs that support
    /// only format 1 can no longer open the store.
    pub root: Option<NewRoot>,
}

impl NewSnapshot {
    /// Creates a description with only a message.
    pub fn with_message(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }
}

/// State that a reference must have before it is changed (compare-and-set). Otherwise the commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    /// Any state. For a reference that only one process changes.
    #[default]
    Anything,
    /// The reference must not exist.
    Absent,
    /// The reference must point to this snapshot.
    At(SnapshotId),
}

/// Guarantee of a commit when it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Durability {
    /// Everything up to and including this commit survives a crash of the machine.
    #[default]
    Synced,
    /// The commit survives if the process is killed. A crash of the machine may undo it, and with it all later buffered
    /// commits.
    Buffered,
}
