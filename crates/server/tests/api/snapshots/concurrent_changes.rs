//! Changes of the store by other processes while the server runs.

use serde_json::json;
use workspace_state::{Durability, Episode, Expect, GcOptions, NewSnapshot, NoProgress, Store, Tree};

use super::SnapshotServer;
use super::archive::Archive;

fn open(fixture: &SnapshotServer) -> Store {
    Store::open(fixture.server.path().join("store")).unwrap()
}

#[test]
fn server_and_command_line_see_each_others_snapshots() {
    let fixture = SnapshotServer::new();
    let user = fixture.key_of("alice", "user");
    let store = open(&fixture);
    let mut tree = store.empty_tree().unwrap();
    tree.write("dir/file", "from beside").unwrap();
    let theirs = tree.commit(NewSnapshot::with_message("made beside")).unwrap();
    let found = fixture.get_json(&format!("snapshots/{}", theirs.id));
    assert_eq!((&found["message"], &found["tree"]), (&"made beside".into(), &theirs.tree.to_string().into()));
    assert_eq!(fixture.get(&format!("snapshots/{}/files/dir/file", theirs.id)).body, "from beside");
    // It has no owner, so only admins see it.
    let hidden = fixture.call_as(&user, "GET", &format!("snapshots/{}", theirs.id)).send();
    assert_eq!(hidden.error(), "SNAPSHOT_NOT_FOUND");

    let ours = fixture.create_snapshot(&Archive::new().file("dir/file", "from the server"));
    let record = store.snapshot(&ours.parse().unwrap()).unwrap();
    let tree = Tree::of_snapshot(&store, &record).unwrap();
    assert_eq!(tree.entry("dir/file").unwrap().unwrap().node.size(), 15);
    assert_eq!(fixture.get_json(&format!("snapshots/{}/diff/{ours}", theirs.id))["total"], 1);

    let mut tree = store.restore(&theirs.id).unwrap();
    tree.write("more", "").unwrap();
    let child = tree.commit(NewSnapshot::default()).unwrap();
    let children = fixture.get_json(&format!("snapshots?parent={}", theirs.id));
    assert_eq!((&children["total"], &children["items"][0]["id"]), (&1.into(), &child.id.to_string().into()));
    let episode = Episode::new(child.id, None, "beside", 2.0);
    store.put_episode(&episode, Durability::Synced).unwrap();
    assert_eq!(fixture.get_json(&format!("episodes/{}", episode.id))["action"], "beside");
    let step = json!({"snapshot": ours, "parent": episode.id.to_string(), "action": "server", "reward": 3});
    assert_eq!(fixture.post("episodes", &step).status, 201);
    assert_eq!(store.best_episode(Some(&episode.id)).unwrap().unwrap().reward, 3.0);
}

#[test]
fn referenced_and_pinned_snapshots_cannot_be_deleted() {
    let fixture = SnapshotServer::new();
    let store = open(&fixture);
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let path = format!("snapshots/{id}");
    let record = store.snapshot(&id.parse().unwrap()).unwrap();
    store.set_reference("main", Expect::Absent, record.id, Durability::Synced).unwrap();
    assert_eq!(fixture.get_json(&path)["references"], json!(["main"]));
    assert_eq!(fixture.get_json("snapshots?reference=main")["total"], 1);
    let refused = fixture.call("DELETE", &path).send();
    assert_eq!((refused.status, refused.error().as_str()), (409, "SNAPSHOT_IN_USE"));
    assert_eq!(refused.json()["error"]["details"]["reference"], "main");

    let pin = store.pin_for_process(&record, "a test").unwrap();
    store.remove_reference("main", Expect::At(record.id)).unwrap();
    assert_eq!(fixture.call("DELETE", &path).send().error(), "SNAPSHOT_IN_USE");
    assert_eq!(fixture.get_json(&path)["references"], json!([]));
    drop(pin);
    assert_eq!(fixture.call("DELETE", &path).send().status, 204);
    assert!(store.find_snapshot(&record.id).unwrap().is_none());
}

#[test]
fn pins_of_dead_processes_do_not_protect_snapshots() {
    let fixture = SnapshotServer::new();
    let store = open(&fixture);
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let record = store.snapshot(&id.parse().unwrap()).unwrap();
    std::mem::forget(store.pin_for_process(&record, "one that is killed").unwrap());
    let path = format!("snapshots/{id}");
    assert_eq!(fixture.call("DELETE", &path).send().error(), "SNAPSHOT_IN_USE");
    // Replace the lock file by an unlocked one, as after the end of the process.
    for entry in std::fs::read_dir(store.path().join("pins")).unwrap() {
        let lock = entry.unwrap().path();
        std::fs::remove_file(&lock).unwrap();
        std::fs::write(&lock, "").unwrap();
    }
    assert_eq!(fixture.call("DELETE", &path).send().status, 204);
}

