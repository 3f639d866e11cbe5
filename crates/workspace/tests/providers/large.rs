//! Scale: deep, wide and large trees, and many workspaces at once.
//!
//! *Layers* are read-only directories with the files of snapshots, the lower directories of overlays. The *lazy mount*
//! is a FUSE mount that loads the files of snapshots on first read; it is used until layers are written.
//! `fixture.all()` is the set of workspaces under test. `fixture.seen(id)` is a listing of a workspace, and
//! `fixture.checked_out(&snapshot)` a listing of a snapshot in the same format.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_state::{Cancel, NewSnapshot};
use workspace_workspace::{Materialize, NewWorkspace, UnusedLayers, WorkspaceError, Writers};

use crate::fixture::{Fixture, Setting};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for setting in [Setting::OVERLAY, Setting::COPY] {
        let mut add = |name: &str, test: fn(Setting)| trials.push(setting.trial(name, move || test(setting)));
        add("deep_and_wide_trees_are_committed", deep_and_wide_trees_are_committed);
        add("a_large_sparse_file_is_committed", a_large_sparse_file_is_committed);
        add("concurrent_workspaces_write_one_layer", concurrent_workspaces_write_one_layer);
        add(
            "a_workspace_is_created_removed_and_committed_concurrently",
            a_workspace_is_created_removed_and_committed_concurrently,
        );
    }
    let links = || a_file_with_many_names_is_read_once(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("a_file_with_many_names_is_read_once", links));
    let lazy_mount = || an_unused_lazy_mount_is_unmounted_and_started_again(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("an_unused_lazy_mount_is_unmounted_and_started_again", lazy_mount));
    let cancelled = || a_cancelled_layer_collection_keeps_the_remaining_layers(Setting::OVERLAY);
    trials.push(Setting::OVERLAY.trial("a_cancelled_layer_collection_keeps_the_remaining_layers", cancelled));
    trials
}

/// Script that creates 1,000 nested directories.
const DEEP: &str = "at=$(printf 'd/%.0s' $(seq 1000)); mkdir -p $at; echo deep > ${at}file";
/// Script that creates a directory with `COUNT` files, and a file with the longest allowed name.
const WIDE: &str =
    "mkdir wide; cd wide; seq COUNT | split -l 1 -a 4; cd ..; long=$(printf '%0255d' 0); echo long > $long";

fn deep_and_wide_trees_are_committed(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &NewWorkspace::default()).unwrap();
    fixture.run("a", DEEP);
    // A debug build takes too long to list 20,000 files.
    let count = if std::env::var_os("WORKSPACE_TEST_FULL").is_some() { "20000" } else { "300" };
    fixture.run("a", &WIDE.replace("COUNT", count));
    let first = fixture.commit("a");
    let seen = fixture.seen("a");
    assert_eq!(fixture.checked_out(&first), seen);
    fixture.all().create("b", &NewWorkspace { snapshot: Some(first.id), ..NewWorkspace::default() }).unwrap();
    assert_eq!(fixture.seen("b"), seen);
    fixture.run("b", "cd d/d/d; rm -r d; cd ../../..; rm wide/xa*");
    let second = fixture.commit("b");
    assert_eq!(fixture.checked_out(&second), fixture.seen("b"));
    fixture
        .all()
        .create("c", &NewWorkspace { snapshot: Some(second.id), ..NewWorkspace::default() })
        .unwrap();
    assert_eq!(fixture.seen("c"), fixture.seen("b"));
    for id in ["a", "b", "c"] {
        fixture.all().remove(id).unwrap();
    }
    assert_eq!(fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count(), 0);
}

fn a_large_sparse_file_is_committed(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &NewWorkspace::default()).unwrap();
    fixture.run("a", "truncate -s 200M sparse; printf end >> sparse");
    let snapshot = fixture.commit("a");
    fixture
        .all()
        .create("b", &NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() })
        .unwrap();
    assert_eq!(fixture.run("b", "stat -c %s sparse; tail -c 3 sparse"), "209715203\nend");
    assert_eq!(fixture.changes("b"), [""; 0]);
}

/// Returns the number of bytes that this process has read so far. Concurrent tests count, too.
fn bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// Script that creates 4,101 names of one file of 1 MB, in several directories.
const LINKS: &str = "head -c 1000000 /dev/urandom > file; mkdir d0; for i in $(seq 100); do ln file d0/$i; done; \
    for i in $(seq 40); do cp -al d0 d$i; done";

