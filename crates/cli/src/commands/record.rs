//! Metadata of a new snapshot, shared by the commands that create snapshots.

use workspace_state::{Durability, Expect, NewSnapshot, SnapshotId, Store};

use crate::args::SnapshotMetadata;
use crate::error::Result;
use crate::user;

/// Returns the metadata with defaults: the author is the user, the parent is the target of the reference. The reference
/// only moves if it still has that target when the snapshot is committed.
pub(super) fn new_snapshot(
    store: &Store,
    metadata: SnapshotMetadata,
    parents: Vec<SnapshotId>,
    durability: Durability,
) -> Result<NewSnapshot> {
    let mut new = NewSnapshot {
        parents,
        author: metadata.author.unwrap_or_else(user::name),
        message: metadata.message,
        labels: metadata.labels.into_iter().collect(),
        durability,
        ..NewSnapshot::default()
    };
    if let Some(name) = metadata.reference {
        let current = store.reference(&name)?;
        if new.parents.is_empty() {
            new.parents.extend(current);
        }
        new.references.push((name, current.map_or(Expect::Absent, Expect::At)));
    }
    Ok(new)
}
