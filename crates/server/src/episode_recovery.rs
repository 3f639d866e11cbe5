//! Removal of catalog records of episodes that are no longer in the store.

use tokio::task::spawn_blocking;
use workspace_catalog::Catalog;
use workspace_state::{EpisodeId, Store};

use crate::start::StartError;

/// Number of steps per batch.
const BATCH_SIZE: u32 = 10_000;

/// Removes the catalog records of steps that are no longer in the store, so that they do not count against quotas: the
/// command line removed the steps, or the server crashed before it stored them. Run it only at startup, because a step is
/// recorded before it is stored. If the store is empty, no record is removed: its volume may not be mounted.
pub(crate) async fn remove_stale_records(
    catalog: &Catalog,
    server_name: &str,
    store: &Store,
) -> Result<(), StartError> {
    let mut after = String::new();
    loop {
        let names = catalog.episodes().ids_of_server(server_name, &after, BATCH_SIZE).await?;
        let Some(last) = names.last() else { return Ok(()) };
        if after.is_empty() && is_empty(store).await? {
            let path = store.path().display();
            tracing::error!(
                "store {path} is empty, but the catalog has episodes in it: is its volume mounted? Their records are kept"
            );
            return Ok(());
        }
        after.clone_from(last);
        let ids: Vec<EpisodeId> = names.iter().filter_map(|name| name.parse().ok()).collect();
        let store = store.clone();
        let lost = spawn_blocking(move || store.missing_episodes(&ids)).await;
        let lost = lost.map_err(std::io::Error::other)??;
        let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
        catalog.episodes().remove(Some(server_name), &lost).await?;
    }
}

async fn is_empty(store: &Store) -> Result<bool, StartError> {
    let store = store.clone();
    let counts = spawn_blocking(move || store.index_counts()).await.map_err(std::io::Error::other)??;
    Ok(counts.snapshots == 0 && counts.episodes == 0)
}

#[cfg(test)]
mod tests {
    use workspace_catalog::NewEpisode;

    use super::*;

    #[tokio::test]
    async fn records_are_kept_if_the_store_is_empty() {
        let home = tempfile::tempdir().unwrap();
        let catalog =
            Catalog::open(&workspace_catalog::sqlite_url(&home.path().join("catalog"))).await.unwrap();
        let id = EpisodeId::generate().to_string();
        let new = NewEpisode { id: &id, owner: "alice", server: "here", bytes: 1 };
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
