//! Episodes in the catalog that the store does not have.

use tokio::task::spawn_blocking;
use workspace_catalog::Catalog;
use workspace_state::{EpisodeId, Store};

use crate::start::StartError;

/// Number of steps looked up at once when the server starts.
const STEPS_AT_START: u32 = 10_000;

/// Removes the owner records of steps that are no longer in the store, so that they do not count: the command
/// line removed them, or the server ended between two writes. Runs only at startup, because a step is
/// recorded before it is stored. An empty store removes nothing: its volume may not be mounted.
pub(crate) async fn forget_lost(catalog: &Catalog, node: &str, store: &Store) -> Result<(), StartError> {
    let mut behind = String::new();
    loop {
        let names = catalog.episodes().ids_of_server(node, &behind, STEPS_AT_START).await?;
        let Some(last) = names.last() else { return Ok(()) };
        if behind.is_empty() && is_empty(store).await? {
            let path = store.path().display();
            tracing::error!(
                "store {path} is empty, but the catalog has episodes in it: is its volume mounted? Their records are kept"
            );
            return Ok(());
        }
        behind.clone_from(last);
        let ids: Vec<EpisodeId> = names.iter().filter_map(|name| name.parse().ok()).collect();
        let store = store.clone();
        let lost = spawn_blocking(move || store.missing_episodes(&ids)).await;
        let lost = lost.map_err(std::io::Error::other)??;
        let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
        catalog.episodes().remove(Some(node), &lost).await?;
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
    async fn steps_are_not_forgotten_for_a_store_that_is_empty() {
        let home = tempfile::tempdir().unwrap();
        let catalog =
            Catalog::open(&workspace_catalog::sqlite_url(&home.path().join("catalog"))).await.unwrap();
        let id = EpisodeId::generate().to_string();
        let new = NewEpisode { id: &id, owner: "alice", server: "here", bytes: 1 };
        catalog.episodes().insert(&new, None).await.unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let left = async || catalog.episodes().ids_of_server("here", "", 10).await.unwrap();
        forget_lost(&catalog, "here", &store).await.unwrap();
        assert_eq!(left().await, [id]);
        store.empty_tree().unwrap().commit(workspace_state::NewSnapshot::default()).unwrap();
        forget_lost(&catalog, "here", &store).await.unwrap();
        assert_eq!(left().await, [] as [String; 0]);
    }
}
