//! What the kernel has been told once it does not ask again.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Mounted, Place};

fn tree_of(files: usize) -> (Place, workspace_state::Snapshot) {
    let place = Place::new();
    let snapshot = place.commit(|tree| {
        for at in 0..files {
            let path = format!("dir-{}/sub-{}/file-{at}.txt", at % 20, at % 7);
            tree.write(path, format!("line one of {at}\nline two of {at}\n")).unwrap();
        }
        tree.symlink("link", "dir-1").unwrap();
    });
    (place, snapshot)
}

fn grep(directory: &Path) {
    let output = Command::new("grep").args(["-r", "line two of 77$"]).arg(directory).output().unwrap();
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{output:?}");
}

fn read_everything(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => read_everything(&entry.path()),
            kind if kind.is_symlink() => drop(fs::read_link(entry.path()).unwrap()),
            _ => drop(fs::read(entry.path()).unwrap()),
        }
        fs::symlink_metadata(entry.path()).unwrap();
    }
}

/// Repeated until the kernel has settled: under memory pressure it may drop what it knew.
fn requests_when_warm(view: &Mounted, work: impl Fn()) -> u64 {
    work();
    (0..5).map(|_| view.requests_of(&work)).min().unwrap()
}

#[test]
fn a_second_search_through_files_asks_nothing() {
    let (place, snapshot) = tree_of(1000);
    let view = place.mount();
    let cold = view.requests_of(|| grep(&view.of(&snapshot)));
    assert!(cold >= 1000, "{cold} requests for 1,000 files");
    assert_eq!(requests_when_warm(&view, || grep(&view.of(&snapshot))), 0);
}

#[test]
fn a_second_walk_by_path_asks_nothing() {
    let (place, snapshot) = tree_of(300);
    let view = place.mount();
    assert_eq!(requests_when_warm(&view, || read_everything(&view.of(&snapshot))), 0);
}

#[test]
fn a_listing_brings_the_attributes_along() {
    let (place, snapshot) = tree_of(1000);
    let view = place.mount();
    let directory = view.of(&snapshot).join("dir-0/sub-0");
    // Repeated for the same reason as above; each time after a listing that nothing was known before.
    let asked_after_listing = || {
        let paths: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!paths.is_empty());
        view.requests_of(|| assert!(paths.iter().all(|path| fs::metadata(path).unwrap().len() > 0)))
    };
    assert_eq!((0..5).map(|_| asked_after_listing()).min(), Some(0));
}

#[test]
fn what_is_missing_is_remembered_too() {
    let (place, snapshot) = tree_of(10);
    let view = place.mount();
    let missing = view.of(&snapshot).join("dir-1/.gitignore");
    assert!(!missing.exists());
    assert_eq!(requests_when_warm(&view, || assert!(!missing.exists())), 0);
}

#[test]
fn snapshots_are_read_without_reading_the_whole_tree() {
    let (place, snapshot) = tree_of(2000);
    let view = place.mount();
    let path = view.of(&snapshot).join("dir-3/sub-3/file-3.txt");
    let asked = view.requests_of(|| drop(fs::read(path).unwrap()));
    assert!(asked <= 8, "{asked} requests for one file");
}
