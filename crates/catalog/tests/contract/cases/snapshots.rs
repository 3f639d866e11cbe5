use std::collections::HashSet;

use serde_json::json;
use workspace_catalog::SnapshotOrder::{Newest, Oldest};
use workspace_catalog::{Advance, CompletionState, DeletedBytes, SnapshotOrigin};

use super::projects::{advance, advanced, create, outcome, queue, step};
use crate::test_database::TestDatabase;

pub(crate) async fn snapshot_belongs_to_its_owner(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    snapshots.add_owner("alice", "a", Some("sbx-1"), 0).await.unwrap();
    snapshots.add_owner("bob", "b", None, 0).await.unwrap();
    let before = snapshots.list(None, None, 10).await.unwrap();
    // A second time has no effect, not even on the sandbox.
    snapshots.add_owner("alice", "a", None, 0).await.unwrap();
    assert_eq!(snapshots.list(None, None, 10).await.unwrap(), before);
    assert_eq!(before[1].sandbox.as_deref(), Some("sbx-1"));
    assert_eq!(snapshots.count("alice").await.unwrap(), 1);
    assert_eq!(snapshots.count("carol").await.unwrap(), 0);

    for (owner, id, has) in
        [("alice", "a", true), ("alice", "b", false), ("bob", "b", true), ("bob", "", false)]
    {
        assert_eq!(snapshots.owns(owner, id).await.unwrap(), has, "{owner} {id}");
    }
    let all: Vec<String> =
        (0..2_000).map(|n| n.to_string()).chain(["a".to_owned(), "b".to_owned()]).collect();
    assert_eq!(snapshots.readable("alice", &all).await.unwrap(), HashSet::from(["a".to_owned()]));
    assert!(snapshots.readable("alice", &[]).await.unwrap().is_empty());
}

pub(crate) async fn snapshots_of_agents_can_be_read_by_the_owner_behind_them(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    let owners = ["alice", "alice/agents/one", "alice/agents/two", "alicex/agents/one", "bob"];
    for (owner, id) in owners.iter().zip(["a", "b", "c", "d", "e"]) {
        snapshots.add_owner(owner, id, None, 0).await.unwrap();
    }
    let all: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
    for (reader, expected) in [
        ("alice", ["a", "b", "c"].as_slice()),
        ("alice/agents/one", &["b"]),
        ("alice/agents", &[]),
        ("bob", &["e"]),
        ("", &[]),
    ] {
        let expected: HashSet<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(snapshots.readable(reader, &all).await.unwrap(), expected, "{reader}");
    }
    assert!(!snapshots.owns("alice", "b").await.unwrap());
}

pub(crate) async fn new_owner_of_a_snapshot_gets_one_event(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    snapshots.add_owner("alice", "a", Some("sbx-1"), 7).await.unwrap();
    snapshots.add_owner("alice", "a", Some("sbx-1"), 7).await.unwrap();
    snapshots.add_owner("bob", "a", None, 0).await.unwrap();
    let events = catalog.events().after(0, 10).await.unwrap();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.kind == "snapshot.created"));
    let owners = events.iter().map(|event| (event.owner.as_deref(), event.sandbox_id.as_deref()));
    assert!(owners.eq([(Some("alice"), Some("sbx-1")), (Some("bob"), None)]));
    let data = json!({ "snapshotId": "a", "sandboxId": "sbx-1", "owner": "alice", "bytes": 7 });
    assert_eq!(events[0].data, data);
}

pub(crate) async fn snapshots_are_listed_newest_first_in_pages(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    for (owner, id) in [("alice", "1"), ("bob", "2"), ("bob", "1"), ("alice", "3"), ("alice", "2")] {
        snapshots.add_owner(owner, id, None, 0).await.unwrap();
    }
    for (owner, expected) in [
        (Some("alice"), "alice 3, alice 2, alice 1"),
        (Some("carol"), ""),
        (None, "alice 3, alice 2, bob 2, alice 1, bob 1"),
    ] {
        for limit in [1, 2, 10] {
            let (mut found, mut last) = (Vec::new(), None);
            loop {
                let page = snapshots.list(owner, last.as_ref(), limit).await.unwrap();
                found.extend(page.iter().map(|it| format!("{} {}", it.owner, it.id)));
                let Some(end) = page.last() else { break };
                last = Some(end.clone());
            }
            assert_eq!(found.join(", "), expected, "{owner:?} {limit}");
        }
    }
}

