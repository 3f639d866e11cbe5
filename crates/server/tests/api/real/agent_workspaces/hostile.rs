//! Directories that agents filled with anything, removed, or keep writing to.

use std::os::unix::net::UnixListener;
use std::process::{Child, Command};

use serde_json::json;

use super::{Fixture, run};
use crate::real::test_server::wait_until;

#[test]
fn special_files_are_skipped_and_symlinks_are_not_followed() {
    let fixture = Fixture::new(&[("a", "a\n"), ("dir/b", "b\n")]);
    let path = fixture.workspace("writer");
    let elsewhere = fixture.server.path().join("outside");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("secret"), "top secret").unwrap();
    run(
        &path,
        &format!(
            "mkfifo pipe; ln -s {0}/secret leak; rm -r dir; ln -s {0} dir; ln -s loop loop; ln -s /dev/zero zero; \
             [ $(id -u) != 0 ] || mknod disk b 7 0",
            elsewhere.display()
        ),
    );
    let _socket = UnixListener::bind(path.join("socket")).unwrap();
    let changes = fixture.changes("writer");
    let devices = u64::from(rustix::process::geteuid().is_root());
    assert_eq!(changes["skippedCount"], 2 + devices, "{changes}");
    assert!(!changes.to_string().contains("top secret"), "{changes}");
    let landed = fixture.complete("writer");
    assert_eq!(landed["state"], "landed", "{landed}");
    let listed = fixture.get("projects/website/tree/").json();
    let entries: Vec<(String, String)> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["name"].as_str().unwrap().to_owned(), entry["kind"].as_str().unwrap().to_owned()))
        .collect();
    let expected =
        [("a", "file"), ("dir", "symlink"), ("leak", "symlink"), ("loop", "symlink"), ("zero", "symlink")];
    assert_eq!(entries, expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    assert_eq!(fixture.delete("projects/website/workspaces/writer").status, 204);
    assert_eq!(std::fs::read_to_string(elsewhere.join("secret")).unwrap(), "top secret");
}

#[test]
fn a_removed_or_replaced_directory_is_no_deletion_of_its_files() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    let path = fixture.workspace("writer");
    let elsewhere = fixture.server.path().join("outside");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("secret"), "top secret").unwrap();
    let one = "projects/website/workspaces/writer";
    let refused = || {
        assert_eq!(fixture.try_complete("writer").error(), "WORKSPACE_UNUSABLE");
        assert_eq!(fixture.post(&format!("{one}/rebase"), &json!({})).error(), "WORKSPACE_UNUSABLE");
        assert_eq!(fixture.get(&format!("{one}/changes")).error(), "WORKSPACE_UNUSABLE");
        assert_eq!(fixture.delete(one).error(), "WORKSPACE_UNUSABLE");
        assert_eq!(fixture.post("projects/website/sync", &json!({})).json()["synced"], 0);
    };
    fixture.import("website", &[("a", "a\n"), ("b", "b\n")]);
    std::fs::remove_dir_all(&path).unwrap();
    refused();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    refused();
    assert_eq!((fixture.sequence(), fixture.file("a")), (2, "a\n".to_owned()));
    assert_eq!(fixture.delete(&format!("{one}?discard=true")).status, 204);
    assert_eq!(std::fs::read_to_string(elsewhere.join("secret")).unwrap(), "top secret");
    fixture.workspace("writer");
}

/// Process that keeps changing a file until it is dropped.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_completion_of_a_workspace_that_never_rests_fails_and_can_be_retried() {
    let fixture = Fixture::new(&[("a", "0\n")]);
    let path = fixture.workspace("writer");
    let mut writer = Command::new("sh");
    writer.args(["-c", "i=0; while :; do i=$((i+1)); echo $i > a; done"]).current_dir(&path);
    let writer = Writer(writer.spawn().unwrap());
    // If the writer gets no processor for a while, its file has one content, and lands.
    wait_until("a completion was refused", || {
        let answer = fixture.try_complete("writer");
        let is_refused = answer.status == 409;
        if is_refused {
            assert_eq!(answer.error(), "WORKSPACE_CHANGING", "{}", answer.body);
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        is_refused
    });
    drop(writer);
    let last = run(&path, "cat a");
    fixture.complete("writer");
    assert_eq!(fixture.file("a"), last);
}

#[test]
fn large_changes_are_listed_in_part() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    let path = fixture.workspace("writer");
    run(&path, "seq 100000 > large; mkdir d; for i in $(seq 1200); do echo $i > d/$i; done");
    let changes = fixture.changes("writer");
    assert_eq!((&changes["total"], &changes["truncated"]), (&json!(1_202), &json!(true)));
    let modified = changes["modified"].as_array().unwrap();
    assert_eq!(modified.len(), 1_000);
    assert_eq!((&modified[1]["path"], &modified[1]["content"]), (&json!("d/1"), &json!("1\n")));
    run(&path, "rm -r d; mv a b");
    let changes = fixture.changes("writer");
    let large = &changes["modified"][1];
    assert_eq!((&large["path"], &large["size"]), (&json!("large"), &json!(588_895)), "{changes}");
    assert!(large.get("content").is_none());
    assert_eq!(changes["deleted"], json!(["a"]));
}