fn a_file_with_many_names_is_read_once(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &NewWorkspace::default()).unwrap();
    fixture.run("a", LINKS);
    let before = bytes_read();
    let first = fixture.commit("a");
    let second = fixture.commit("a");
    // To read the file once per name and commit would be 8.2 GB.
    assert!(bytes_read() - before < 2_000_000_000);
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
    let new = NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() };
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let id = format!("w{}", next.fetch_add(1, Ordering::Relaxed));
                    let new = NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() };
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
    assert_eq!(layers, usize::from(setting.kind == workspace_workspace::ProviderKind::Overlay));
    fixture.all().create("last", &new).unwrap();
}

fn a_workspace_is_created_removed_and_committed_concurrently(setting: Setting) {
    let fixture = Arc::new(Fixture::new(setting));
    let snapshot = fixture.snapshot("echo one > one");
    let deadline = Instant::now() + Duration::from_millis(1500);
    // Fails the test unless another thread has created or removed the workspace.
    let expect_conflict = |error: WorkspaceError| match error {
        WorkspaceError::NotFound { .. } | WorkspaceError::Exists { .. } => {}
        error => panic!("{error}"),
    };
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (fixture, snapshot) = (Arc::clone(&fixture), snapshot.clone());
            scope.spawn(move || {
                let new = NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() };
                while Instant::now() < deadline {
                    match thread {
                        0 | 1 => drop(fixture.all().create("a", &new).map_err(expect_conflict)),
                        2 | 3 => drop(fixture.all().remove("a").map_err(expect_conflict)),
                        _ => match fixture.all().commit("a", NewSnapshot::default(), Writers::Running) {
                            Ok(committed) => assert_eq!(committed.snapshot.tree, snapshot.tree),
                            Err(error) => expect_conflict(error),
                        },
                    }
                }
            });
        }
    });
    // The workspace exists both on disk and in memory, or in neither.
    let count = fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count();
    assert_eq!(usize::from(fixture.all().path("a").is_ok()), count);
    assert_eq!(fixture.store.pins().unwrap().len(), count);
    fixture.all().remove("a").unwrap();
    fixture
        .all()
        .create("a", &NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() })
        .unwrap();
    assert_eq!(fixture.seen("a"), fixture.checked_out(&snapshot));
}

fn an_unused_lazy_mount_is_unmounted_and_started_again(setting: Setting) {
    let fixture = Fixture::with_lazy_mount(setting);
    let mut tree = fixture.store.empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    let snapshot = Some(tree.commit(NewSnapshot::default()).unwrap().id);
    let new = NewWorkspace { snapshot, materialize: Materialize::Lazy, ..NewWorkspace::default() };
    assert!(!fixture.all().unmount_lazy_mount().unwrap(), "the lazy mount is not mounted yet");
    fixture.all().create("a", &new).unwrap();
    assert!(!fixture.all().unmount_lazy_mount().unwrap(), "a workspace uses the lazy mount");
    assert_eq!(fixture.run("a", "cat file"), "content\n");
    fixture.all().remove("a").unwrap();
    assert!(fixture.all().unmount_lazy_mount().unwrap());
    // A second thread unmounts the lazy mount whenever possible, while this thread creates and removes workspaces.
    let is_finished = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let unmounting = scope.spawn(|| {
            let mut unmount_count = 0_u32;
            while !is_finished.load(Ordering::Relaxed) {
                unmount_count += u32::from(fixture.all().unmount_lazy_mount().unwrap());
            }
            unmount_count
        });
        for _ in 0..10 {
            fixture.all().create("b", &new).unwrap();
            assert_eq!(fixture.run("b", "cat file"), "content\n");
            fixture.all().remove("b").unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        is_finished.store(true, Ordering::Relaxed);
        assert!(unmounting.join().unwrap() > 0, "the lazy mount was never unmounted");
    });
}

fn a_cancelled_layer_collection_keeps_the_remaining_layers(setting: Setting) {
    let fixture = Fixture::new(setting);
    let mut tree = fixture.store.empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    let snapshot = Some(tree.commit(NewSnapshot::default()).unwrap().id);
    let new = NewWorkspace { snapshot, ..NewWorkspace::default() };
    fixture.all().create("a", &new).unwrap();
    fixture.all().remove("a").unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let cancelled = fixture.all().cancellable(&cancel).collect_layers(UnusedLayers::All).unwrap_err();
    assert!(cancelled.is_cancelled(), "{cancelled}");
    // The layer no longer counts as being removed, so a thread that needs it does not wait.
    fixture.all().create("b", &new).unwrap();
    assert_eq!(fixture.run("b", "cat file"), "content\n");
    fixture.all().remove("b").unwrap();
    assert_eq!(fixture.all().collect_layers(UnusedLayers::All).unwrap().layers, 1);
    // A handle that is already cancelled creates no workspace.
    assert!(fixture.all().cancellable(&cancel).create("c", &new).unwrap_err().is_cancelled());
    assert!(fixture.all().list().unwrap().is_empty());
}
