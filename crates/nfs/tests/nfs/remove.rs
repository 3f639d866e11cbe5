//! Tests of REMOVE, RMDIR and LINK, and of repeated calls, which must not be executed twice.

use std::fs;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use nfs3_types::nfs3::*;
use parking_lot::{Condvar, Mutex};
use workspace_nfs::{Gate, GateGuard};
use workspace_test_support::wait_until;

use crate::client::{Client, NFS, at, decode_all, is_complete, mode, next_xid, record};
use crate::fixture::Fixture;

#[test]
fn handles_of_removed_files_and_directories_are_stale() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    assert!(is_complete(&client.remove(&root, "file").unwrap()));
    client.rmdir(&root, "dir").unwrap();
    assert_eq!(fs::read_dir(fixture.root()).unwrap().count(), 0);
    for gone in [&file, &dir] {
        assert_eq!(client.getattr(gone).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    }
    assert_eq!(client.read(&file, 0, 1).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn remove_refuses_directories_and_rmdir_refuses_files() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("dir/below")).unwrap();
    fs::write(fixture.path("file"), b"").unwrap();
    let (mut client, root) = fixture.mount();
    assert_eq!(client.remove(&root, "dir").unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(client.rmdir(&root, "file").unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
    assert_eq!(client.rmdir(&root, "dir").unwrap_err(), nfsstat3::NFS3ERR_NOTEMPTY);
    assert_eq!(client.remove(&root, "none").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
    assert_eq!(client.rmdir(&root, "none").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
}

#[test]
fn a_handle_is_valid_until_the_last_link_of_its_file_is_removed() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    let file = client.create(&root, "one").unwrap();
    let linked = client.link(&file, &dir, "two").unwrap();
    assert_eq!(linked.file_attributes.unwrap().nlink, 2);
    assert!(is_complete(&linked.linkdir_wcc));
    assert_eq!(client.lookup(&dir, "two").unwrap().0, file);
    client.remove(&root, "one").unwrap();
    let fixture = fixture.restart();
    let mut client = fixture.connect();
    assert_eq!(client.getattr(&file).unwrap().nlink, 1);
    client.remove(&dir, "two").unwrap();
    assert_eq!(client.getattr(&file).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn link_fails_for_directories_and_existing_names() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    let file = client.create(&root, "file").unwrap();
    assert_eq!(client.link(&file, &root, "dir").unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(client.link(&dir, &root, "new").unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(client.link(&root, &root, "new").unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(client.link(&file, &file, "new").unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
    let link = client.symlink(&root, "link", b"file").unwrap();
    client.link(&link, &root, "second").unwrap();
    assert_eq!(fs::read_link(fixture.path("second")).unwrap().to_str(), Some("file"));
}

#[test]
fn a_call_that_is_sent_again_gets_its_first_reply() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    client.create(&root, "file").unwrap();
    let remove = record(next_xid(), NFS, 12, &REMOVE3args { object: at(&root, b"file") });
    client.send(&remove);
    let first = client.receive().unwrap();
    client.send(&remove);
    assert_eq!(client.receive().unwrap(), first);
    // A client that has lost its connection connects from another port.
    let mut again = Client::connect(fixture.server.get_server_info().port);
    again.send(&remove);
    let (_, result) = again.receive_result();
    let result: Nfs3Result<REMOVE3resok, REMOVE3resfail> = decode_all(&result);
    assert!(matches!(result, Nfs3Result::Ok(_)));
    assert_eq!(client.remove(&root, "file").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
}

/// Gate of an export that stops operations which change files until the test lets them go on.
#[derive(Default)]
struct PausingGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// True while changes must wait.
    is_paused: bool,
    /// True when a change has begun.
    has_begun: bool,
}

impl Gate for PausingGate {
    fn try_shared(&self) -> Option<GateGuard> {
        Some(Box::new(()))
    }

    fn shared(&self, _max_wait: Duration) -> Option<GateGuard> {
        self.try_shared()
    }

    fn changing(&self) {
        let mut state = self.state.lock();
        state.has_begun = true;
        self.changed.wait_while(&mut state, |state| state.is_paused);
    }
}

#[test]
fn a_connection_that_waits_for_the_first_reply_serves_other_calls() {
    let gate = Arc::new(PausingGate::default());
    let fixture = Fixture::with_export(|export| export.gate(Arc::clone(&gate) as Arc<dyn Gate>));
    let (mut client, root) = fixture.mount();
    client.create(&root, "file").unwrap();
    *gate.state.lock() = GateState { is_paused: true, has_begun: false };
    let remove = record(next_xid(), NFS, 12, &REMOVE3args { object: at(&root, b"file") });
    client.send(&remove);
    wait_until("the first call is executed", || gate.state.lock().has_begun);
    let mut again = fixture.connect();
    again.send(&remove);
    // The server must read the repeated call before the next call arrives. Otherwise it would use another thread
    // because of the arrived bytes.
    sleep(Duration::from_millis(300));
    again.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    again.null();
    gate.state.lock().is_paused = false;
    gate.changed.notify_all();
    assert_eq!(client.receive().unwrap(), again.receive().unwrap());
}
