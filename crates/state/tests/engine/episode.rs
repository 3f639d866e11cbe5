//! Episodes: the trajectories of searches.

use serde_json::json;
use workspace_state::{Cancel, Durability, Episode, EpisodeId, Store, StoreError};

use crate::support::{assert_sound, collect, commit_file, new_store};

/// A search: its root, two branches, and leaves with these rewards.
struct Search {
    root: Episode,
    good: Episode,
    bad: Episode,
    leaves: Vec<Episode>,
}

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

#[track_caller]
fn assert_as_made(store: &Store, search: &Search) {
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
fn the_best_leaf_wins_by_reward_then_visits_then_age() {
    let (_home, store) = new_store();
    let mut search = search(&store);
    assert_as_made(&store, &search);
    // Equal rewards, equal visits: the newer one.
    assert_eq!(store.best_episode(None).unwrap().unwrap().id, search.leaves[2].id);
    search.leaves[1].visits = 9;
    store.put_episode(&search.leaves[1], Durability::Synced).unwrap();
    assert_eq!(store.best_episode(None).unwrap().unwrap().id, search.leaves[1].id);
    // A leaf with a child is no longer a leaf.
    let step = Episode::new(search.root.snapshot, Some(search.leaves[1].id), "worse", -1.0);
    store.put_episode(&step, Durability::Synced).unwrap();
    assert_eq!(store.best_episode(None).unwrap().unwrap().id, search.leaves[2].id);
    let (_home, empty) = new_store();
    assert_eq!(empty.best_episode(None).unwrap(), None);
}

#[test]
fn episodes_survive_reopening_rebuilding_and_collecting() {
    let (_home, store) = new_store();
    let search = search(&store);
    let path = store.path().to_owned();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_as_made(&store, &search);
    drop(store);
    let store = Store::rebuild_index(&path).unwrap();
    assert_as_made(&store, &search);
    collect(&store);
    drop(store);
    let store = Store::rebuild_index(&path).unwrap();
    assert_as_made(&store, &search);
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
    let mut own = Episode::new(search.root.snapshot, None, "x", 0.0);
    own.parent = Some(own.id);
    assert!(put(&own).is_err());
    put(&Episode { parent: Some(search.bad.id), ..search.leaves[0].clone() }).unwrap_err();
    put(&Episode { parent: Some(search.leaves[0].id), ..search.root.clone() }).unwrap_err();
    assert_as_made(&store, &search);
}

#[test]
fn removing_an_episode_removes_its_descendants() {
    let (_home, store) = new_store();
    let search = search(&store);
    assert_eq!(store.remove_episodes(&search.good.id).unwrap(), 3);
    let left = [search.root.id, search.bad.id, search.leaves[2].id, search.leaves[3].id];
    assert_eq!(ids(&store.episode_subtree(None).unwrap()), left);
    assert!(store.episode(&search.leaves[0].id).unwrap().is_none());
    assert!(store.episode_path(&search.leaves[0].id).is_err());
    let path = store.path().to_owned();
    drop(store);
    let store = Store::rebuild_index(path).unwrap();
    assert_eq!(ids(&store.episode_subtree(None).unwrap()), left);
}

#[test]
fn no_episode_loses_its_parent_to_a_removal() {
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
fn an_episode_is_never_added_below_one_that_is_removed_at_the_same_time() {
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

#[test]
fn episodes_are_read_no_further_than_asked_for() {
    let (_home, store) = new_store();
    let search = search(&store);
    let Search { root, good, leaves, .. } = &search;
    let last = &leaves[1].id;
    assert_eq!(ids(&store.episode_path_end(last, 10, usize::MAX).unwrap()), [root.id, good.id, *last]);
    assert_eq!(ids(&store.episode_path_end(last, 2, usize::MAX).unwrap()), [good.id, *last]);
    let one = serde_json::to_vec(good).unwrap().len();
    assert_eq!(ids(&store.episode_path_end(last, 10, 5 * one / 2).unwrap()), [good.id, *last]);
    assert_eq!(ids(&store.episode_path_end(last, 10, 0).unwrap()), [*last]);

    let some = [leaves[0].id, EpisodeId::generate(), leaves[1].id, leaves[2].id];
    let expected = [leaves[0].id, leaves[1].id, leaves[2].id];
    assert_eq!(ids(&store.episodes_within(&some, usize::MAX).unwrap()), expected);
    assert_eq!(ids(&store.episodes_within(&some, 5 * one / 2).unwrap()), expected[..2]);
    assert_eq!(ids(&store.episodes_within(&some, 0).unwrap()), expected[..1]);
}

#[test]
fn summaries_cover_an_episode_and_all_after_it() {
    let (_home, store) = new_store();
    let search = search(&store);
    let summaries = store.episode_summaries(&search.bad.id).unwrap();
    let found: Vec<_> = summaries.iter().map(|one| (one.id, one.parent, one.snapshot, one.reward)).collect();
    let expected: Vec<_> = [&search.bad, &search.leaves[2], &search.leaves[3]]
        .map(|one| (one.id, one.parent, one.snapshot, one.reward))
        .into();
    assert_eq!(found, expected);
    let cancel = Cancel::new();
    let stopped = store.with_cancel(cancel.clone());
    cancel.cancel();
    assert!(matches!(stopped.episode_summaries(&search.root.id), Err(StoreError::Cancelled(_))));
    assert!(matches!(stopped.episode_links(&search.root.id), Err(StoreError::Cancelled(_))));
}

#[test]
fn only_ancestors_lead_to_an_episode() {
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
fn large_episodes_survive_a_collection_and_a_rebuild() {
    let (_home, store) = new_store();
    let snapshot = commit_file(&store, "state", "text").id;
    let mut made = Vec::new();
    for number in 0..45 {
        let mut episode = Episode::new(snapshot, None, "step", f64::from(number));
        episode.data = json!({ "text": "x".repeat(400 << 10) });
        store.put_episode(&episode, Durability::Buffered).unwrap();
        made.push(episode.id);
    }
    collect(&store);
    assert_sound(&store);
    let path = store.path().to_owned();
    drop(store);
    let store = Store::rebuild_index(path).unwrap();
    assert_eq!(store.episode_children_ids(None).unwrap(), made);
    assert_sound(&store);
}