#[test]
fn unreferenced_content_is_collected() {
    let noise = |mut state: u64| {
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        std::iter::repeat_with(next).take(9_000_000).collect::<Vec<u8>>()
    };
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("large", noise(1)));
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{id}")).send().status, 204);
    let collected = fixture.post("gc", &json!({})).json();
    assert!(collected["freedSpace"].as_u64().unwrap() > 8_900_000, "{collected}");

    // The server also collects by itself.
    let fixture = SnapshotServer::with(&[("GC_INTERVAL", "1")]);
    let packs = || {
        let packs = std::fs::read_dir(fixture.server.path().join("store/packs")).unwrap();
        packs.map(|entry| entry.unwrap().metadata().map_or(0, |found| found.len())).sum::<u64>()
    };
    let id = fixture.create_snapshot(&Archive::new().file("large", noise(2)));
    assert!(packs() > 8_900_000);
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{id}")).send().status, 204);
    crate::real::test_server::wait_until("it is collected", || packs() < 1_000_000);
}

#[test]
fn snapshots_removed_by_the_command_line_are_gone_from_the_api() {
    let mut fixture = SnapshotServer::new();
    fixture.key = fixture.key_of("alice", "user");
    let store = open(&fixture);
    let kept = fixture.create_snapshot(&Archive::new().file("kept", "kept"));
    let gone = fixture.create_snapshot(&Archive::new().file("gone", vec![b'x'; 100_000]));
    store.remove_snapshots(&[gone.parse().unwrap()]).unwrap();
    store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    let list = fixture.get_json("snapshots");
    let items = list["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["id"]), (1, &kept.as_str().into()));
    assert_eq!(list["total"], 2, "it counts until it is deleted");
    assert_eq!(fixture.get(&format!("snapshots/{gone}/files/gone")).error(), "SNAPSHOT_NOT_FOUND");
    assert_eq!(fixture.get(&format!("snapshots/{kept}/files/kept")).body, "kept");
}

#[test]
fn a_snapshot_removed_by_the_command_line_counts_until_it_is_deleted() {
    let mut fixture = SnapshotServer::with(&[("MAX_SNAPSHOTS_PER_OWNER", "1")]);
    let admin = fixture.key.clone();
    fixture.key = fixture.key_of("alice", "user");
    let bob = fixture.key_of("bob", "user");
    let store = open(&fixture);
    let archive = Archive::new().file("a", "b").bytes();
    for key in [fixture.key.clone(), admin] {
        let gone = fixture.create_snapshot(&Archive::new().file("a", "b"));
        store.remove_snapshots(&[gone.parse().unwrap()]).unwrap();
        assert_eq!(fixture.upload("", &archive).error(), "SNAPSHOT_LIMIT_EXCEEDED");
        let delete = |key: &str| fixture.call_as(key, "DELETE", &format!("snapshots/{gone}")).send();
        assert_eq!(delete(&bob).error(), "SNAPSHOT_NOT_FOUND");
        assert_eq!(delete(&key).status, 204);
        assert_eq!(delete(&key).error(), "SNAPSHOT_NOT_FOUND");
    }
    assert_eq!(fixture.upload("", &archive).status, 201);
}

#[test]
fn steps_missing_from_the_store_count_until_a_restart() {
    let mut fixture = SnapshotServer::with(&[("MAX_EPISODES_PER_OWNER", "2")]);
    fixture.key = fixture.key_of("alice", "user");
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let add = |fixture: &SnapshotServer, parent: Option<&str>| {
        fixture.post("episodes", &json!({"snapshot": id, "parent": parent, "action": "a", "reward": 1}))
    };
    let kept = add(&fixture, None).json()["id"].as_str().unwrap().to_owned();
    let gone = add(&fixture, Some(&kept)).json()["id"].as_str().unwrap().to_owned();
    open(&fixture).remove_episodes(&gone.parse().unwrap()).unwrap();
    assert_eq!(add(&fixture, None).error(), "EPISODE_LIMIT_EXCEEDED");
    fixture.server.restart();
    assert_eq!(add(&fixture, None).status, 201);
    assert_eq!(add(&fixture, None).error(), "EPISODE_LIMIT_EXCEEDED", "the one that is there still counts");
    assert_eq!(fixture.get_json(&format!("episodes/{kept}"))["id"], kept.as_str());
}

#[test]
fn snapshots_survive_a_restart_of_the_server() {
    let mut fixture = SnapshotServer::new();
    fixture.key = fixture.key_of("alice", "user");
    let id = fixture.create_snapshot(&Archive::new().file("a", "before"));
    fixture.server.restart();
    assert_eq!(fixture.get(&format!("snapshots/{id}/files/a")).body, "before");
    assert_eq!(fixture.get_json("snapshots")["total"], 1);
}
