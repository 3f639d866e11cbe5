//! Much of something: deep, wide, large, and many at once.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_state::{Cancel, NewSnapshot};
use workspace_workspace::{Materialize, New, WorkspaceError};

use crate::world::{Setting, World};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for setting in [Setting::OVERLAY, Setting::COPY] {
        let mut add = |name: &str, test: fn(Setting)| trials.push(setting.trial(name, move || test(setting)));
        add("deep_and_wide_is_committed", deep_and_wide_is_committed);
        add("a_large_file_of_holes_is_committed", a_large_file_of_holes_is_committed);
        add("many_at_once_write_one_layer", many_at_once_write_one_layer);
        add("one_is_made_removed_and_committed_at_once", one_is_made_removed_and_committed_at_once);
    }
    let links = || a_file_with_many_names_is_read_once(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("a_file_with_many_names_is_read_once", links));
    let view = || a_view_that_nobody_uses_is_ended_and_started_again(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("a_view_that_nobody_uses_is_ended_and_started_again", view));
    let cancelled = || a_cancelled_collection_keeps_what_it_did_not_remove(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("a_cancelled_collection_keeps_what_it_did_not_remove", cancelled));
    trials
}

const DEEP: &str = "at=$(printf 'd/%.0s' $(seq 1000)); mkdir -p $at; echo deep > ${at}file";
const WIDE: &str =
    "mkdir wide; cd wide; seq COUNT | split -l 1 -a 4; cd ..; long=$(printf '%0255d' 0); echo long > $long";

fn deep_and_wide_is_committed(setting: Setting) {
    let world = World::new(setting);
    world.all().create("a", &New::default()).unwrap();
    world.run("a", DEEP);
    // All of them take long when they are listed by a program that was not optimised.
    let count = if std::env::var_os("WORKSPACE_TEST_FULL").is_some() { "20000" } else { "300" };
    world.run("a", &WIDE.replace("COUNT", count));
    let first = world.commit("a");
    let seen = world.seen("a");
    assert_eq!(world.checked_out(&first), seen);
    world.all().create("b", &New { snapshot: Some(first.id), ..New::default() }).unwrap();
    assert_eq!(world.seen("b"), seen);
    world.run("b", "cd d/d/d; rm -r d; cd ../../..; rm wide/xa*");
    let second = world.commit("b");
    assert_eq!(world.checked_out(&second), world.seen("b"));
    world.all().create("c", &New { snapshot: Some(second.id), ..New::default() }).unwrap();
    assert_eq!(world.seen("c"), world.seen("b"));
    for id in ["a", "b", "c"] {
        world.all().cleanup(id).unwrap();
    }
    assert_eq!(fs::read_dir(world.home.path().join("workspaces")).unwrap().count(), 0);
}

fn a_large_file_of_holes_is_committed(setting: Setting) {
    let world = World::new(setting);
    world.all().create("a", &New::default()).unwrap();
    world.run("a", "truncate -s 200M sparse; printf end >> sparse");
    let snapshot = world.commit("a");
    world.all().create("b", &New { snapshot: Some(snapshot.id), ..New::default() }).unwrap();
    assert_eq!(world.run("b", "stat -c %s sparse; tail -c 3 sparse"), "209715203\nend");
    assert_eq!(world.changes("b"), [""; 0]);
}

/// Bytes that this process, and so all tests that run just now, has read.
fn read_so_far() -> u64 {
    let told = fs::read_to_string("/proc/self/io").unwrap();
    told.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// 4,101 names of one file of 1 MB, in several directories.
const LINKS: &str = "head -c 1000000 /dev/urandom > file; mkdir d0; for i in $(seq 100); do ln file d0/$i; done; \
    for i in $(seq 40); do cp -al d0 d$i; done";

fn a_file_with_many_names_is_read_once(setting: Setting) {
    let world = World::new(setting);
    world.all().create("a", &New::default()).unwrap();
    world.run("a", LINKS);
    let before = read_so_far();
    let first = world.commit("a");
    let second = world.commit("a");
    // Every name of it would be far more.
    assert!(read_so_far() - before < 2_000_000_000);
    assert_eq!((first.tree, first.times), (second.tree, second.times));
    world.run("a", "echo other > d7/8; ln -f d0/1 d9/new; rm file");
    let third = world.commit("a");
    assert_eq!(world.checked_out(&third), world.seen("a"));
    assert_eq!(world.run("a", "cat d7/9; stat -c %h d9/new"), "other\n4101\n");
}

fn many_at_once_write_one_layer(setting: Setting) {
    let world = World::new(setting);
    let snapshot =
        world.snapshot("mkdir d; seq 3000 > d/list; for i in 1 2 3 4 5 6 7 8 9; do echo $i > d/$i; done");
    let new = New { snapshot: Some(snapshot.id), ..New::default() };
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let id = format!("w{}", next.fetch_add(1, Ordering::Relaxed));
                    let new = New { snapshot: Some(snapshot.id), ..New::default() };
                    world.all().create(&id, &new).unwrap();
                }
            });
        }
    });
    assert_eq!(world.all().list().unwrap().len(), 40);
    for id in ["w0", "w17", "w39"] {
        assert_eq!(world.seen(id), world.checked_out(&snapshot));
    }
    let layers = fs::read_dir(world.home.path().join("layers/layers")).unwrap().count();
    assert_eq!(layers, usize::from(setting.kind == workspace_workspace::Kind::Overlay));
    world.all().create("last", &new).unwrap();
}

