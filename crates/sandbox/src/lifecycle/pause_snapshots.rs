//! Snapshots of pauses to disk.
//!
//! Each has a reference `pauses/SANDBOX/NAME` in the store, which is made in the same commit. As long as it exists,
//! the store refuses to remove the snapshot: it is the only copy of the files of a paused sandbox, and after a
//! resume the workspace is based on it. By the reference, a server finds snapshots of interrupted pauses.

use workspace_state::{Expect, SnapshotId, Store, StoreError};

use crate::error::Result;
use crate::id;
use crate::service::Service;

/// Prefix of the references in the store.
const REFERENCES: &str = "pauses/";

/// Returns the sandbox that needs a snapshot, from the name of the reference to it in the store; `None` for a
/// reference of another kind.
pub fn paused_sandbox_of_reference(name: &str) -> Option<&str> {
    name.strip_prefix(REFERENCES)?.split('/').next()
}

/// Returns the sandbox that was paused to a snapshot and needs it; `None` if there is none.
pub fn sandbox_paused_to(store: &Store, id: &SnapshotId) -> std::result::Result<Option<String>, StoreError> {
    let reference = store.first_reference_to(id, REFERENCES)?;
    Ok(reference.as_deref().and_then(paused_sandbox_of_reference).map(str::to_owned))
}

/// Returns an unused name of a reference to a snapshot of a sandbox.
pub(crate) fn new_reference(sandbox: &str) -> String {
    format!("{}{}", references_of(sandbox), id::new("pause"))
}

fn references_of(sandbox: &str) -> String {
    format!("{REFERENCES}{sandbox}/")
}

/// A snapshot of a pause, with the reference to it.
struct PauseSnapshot {
    reference: String,
    id: SnapshotId,
    /// Owner of the sandbox, who is the author of the snapshot.
    owner: String,
    /// True if another reference, or another workspace, needs the snapshot.
    is_used: bool,
}

impl Service {
    /// Removes the snapshots of the pauses of a sandbox except `keep`. A snapshot that is used otherwise, for example
    /// by a sandbox that was created from it, stays as an ordinary snapshot of its owner.
    pub(crate) async fn release_pause_snapshots(&self, sandbox: &str, keep: Option<&str>) -> Result<()> {
        let name = sandbox.to_owned();
        let found = self.on_workspaces(move |workspaces| Ok(find(workspaces.store(), &name)?)).await?;
        for snapshot in found {
            if keep.is_none_or(|keep| snapshot.id.to_string() != keep) {
                self.release_pause_snapshot(snapshot).await?;
            }
        }
        Ok(())
    }

    /// Removes the references to the snapshots of the pauses of a sandbox. The snapshots stay, as ordinary ones of
    /// their owner.
    pub(crate) async fn keep_pause_snapshots(&self, sandbox: &str) -> Result<()> {
        let name = sandbox.to_owned();
        let keep = move |store: &Store| {
            for snapshot in find(store, &name)? {
                store.remove_reference(&snapshot.reference, Expect::At(snapshot.id))?;
            }
            Ok::<_, StoreError>(())
        };
        self.on_workspaces(move |workspaces| Ok(keep(workspaces.store())?)).await
    }

    async fn release_pause_snapshot(&self, snapshot: PauseSnapshot) -> Result<()> {
        let PauseSnapshot { reference, id, owner, is_used } = snapshot;
        // `remove_owner` returns true if the snapshot has another owner.
        let is_needed =
            is_used || self.0.catalog.snapshots().remove_owner(Some(&owner), &id.to_string()).await?;
        let remove = move |store: &Store| match is_needed {
            true => store.remove_reference(&reference, Expect::At(id)),
            false => match store.remove_reference_with_snapshot(&reference, id) {
                // Another reference or workspace uses it by now.
                Err(StoreError::Refused(_)) => store.remove_reference(&reference, Expect::At(id)),
                removed => removed,
            },
        };
        self.on_workspaces(move |workspaces| match remove(workspaces.store()) {
            // Another task removed it.
            Err(StoreError::ReferenceMoved { .. }) => Ok(()),
            removed => Ok(removed?),
        })
        .await
    }
}

/// Finds the snapshots of the pauses of a sandbox.
fn find(store: &Store, sandbox: &str) -> std::result::Result<Vec<PauseSnapshot>, StoreError> {
    let mut found = Vec::new();
    for (reference, id) in store.references_with_prefix(&references_of(sandbox))? {
        let owner = store.snapshot(&id)?.author;
        let is_used = is_used(store, sandbox, &id)?;
        found.push(PauseSnapshot { reference, id, owner, is_used });
    }
    Ok(found)
}

/// Returns true if a reference other than that of the pause, or a workspace other than that of the sandbox, needs
/// the snapshot.
fn is_used(store: &Store, sandbox: &str, id: &SnapshotId) -> std::result::Result<bool, StoreError> {
    if store.first_reference_outside(id, &references_of(sandbox))?.is_some() {
        return Ok(true);
    }
    // The holder of a pin (the name of its user) of a workspace ends with the id of its sandbox.
    let is_own = |holder: &str| holder.rsplit('/').next() == Some(sandbox);
    Ok(store.pins()?.into_iter().any(|pin| pin.snapshot == *id && !is_own(&pin.holder)))
}

#[cfg(test)]
mod tests {
    use workspace_state::NewSnapshot;

    use super::*;

    #[test]
    fn references_name_their_sandbox() {
        let name = new_reference("sbx-1");
        assert!(workspace_state::check_reference_name(&name).is_ok(), "{name}");
        assert_ne!(name, new_reference("sbx-1"));
        assert_eq!(paused_sandbox_of_reference(&name), Some("sbx-1"));
        for other in ["main", "owners/pauses/x", "pauses"] {
            assert_eq!(paused_sandbox_of_reference(other), None);
        }
    }

    #[test]
    fn a_snapshot_is_used_by_references_and_workspaces_of_others() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path()).unwrap();
        let references = vec![(new_reference("sbx-1"), Expect::Absent)];
        let new = || NewSnapshot { references: references.clone(), ..NewSnapshot::default() };
        let snapshot = store.empty_tree().unwrap().commit(new()).unwrap();
        let is_used = || is_used(&store, "sbx-1", &snapshot.id).unwrap();
        let own = store.pin(&snapshot, "workspace /srv/workspaces/sbx-1").unwrap();
        assert!(!is_used());
        let other = store.pin(&snapshot, "workspace /srv/workspaces/sbx-2").unwrap();
        assert!(is_used());
        store.unpin(other).unwrap();
        store.unpin(own).unwrap();
        assert!(!is_used());
        store.set_reference("main", Expect::Absent, snapshot.id, Default::default()).unwrap();
        assert!(is_used());
        let found = find(&store, "sbx-1").unwrap();
        assert!(found.len() == 1 && found[0].id == snapshot.id && found[0].is_used);
        assert!(find(&store, "sbx-2").unwrap().is_empty());
    }
}
