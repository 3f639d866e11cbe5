//! Damage of a store, as it is reported by verification and by rebuilds of the index.

use serde::Serialize;

use crate::id::SnapshotId;

/// Damaged or missing data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Damage {
    /// Snapshot that is affected; `None` if the damage is not in a snapshot.
    pub snapshot: Option<SnapshotId>,
    /// Path in the snapshot; `None` if the damage is not at a path.
    pub path: Option<Vec<u8>>,
    /// Description of the damage.
    pub problem: String,
}