fn one_is_made_removed_and_committed_at_once(setting: Setting) {
    let world = Arc::new(World::new(setting));
    let snapshot = world.snapshot("echo one > one");
    let until = Instant::now() + Duration::from_millis(1500);
    let is_fine = |error: WorkspaceError| match error {
        WorkspaceError::NotFound { .. } | WorkspaceError::Exists { .. } => {}
        error => panic!("{error}"),
    };
    std::thread::scope(|scope| {
        for at in 0..6 {
            let (world, snapshot) = (Arc::clone(&world), snapshot.clone());
            scope.spawn(move || {
                let new = New { snapshot: Some(snapshot.id), ..New::default() };
                while Instant::now() < until {
                    match at {
                        0 | 1 => drop(world.all().create("a", &new).map_err(is_fine)),
                        2 | 3 => drop(world.all().cleanup("a").map_err(is_fine)),
                        _ => match world.all().commit("a", NewSnapshot::default(), false) {
                            Ok(committed) => assert_eq!(committed.snapshot.tree, snapshot.tree),
                            Err(error) => is_fine(error),
                        },
                    }
                }
            });
        }
    });
    // Whatever there is is known, and whatever is known is there.
    let there = fs::read_dir(world.home.path().join("workspaces")).unwrap().count();
    assert_eq!(usize::from(world.all().path("a").is_ok()), there);
    assert_eq!(world.store.pins().unwrap().len(), there);
    world.all().cleanup("a").unwrap();
    world.all().create("a", &New { snapshot: Some(snapshot.id), ..New::default() }).unwrap();
    assert_eq!(world.seen("a"), world.checked_out(&snapshot));
}

fn a_view_that_nobody_uses_is_ended_and_started_again(setting: Setting) {
    let world = World::with_view(setting);
    let mut tree = world.store.empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    let snapshot = Some(tree.commit(NewSnapshot::default()).unwrap().id);
    let new = New { snapshot, materialize: Materialize::Lazy, ..New::default() };
    assert!(!world.all().end_view().unwrap(), "there is none yet");
    world.all().create("a", &new).unwrap();
    assert!(!world.all().end_view().unwrap(), "it is used");
    assert_eq!(world.run("a", "cat file"), "content\n");
    world.all().cleanup("a").unwrap();
    assert!(world.all().end_view().unwrap());
    // Somebody ends it whenever it can be, while others come.
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            let mut ended = 0_u32;
            while !over.load(Ordering::Relaxed) {
                ended += u32::from(world.all().end_view().unwrap());
            }
            ended
        });
        for _ in 0..10 {
            world.all().create("b", &new).unwrap();
            assert_eq!(world.run("b", "cat file"), "content\n");
            world.all().cleanup("b").unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        assert!(ending.join().unwrap() > 0, "it was never ended");
    });
}

fn a_cancelled_collection_keeps_what_it_did_not_remove(setting: Setting) {
    let world = World::new(setting);
    let mut tree = world.store.empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    let snapshot = Some(tree.commit(NewSnapshot::default()).unwrap().id);
    let new = New { snapshot, ..New::default() };
    world.all().create("a", &new).unwrap();
    world.all().cleanup("a").unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let cancelled = world.all().cancellable(&cancel).collect(true).unwrap_err();
    assert!(cancelled.is_cancelled(), "{cancelled}");
    // Nobody waits for a layer that is being removed.
    world.all().create("b", &new).unwrap();
    assert_eq!(world.run("b", "cat file"), "content\n");
    world.all().cleanup("b").unwrap();
    assert_eq!(world.all().collect(true).unwrap().layers, 1);
    // Nor is anything made that was cancelled before.
    assert!(world.all().cancellable(&cancel).create("c", &new).unwrap_err().is_cancelled());
    assert!(world.all().list().unwrap().is_empty());
}
