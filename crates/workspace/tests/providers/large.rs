//! Scale: deep, wide and large trees, and many workspaces at once.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_state::{Cancel, NewSnapshot};
use workspace_workspace::{Materialize, New, WorkspaceError};

use crate::fixture::{Fixture, Setting};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for setting in [Setting::OVERLAY, Setting::COPY] {
        let mut add = |name: &str, test: fn(Setting)| trials.push(setting.trial(name, move || test(setting)));
        add("deep_and_wide_is_committed", deep_and_wide_is_committed);
        add("a_large_file_of_holes_is_committed", a_large_file_of_holes_is_committed);
        add("concurrent_workspaces_write_one_layer", concurrent_workspaces_write_one_layer);
        add(
            "a_workspace_is_made_removed_and_committed_concurrently",
            a_workspace_is_made_removed_and_committed_concurrently,
        );
    }
    let links = || a_file_with_many_names_is_read_once(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("a_file_with_many_names_is_read_once", links));
    let view = || an_unused_lazy_mount_is_unmounted_and_started_again(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("an_unused_lazy_mount_is_unmounted_and_started_again", view));
    let cancelled = || a_cancelled_collection_keeps_what_it_did_not_remove(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("a_cancelled_collection_keeps_what_it_did_not_remove", cancelled));
    trials
}

const DEEP: &str = "at=$(printf 'd/%.0s' $(seq 1000)); mkdir -p $at; echo deep > ${at}file";
const WIDE: &str =
    "mkdir wide; cd wide; seq COUNT | split -l 1 -a 4; cd ..; long=$(printf '%0255d' 0); echo long > $long";

fn deep_and_wide_is_committed(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &New::default()).unwrap();
    fixture.run("a", DEEP);
    // Listing all of them takes too long in a debug build.
    let count = if std::env::var_os("WORKSPACE_TEST_FULL").is_some() { "20000" } else { "300" };
    fixture.run("a", &WIDE.replace("COUNT", count));
    let first = fixture.commit("a");
    let seen = fixture.seen("a");
    assert_eq!(fixture.checked_out(&first), seen);
    fixture.all().create("b", &New { snapshot: Some(first.id), ..New::default() }).unwrap();
    assert_eq!(fixture.seen("b"), seen);
    fixture.run("b", "cd d/d/d; rm -r d; cd ../../..; rm wide/xa*");
    let second = fixture.commit("b");
    assert_eq!(fixture.checked_out(&second), fixture.seen("b"));
    fixture.all().create("c", &New { snapshot: Some(second.id), ..New::default() }).unwrap();
    assert_eq!(fixture.seen("c"), fixture.seen("b"));
    for id in ["a", "b", "c"] {
        fixture.all().cleanup(id).unwrap();
    }
    assert_eq!(fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count(), 0);
}

fn a_large_file_of_holes_is_committed(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &New::default()).unwrap();
    fixture.run("a", "truncate -s 200M sparse; printf end >> sparse");
    let snapshot = fixture.commit("a");
    fixture.all().create("b", &New { snapshot: Some(snapshot.id), ..New::default() }).unwrap();
    assert_eq!(fixture.run("b", "stat -c %s sparse; tail -c 3 sparse"), "209715203\nend");
    assert_eq!(fixture.changes("b"), [""; 0]);
}

/// Returns the bytes that this process, and so all concurrent tests, has read.
fn read_so_far() -> u64 {
    let describe = fs::read_to_string("/proc/self/io").unwrap();
    describe.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// 4,101 names of one file of 1 MB, in several directories.
const LINKS: &str = "head -c 1000000 /dev/urandom > file; mkdir d0; for i in $(seq 100); do ln file d0/$i; done; \
    for i in $(seq 40); do cp -al d0 d$i; done";

fn a_file_with_many_names_is_read_once(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &New::default()).unwrap();
    fixture.run("a", LINKS);
    let before = read_so_far();
    let first = fixture.commit("a");
    let second = fixture.commit("a");
    // Reading every name would be far more.
    assert!(read_so_far() - before < 2_000_000_000);
    assert_eq!((first.tree, first.times), (second.tree, second.times));
    fixture.run("a", "echo other > d7/8; ln -f d0/1 d9/new; rm file");
    let third = fixture.commit("a");
    assert_eq!(fixture.checked_out(&third), fixture.seen("a"));
    assert_eq!(fixture.run("a", "cat d7/9; stat -c %h d9/new"), "other\n4101\n");
}

