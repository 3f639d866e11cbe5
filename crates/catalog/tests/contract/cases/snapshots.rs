use std::collections::HashSet;

use crate::place::Place;

pub(crate) async fn a_snapshot_belongs_to_who_noted_it(place: Place) {
    let catalog = place.open().await;
    let snapshots = catalog.snapshots();
    snapshots.add("alice", "a", Some("sbx-1")).await.unwrap();
    snapshots.add("bob", "b", None).await.unwrap();
    let before = snapshots.list(None, None, 10).await.unwrap();
    // A second time changes nothing, not even the sandbox.
    snapshots.add("alice", "a", None).await.unwrap();
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
    assert_eq!(snapshots.owned("alice", &all).await.unwrap(), HashSet::from(["a".to_owned()]));
    assert!(snapshots.owned("alice", &[]).await.unwrap().is_empty());
}

pub(crate) async fn snapshots_are_listed_newest_first_in_pages(place: Place) {
    let catalog = place.open().await;
    let snapshots = catalog.snapshots();
    for (owner, id) in [("alice", "1"), ("bob", "2"), ("bob", "1"), ("alice", "3"), ("alice", "2")] {
        snapshots.add(owner, id, None).await.unwrap();
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

pub(crate) async fn ids_of_an_owner_are_read_behind_an_id_and_without_the_first(place: Place) {
    let catalog = place.open().await;
    let snapshots = catalog.snapshots();
    for (owner, id) in [("alice", "1"), ("bob", "2"), ("alice", "3"), ("alice", "2"), ("alice", "4")] {
        snapshots.add(owner, id, None).await.unwrap();
    }
    for (behind, skip, limit, expected) in [
        (None, 0, 10, vec!["4", "3", "2", "1"]),
        (None, 1, 2, vec!["3", "2"]),
        (Some("3"), 0, 1, vec!["2"]),
        (Some("3"), 1, 10, vec!["1"]),
        (Some("1"), 0, 10, vec![]),
        (None, u64::MAX, 10, vec![]),
    ] {
        let found = snapshots.ids("alice", behind, skip, limit).await.unwrap();
        assert_eq!(found, expected, "{behind:?} {skip} {limit}");
    }
    for (owner, count) in [("alice", 4), ("bob", 1), ("carol", 0)] {
        assert_eq!(snapshots.count(owner).await.unwrap(), count, "{owner}");
    }
}

pub(crate) async fn the_last_owner_of_a_snapshot_is_told_so(place: Place) {
    let catalog = place.open().await;
    let snapshots = catalog.snapshots();
    for owner in ["alice", "bob", "carol"] {
        snapshots.add(owner, "a", None).await.unwrap();
        snapshots.add(owner, "b", None).await.unwrap();
    }
    assert!(snapshots.remove(Some("alice"), "a").await.unwrap());
    assert!(!snapshots.owns("alice", "a").await.unwrap() && snapshots.owns("bob", "a").await.unwrap());
    assert!(snapshots.remove(Some("bob"), "a").await.unwrap());
    assert!(!snapshots.remove(Some("carol"), "a").await.unwrap());
    assert!(!snapshots.remove(Some("carol"), "a").await.unwrap());

    assert!(!snapshots.remove(None, "b").await.unwrap());
    assert!(snapshots.list(None, None, 10).await.unwrap().is_empty());
}

pub(crate) async fn of_owners_that_let_go_at_once_one_is_the_last(place: Place) {
    let catalog = place.open().await;
    for round in 0..10 {
        let id = round.to_string();
        for owner in 0..5 {
            catalog.snapshots().add(&owner.to_string(), &id, None).await.unwrap();
        }
        let removals: Vec<_> = (0..5)
            .map(|owner| {
                let (catalog, id) = (catalog.clone(), id.clone());
                tokio::spawn(async move {
                    catalog.snapshots().remove(Some(&owner.to_string()), &id).await.unwrap()
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
