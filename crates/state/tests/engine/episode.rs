//! Tests of episodes: the steps of a search (a program that tries actions from saved states). An episode has a
//! snapshot, a parent, an action and a reward.

use serde_json::json;
use workspace_state::{Cancel, Durability, Episode, EpisodeId, Store, StoreError};

use crate::support::{assert_sound, collect, commit_file, new_store};

/// Episodes of a search: a root, two children of it, and two leaves below each child.
struct Search {
    root: Episode,
    good: Episode,
    bad: Episode,
    leaves: Vec<Episode>,
}

/// Adds the episodes of a search to a store.
fn search(store: &Store) -> Search {
    let state = |text: &str| commit_file(store, "state", text).id;
    let put = |parent: Option<&Episode>, action: &str, reward: f64| {
        let episode = Episode::new(state(action), parent.map(|parent| parent.id), action, reward);
        store.put_episode(&episode, Durability::Buffered).unwrap();
        episode
    };
    let root = put(None, "start", 100.0);
    let good = put(Some(&root), "good", 50.0);
    let bad = put(Some(&root), "bad", -50.0);
    let leaves = vec![
        put(Some(&good), "a", 0.5),
        put(Some(&good), "b", 0.75),
        put(Some(&bad), "c", 0.75),
        put(Some(&bad), "d", -0.0),
    ];
    Search { root, good, bad, leaves }
}

fn ids(episodes: &[Episode]) -> Vec<EpisodeId> {
    episodes.iter().map(|episode| episode.id).collect()
}

/// Asserts that all queries return the episodes of a search as they were added.
#[track_caller]
fn assert_found(store: &Store, search: &Search) {
    let Search { root, good, bad, leaves } = search;
    assert_eq!(ids(&store.episode_children(None).unwrap()), [root.id]);
    assert_eq!(ids(&store.episode_children(Some(&root.id)).unwrap()), [good.id, bad.id]);
    assert_eq!(store.episode_path(&leaves[1].id).unwrap(), [root.clone(), good.clone(), leaves[1].clone()]);
    let mut subtree = vec![root.id, good.id, bad.id];
    subtree.extend(ids(leaves));
    assert_eq!(ids(&store.episode_subtree(None).unwrap()), subtree);
    assert_eq!(ids(&store.episode_subtree(Some(&bad.id)).unwrap()), [bad.id, leaves[2].id, leaves[3].id]);
    assert_eq!(store.best_episode(Some(&good.id)).unwrap().unwrap(), leaves[1]);
    assert_eq!(store.best_episode(Some(&leaves[3].id)).unwrap().unwrap(), leaves[3]);
}

#[test]
fn the_best_episode_is_the_leaf_with_most_reward_then_most_visits_then_the_newest() {
    let (_home, store) = new_store();
    let mut search = search(&store);
    assert_found(&store, &search);
    // Two leaves have equal rewards and visits; the newer one is better.
    assert_eq!(store.best_episode(None).unwrap().unwrap().id, search.leaves[2].id);
    search.leaves[1].visits = 9;
    store.put_episode(&search.leaves[1], Durability::Synced).unwrap();
    assert_eq!(store.best_episode(None).unwrap().unwrap().id, search.leaves[1].id);
    // An episode with a child is no longer a leaf.
    let step = Episode::new(search.root.snapshot, Some(search.leaves[1].id), "worse", -1.0);
    store.put_episode(&step, Durability::Synced).unwrap();
    assert_eq!(store.best_episode(None).unwrap().unwrap().id, search.leaves[2].id);
    let (_home, empty) = new_store();
    assert_eq!(empty.best_episode(None).unwrap(), None);
}

#[test]
fn episodes_are_kept_when_a_store_is_reopened_rebuilt_and_collected() {
    let (_home, store) = new_store();
    let search = search(&store);
    let path = store.path().to_owned();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_found(&store, &search);
    drop(store);
    let store = Store::rebuild_index(&path).unwrap();
    assert_found(&store, &search);
    collect(&store);
    drop(store);
    let store = Store::rebuild_index(&path).unwrap();
    assert_found(&store, &search);
    assert_sound(&store);
}

#[test]
fn an_episode_is_exported_as_one_line_of_json() {
    let (_home, store) = new_store();
    let snapshot = commit_file(&store, "state", "x").id;
    let mut root = Episode::new(snapshot, None, "a \"quoted\"\naction", 0.1);
    let line = serde_json::to_value(&root).unwrap();
    let expected = json!({
        "id": root.id.to_string(),
        "snapshot": snapshot.to_string(),
        "parent": null,
        "action": "a \"quoted\"\naction",
        "reward": 0.1,
        "visits": 1,
        "time": root.time.0,
    });
    assert_eq!(line, expected);
    root.insight = Some(json!({"files": 3}));
    root.data = json!({"nested": [1, 2.5, "x", null, {"deep": true}]});
    store.put_episode(&root, Durability::Synced).unwrap();
    let found = store.episode(&root.id).unwrap().unwrap();
    assert_eq!(found, root);
    let text = serde_json::to_string(&found).unwrap();
    assert!(!text.contains('\n'));
    assert_eq!(serde_json::from_str::<Episode>(&text).unwrap(), root);
}

