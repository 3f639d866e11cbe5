//! Kept results of the steps of template builds.
//!
//! The row of a result in the catalog names a snapshot in the store, and the reference that keeps it there. A snapshot
//! whose row is missing, because the server was killed before it was inserted or the row was removed, is removed by
//! the next [`Service::prune_build_cache`].

use std::collections::HashSet;

use uuid::Uuid;
use workspace_catalog::TemplateStep;
use workspace_state::{Expect, Snapshot, SnapshotId, Store, StoreError};

use crate::clock::{milliseconds, now};
use crate::error::{Context as _, Result};
use crate::lifecycle::remove::ReclaimPolicy;
use crate::root::template_import::{REFERENCES as TEMPLATE_ROOTS, reference_of};
use crate::scope::Scope;
use crate::service::{Service, config_of};

/// Prefix of the references to results of steps.
const STEPS: &str = "template-steps/";
/// Prefix of the references to contexts of builds.
const CONTEXTS: &str = "template-contexts/";

/// Returns an unused name of a reference to the result of a step.
pub(super) fn new_step_reference() -> String {
    format!("{STEPS}{}", Uuid::now_v7().simple())
}

/// Returns an unused name of a reference to the context of a build.
pub(super) fn new_context_reference() -> String {
    format!("{CONTEXTS}{}", Uuid::now_v7().simple())
}

/// Removes a reference and its snapshot; only the reference if the store refuses to remove the
/// snapshot, because something else needs it.
pub(super) fn remove_reference(
    store: &Store,
    reference: &str,
    id: SnapshotId,
) -> std::result::Result<(), StoreError> {
    match store.remove_reference_with_snapshot(reference, id) {
        Err(StoreError::Refused(_)) => store.remove_reference(reference, Expect::At(id)),
        Err(StoreError::ReferenceMoved { .. }) => Ok(()),
        removed => removed,
    }
}

impl Service {
    /// Returns the kept result of a step; `None` if there is none, or if its snapshot was removed.
    pub(super) async fn find_step(&self, key: &str) -> Result<Option<Snapshot>> {
        let (steps, server) = (self.0.catalog.template_steps(), &self.0.settings.server);
        let Some(step) = steps.find(server, key).await? else { return Ok(None) };
        let found = self.find_root_snapshot(&step.snapshot).await?;
        if found.is_none() {
            steps.delete(server, &step).await?;
        }
        Ok(found)
    }

    /// Forgets the result of a step, so that another one can be kept.
    pub(super) async fn forget_step(&self, key: &str) -> Result<()> {
        let (steps, server) = (self.0.catalog.template_steps(), &self.0.settings.server);
        match steps.find(server, key).await? {
            Some(step) => Ok(steps.delete(server, &step).await?),
            None => Ok(()),
        }
    }

    /// Keeps the result of a step. Returns the result that is kept: that of another build if it was faster.
    pub(super) async fn keep_step(&self, key: &str, reference: &str, snapshot: Snapshot) -> Result<Snapshot> {
        let step = TemplateStep {
            key: key.to_owned(),
            snapshot: snapshot.id.to_string(),
            reference: reference.to_owned(),
        };
        let kept = self.0.catalog.template_steps().insert(&self.0.settings.server, &step).await?;
        if kept == step {
            return Ok(snapshot);
        }
        Ok(self.find_root_snapshot(&kept.snapshot).await?.unwrap_or(snapshot))
    }

    /// Finds a snapshot that has a root filesystem; `None` if there is none with this id.
    async fn find_root_snapshot(&self, id: &str) -> Result<Option<Snapshot>> {
        let Ok(id) = id.parse::<SnapshotId>() else { return Ok(None) };
        let found = self.on_workspaces(move |workspaces| Ok(workspaces.store().find_snapshot(&id)?)).await?;
        Ok(found.filter(|snapshot| snapshot.root.is_some()))
    }

    /// Removes results beyond the limits of the settings, and snapshots that builds left behind. Does nothing while a
    /// build runs; the last one does it.
    pub(crate) async fn prune_build_cache(&self) {
        let Ok(_cache) = self.0.builds.cache.try_write() else { return };
        if let Err(error) = self.try_prune_build_cache().await {
            tracing::warn!(%error, "failed to remove old results of template builds");
        }
    }

    async fn try_prune_build_cache(&self) -> Result<()> {
        let (steps, settings) = (self.0.catalog.template_steps(), &self.0.settings);
        let oldest = now() - milliseconds(settings.template_step_retention.as_secs());
        let pruned = steps.prune(&settings.server, oldest, settings.max_kept_template_steps).await?;
        let mut kept: HashSet<String> =
            steps.list(&settings.server).await?.into_iter().map(|step| step.reference).collect();
        let mut prefixes = vec![STEPS, CONTEXTS];
        if let Some(templates) = self.0.runtime.imported_templates() {
            let templates = templates.list().context(|| "list templates".to_owned())?;
            kept.extend(templates.iter().map(reference_of));
            // A build that was killed before its template was visible leaves such a reference.
            prefixes.push(TEMPLATE_ROOTS);
        }
        let remove = move |store: &Store| remove_unkept_references(store, &prefixes, &kept);
        let removed = self.on_workspaces(move |workspaces| Ok(remove(workspaces.store())?)).await?;
        if pruned + removed > 0 {
            tracing::info!(pruned, removed, "removed results of template builds");
        }
        Ok(())
    }

    /// Removes sandboxes of builds in which the last server was stopped, and what else they left, in the background.
    pub(crate) async fn end_interrupted_builds(&self) -> Result<()> {
        let mut interrupted = Vec::new();
        for sandbox in self.0.catalog.sandboxes().all(&self.0.settings.server).await? {
            if config_of(&sandbox)?.template_build {
                interrupted.push(sandbox.id);
            }
        }
        let service = self.clone();
        tokio::spawn(async move {
            for id in interrupted {
                if let Err(error) = service.remove(&Scope::All, &id, ReclaimPolicy::Delete).await {
                    tracing::warn!(sandbox = id, %error, "failed to remove the sandbox of an interrupted template build");
                }
            }
            service.prune_build_cache().await;
        });
        Ok(())
    }
}

/// Removes references that begin with one of the prefixes, and their snapshots, except those that are kept or in use.
/// Returns their number.
fn remove_unkept_references(
    store: &Store,
    prefixes: &[&str],
    kept: &HashSet<String>,
) -> std::result::Result<u64, StoreError> {
    let pinned: HashSet<SnapshotId> = store.pins()?.iter().map(|pin| pin.snapshot).collect();
    let mut removed = 0;
    for prefix in prefixes {
        for (reference, id) in store.references_with_prefix(prefix)? {
            if !kept.contains(&reference) && !pinned.contains(&id) {
                remove_reference(store, &reference, id)?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}