pub(crate) async fn ids_are_paginated_by_id_and_offset(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    for (owner, id) in [("alice", "1"), ("bob", "2"), ("alice", "3"), ("alice", "2"), ("alice", "4")] {
        snapshots.add_owner(owner, id, None, 0).await.unwrap();
    }
    for (order, cursor, skip, limit, expected) in [
        (Newest, None, 0, 10, vec!["4", "3", "2", "1"]),
        (Newest, None, 1, 2, vec!["3", "2"]),
        (Newest, Some("3"), 0, 1, vec!["2"]),
        (Newest, Some("3"), 1, 10, vec!["1"]),
        (Newest, Some("1"), 0, 10, vec![]),
        (Newest, None, u64::MAX, 10, vec![]),
        (Oldest, None, 0, 10, vec!["1", "2", "3", "4"]),
        (Oldest, None, 1, 2, vec!["2", "3"]),
        (Oldest, Some("2"), 0, 1, vec!["3"]),
        (Oldest, Some("4"), 0, 10, vec![]),
    ] {
        let found = snapshots.ids("alice", order, cursor, skip, limit).await.unwrap();
        assert_eq!(found, expected, "{order:?} {cursor:?} {skip} {limit}");
    }
    for (owner, count) in [("alice", 4), ("bob", 1), ("carol", 0)] {
        assert_eq!(snapshots.count(owner).await.unwrap(), count, "{owner}");
    }
}

pub(crate) async fn removing_the_last_owner_is_reported(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    for owner in ["alice", "bob", "carol"] {
        snapshots.add_owner(owner, "a", None, 0).await.unwrap();
        snapshots.add_owner(owner, "b", None, 0).await.unwrap();
    }
    assert!(snapshots.remove_owner(Some("alice"), "a").await.unwrap());
    assert!(!snapshots.owns("alice", "a").await.unwrap() && snapshots.owns("bob", "a").await.unwrap());
    assert!(snapshots.remove_owner(Some("bob"), "a").await.unwrap());
    assert!(!snapshots.remove_owner(Some("carol"), "a").await.unwrap());
    assert!(!snapshots.remove_owner(Some("carol"), "a").await.unwrap());

    assert!(!snapshots.remove_owner(None, "b").await.unwrap());
    assert!(snapshots.list(None, None, 10).await.unwrap().is_empty());
}

pub(crate) async fn concurrent_removals_report_one_last_owner(database: TestDatabase) {
    let catalog = database.open().await;
    for round in 0..10 {
        let id = round.to_string();
        for owner in 0..5 {
            catalog.snapshots().add_owner(&owner.to_string(), &id, None, 0).await.unwrap();
        }
        let removals: Vec<_> = (0..5)
            .map(|owner| {
                let (catalog, id) = (catalog.clone(), id.clone());
                tokio::spawn(async move {
                    catalog.snapshots().remove_owner(Some(&owner.to_string()), &id).await.unwrap()
                })
            })
            .collect();
        let mut last = 0;
        for removal in removals {
            last += usize::from(!removal.await.unwrap());
        }
        assert_eq!(last, 1, "round {round}");
    }
}

