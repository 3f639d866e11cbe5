use std::collections::HashSet;

use workspace_catalog::{Catalog, EpisodeUsage, NewEpisode};

use crate::place::Place;

async fn add(catalog: &Catalog, owner: &str, id: &str, node: &str, limit: Option<EpisodeUsage>) -> bool {
    catalog.episodes().add(&NewEpisode { id, owner, node, bytes: 10 }, limit).await.unwrap().is_none()
}

pub(crate) async fn episodes_are_counted_for_their_owner_until_they_are_removed(place: Place) {
    let catalog = place.open().await;
    let episodes = catalog.episodes();
    let all: Vec<String> = (0..1_200).map(|number| format!("{number:04}")).collect();
    for id in &all[..3] {
        assert!(add(&catalog, "alice", id, "here", None).await);
    }
    assert!(add(&catalog, "bob", &all[3], "here", None).await);
    // A second time changes nothing.
    assert!(add(&catalog, "alice", &all[0], "here", None).await);
    let counts = async || {
        let mut counts = Vec::new();
        for owner in ["alice", "bob", "carol"] {
            let usage = episodes.usage(owner).await.unwrap();
            assert_eq!(usage.bytes, usage.count * 10);
            counts.push(usage.count);
        }
        counts
    };
    assert_eq!(counts().await, [3, 1, 0]);
    assert_eq!(episodes.owned("alice", &all).await.unwrap(), all[..3].iter().cloned().collect());
    assert_eq!(episodes.owned("alice", &[]).await.unwrap(), HashSet::new());
    episodes.remove(Some("here"), &all[1..]).await.unwrap();
    assert_eq!(counts().await, [1, 0, 0]);
    episodes.remove(Some("here"), &[]).await.unwrap();
    assert_eq!(counts().await, [1, 0, 0]);
}

pub(crate) async fn an_owner_never_has_more_episodes_than_the_limit(place: Place) {
    let catalog = place.open().await;
    for (owner, limit) in [
        ("alice", EpisodeUsage { count: 4, bytes: 1_000 }),
        ("bob", EpisodeUsage { count: 1_000, bytes: 49 }),
    ] {
        let mut tasks = Vec::new();
        for number in 0..16 {
            // Half of them as another server would.
            let catalog = if number % 2 == 0 { catalog.clone() } else { place.open().await };
            let id = format!("{owner}-{number}");
            tasks.push(tokio::spawn(async move { add(&catalog, owner, &id, "here", Some(limit)).await }));
        }
        let mut added = 0;
        for task in tasks {
            added += u64::from(task.await.unwrap());
        }
        let usage = catalog.episodes().usage(owner).await.unwrap();
        assert_eq!((added, usage), (4, EpisodeUsage { count: 4, bytes: 40 }), "{owner}");
    }
}

pub(crate) async fn a_server_removes_the_rows_of_its_own_episodes(place: Place) {
    let catalog = place.open().await;
    let episodes = catalog.episodes();
    for (id, node) in [("1", "here"), ("2", "there"), ("3", "here"), ("4", ""), ("5", "here")] {
        assert!(add(&catalog, "alice", id, node, None).await);
    }
    assert_eq!(episodes.ids_of_node("here", "", 2).await.unwrap(), ["1", "3"]);
    assert_eq!(episodes.ids_of_node("here", "3", 2).await.unwrap(), ["5"]);
    let ids: Vec<String> = ["1", "2", "4"].map(str::to_owned).into();
    episodes.remove(Some("here"), &ids).await.unwrap();
    assert_eq!(episodes.owned("alice", &ids).await.unwrap(), HashSet::from(["2".to_owned()]));
    episodes.remove(None, &ids).await.unwrap();
    assert!(episodes.owned("alice", &ids).await.unwrap().is_empty());
}
