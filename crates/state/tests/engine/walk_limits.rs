//! Tests of walk limits: bounds on the memory of a walk through a directory or a comparison of trees.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use workspace_state::{
    DirectoryError, LimitKind, NoProgress, SnapshotOptions, SnapshotReport, Store, StoreError, Tree,
    VirtualTree, WalkLimits, diff, insight, preview_directory, snapshot_directory,
};

use crate::support::{message, new_store};

/// No limits.
const UNLIMITED: WalkLimits = WalkLimits { entries: u64::MAX, metadata: u64::MAX };

/// Takes a snapshot of a directory.
fn take_snapshot(store: &Store, directory: &Path) -> Result<SnapshotReport, DirectoryError> {
    snapshot_directory(store, directory, SnapshotOptions::default(), &NoProgress)
}

/// Returns kind and value of the limit that a snapshot or preview exceeded.
fn exceeded<T>(done: Result<T, DirectoryError>) -> (LimitKind, u64) {
    match done.map(drop) {
        Err(DirectoryError::TooLarge { exceeded, .. }) => (exceeded.kind, exceeded.limit),
        other => panic!("{other:?}"),
    }
}

/// Returns the kind of limit that a walk or a comparison exceeded.
fn exceeded_kind<T>(done: Result<T, StoreError>) -> LimitKind {
    match done.map(drop) {
        Err(StoreError::WalkTooLarge(exceeded)) => exceeded.kind,
        other => panic!("{other:?}"),
    }
}

/// Commits a tree that `fill` has filled. Opens it through a store handle with these limits.
fn tree(store: &Store, limits: WalkLimits, fill: impl FnOnce(&mut VirtualTree)) -> Tree {
    let mut tree = store.empty_tree().unwrap();
    fill(&mut tree);
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
    let limited = store.with_walk_limits(WalkLimits { entries: 19, ..UNLIMITED });
    assert_eq!(exceeded(take_snapshot(&limited, &work)), (LimitKind::Entries, 19));
    let preview = preview_directory(&limited, &work, &SnapshotOptions::default(), &NoProgress);
    assert_eq!(exceeded(preview), (LimitKind::Entries, 19));
    assert!(store.snapshots().unwrap().is_empty());
    let message_text = take_snapshot(&limited, &work).unwrap_err().to_string();
    assert!(
        message_text.contains("more than 19 entries") && message_text.contains("remove or ignore"),
        "{message_text}"
    );
    fs::remove_file(work.join("d3/file")).unwrap();
    assert_eq!(take_snapshot(&limited, &work).unwrap().files, 9);
    fs::write(work.join("d3/file"), "x").unwrap();
    assert_eq!(exceeded(take_snapshot(&limited, &work)).0, LimitKind::Entries);
    fs::write(work.join(".workspaceignore"), "/d3\n/d4\n").unwrap();
    assert_eq!(take_snapshot(&limited, &work).unwrap().files, 9);
}

#[test]
fn a_directory_of_too_long_paths_is_refused() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    let name = "n".repeat(200);
    let mut path = work.clone();
    for _ in 0..15 {
        path.push(&name);
    }
    fs::create_dir_all(&path).unwrap();
    // Each directory counts with the length of the parent's path, a slash and its name.
    let metadata_size = 201 + (2..=15).map(|depth| depth * 201 - 1).sum::<u64>();
    let snapshot_within =
        |metadata| take_snapshot(&store.with_walk_limits(WalkLimits { metadata, ..UNLIMITED }), &work);
    assert_eq!(exceeded(snapshot_within(metadata_size - 1)), (LimitKind::Metadata, metadata_size - 1));
    assert_eq!(snapshot_within(metadata_size).unwrap().directories, 15);
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
    // Special files count as entries only while their directory is listed.
    let limited = store.with_walk_limits(WalkLimits { entries: 1_101, ..UNLIMITED });
    let report = take_snapshot(&limited, &work).unwrap();
    assert_eq!((report.skipped.len(), report.skipped_count), (1_000, 1_100));
    let all = SnapshotOptions { all_special: true, ..SnapshotOptions::default() };
    let preview = preview_directory(&limited, &work, &all, &NoProgress).unwrap();
    assert_eq!((preview.skipped.len(), preview.skipped_count), (1_100, 1_100));
}

#[test]
fn trees_that_differ_in_too_much_are_not_compared() {
    let (_home, store) = new_store();
    let empty = tree(&store, UNLIMITED, |_| {});
    let files = |tree: &mut VirtualTree| {
        for number in 0..20 {
            tree.write(format!("d/file-{number}"), "x").unwrap();
        }
    };
    let wide = WalkLimits { entries: 22, ..UNLIMITED };
    let narrow = WalkLimits { entries: 10, ..UNLIMITED };
    assert!(diff(&empty, &tree(&store, wide, files)).is_ok());
    let twenty_files = tree(&store, narrow, files);
    assert_eq!(exceeded_kind(diff(&empty, &twenty_files)), LimitKind::Entries);
    assert_eq!(exceeded_kind(diff(&twenty_files, &tree(&store, narrow, |_| {}))), LimitKind::Entries);
    assert_eq!(exceeded_kind(insight(&empty, &twenty_files)), LimitKind::Entries);
    let long_path = tree(&store, WalkLimits { metadata: 1_000, ..UNLIMITED }, |tree| {
        let name = "n".repeat(200);
        tree.write(format!("{name}/{name}/{name}"), "x").unwrap();
    });
    assert_eq!(exceeded_kind(diff(&empty, &long_path)), LimitKind::Metadata);
    // Equal subtrees are not read.
    assert!(diff(&twenty_files, &tree(&store, narrow, files)).unwrap().is_empty());
}

/// In a comparison, each entry of a file takes memory for the list of its extents (chunks and holes).
#[test]
fn extent_lists_count_against_the_limits() {
    let (_home, store) = new_store();
    let empty = tree(&store, UNLIMITED, |_| {});
    let content: Vec<u8> =
        (0..2_u32 << 20).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let limits = WalkLimits { metadata: 20_000, ..UNLIMITED };
    let tree_with_copies = |count: u32| {
        tree(&store, limits, |tree| {
            for number in 0..count {
                tree.write(number.to_string(), content.clone()).unwrap();
            }
        })
    };
    assert_eq!(diff(&empty, &tree_with_copies(1)).unwrap().len(), 1);
    assert_eq!(exceeded_kind(diff(&empty, &tree_with_copies(12))), LimitKind::Metadata);
}

/// A diff does not read a renamed directory, but an insight diff walks through it to find risks.
#[test]
fn the_search_for_risks_in_a_renamed_directory_is_limited() {
    let (_home, store) = new_store();
    let directories = |name: &str| {
        let name = name.to_owned();
        move |tree: &mut VirtualTree| {
            for number in 0..30 {
                tree.write(format!("{name}/{number}/file"), "x").unwrap();
            }
        }
    };
    let old = tree(&store, UNLIMITED, directories("old"));
    let new = tree(&store, WalkLimits { entries: 20, ..UNLIMITED }, directories("new"));
    assert_eq!(diff(&old, &new).unwrap().len(), 1);
    assert_eq!(exceeded_kind(insight(&old, &new)), LimitKind::Entries);
    assert_eq!(exceeded_kind(new.walk(&mut |_, _| Ok(()))), LimitKind::Entries);
    let new = tree(&store, WalkLimits { entries: 31, ..UNLIMITED }, directories("new"));
    assert_eq!(insight(&old, &new).unwrap().entries.len(), 1);
    new.walk(&mut |_, _| Ok(())).unwrap();
}
