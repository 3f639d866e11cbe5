//! References in the store that protect the snapshots of projects from removal:
//!
//! - `projects/<project>/<sequence>` for each head (snapshot of the files of a project), with twelve digits,
//! - `projects/<project>/snapshots/<snapshot>` for snapshots of completions (finished work of agents) and for views
//!   (the part of a head that an agent may read), from which workspaces are made.
//!
//! Until its reference is set, a new snapshot is *pending*: it belongs to its process, and another server removes it if
//! that process ends.

use std::collections::HashSet;

use workspace_catalog::{Catalog, CreationOrder, NewCompletion, OperationFilter};
use workspace_state::{Durability, Expect, SnapshotId, Store};

use super::error::Result;
use super::failpoint;
use super::store_access::{blocking, parse_snapshot};

/// Number of operations that are read at a time.
const PAGE_SIZE: u32 = 500;

/// Sets the references of all heads of a project with sequences above `after`. After a change, `after` is the sequence
/// of the former head. If the project was deleted meanwhile, removes its references.
pub(super) async fn set(store: &Store, catalog: &Catalog, project: &str, after: i64) -> Result<()> {
    let mut after = after;
    loop {
        let filter = OperationFilter {
            after: Some(after),
            order: CreationOrder::Oldest,
            limit: PAGE_SIZE,
            ..OperationFilter::default()
        };
        let operations = catalog.operations().list(project, &filter).await?;
        let Some(last) = operations.last().map(|operation| operation.sequence) else {
            return undo_if_project_deleted(store, catalog, project, Vec::new()).await;
        };
        let named = operations.iter().map(|operation| {
            Ok((
                format!("projects/{project}/{:012}", operation.sequence),
                parse_snapshot(&operation.snapshot)?,
            ))
        });
        let named = named.collect::<Result<Vec<_>>>()?;
        let store = store.clone();
        blocking(move || set_all(&store, named)).await?;
        after = last;
    }
}

/// Sets the references that are missing because a server was killed between a transaction and its reference.
pub(super) async fn set_missing(store: &Store, catalog: &Catalog, project: &str) -> Result<()> {
    let (reader, prefix) = (store.clone(), format!("projects/{project}/"));
    // Heads before the first missing sequence have their references, so only the operations after them are read.
    let first_missing = blocking(move || {
        let references = reader.references_with_prefix(&prefix)?;
        let sequences =
            references.iter().filter_map(|(name, _)| name.strip_prefix(&prefix)?.parse::<i64>().ok());
        let known: HashSet<i64> = sequences.collect();
        Ok((1..).find(|sequence| !known.contains(sequence)).unwrap_or(1))
    })
    .await?;
    set(store, catalog, project, first_missing - 1).await
}

/// Protects the snapshots of a completion. Called before it is queued, because then its workspace may be removed.
pub(super) async fn protect_completion(store: &Store, new: &NewCompletion) -> Result<()> {
    let snapshots = [parse_snapshot(&new.base_snapshot)?, parse_snapshot(&new.theirs_snapshot)?];
    let named = snapshots.map(|snapshot| (name_of(&new.project, snapshot), snapshot));
    let store = store.clone();
    blocking(move || {
        // Agents that began at the same head have the same base, which then has its reference.
        let mut missing = Vec::new();
        for (name, snapshot) in named {
            if store.reference(&name)? != Some(snapshot) {
                missing.push((name, snapshot));
            }
        }
        set_all(&store, missing)
    })
    .await
}

/// Protects a snapshot that workspaces of a project are made from.
pub(super) fn protect_base(store: &Store, project: &str, snapshot: SnapshotId) -> Result<()> {
    set_all(store, vec![(name_of(project, snapshot), snapshot)])
}

/// If a project was deleted meanwhile, removes its references, and abandons `made`: snapshots for the project that have
/// no reference yet. Does nothing if the project exists. Called after references were set, and before and after the
/// pending state of snapshots is ended, because a concurrent deletion may have looked for references earlier.
pub(super) async fn undo_if_project_deleted(
    store: &Store,
    catalog: &Catalog,
    project: &str,
    made: Vec<SnapshotId>,
) -> Result<()> {
    if catalog.projects().get(project).await?.is_some() {
        return Ok(());
    }
    remove(store, project).await?;
    let store = store.clone();
    blocking(move || Ok(store.abandon_snapshots(&made)?)).await
}

/// Removes all references of a deleted project, and abandons the snapshots to which they point: a server removes them
/// later (`abandoned.rs`), except those that the catalog names for an owner or a sandbox.
pub(super) async fn remove(store: &Store, project: &str) -> Result<()> {
    let (store, prefix) = (store.clone(), format!("projects/{project}/"));
    blocking(move || {
        for (name, _) in store.references_with_prefix(&prefix)? {
            store.abandon_reference(&name)?;
            failpoint::hit("reference-removed")?;
        }
        Ok(())
    })
    .await
}

/// Returns true if a snapshot of a project that is no head has its reference ([`name_of`]).
pub(super) fn is_protected(store: &Store, project: &str, snapshot: SnapshotId) -> Result<bool> {
    Ok(store.reference(&name_of(project, snapshot))? == Some(snapshot))
}

fn set_all(store: &Store, named: Vec<(String, SnapshotId)>) -> Result<()> {
    for (name, snapshot) in named {
        store.set_reference(&name, Expect::Anything, snapshot, Durability::Buffered)?;
        failpoint::hit("reference-set")?;
    }
    Ok(())
}

/// Returns the name of the reference that protects a snapshot which is no head. The name contains the id of the
/// snapshot, so the reference never points to another snapshot.
pub(super) fn name_of(project: &str, snapshot: SnapshotId) -> String {
    format!("projects/{project}/snapshots/{snapshot}")
}