#[test]
fn invalid_episodes_are_refused() {
    let (_home, store) = new_store();
    let search = search(&store);
    let put = |episode: &Episode| store.put_episode(episode, Durability::Synced);
    for reward in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = put(&Episode { reward, ..search.root.clone() }).unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    }
    let unknown = workspace_state::SnapshotId::generate();
    let refused = put(&Episode { snapshot: unknown, ..search.root.clone() }).unwrap_err();
    assert!(matches!(refused, StoreError::UnknownSnapshot(id) if id == unknown), "{refused}");
    let orphan = Episode::new(search.root.snapshot, Some(EpisodeId::generate()), "x", 0.0);
    assert!(put(&orphan).is_err());
    // An episode cannot be its own parent, or change its parent.
    let mut own_parent = Episode::new(search.root.snapshot, None, "x", 0.0);
    own_parent.parent = Some(own_parent.id);
    assert!(put(&own_parent).is_err());
    put(&Episode { parent: Some(search.bad.id), ..search.leaves[0].clone() }).unwrap_err();
    put(&Episode { parent: Some(search.leaves[0].id), ..search.root.clone() }).unwrap_err();
    assert_found(&store, &search);
}

#[test]
fn removing_an_episode_removes_its_descendants() {
    let (_home, store) = new_store();
    let search = search(&store);
    assert_eq!(store.remove_episodes(&search.good.id).unwrap(), 3);
    let remaining = [search.root.id, search.bad.id, search.leaves[2].id, search.leaves[3].id];
    assert_eq!(ids(&store.episode_subtree(None).unwrap()), remaining);
    assert!(store.episode(&search.leaves[0].id).unwrap().is_none());
    assert!(store.episode_path(&search.leaves[0].id).is_err());
    let path = store.path().to_owned();
    drop(store);
    let store = Store::rebuild_index(path).unwrap();
    assert_eq!(ids(&store.episode_subtree(None).unwrap()), remaining);
}

#[test]
fn a_removal_that_would_leave_an_episode_without_its_parent_is_refused() {
    let (_home, store) = new_store();
    let search = search(&store);
    let links = store.episode_links(&search.good.id).unwrap();
    let late = Episode::new(search.root.snapshot, Some(search.leaves[0].id), "late", 0.0);
    store.put_episode(&late, Durability::Buffered).unwrap();
    let refused = store.remove_episode_links(&links).unwrap_err();
    assert!(refused.to_string().contains(&late.id.to_string()), "{refused}");
    assert_eq!(store.all_episodes().unwrap().len(), 8);
    assert_eq!(store.remove_episodes(&search.good.id).unwrap(), 4);
    assert_eq!(store.all_episodes().unwrap().len(), 4);
}

#[test]
fn an_episode_is_never_added_below_one_that_is_removed_concurrently() {
    let (_home, store) = new_store();
    let root = search(&store).root;
    for round in 0..50 {
        let parent = Episode::new(root.snapshot, Some(root.id), "parent", 0.0);
        store.put_episode(&parent, Durability::Buffered).unwrap();
        let child = Episode::new(root.snapshot, Some(parent.id), "child", 0.0);
        let (added, removed) = std::thread::scope(|threads| {
            let added = threads.spawn(|| store.put_episode(&child, Durability::Buffered).is_ok());
            let removed = threads.spawn(|| store.remove_episodes(&parent.id).is_ok());
            (added.join().unwrap(), removed.join().unwrap())
        });
        let all = ids(&store.all_episodes().unwrap());
        assert_eq!(store.episode(&child.id).unwrap().is_some(), all.contains(&child.id), "round {round}");
        assert!(added || removed, "round {round}");
    }
}

/// Regression test: the parent was compared before the transaction, so of two requests at the same time with different
/// parents each could add a row, and the episode was a child of both.
#[test]
fn an_episode_has_one_parent_even_if_it_is_added_twice_at_the_same_time() {
    let (_home, store) = new_store();
    let root = search(&store).root;
    let parents: [Episode; 2] = std::array::from_fn(|_| Episode::new(root.snapshot, Some(root.id), "x", 0.0));
    parents.iter().for_each(|parent| store.put_episode(parent, Durability::Buffered).unwrap());
    for round in 0..200 {
        let first = Episode::new(root.snapshot, Some(parents[0].id), "child", 0.0);
        let second = Episode { parent: Some(parents[1].id), ..first.clone() };
        let start = std::sync::Barrier::new(2);
        let added = std::thread::scope(|threads| {
            let put = |episode| {
                start.wait();
                store.put_episode(episode, Durability::Buffered).is_ok()
            };
            let [first, second] = [&first, &second].map(|episode| threads.spawn(move || put(episode)));
            [first.join().unwrap(), second.join().unwrap()]
        });
        assert_eq!(added.iter().filter(|added| **added).count(), 1, "round {round}");
        let is_child =
            |parent: &Episode| store.episode_children_ids(Some(&parent.id)).unwrap().contains(&first.id);
        assert_eq!([is_child(&parents[0]), is_child(&parents[1])], added, "round {round}");
    }
}

