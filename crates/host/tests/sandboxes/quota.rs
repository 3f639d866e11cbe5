//! Quotas of workspaces, where the filesystem of temporary files has project quotas.
//!
//! `Fixture` (`guest.rs`) has the directories of a server in a new temporary directory.

use std::fs;
use std::path::Path;

use libtest_mimic::Trial;
use workspace_host::{HostError, quota};
use workspace_test_support::{skip, wait_until};

use crate::guest::Fixture;

const LIMIT: u64 = 4 << 20;

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_quota_rejects_writes_and_the_sandbox_continues,
        a_quota_can_be_released_and_set_again,
        every_directory_has_its_own_quota,
        the_quota_cannot_be_left_from_inside,
        a_directory_without_a_quota_is_not_counted,
    ]
}

/// Returns whether a program reported that it may not write more. XFS reports a full project like a full
/// disk.
fn is_rejected(printed: &str) -> bool {
    ["Disk quota exceeded", "No space left on device"].iter().any(|refusal| printed.contains(refusal))
}

/// Sets a quota on a directory. Prints the reason and returns false if that is not possible.
#[track_caller]
fn limit(directory: &Path) -> bool {
    match quota::limit(directory, LIMIT) {
        Ok(()) => true,
        Err(error @ HostError::NoQuota { .. }) => {
            let promised = std::env::var_os("WORKSPACE_TEST_QUOTAS").is_some();
            assert!(!promised || !rustix::process::geteuid().is_root(), "{error}");
            skip(error);
            false
        }
        Err(error) => panic!("{error}"),
    }
}

fn a_quota_rejects_writes_and_the_sandbox_continues() {
    let home = Fixture::new();
    let workspace = home.path("workspace");
    if !limit(&workspace) {
        return;
    }
    let sandbox = home.launch(|_| {});
    let printed = sandbox.sh("cd /workspace; mkdir deep; head -c 8M /dev/zero > deep/x; echo ended");
    assert!(is_rejected(&printed) && printed.ends_with("ended\n"), "{printed}");
    let used = quota::used(&workspace).unwrap().unwrap().bytes;
    assert!((LIMIT - (64 << 10)..=LIMIT).contains(&used), "{used}");
    assert_eq!(sandbox.sh("cd /workspace; rm deep/x; echo more > y; cat y"), "more\n");
    wait_until("removed files are not counted", || {
        quota::used(&workspace).unwrap().unwrap().bytes < 64 << 10
    });
    let many =
        "cd /workspace; mkdir many; cd many; perl -e 'open F, \">\", $_ or die \"$_: $!\" for 1..5000'";
    let printed = sandbox.sh(many);
    assert!(is_rejected(&printed), "{printed}");
    // They are empty, but counted.
    let used = quota::used(&workspace).unwrap().unwrap();
    assert!(used.files > 4_000 && used.bytes < 1 << 20, "{used:?}");
}

fn a_quota_can_be_released_and_set_again() {
    let home = Fixture::new();
    let workspace = home.path("workspace");
    if !limit(&workspace) {
        return;
    }
    let sandbox = home.launch(|_| {});
    let write = "head -c 8M /dev/zero > /workspace/x; stat -c %s /workspace/x";
    quota::release(&workspace).unwrap();
    assert_eq!(sandbox.sh(write), format!("{}\n", 8 << 20));
    assert!(limit(&workspace));
    assert!(is_rejected(&sandbox.sh(write)));
    quota::release(&workspace).unwrap();
    quota::release(&home.path("nowhere")).unwrap();
}

fn every_directory_has_its_own_quota() {
    let home = tempfile::tempdir().unwrap();
    let directories = ["a", "b", "c"].map(|name| home.path().join(name));
    for (size, directory) in directories.iter().enumerate() {
        fs::create_dir(directory).unwrap();
        if !limit(directory) {
            return;
        }
        fs::write(directory.join("file"), vec![1; (size + 1) << 20]).unwrap();
    }
    let used = directories.each_ref().map(|directory| quota::used(directory).unwrap().unwrap().bytes >> 20);
    assert_eq!(used, [1, 2, 3]);
    fs::remove_dir_all(&directories[1]).unwrap();
    assert_eq!(quota::used(&directories[1]).unwrap(), None);
    // A new directory in its place starts without usage.
    fs::create_dir(&directories[1]).unwrap();
    assert_eq!(quota::used(&directories[1]).unwrap(), None);
    assert!(limit(&directories[1]));
    assert_eq!(quota::used(&directories[1]).unwrap().unwrap().bytes >> 20, 0);
}

fn the_quota_cannot_be_left_from_inside() {
    let home = Fixture::new();
    let workspace = home.path("workspace");
    if !limit(&workspace) {
        return;
    }
    let sandbox = home.launch(|_| {});
    // Neither the project nor its inheritance can be reset.
    let attempt = "cd /workspace; mkdir own; touch own/file; perl -e '
        for my $path (\"/workspace\", \"own\", \"own/file\") {
            open my $file, \"<\", $path or die;
            my $attributes = \"\\0\" x 28;
            ioctl $file, 0x801c581f, $attributes or die \"$path: $!\";
            die \"$path is in no project\" unless unpack \"x12 L\", $attributes;
            for my $at (-d $path ? (0, 12) : 12) {
                my $changed = $attributes;
                substr($changed, $at, 4) = \"\\0\" x 4;
                print ioctl($file, 0x401c5820, $changed) ? \"went \" : \"stays \";
            }
        }'; head -c 8M /dev/zero > own/file";
    let printed = sandbox.sh(attempt);
    assert!(is_rejected(&printed) && !printed.contains("in no project"), "{printed}");
    assert!(printed.contains("stays") && !printed.contains("went"), "{printed}");
}

fn a_directory_without_a_quota_is_not_counted() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(quota::used(home.path()).unwrap(), None);
    assert_eq!(quota::used(&home.path().join("nowhere")).unwrap(), None);
    quota::release(home.path()).unwrap();
}
