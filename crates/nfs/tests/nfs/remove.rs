//! REMOVE and RMDIR.

use std::fs;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

use nfs3_types::nfs3::*;
use workspace_nfs::{Gate, GateGuard};
use workspace_test_support::wait_until;

use crate::client::{Client, NFS, at, decode_all, is_complete, mode, next_xid, record};
use crate::fixture::Fixture;

#[test]
fn removed_files_are_gone_and_their_handles_stale() {
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
fn each_kind_has_its_own_procedure() {
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
fn a_handle_lives_as_long_as_one_of_its_links() {
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
fn links_are_refused_where_they_cannot_be() {
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
    // A client that has lost its connection comes from another port.
    let mut again = Client::connect(fixture.server.get_server_info().port);
    again.send(&remove);
    let (_, result) = again.receive_result();
    let result: Nfs3Result<REMOVE3resok, REMOVE3resfail> = decode_all(&result);
    assert!(matches!(result, Nfs3Result::Ok(_)));
    assert_eq!(client.remove(&root, "file").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
}

/// Gate behind which changes wait.
#[derive(Default)]
struct Halting {
    /// Changes wait, and whether one does.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate for Halting {
    fn try_shared(&self) -> Option<GateGuard> {
        Some(Box::new(()))
    }

    fn shared(&self, _max_wait: Duration) -> Option<GateGuard> {
        self.try_shared()
    }

    fn changing(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 = true;
        drop(self.changed.wait_while(state, |state| state.0).unwrap());
    }
}

#[test]
fn a_connection_that_waits_for_the_first_reply_serves_other_calls() {
    let gate = Arc::new(Halting::default());
    let fixture = Fixture::with_export(|export| export.gate(Arc::clone(&gate) as Arc<dyn Gate>));
    let (mut client, root) = fixture.mount();
    client.create(&root, "file").unwrap();
    *gate.state.lock().unwrap() = (true, false);
    let remove = record(next_xid(), NFS, 12, &REMOVE3args { object: at(&root, b"file") });
    client.send(&remove);
    wait_until("the first call is executed", || gate.state.lock().unwrap().1);
    let mut again = fixture.connect();
    again.send(&remove);
    // The next call is not in the socket yet when that one is read, which would wake another thread.
    sleep(Duration::from_millis(300));
    again.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    again.null();
    gate.state.lock().unwrap().0 = false;
    gate.changed.notify_all();
    assert_eq!(client.receive().unwrap(), again.receive().unwrap());
}
