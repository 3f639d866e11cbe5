//! Kernel caching: repeated accesses cause no requests.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Fixture, TestMount};

fn tree_of(files: usize) -> (Fixture, workspace_state::Snapshot) {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| {
        for at in 0..files {
            let path = format!("dir-{}/sub-{}/file-{at}.txt", at % 20, at % 7);
            tree.write(path, format!("line one of {at}\nline two of {at}\n")).unwrap();
        }
        tree.symlink("link", "dir-1").unwrap();
    });
    (fixture, snapshot)
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

/// Repeats `work` until the caches are warm: under memory pressure the kernel may drop entries.
fn requests_when_warm(mount: &TestMount, work: impl Fn()) -> u64 {
    work();
    (0..5).map(|_| mount.requests_of(&work)).min().unwrap()
}

#[test]
fn a_second_search_causes_no_requests() {
    let (fixture, snapshot) = tree_of(1000);
    let mount = fixture.mount();
    let cold = mount.requests_of(|| grep(&mount.of(&snapshot)));
    assert!(cold > 160, "{cold} requests for 140 directories, which are listed");
    assert_eq!(requests_when_warm(&mount, || grep(&mount.of(&snapshot))), 0);
}

/// The page cache gets the content of small files before it is requested.
#[test]
fn files_that_are_read_in_order_cause_fewer_requests() {
    let fixture = Fixture::new();
    let content = |at: usize| format!("{at} ").repeat(at % 1000);
    let snapshot = fixture.commit(|tree| {
        for at in 0..3000 {
            tree.write(format!("file-{at:04}"), content(at)).unwrap();
        }
        tree.write("large", "x".repeat(1 << 20)).unwrap();
    });
    let mount = fixture.mount();
    let directory = mount.of(&snapshot);
    let mut paths: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| !path.ends_with("large"));
    let asked = mount.requests_of(|| {
        for path in &paths {
            let at: usize = path.to_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), content(at), "{}", path.display());
            // The reader is slower than the thread that reads ahead.
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    });
    assert!(asked < 1500, "{asked} requests for 3,000 files");
}

#[test]
fn a_second_walk_causes_no_requests() {
    let (fixture, snapshot) = tree_of(300);
    let mount = fixture.mount();
    assert_eq!(requests_when_warm(&mount, || read_everything(&mount.of(&snapshot))), 0);
}

#[test]
fn a_listing_caches_attributes() {
    let (fixture, snapshot) = tree_of(1000);
    let mount = fixture.mount();
    let directory = mount.of(&snapshot).join("dir-0/sub-0");
    // Repeated for the same reason as above; each time after a listing with cold caches.
    let asked_after_listing = || {
        let paths: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!paths.is_empty());
        mount.requests_of(|| assert!(paths.iter().all(|path| fs::metadata(path).unwrap().len() > 0)))
    };
    assert_eq!((0..5).map(|_| asked_after_listing()).min(), Some(0));
}

#[test]
fn missing_names_are_cached() {
    let (fixture, snapshot) = tree_of(10);
    let mount = fixture.mount();
    let missing = mount.of(&snapshot).join("dir-1/.gitignore");
    assert!(!missing.exists());
    assert_eq!(requests_when_warm(&mount, || assert!(!missing.exists())), 0);
}

#[test]
fn snapshots_are_read_without_reading_the_whole_tree() {
    let (fixture, snapshot) = tree_of(2000);
    let mount = fixture.mount();
    let path = mount.of(&snapshot).join("dir-3/sub-3/file-3.txt");
    let asked = mount.requests_of(|| drop(fs::read(path).unwrap()));
    assert!(asked <= 8, "{asked} requests for one file");
}
