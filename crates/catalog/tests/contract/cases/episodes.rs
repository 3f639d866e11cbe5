use std::collections::HashSet;

use workspace_catalog::{Catalog, EpisodeInsertion, EpisodeQuota, EpisodeUsage, NewEpisode};

use crate::test_database::TestDatabase;

/// Inserts an episode of 10 bytes. Returns false if it would exceed the quota.
async fn insert(catalog: &Catalog, owner: &str, id: &str, server: &str, quota: Option<EpisodeQuota>) -> bool {
    let new = NewEpisode { id, owner, server, bytes: 10, parent: None };
    catalog.episodes().insert(&new, quota).await.unwrap() == EpisodeInsertion::Done
}

pub(crate) async fn episode_usage_is_counted_per_owner(database: TestDatabase) {
    let catalog = database.open().await;
    let episodes = catalog.episodes();
    let all: Vec<String> = (0..1_200).map(|number| format!("{number:04}")).collect();
    for id in &all[..3] {
        assert!(insert(&catalog, "alice", id, "here", None).await);
    }
    assert!(insert(&catalog, "bob", &all[3], "here", None).await);
    // A second time changes nothing.
    assert!(insert(&catalog, "alice", &all[0], "here", None).await);
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

pub(crate) async fn episode_limit_holds_under_concurrency(database: TestDatabase) {
    let catalog = database.open().await;
    for (owner, quota) in [
        ("alice", EpisodeQuota { count: 4, bytes: 1_000 }),
        ("bob", EpisodeQuota { count: 1_000, bytes: 49 }),
    ] {
        let mut tasks = Vec::new();
        for number in 0..16 {
            // Half of them through another connection, as another server would.
            let catalog = if number % 2 == 0 { catalog.clone() } else { database.open().await };
            let id = format!("{owner}-{number}");
            tasks.push(tokio::spawn(async move { insert(&catalog, owner, &id, "here", Some(quota)).await }));
        }
        let mut added = 0;
        for task in tasks {
            added += u64::from(task.await.unwrap());
        }
        let usage = catalog.episodes().usage(owner).await.unwrap();
        assert_eq!((added, usage), (4, EpisodeUsage { count: 4, bytes: 40 }), "{owner}");
    }
}

pub(crate) async fn episodes_are_removed_by_server(database: TestDatabase) {
    let catalog = database.open().await;
    let episodes = catalog.episodes();
    for (id, server) in [("1", "here"), ("2", "there"), ("3", "here"), ("4", ""), ("5", "here")] {
        assert!(insert(&catalog, "alice", id, server, None).await);
    }
    assert_eq!(episodes.ids_of_server("here", "", 2).await.unwrap(), ["1", "3"]);
    assert_eq!(episodes.ids_of_server("here", "3", 2).await.unwrap(), ["5"]);
    let ids: Vec<String> = ["1", "2", "4"].map(str::to_owned).into();
    episodes.remove(Some("here"), &ids).await.unwrap();
    assert_eq!(episodes.owned("alice", &ids).await.unwrap(), HashSet::from(["2".to_owned()]));
    episodes.remove(None, &ids).await.unwrap();
    assert!(episodes.owned("alice", &ids).await.unwrap().is_empty());
}

pub(crate) async fn migration_counts_existing_episodes(database: TestDatabase) {
    let catalog = database.open().await;
    for (id, owner) in [("1", "alice"), ("2", "alice"), ("3", "bob")] {
        assert!(insert(&catalog, owner, id, "here", None).await);
    }
    catalog.close().await;
    super::lineage::remove_lineage(&database).await;
    database.tamper("DROP TABLE episode_usage").await;
    database.tamper("CREATE INDEX episodes_owner ON episodes (owner, bytes)").await;
    database.tamper("DROP INDEX events_created_at").await;
    database.tamper("DROP INDEX events_sandbox").await;
    database.tamper("DROP INDEX snapshots_owner_bytes").await;
    database.tamper("ALTER TABLE snapshots DROP COLUMN bytes").await;
    super::events::remove_owners(&database).await;
    super::commands::remove_arguments(&database).await;
    super::pauses::remove_pauses(&database).await;
    database.tamper("DROP TABLE secrets").await;
    database.tamper("DROP TABLE template_steps").await;
    super::projects::remove_projects(&database).await;
    database.tamper("DELETE FROM schema_versions WHERE version >= 8").await;

    let catalog = database.open().await;
    for (owner, count) in [("alice", 2), ("bob", 1), ("carol", 0)] {
        let usage = catalog.episodes().usage(owner).await.unwrap();
        assert_eq!(usage, EpisodeUsage { count, bytes: count * 10 }, "{owner}");
    }
    catalog.episodes().remove(None, &["1".to_owned()]).await.unwrap();
    assert_eq!(catalog.episodes().usage("alice").await.unwrap(), EpisodeUsage { count: 1, bytes: 10 });
}

pub(crate) async fn adding_an_episode_does_not_recount(database: TestDatabase) {
    let catalog = database.open().await;
    assert!(insert(&catalog, "alice", "1", "here", None).await);
    // A recount would find this one.
    database
        .tamper(
            "INSERT INTO episodes (owner, id, created_at, bytes, node) VALUES ('alice', '2', 0, 10, 'here')",
        )
        .await;
    assert!(insert(&catalog, "alice", "3", "here", Some(EpisodeQuota { count: 2, bytes: 20 })).await);
    assert!(!insert(&catalog, "alice", "4", "here", Some(EpisodeQuota { count: 2, bytes: 100 })).await);
}

pub(crate) async fn usage_is_exact_under_concurrency(database: TestDatabase) {
    let catalog = database.open().await;
    let mut tasks = Vec::new();
    for number in 0..16 {
        let catalog = if number % 2 == 0 { catalog.clone() } else { database.open().await };
        tasks.push(tokio::spawn(async move {
            for step in 0..4 {
                let id = format!("{number}-{step}");
                assert!(insert(&catalog, "alice", &id, "here", None).await);
                if step % 2 == 0 {
                    catalog.episodes().remove(Some("here"), &[id]).await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let usage = catalog.episodes().usage("alice").await.unwrap();
    assert_eq!(usage, EpisodeUsage { count: 32, bytes: 320 });
}
