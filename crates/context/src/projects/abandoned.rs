//! Removal of abandoned snapshots: those that a server made for a head, a view, a completion or a workspace, and could
//! not record in the catalog because it was killed; and those of deleted projects.
//!
//! A new snapshot is *pending* until it is recorded: the store records which process made it. The store knows which
//! processes have ended, and the catalog which snapshots are recorded. A snapshot is removed only if its process has
//! ended, and neither a row of the catalog nor a reference in the store names it. Snapshots of a server that still runs
//! are not touched, however long its operation takes.

use workspace_catalog::Transactions;
use workspace_state::{Snapshot, SnapshotId, Store, StoreError, WORKSPACE_LABEL};

use super::completion_merge::PROJECT_LABEL;
use super::store_access::blocking;
use super::{Projects, Result, VIEW_LABEL, references};

/// Number of snapshots that are looked up at a time.
const PAGE_SIZE: usize = 500;

impl Projects {
    /// Removes abandoned snapshots. Returns the number of removed ones. After an error it goes on with the next page of
    /// snapshots, and returns the first error at the end.
    pub async fn remove_abandoned(&self) -> Result<usize> {
        let store = self.store.clone();
        let abandoned = blocking(move || Ok(store.abandoned_snapshots()?)).await?;
        let (mut removed, mut failure) = (0, None);
        for page in abandoned.chunks(PAGE_SIZE) {
            match self.remove_abandoned_page(page.to_vec()).await {
                Ok(number) => removed += number,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(removed), Err)
    }

    async fn remove_abandoned_page(&self, ids: Vec<SnapshotId>) -> Result<usize> {
        // The first search does not wait for transactions that write to the catalog at the moment. Only if it leaves
        // snapshots to remove, a second search waits for them.
        let ids = self.settle_recorded(ids, Transactions::Ended).await?;
        let (ids, _) = self.find_unneeded(ids).await?;
        if ids.is_empty() {
            return Ok(0);
        }
        let ids = self.settle_recorded(ids, Transactions::EndedAndCurrent).await?;
        let (_, unneeded) = self.find_unneeded(ids).await?;
        let store = self.store.clone();
        blocking(move || remove(&store, &unneeded)).await
    }

    /// Ends the pending state of the snapshots that the catalog has recorded. Returns the others.
    async fn settle_recorded(
        &self,
        ids: Vec<SnapshotId>,
        transactions: Transactions,
    ) -> Result<Vec<SnapshotId>> {
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let names = self.catalog.snapshots().recorded(&names, transactions).await?;
        let (recorded, others): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| names.contains(&id.to_string()));
        let store = self.store.clone();
        blocking(move || Ok(store.end_pending(&recorded)?)).await?;
        Ok(others)
    }

    /// Returns the snapshots that no sandbox and no workspace needs: their ids, and the same with their records.
    async fn find_unneeded(&self, ids: Vec<SnapshotId>) -> Result<(Vec<SnapshotId>, Vec<Found>)> {
        let store = self.store.clone();
        let find = move || ids.into_iter().map(|id| Ok((id, store.find_snapshot(&id)?))).collect();
        let found: Vec<Found> = blocking(find).await?;
        let mut unneeded = Vec::new();
        for (id, snapshot) in found {
            let workspace = snapshot.as_ref().and_then(|found| found.labels.get(WORKSPACE_LABEL));
            let workspace = workspace.map(String::as_str);
            if !self.catalog.snapshots().is_needed(&id.to_string(), workspace).await? {
                unneeded.push((id, snapshot));
            }
        }
        Ok((unneeded.iter().map(|(id, _)| *id).collect(), unneeded))
    }
}

/// Id of a snapshot, and its record; `None` if it is not in the store.
type Found = (SnapshotId, Option<Snapshot>);

/// Removes snapshots that nothing in the catalog names. Snapshots that a reference protects stay. Returns the number of
/// removed ones.
fn remove(store: &Store, unneeded: &[Found]) -> Result<usize> {
    let ids: Vec<SnapshotId> = unneeded.iter().map(|(id, _)| *id).collect();
    match store.remove_snapshots(&ids) {
        Ok(()) => return Ok(ids.len()),
        // One of them is protected, or removed already.
        Err(StoreError::UnknownSnapshot(_) | StoreError::Refused(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let mut removed = 0;
    for (id, snapshot) in unneeded {
        removed += usize::from(remove_one(store, *id, snapshot.as_ref())?);
    }
    Ok(removed)
}

/// Removes a snapshot. If it was made for a completion that was never queued, also removes the reference that was set
/// for that completion. Returns false if the snapshot stays, or if another server has removed it.
fn remove_one(store: &Store, id: SnapshotId, snapshot: Option<&Snapshot>) -> Result<bool> {
    let project = snapshot.and_then(project_of_push);
    let result = match project.map(|project| references::name_of(&project, id)) {
        // The server was killed between this reference and the row of the completion.
        Some(name) if store.reference(&name)? == Some(id) => store.remove_reference_with_snapshot(&name, id),
        _ => store.remove_snapshots(&[id]),
    };
    match result {
        Ok(()) => Ok(true),
        // Another server has removed it, or it is a view, which is kept as long as its project.
        Err(StoreError::UnknownSnapshot(_) | StoreError::Refused(_) | StoreError::ReferenceMoved { .. }) => {
            store.end_pending(&[id])?;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the project of a snapshot; `None` for a view, and without a project. If a snapshot of a project is no view,
/// and has a reference with the name of [`references::name_of`], it was made for a completion of work from outside of
/// this server (`direct.rs`). No other completion names it, because each attempt makes its own snapshot.
fn project_of_push(snapshot: &Snapshot) -> Option<String> {
    let is_view = snapshot.labels.contains_key(VIEW_LABEL);
    snapshot.labels.get(PROJECT_LABEL).filter(|_| !is_view).cloned()
}
