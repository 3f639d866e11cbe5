//! Tests with processes that are stopped (SIGSTOP) while they hold the write lock of a store: readers continue, and
//! writers report the PID of the process for which they wait.
//!
//! A *role* is a function that a child process runs (`child.rs`).

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use workspace_state::testing::hold_write_lock as hold;
use workspace_state::{NoProgress, Store, set_notice_handler};

use crate::child::{ChildProcess, say, text, wait_for_parent};
use crate::support::{assert_sound, commit_file, message, new_store};

/// Timeout for a line of a child, far longer than needed on a busy machine.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Role: takes the write lock and holds it until the parent resumes the child.
pub(crate) fn hold_write_lock(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open(path).unwrap();
    hold(&store, || {
        say("held");
        wait_for_parent();
    })
    .unwrap();
}

/// Role: opens a store, reads all snapshots and verifies them.
pub(crate) fn read_all(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open(path).unwrap();
    let snapshots = store.snapshots().unwrap();
    for snapshot in &snapshots {
        assert!(!store.restore(&snapshot.id).unwrap().list("").unwrap().is_empty());
    }
    assert!(store.verify(&NoProgress).unwrap().damage.is_empty());
    drop(store);
    say(&format!("{} snapshots", snapshots.len()));
}

/// Role: commits, and reports the notices that it receives during the commit.
pub(crate) fn commit_and_report_notices(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    set_notice_handler(|notice| say(&notice.to_string()));
    let store = Store::open(path).unwrap();
    commit_file(&store, "late", "content");
    say("committed");
}

/// Returns a process that holds the write lock of a store and is stopped.
fn stopped_writer(store: &Path) -> ChildProcess {
    let mut writer = ChildProcess::start("hold-write-lock", &[text(store)]);
    writer.expect_line("held");
    writer.signal(Signal::STOP);
    writer
}

#[test]
fn readers_open_and_read_a_store_while_a_stopped_writer_holds_its_lock() {
    let (_home, store) = new_store();
    commit_file(&store, "file", "content");
    let path = store.path().to_owned();
    drop(store);
    let mut writer = stopped_writer(&path);
    let reader = ChildProcess::start("read-all", &[text(&path)]);
    let line = reader.line_within(LINE_TIMEOUT);
    writer.signal(Signal::CONT);
    writer.resume();
    assert_eq!(line.as_deref(), Some("1 snapshots"));
    reader.finish().assert_success();
    writer.finish().assert_success();
}

#[test]
fn an_empty_store_opens_while_a_stopped_writer_holds_its_lock() {
    let (_home, store) = new_store();
    let path = store.path().to_owned();
    drop(store);
    let mut writer = stopped_writer(&path);
    let reader = ChildProcess::start("read-all", &[text(&path)]);
    let line = reader.line_within(LINE_TIMEOUT);
    writer.signal(Signal::CONT);
    writer.resume();
    assert_eq!(line.as_deref(), Some("0 snapshots"));
    writer.finish().assert_success();
}

#[test]
fn a_writer_that_waits_for_a_stopped_one_reports_its_pid() {
    let (_home, store) = new_store();
    let path = store.path().to_owned();
    drop(store);
    let mut holder = stopped_writer(&path);
    let waiting = ChildProcess::start("commit-and-report-notices", &[text(&path)]);
    let notice = waiting.line_within(LINE_TIMEOUT);
    holder.signal(Signal::CONT);
    holder.resume();
    let notice = notice.expect("nothing was said in time");
    assert!(notice.starts_with(&format!("waiting for {}", path.display())), "{notice}");
    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        assert!(notice.ends_with(&format!("process {} holds its lock", holder.pid())), "{notice}");
    }
    assert_eq!(waiting.line_within(LINE_TIMEOUT).as_deref(), Some("committed"));
    waiting.finish().assert_success();
    holder.finish().assert_success();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.snapshots().unwrap().len(), 1);
    assert_sound(&store);
    drop(store.empty_tree().unwrap().commit(message("on it goes")).unwrap());
}
