//! Catalog records of episodes (steps of a search) at startup: removal of those that are no longer in the store, and
//! completion of those of earlier versions.

use std::collections::HashMap;

use tokio::task::spawn_blocking;
use workspace_catalog::Catalog;
use workspace_state::{EpisodeId, Store, StoreError};

use crate::start::StartError;

/// Number of steps per batch.
const BATCH_SIZE: u32 = 10_000;

/// Removes the catalog records of steps that are no longer in the store, so that they do not count against quotas: the
/// command line removed the steps, or the server crashed before it stored them. Run it only at startup, because a step is
/// recorded before it is stored. If the store is empty, no record is removed: its volume may not be mounted.
pub(crate) async fn remove_stale_records(
    catalog: &Catalog,
    server_id: &str,
    store: &Store,
) -> Result<(), StartError> {
    let mut after = String::new();
    loop {
        let names = catalog.episodes().ids_of_server(server_id, &after, BATCH_SIZE).await?;
        let Some(last) = names.last() else { return Ok(()) };
        if after.is_empty() && is_empty(store).await? {
            let store = store.path().display();
            let hint = "is the volume of the store mounted? The records are kept";
            tracing::error!(%store, hint, "found an empty store that has episodes in the catalog");
            return Ok(());
        }
        after.clone_from(last);
        let ids: Vec<EpisodeId> = names.iter().filter_map(|name| name.parse().ok()).collect();
        let store = store.clone();
        let lost = spawn_blocking(move || store.missing_episodes(&ids)).await;
        let lost = lost.map_err(std::io::Error::other)??;
        let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
        catalog.episodes().remove(Some(server_id), &lost).await?;
    }
}

/// Records the search, named by its first step, of each step that was stored by an earlier version, which did not
/// record it.
pub(crate) async fn add_missing_searches(
    catalog: &Catalog,
    server_id: &str,
    store: &Store,
) -> Result<(), StartError> {
    let (mut after, mut known) = (String::new(), HashMap::new());
    loop {
        let names = catalog.episodes().without_search(server_id, &after, BATCH_SIZE).await?;
        let Some(last) = names.last() else { return Ok(()) };
        after.clone_from(last);
        let store = store.clone();
        let found = spawn_blocking(move || {
            let roots = first_steps(&store, &names, &mut known);
            roots.map(|roots| (roots, known))
        });
        let roots;
        (roots, known) = found.await.map_err(std::io::Error::other)??;
        catalog.episodes().set_searches(&roots).await?;
    }
}

/// Returns the id of each step that is in the store, with the id of the first step of its search. `known` has the first
/// steps that were found before.
fn first_steps(
    store: &Store,
    names: &[String],
    known: &mut HashMap<EpisodeId, EpisodeId>,
) -> Result<Vec<(String, String)>, StoreError> {
    let mut found = Vec::new();
    for name in names {
        let Ok(id) = name.parse::<EpisodeId>() else { continue };
        let (mut path, mut step) = (Vec::new(), id);
        let root = loop {
            if let Some(root) = known.get(&step) {
                break Some(*root);
            }
            // If an ancestor was removed, the oldest step below it counts as the first one.
            let Some((_, parent)) = store.episode_link(&step)? else { break path.last().copied() };
            path.push(step);
            match parent {
                Some(parent) => step = parent,
                None => break Some(step),
            }
        };
        let Some(root) = root else { continue };
        known.extend(path.into_iter().map(|step| (step, root)));
        found.push((name.clone(), root.to_string()));
    }
    Ok(found)
}

async fn is_empty(store: &Store) -> Result<bool, StartError> {
    let store = store.clone();
    let counts = spawn_blocking(move || store.index_counts()).await.map_err(std::io::Error::other)??;
    Ok(counts.snapshots == 0 && counts.episodes == 0)
}

#[cfg(test)]
mod tests {
    use workspace_catalog::{CreationOrder, NewEpisode};

    use super::*;

    #[tokio::test]
    async fn searches_of_earlier_versions_are_recorded() {
        let home = tempfile::tempdir().unwrap();
        let url = workspace_catalog::sqlite_url(&home.path().join("catalog"));
        let catalog = Catalog::open(&url).await.unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let snapshot =
            store.empty_tree().unwrap().commit(workspace_state::NewSnapshot::default()).unwrap().id;
        let (mut ids, mut parent) = (Vec::new(), None);
        for _ in 0..3 {
            let step = workspace_state::Episode::new(snapshot, parent, "a", 0.0);
            store.put_episode(&step, workspace_state::Durability::Synced).unwrap();
            let id = step.id.to_string();
            // Its parent is not in the catalog, as if it were of an earlier version.
            let new = NewEpisode { id: &id, owner: "alice", server: "here", bytes: 1, parent: Some("none") };
            catalog.episodes().insert(&new, None).await.unwrap();
            ids.push(id);
            parent = Some(step.id);
        }
        let searches = async || {
            let page = catalog.episodes().searches("alice", CreationOrder::Newest, None, 10).await.unwrap();
            page.searches.into_iter().map(|search| (search.id, search.steps)).collect::<Vec<_>>()
        };
        assert_eq!(searches().await, []);
        add_missing_searches(&catalog, "here", &store).await.unwrap();
        assert_eq!(searches().await, [(ids[0].clone(), 3)]);
    }

    #[tokio::test]
    async fn records_are_kept_if_the_store_is_empty() {
        let home = tempfile::tempdir().unwrap();
        let catalog =
            Catalog::open(&workspace_catalog::sqlite_url(&home.path().join("catalog"))).await.unwrap();
        let id = EpisodeId::generate().to_string();
        let new = NewEpisode { id: &id, owner: "alice", server: "here", bytes: 1, parent: None };
        catalog.episodes().insert(&new, None).await.unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let recorded = async || catalog.episodes().ids_of_server("here", "", 10).await.unwrap();
        remove_stale_records(&catalog, "here", &store).await.unwrap();
        assert_eq!(recorded().await, [id]);
        store.empty_tree().unwrap().commit(workspace_state::NewSnapshot::default()).unwrap();
        remove_stale_records(&catalog, "here", &store).await.unwrap();
        assert_eq!(recorded().await, [] as [String; 0]);
    }
}
