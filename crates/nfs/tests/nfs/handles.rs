//! Tests of file handles: restarts, replaced roots, removed exports, and forged handles.
//!
//! The server keeps a table of file handles for each export in its state directory.

use std::fs;
use std::os::unix::fs::chown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Opaque;
use workspace_nfs::{Export, Gate, GateGuard, Identity, RefusalReason};
use workspace_test_support::wait_until;

use crate::client::mode;
use crate::fixture::{Fixture, NAME, open};

#[test]
fn handles_survive_a_restart() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    let mut files = Vec::new();
    for number in 0..200 {
        let file = client.create(&dir, format!("file-{number}")).unwrap();
        client.write(&file, 0, format!("{number}").as_bytes()).unwrap();
        files.push(file);
    }
    let fixture = fixture.restart();
    let mut client = fixture.connect();
    for (number, file) in files.iter().enumerate() {
        assert_eq!(client.read(file, 0, 100).unwrap().0, format!("{number}").as_bytes());
    }
    client.getattr(&root).unwrap();
    let new = client.create(&dir, "new").unwrap();
    assert!(!files.contains(&new));
}

#[test]
fn handles_stored_before_the_damage_of_a_table_stay_valid() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let first = client.create(&root, "first").unwrap();
    let last = client.create(&root, "last").unwrap();
    fixture.server.stop().unwrap();
    let table = fixture.outside().join("state/tables").join(NAME);
    let length = fs::metadata(&table).unwrap().len();
    fs::OpenOptions::new().write(true).open(&table).unwrap().set_len(length - 1).unwrap();
    let fixture = fixture.restart();
    let mut client = fixture.connect();
    client.getattr(&first).unwrap();
    assert_eq!(client.getattr(&last).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    let again = client.lookup(&root, "last").unwrap().0;
    assert_ne!(again, last);
}

/// The threads that serve an export act as its user, who may not write to the directory of the table.
#[test]
fn the_table_of_another_user_is_rewritten_when_most_of_it_is_obsolete() {
    if Identity::own().uid != 0 {
        return workspace_test_support::skip("only root can act as somebody else");
    }
    let fixture = Fixture::without_export(|settings| settings);
    let identity = Identity { uid: 54_321, gid: 54_321 };
    chown(fixture.root(), Some(identity.uid), Some(identity.gid)).unwrap();
    fixture.server.add_export(Export::new(NAME, open(&fixture.root()), identity)).unwrap();
    let (mut client, root) = fixture.mount();
    let names = ["a", "b"].map(|name| name.repeat(200));
    let file = client.create(&root, &names[0]).unwrap();
    let length = || fs::metadata(fixture.outside().join("state/tables").join(NAME)).unwrap().len();
    while length() < 300_000 {
        client.rename((&root, &names[0]), (&root, &names[1])).unwrap();
        client.rename((&root, &names[1]), (&root, &names[0])).unwrap();
    }
    wait_until("the table is rewritten", || length() < 10_000);
    let again = open(&fixture.root());
    let fixture = fixture.restart_with(|_| Export::new(NAME, again, identity));
    fixture.connect().getattr(&file).unwrap();
}

#[test]
fn handles_without_recent_use_are_stale_when_the_memory_for_tables_is_used_up() {
    let fixture = Fixture::with_limits(|limits| limits.table_bytes = 1);
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    let used = client.create(&dir, "used").unwrap();
    let idle = client.create(&root, "idle").unwrap();
    for number in 0..10_000 {
        fs::write(fixture.path(&format!("file-{number}")), b"").unwrap();
    }
    let (mut cookie, mut is_end) = (0, false);
    while !is_end {
        let (entries, end) = client.readdirplus(&root, cookie, 16 * 1024).unwrap();
        (cookie, is_end) = (entries.last().unwrap().cookie, end);
        client.getattr(&used).unwrap();
    }
    assert_eq!(
        client.getattr(&idle).unwrap_err(),
        nfsstat3::NFS3ERR_STALE,
        "although the server has the file open"
    );
    client.getattr(&dir).unwrap();
    client.getattr(&root).unwrap();
    let again = client.lookup(&root, "idle").unwrap().0;
    assert_ne!(again, idle);
    client.getattr(&again).unwrap();
}

#[test]
fn forged_handles_are_refused() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    for byte in 0..file.data.len() {
        let mut forged = file.data.to_vec();
        forged[byte] ^= 1;
        let forged = nfs_fh3 { data: Opaque::owned(forged) };
        assert_eq!(client.getattr(&forged).unwrap_err(), nfsstat3::NFS3ERR_BADHANDLE, "byte {byte}");
        assert_eq!(client.link(&file, &forged, "x").unwrap_err(), nfsstat3::NFS3ERR_BADHANDLE);
    }
    for length in [0, 1, 31, 33, 64] {
        let forged = nfs_fh3 { data: Opaque::owned(vec![7; length]) };
        assert_eq!(client.getattr(&forged).unwrap_err(), nfsstat3::NFS3ERR_BADHANDLE, "{length} bytes");
    }
    assert!(fixture.recorder.refusals.lock().contains(&RefusalReason::ForgedHandle));
}