pub(crate) async fn snapshot_bytes_count_until_measured(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    for (owner, id, bytes) in [("alice", "1", 10), ("alice", "2", 5), ("bob", "1", 10), ("bob", "3", 7)] {
        snapshots.add_owner(owner, id, None, bytes).await.unwrap();
    }
    let bytes = async || {
        let bytes = |owner| async move { snapshots.bytes(owner).await.unwrap() };
        (bytes("alice").await, bytes("bob").await, bytes("carol").await)
    };
    assert_eq!(bytes().await, (15, 17, 0));
    // The other snapshot may have the same content.
    snapshots.remove_owner(Some("alice"), "1").await.unwrap();
    assert_eq!(bytes().await, (15, 17, 0));
    let many = (0..2_000).map(|id| (format!("none {id}"), 1));
    let sizes: Vec<_> = many.chain([("2".to_owned(), 6), ("3".to_owned(), 1)]).collect();
    let deleted = snapshots.deleted_bytes().await.unwrap();
    snapshots.set_sizes(&sizes, deleted.clone()).await.unwrap();
    assert_eq!(bytes().await, (6, 11, 0));
    snapshots.remove_owner(None, "1").await.unwrap();
    snapshots.remove_owner(None, "3").await.unwrap();
    snapshots.remove_owner(None, "2").await.unwrap();
    assert_eq!(bytes().await, (6, 11, 0), "something else may have the same content");
    // What was deleted after the measurement began counts until the next one.
    snapshots.set_sizes(&[], deleted).await.unwrap();
    assert_eq!(bytes().await, (0, 11, 0));
    snapshots.set_sizes(&[], snapshots.deleted_bytes().await.unwrap()).await.unwrap();
    assert_eq!(bytes().await, (0, 0, 0), "nothing of theirs is left");
}

pub(crate) async fn snapshots_that_only_a_project_keeps_count_for_its_owner(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    create(&catalog, "prj-1").await;
    queue(&catalog, "prj-1", "done").await;
    let steps = ["head-1", "head-2", "head-1"].map(|head| step(head, vec![]));
    assert_eq!(advanced(&catalog, &advance("prj-1", 0, steps.into())).await, 3);
    // The owner of a snapshot pays for it.
    snapshots.add_owner("bob", "head-2", None, 0).await.unwrap();
    let sizes = [("head-1", 10), ("head-2", 20), ("theirs", 5), ("view", 3)];
    let sizes = sizes.map(|(id, bytes)| (id.to_owned(), bytes));
    let bytes = async || (snapshots.bytes("alice").await.unwrap(), snapshots.bytes("bob").await.unwrap());
    snapshots.set_sizes(&sizes, DeletedBytes::default()).await.unwrap();
    assert_eq!(bytes().await, (15, 20));

    let completions = vec![outcome("done", CompletionState::Refused)];
    advanced(&catalog, &Advance { completions, ..advance("prj-1", 3, vec![]) }).await;
    assert!(catalog.projects().delete("prj-1", &[]).await.unwrap());
    assert_eq!(bytes().await, (15, 20), "what is deleted counts until it is measured");
    snapshots.set_sizes(&[], snapshots.deleted_bytes().await.unwrap()).await.unwrap();
    assert_eq!(bytes().await, (0, 20));
}

pub(crate) async fn snapshots_are_found_by_the_sandbox_that_made_them(database: TestDatabase) {
    let catalog = database.open().await;
    let snapshots = catalog.snapshots();
    for (owner, id, sandbox) in [
        ("alice", "1", Some("sbx-1")),
        ("alice", "2", Some("sbx-2")),
        ("alice", "3", None),
        ("bob", "4", Some("sbx-1")),
    ] {
        snapshots.add_owner(owner, id, sandbox, 0).await.unwrap();
    }
    let all: Vec<String> = (0..2_000).map(|id| id.to_string()).collect();
    assert_eq!(snapshots.made_in("alice", "sbx-1", &all).await.unwrap(), HashSet::from(["1".to_owned()]));
    assert!(snapshots.made_in("alice", "sbx-1", &all[2..]).await.unwrap().is_empty());
    assert!(snapshots.made_in("alice", "sbx-3", &all).await.unwrap().is_empty());
    let rebased = SnapshotOrigin { sandbox: Some("sbx-1".to_owned()), round_id: Some("sbx-1/2".to_owned()) };
    snapshots.add_of_origin("alice", "5", &rebased, 0).await.unwrap();
    // Another origin of the same snapshot is ignored.
    snapshots.add_owner("alice", "5", None, 0).await.unwrap();
    assert_eq!(snapshots.origin("alice", "5").await.unwrap(), Some(rebased));
    let unknown = SnapshotOrigin { sandbox: Some("sbx-2".to_owned()), round_id: None };
    assert_eq!(snapshots.origin("alice", "2").await.unwrap(), Some(unknown));
    assert_eq!(snapshots.origin("bob", "5").await.unwrap(), None);
}
