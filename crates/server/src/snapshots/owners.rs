//! Owners of snapshots.

use std::collections::HashSet;

use tokio::sync::OwnedSemaphorePermit;
use workspace_api::error_codes;
use workspace_catalog::{Catalog, CatalogError};
use workspace_sandbox::{Scope, sandbox_paused_to};
use workspace_state::{Snapshot, SnapshotId, Store, StoreError};

use crate::error::ApiError;
use crate::reference_names::{ReferenceNames, has_reference_without_owner};
use crate::store::{blocking, snapshot_not_found};

/// Snapshots of a store with their owners. An owner sees those that are recorded for them and for the agents that work
/// for them; an admin also sees those without an owner, such as snapshots made by the command line beside the server.
#[derive(Clone, Copy)]
pub struct Snapshots<'a> {
    pub(crate) store: &'a Store,
    pub(crate) catalog: &'a Catalog,
}

impl Snapshots<'_> {
    /// Records the owner of a snapshot, the sandbox in which it was created, and the bytes that it added to the store.
    /// Call it after the commit: a crash in between leaves a snapshot that only admins see.
    pub async fn record_owner(
        &self,
        owner: &str,
        id: &SnapshotId,
        sandbox: Option<&str>,
        bytes: u64,
    ) -> Result<(), CatalogError> {
        self.catalog.snapshots().add_owner(owner, &id.to_string(), sandbox, bytes).await
    }

    /// Returns the snapshot with that id. The id must be complete: whether a prefix is unique would depend
    /// on, and reveal, the snapshots of others.
    pub async fn find(&self, scope: &Scope, text: &str) -> Result<Snapshot, ApiError> {
        let id: SnapshotId = text.parse().map_err(|_| snapshot_not_found(text))?;
        if !self.visible(scope, &[id]).await?.contains(&id) {
            return Err(snapshot_not_found(text));
        }
        let (store, text) = (self.store.clone(), text.to_owned());
        blocking(move || store.find_snapshot(&id)?.ok_or_else(|| snapshot_not_found(&text))).await
    }

    /// Returns a snapshot that a caller may name or remove. A snapshot of an agent is only read by the owner for whom the
    /// agent works: the agent may remove it, and a reference would not keep it. Fails for such a snapshot with
    /// `FORBIDDEN`.
    pub(crate) async fn find_own(&self, scope: &Scope, text: &str) -> Result<Snapshot, ApiError> {
        let snapshot = self.find(scope, text).await?;
        let is_own = match scope {
            Scope::Owner(owner) => self.catalog.snapshots().owns(owner, &snapshot.id.to_string()).await?,
            Scope::All | Scope::Sandbox { .. } => true,
        };
        is_own.then_some(snapshot).ok_or_else(|| {
            let message = format!("snapshot {text} belongs to an agent of yours; you may only read it");
            ApiError::new(error_codes::FORBIDDEN, message).detail("snapshotId", text)
        })
    }

    /// Filters snapshots to those that are visible in the scope. Does not check that they exist.
    pub async fn visible(&self, scope: &Scope, ids: &[SnapshotId]) -> Result<HashSet<SnapshotId>, ApiError> {
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let owned = match scope {
            Scope::All => return Ok(ids.iter().copied().collect()),
            Scope::Owner(owner) => self.catalog.snapshots().readable(owner, &names).await?,
            // Other snapshots of the owner may have files that the sandbox never had.
            Scope::Sandbox { owner, id } => self.catalog.snapshots().made_in(owner, id, &names).await?,
        };
        Ok(ids.iter().zip(names).filter(|(_, name)| owned.contains(name)).map(|(id, _)| *id).collect())
    }

    /// Removes a snapshot from its owner, or from all owners for an admin, and from the store if no owner is
    /// left. Fails with `SNAPSHOT_IN_USE` while a reference or a pin protects it. `lock` is the lock of the snapshot.
    ///
    /// The record of the owner is removed first: a failure after that leaves a snapshot that only admins see.
    pub(crate) async fn remove(
        &self,
        scope: &Scope,
        id: &SnapshotId,
        lock: OwnedSemaphorePermit,
    ) -> Result<(), ApiError> {
        let (id, text, owner) = (*id, id.to_string(), scope.owner());
        match self.find_own(scope, &text).await {
            Ok(_) => {
                let (store, scope) = (self.store.clone(), scope.clone());
                blocking(move || check_unused(&store, &scope, &id)).await?;
            }
            // The command line removed it, or a crash lost it. Its record still counts against the quota.
            Err(_) if self.is_lost(owner, &id).await? => {}
            Err(error) => return Err(error),
        }
        let has_other_owner = self.catalog.snapshots().remove_owner(owner, &text).await?;
        if !has_other_owner {
            let store = self.store.clone();
            let removed = blocking(move || {
                let _lock = lock;
                remove_from_store(&store, id)
            });
            removed.await?;
        }
        Ok(())
    }

    /// Returns true if a snapshot is recorded for an owner (`None`: for any) but is not in the store. Always
    /// false if servers may share the catalog: then the snapshot may be in the store of another server.
    async fn is_lost(&self, owner: Option<&str>, id: &SnapshotId) -> Result<bool, ApiError> {
        if self.catalog.can_be_shared() || !self.catalog.snapshots().is_owned(owner, &id.to_string()).await? {
            return Ok(false);
        }
        let (store, id) = (self.store.clone(), *id);
        blocking(move || Ok(store.find_snapshot(&id)?.is_none())).await
    }
}

/// Fails if a pin or a reference protects a snapshot. A reference of another owner does not: that owner has the snapshot,
/// too, and must not be revealed. A reference without an owner, such as one of the command line, is not named to owners.
fn check_unused(store: &Store, scope: &Scope, id: &SnapshotId) -> Result<(), ApiError> {
    let in_use = |message: String| {
        ApiError::new(error_codes::SNAPSHOT_IN_USE, message).detail("snapshotId", id.to_string())
    };
    if let Some(sandbox) = sandbox_paused_to(store, id)? {
        let message =
            format!("sandbox {sandbox} was paused to snapshot {id} and needs it; delete the sandbox first");
        return Err(in_use(message).detail("sandboxId", sandbox));
    }
    if let Some(name) = ReferenceNames::of(scope).first_to(store, id)? {
        let error =
            in_use(format!("the reference `{name}` points to snapshot {id}; remove or move it first"));
        return Err(error.detail("reference", name));
    }
    if has_reference_without_owner(store, id)? {
        return Err(in_use(format!("a reference of the server's administrators points to snapshot {id}")));
    }
    if pins_of(store, id)? == 0 {
        return Ok(());
    }
    store.remove_dead_pins()?;
    match pins_of(store, id)? {
        0 => Ok(()),
        pins => Err(in_use(format!("snapshot {id} is mounted, or a workspace uses it")).detail("pins", pins)),
    }
}

fn pins_of(store: &Store, id: &SnapshotId) -> Result<usize, ApiError> {
    Ok(store.pins()?.into_iter().filter(|pin| pin.snapshot == *id).count())
}

fn remove_from_store(store: &Store, id: SnapshotId) -> Result<(), ApiError> {
    match store.remove_snapshots(&[id]) {
        // Another request removed it first, or a reference without an owner or of another owner keeps it.
        Ok(()) | Err(StoreError::UnknownSnapshot(_) | StoreError::Refused(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
