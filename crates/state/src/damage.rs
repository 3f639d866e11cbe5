//! Damage of a store, as verification and rebuilds report it.

use serde::Serialize;

use crate::id::SnapshotId;

/// Damaged or missing data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Damage {
    /// Snapshot that is affected; `None` if the damage is not in a snapshot.
    pub snapshot: Option<SnapshotId>,
    /// Path in the snapshot.
    pub path: Option<Vec<u8>>,
    /// Description of the damage.
    pub problem: String,
}
