//! Processes that are stopped while they hold the write lock: readers continue, writers report the PID that
//! they wait for.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use workspace_state::testing::hold_write_lock as hold;
use workspace_state::{NoProgress, Store, set_notice_handler};

use crate::child::{ChildProcess, say, text, wait_for_parent};
use crate::support::{assert_sound, commit_file, message, new_store};

/// Timeout, far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// Role: takes the write lock and holds it.
pub(crate) fn hold_write_lock(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open(path).unwrap();
    hold(&store, || {
        say("held");
        wait_for_parent();
    })
    .unwrap();
}

/// Role: opens a store and reads everything.
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

/// Role: commits, and reports the notices that it receives meanwhile.
pub(crate) fn commit_and_tell(arguments: &[&str]) {
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
fn a_stopped_writer_does_not_keep_readers_from_opening_and_reading() {
    let (_home, store) = new_store();
    commit_file(&store, "file", "content");
    let path = store.path().to_owned();
    drop(store);
    let mut writer = stopped_writer(&path);
    let reader = ChildProcess::start("read-all", &[text(&path)]);
    let line = reader.line_within(BOUND);
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
    let line = reader.line_within(BOUND);
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
    let waiting = ChildProcess::start("commit-and-tell", &[text(&path)]);
    let heard = waiting.line_within(BOUND);
    holder.signal(Signal::CONT);
    holder.resume();
    let heard = heard.expect("nothing was said in time");
    assert!(heard.starts_with(&format!("waiting for {}", path.display())), "{heard}");
    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        assert!(heard.ends_with(&format!("process {} holds its lock", holder.pid())), "{heard}");
    }
    assert_eq!(waiting.line_within(BOUND).as_deref(), Some("committed"));
    waiting.finish().assert_success();
    holder.finish().assert_success();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.snapshots().unwrap().len(), 1);
    assert_sound(&store);
    drop(store.empty_tree().unwrap().commit(message("on it goes")).unwrap());
}