#[test]
fn handles_of_another_server_are_refused() {
    let (one, other) = (Fixture::new(), Fixture::new());
    let (_, root) = one.mount();
    assert_eq!(other.connect().getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_BADHANDLE);
}

#[test]
fn handles_of_two_exports_cannot_be_combined() {
    let fixture = Fixture::new();
    let second = fixture.outside().join("second");
    fs::create_dir(&second).unwrap();
    fixture.server.add_export(Export::new("second", open(&second), Identity::own())).unwrap();
    let (mut client, root) = fixture.mount();
    let other = client.mount("/second").unwrap();
    let file = client.create(&root, "file").unwrap();
    let other_file = client.create(&other, "file").unwrap();
    assert_eq!(client.rename((&root, "file"), (&other, "x")).unwrap_err(), nfsstat3::NFS3ERR_XDEV);
    assert_eq!(client.link(&file, &other, "x").unwrap_err(), nfsstat3::NFS3ERR_XDEV);
    assert_ne!(client.getattr(&file).unwrap().fsid, client.getattr(&other_file).unwrap().fsid);
    fixture.server.remove_export("second").unwrap();
    assert_eq!(client.getattr(&other_file).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    client.getattr(&file).unwrap();
}

#[test]
fn handles_of_a_removed_export_stay_stale_when_it_is_added_again() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    fixture.server.remove_export(NAME).unwrap();
    fixture.server.remove_export(NAME).unwrap();
    assert_eq!(client.getattr(&file).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert!(client.mount(&format!("/{NAME}")).is_err());
    fixture.server.add_export(fixture.export()).unwrap();
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    client.mount(&format!("/{NAME}")).unwrap();
}

#[test]
fn a_replaced_root_is_served_at_once_and_old_handles_are_stale() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    let restored = fixture.outside().join("restored");
    fs::create_dir(&restored).unwrap();
    fs::write(restored.join("other"), b"restored").unwrap();
    fixture.server.replace_root(NAME, open(&restored), "2").unwrap();
    assert_eq!(client.getattr(&file).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    let root = client.mount(&format!("/{NAME}")).unwrap();
    let other = client.lookup(&root, "other").unwrap().0;
    assert_eq!(client.read(&other, 0, 100).unwrap().0, b"restored");
}

#[test]
fn another_revision_of_the_same_directory_makes_handles_stale() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    fixture.server.replace_root(NAME, open(&fixture.root()), "").unwrap();
    client.getattr(&root).unwrap();
    fixture.server.replace_root(NAME, open(&fixture.root()), "2").unwrap();
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn a_detached_export_asks_clients_to_try_again() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    fixture.server.detach_root(NAME).unwrap();
    assert_eq!(client.getattr(&file).unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    assert!(client.mount(&format!("/{NAME}")).is_err());
    fixture.server.replace_root(NAME, open(&fixture.root()), "").unwrap();
    client.getattr(&file).unwrap();
}

#[test]
fn removal_of_an_export_closes_all_descriptors() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    let file = client.create(&dir, "file").unwrap();
    client.write(&file, 0, b"x").unwrap();
    client.readdir(&dir, 0, 512).unwrap();
    let prefix = fixture.root();
    let open_count = || {
        let links =
            fs::read_dir("/proc/self/fd").unwrap().filter_map(|it| fs::read_link(it.unwrap().path()).ok());
        links.filter(|path| path.starts_with(&prefix)).count()
    };
    assert!(open_count() > 0);
    fixture.server.remove_export(NAME).unwrap();
    assert_eq!(open_count(), 0);
}

/// Gate of an export that refuses access, without a wait, while it is true.
#[derive(Default)]
struct ClosableGate(AtomicBool);

impl Gate for ClosableGate {
    fn try_shared(&self) -> Option<GateGuard> {
        if self.0.load(Ordering::SeqCst) { None } else { Some(Box::new(())) }
    }

    fn shared(&self, _max_wait: Duration) -> Option<GateGuard> {
        self.try_shared()
    }
}

#[test]
fn a_closed_gate_asks_clients_to_try_again() {
    let gate = Arc::new(ClosableGate::default());
    let fixture = Fixture::with_export(|export| export.gate(Arc::clone(&gate) as Arc<dyn Gate>));
    let (mut client, root) = fixture.mount();
    gate.0.store(true, Ordering::SeqCst);
    assert_eq!(client.create(&root, "file").unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    client.null();
    gate.0.store(false, Ordering::SeqCst);
    client.create(&root, "file").unwrap();
}