fn concurrent_workspaces_write_one_layer(setting: Setting) {
    let fixture = Fixture::new(setting);
    let snapshot =
        fixture.snapshot("mkdir d; seq 3000 > d/list; for i in 1 2 3 4 5 6 7 8 9; do echo $i > d/$i; done");
    let new = New { snapshot: Some(snapshot.id), ..New::default() };
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let id = format!("w{}", next.fetch_add(1, Ordering::Relaxed));
                    let new = New { snapshot: Some(snapshot.id), ..New::default() };
                    fixture.all().create(&id, &new).unwrap();
                }
            });
        }
    });
    assert_eq!(fixture.all().list().unwrap().len(), 40);
    for id in ["w0", "w17", "w39"] {
        assert_eq!(fixture.seen(id), fixture.checked_out(&snapshot));
    }
    let layers = fs::read_dir(fixture.home.path().join("layers/layers")).unwrap().count();
    assert_eq!(layers, usize::from(setting.kind == workspace_workspace::Kind::Overlay));
    fixture.all().create("last", &new).unwrap();
}

fn a_workspace_is_made_removed_and_committed_concurrently(setting: Setting) {
    let fixture = Arc::new(Fixture::new(setting));
    let snapshot = fixture.snapshot("echo one > one");
    let until = Instant::now() + Duration::from_millis(1500);
    let is_fine = |error: WorkspaceError| match error {
        WorkspaceError::NotFound { .. } | WorkspaceError::Exists { .. } => {}
        error => panic!("{error}"),
    };
    std::thread::scope(|scope| {
        for at in 0..6 {
            let (fixture, snapshot) = (Arc::clone(&fixture), snapshot.clone());
            scope.spawn(move || {
                let new = New { snapshot: Some(snapshot.id), ..New::default() };
                while Instant::now() < until {
                    match at {
                        0 | 1 => drop(fixture.all().create("a", &new).map_err(is_fine)),
                        2 | 3 => drop(fixture.all().cleanup("a").map_err(is_fine)),
                        _ => match fixture.all().commit("a", NewSnapshot::default(), false) {
                            Ok(committed) => assert_eq!(committed.snapshot.tree, snapshot.tree),
                            Err(error) => is_fine(error),
                        },
                    }
                }
            });
        }
    });
    // Every existing workspace is known, and every known one exists.
    let there = fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count();
    assert_eq!(usize::from(fixture.all().path("a").is_ok()), there);
    assert_eq!(fixture.store.pins().unwrap().len(), there);
    fixture.all().cleanup("a").unwrap();
    fixture.all().create("a", &New { snapshot: Some(snapshot.id), ..New::default() }).unwrap();
    assert_eq!(fixture.seen("a"), fixture.checked_out(&snapshot));
}

fn an_unused_lazy_mount_is_unmounted_and_started_again(setting: Setting) {
    let fixture = Fixture::with_lazy_mount(setting);
    let mut tree = fixture.store.empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    let snapshot = Some(tree.commit(NewSnapshot::default()).unwrap().id);
    let new = New { snapshot, materialize: Materialize::Lazy, ..New::default() };
    assert!(!fixture.all().unmount_lazy().unwrap(), "there is none yet");
    fixture.all().create("a", &new).unwrap();
    assert!(!fixture.all().unmount_lazy().unwrap(), "it is used");
    assert_eq!(fixture.run("a", "cat file"), "content\n");
    fixture.all().cleanup("a").unwrap();
    assert!(fixture.all().unmount_lazy().unwrap());
    // One thread unmounts it whenever possible, while others create workspaces.
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            let mut ended = 0_u32;
            while !over.load(Ordering::Relaxed) {
                ended += u32::from(fixture.all().unmount_lazy().unwrap());
            }
            ended
        });
        for _ in 0..10 {
            fixture.all().create("b", &new).unwrap();
            assert_eq!(fixture.run("b", "cat file"), "content\n");
            fixture.all().cleanup("b").unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        assert!(ending.join().unwrap() > 0, "it was never ended");
    });
}

fn a_cancelled_collection_keeps_what_it_did_not_remove(setting: Setting) {
    let fixture = Fixture::new(setting);
    let mut tree = fixture.store.empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    let snapshot = Some(tree.commit(NewSnapshot::default()).unwrap().id);
    let new = New { snapshot, ..New::default() };
    fixture.all().create("a", &new).unwrap();
    fixture.all().cleanup("a").unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let cancelled = fixture.all().cancellable(&cancel).collect(true).unwrap_err();
    assert!(cancelled.is_cancelled(), "{cancelled}");
    // No thread waits for a layer that is being removed.
    fixture.all().create("b", &new).unwrap();
    assert_eq!(fixture.run("b", "cat file"), "content\n");
    fixture.all().cleanup("b").unwrap();
    assert_eq!(fixture.all().collect(true).unwrap().layers, 1);
    // Nothing is created with a handle that was cancelled before.
    assert!(fixture.all().cancellable(&cancel).create("c", &new).unwrap_err().is_cancelled());
    assert!(fixture.all().list().unwrap().is_empty());
}