#[test]
fn an_episode_that_does_not_exist_has_no_levels() {
    let (_home, store) = new_store();
    let root = search(&store).root;
    assert_eq!(store.episode_levels(&EpisodeId::generate(), 5, 10).unwrap(), (vec![], false));
    assert_eq!(store.episode_levels(&root.id, 0, 10).unwrap(), (vec![root.id], true));
}

#[test]
fn queries_return_at_most_the_requested_number_and_size_of_episodes() {
    let (_home, store) = new_store();
    let search = search(&store);
    let Search { root, good, leaves, .. } = &search;
    let last = &leaves[1].id;
    assert_eq!(ids(&store.episode_path_end(last, 10, usize::MAX).unwrap()), [root.id, good.id, *last]);
    assert_eq!(ids(&store.episode_path_end(last, 2, usize::MAX).unwrap()), [good.id, *last]);
    let episode_len = serde_json::to_vec(good).unwrap().len();
    assert_eq!(ids(&store.episode_path_end(last, 10, 5 * episode_len / 2).unwrap()), [good.id, *last]);
    assert_eq!(ids(&store.episode_path_end(last, 10, 0).unwrap()), [*last]);

    let requested = [leaves[0].id, EpisodeId::generate(), leaves[1].id, leaves[2].id];
    let expected = [leaves[0].id, leaves[1].id, leaves[2].id];
    assert_eq!(ids(&store.episodes_within(&requested, usize::MAX).unwrap()), expected);
    assert_eq!(ids(&store.episodes_within(&requested, 5 * episode_len / 2).unwrap()), expected[..2]);
    assert_eq!(ids(&store.episodes_within(&requested, 0).unwrap()), expected[..1]);
}

#[test]
fn summaries_include_an_episode_and_all_its_descendants() {
    let (_home, store) = new_store();
    let search = search(&store);
    let summaries = store.episode_summaries(&search.bad.id).unwrap();
    let found: Vec<_> = summaries
        .iter()
        .map(|episode| (episode.id, episode.parent, episode.snapshot, episode.reward))
        .collect();
    let expected: Vec<_> = [&search.bad, &search.leaves[2], &search.leaves[3]]
        .map(|episode| (episode.id, episode.parent, episode.snapshot, episode.reward))
        .into();
    assert_eq!(found, expected);
    let cancel = Cancel::new();
    let cancelled = store.with_cancel(cancel.clone());
    cancel.cancel();
    assert!(matches!(cancelled.episode_summaries(&search.root.id), Err(StoreError::Cancelled(_))));
    assert!(matches!(cancelled.episode_links(&search.root.id), Err(StoreError::Cancelled(_))));
}

#[test]
fn an_episode_and_its_ancestors_lead_to_it() {
    let (_home, store) = new_store();
    let Search { root, good, bad, leaves } = search(&store);
    let leads = |step: EpisodeId, to: EpisodeId| store.episode_leads_to(&step, &to).unwrap();
    for step in [root.id, good.id, leaves[0].id] {
        assert!(leads(step, leaves[0].id), "{step}");
    }
    for step in [bad.id, leaves[1].id, EpisodeId::generate()] {
        assert!(!leads(step, leaves[0].id), "{step}");
    }
    assert!(!leads(leaves[0].id, root.id));
    assert!(!leads(root.id, EpisodeId::generate()));
}

#[test]
fn large_episodes_are_kept_by_a_collection_and_a_rebuild() {
    let (_home, store) = new_store();
    let snapshot = commit_file(&store, "state", "text").id;
    let mut episode_ids = Vec::new();
    for number in 0..45 {
        let mut episode = Episode::new(snapshot, None, "step", f64::from(number));
        episode.data = json!({ "text": "x".repeat(400 << 10) });
        store.put_episode(&episode, Durability::Buffered).unwrap();
        episode_ids.push(episode.id);
    }
    collect(&store);
    assert_sound(&store);
    let path = store.path().to_owned();
    drop(store);
    let store = Store::rebuild_index(path).unwrap();
    assert_eq!(store.episode_children_ids(None).unwrap(), episode_ids);
    assert_sound(&store);
}
