//! Walks with limited memory.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use workspace_state::{
    DirectoryError, LimitKind, NoProgress, SnapshotOptions, SnapshotReport, Store, StoreError, Tree,
    VirtualTree, WalkLimits, diff, insight, preview_directory, snapshot_directory,
};

use crate::support::{message, new_store};

const NONE: WalkLimits = WalkLimits { entries: u64::MAX, metadata: u64::MAX };

fn take(store: &Store, directory: &Path) -> Result<SnapshotReport, DirectoryError> {
    snapshot_directory(store, directory, SnapshotOptions::default(), &NoProgress)
}

fn exceeded<T>(done: Result<T, DirectoryError>) -> (LimitKind, u64) {
    match done.map(drop) {
        Err(DirectoryError::TooLarge { exceeded, .. }) => (exceeded.kind, exceeded.limit),
        other => panic!("{other:?}"),
    }
}

fn compared<T>(done: Result<T, StoreError>) -> LimitKind {
    match done.map(drop) {
        Err(StoreError::WalkTooLarge(exceeded)) => exceeded.kind,
        other => panic!("{other:?}"),
    }
}

/// Commits a tree made by `fill` and opens it within `limits`.
fn tree(store: &Store, limits: WalkLimits, put: impl FnOnce(&mut VirtualTree)) -> Tree {
    let mut tree = store.empty_tree().unwrap();
    put(&mut tree);
    let snapshot = tree.commit(message("test")).unwrap();
    Tree::of_snapshot(&store.with_walk_limits(limits), &snapshot).unwrap()
}

#[test]
fn a_directory_of_too_many_entries_is_refused_until_some_are_removed_or_ignored() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    for number in 0..10 {
        fs::create_dir_all(work.join(format!("d{number}"))).unwrap();
        fs::write(work.join(format!("d{number}/file")), "x").unwrap();
    }
    let limited = store.with_walk_limits(WalkLimits { entries: 19, ..NONE });
    assert_eq!(exceeded(take(&limited, &work)), (LimitKind::Entries, 19));
    let preview = preview_directory(&limited, &work, &SnapshotOptions::default(), &NoProgress);
    assert_eq!(exceeded(preview), (LimitKind::Entries, 19));
    assert!(store.snapshots().unwrap().is_empty());
    let told = take(&limited, &work).unwrap_err().to_string();
    assert!(told.contains("more than 19 entries") && told.contains("remove or ignore"), "{told}");
    fs::remove_file(work.join("d3/file")).unwrap();
    assert_eq!(take(&limited, &work).unwrap().files, 9);
    fs::write(work.join("d3/file"), "x").unwrap();
    assert_eq!(exceeded(take(&limited, &work)).0, LimitKind::Entries);
    fs::write(work.join(".workspaceignore"), "/d3\n/d4\n").unwrap();
    assert_eq!(take(&limited, &work).unwrap().files, 9);
}

#[test]
fn a_directory_of_too_long_paths_is_refused() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    let name = "n".repeat(200);
    let mut at = work.clone();
    for _ in 0..15 {
        at.push(&name);
    }
    fs::create_dir_all(&at).unwrap();
    // Each counts with its path and a slash.
    let held = 201 + (2..=15).map(|depth| depth * 201 - 1).sum::<u64>();
    let within = |metadata| take(&store.with_walk_limits(WalkLimits { metadata, ..NONE }), &work);
    assert_eq!(exceeded(within(held - 1)), (LimitKind::Metadata, held - 1));
    assert_eq!(within(held).unwrap().directories, 15);
}

#[test]
fn special_files_are_named_up_to_a_thousand_and_counted() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    let below = work.join("n".repeat(100));
    fs::create_dir_all(&below).unwrap();
    for number in 0..1_100 {
        mknodat(CWD, below.join(number.to_string()), FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    // They are not held in memory, so they do not count as entries.
    let limited = store.with_walk_limits(WalkLimits { entries: 1_101, ..NONE });
    let report = take(&limited, &work).unwrap();
    assert_eq!((report.skipped.len(), report.skipped_count), (1_000, 1_100));
    let all = SnapshotOptions { all_special: true, ..SnapshotOptions::default() };
    let preview = preview_directory(&limited, &work, &all, &NoProgress).unwrap();
    assert_eq!((preview.skipped.len(), preview.skipped_count), (1_100, 1_100));
}

#[test]
fn trees_that_differ_in_too_much_are_not_compared() {
    let (_home, store) = new_store();
    let empty = tree(&store, NONE, |_| {});
    let files = |tree: &mut VirtualTree| {
        for number in 0..20 {
            tree.write(format!("d/file-{number}"), "x").unwrap();
        }
    };
    let wide = WalkLimits { entries: 22, ..NONE };
    let narrow = WalkLimits { entries: 10, ..NONE };
    assert!(diff(&empty, &tree(&store, wide, files)).is_ok());
    let many = tree(&store, narrow, files);
    assert_eq!(compared(diff(&empty, &many)), LimitKind::Entries);
    assert_eq!(compared(diff(&many, &tree(&store, narrow, |_| {}))), LimitKind::Entries);
    assert_eq!(compared(insight(&empty, &many)), LimitKind::Entries);
    let long = tree(&store, WalkLimits { metadata: 1_000, ..NONE }, |tree| {
        let name = "n".repeat(200);
        tree.write(format!("{name}/{name}/{name}"), "x").unwrap();
    });
    assert_eq!(compared(diff(&empty, &long)), LimitKind::Metadata);
    // Equal subtrees are not read.
    assert!(diff(&many, &tree(&store, narrow, files)).unwrap().is_empty());
}

/// Each name of a file has the whole list of its extents.
#[test]
fn lists_of_extents_count() {
    let (_home, store) = new_store();
    let empty = tree(&store, NONE, |_| {});
    let content: Vec<u8> =
        (0..2_u32 << 20).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let limits = WalkLimits { metadata: 20_000, ..NONE };
    let named = |count: u32| {
        tree(&store, limits, |tree| {
            for number in 0..count {
                tree.write(number.to_string(), content.clone()).unwrap();
            }
        })
    };
    assert_eq!(diff(&empty, &named(1)).unwrap().len(), 1);
    assert_eq!(compared(diff(&empty, &named(12))), LimitKind::Metadata);
}

/// A renamed directory is one difference, whatever its size; searching it for risks is a walk.
#[test]
fn a_renamed_directory_is_judged_within_the_limits() {
    let (_home, store) = new_store();
    let directories = |name: &str| {
        let name = name.to_owned();
        move |tree: &mut VirtualTree| {
            for number in 0..30 {
                tree.write(format!("{name}/{number}/file"), "x").unwrap();
            }
        }
    };
    let old = tree(&store, NONE, directories("old"));
    let new = tree(&store, WalkLimits { entries: 20, ..NONE }, directories("new"));
    assert_eq!(diff(&old, &new).unwrap().len(), 1);
    assert_eq!(compared(insight(&old, &new)), LimitKind::Entries);
    assert_eq!(compared(new.walk(&mut |_, _| Ok(()))), LimitKind::Entries);
    let new = tree(&store, WalkLimits { entries: 31, ..NONE }, directories("new"));
    assert_eq!(insight(&old, &new).unwrap().entries.len(), 1);
    new.walk(&mut |_, _| Ok(())).unwrap();
}
