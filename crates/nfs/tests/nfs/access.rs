//! Clients that may connect, and the protocols that they speak.

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Void;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use workspace_nfs::{Identity, NfsError, Operation, Outcome, RefusalReason};

use crate::client::{MOUNT, NFS, marked, mode, next_xid, record};
use crate::fixture::Fixture;

#[test]
fn clients_that_are_not_allowed_are_disconnected() {
    let fixture = Fixture::without_export(|mut settings| {
        settings.allowed_clients = "192.0.2.1".parse().unwrap();
        settings
    });
    let mut client = fixture.connect();
    client.send(&record(next_xid(), NFS, 0, &Void));
    assert!(client.receive().is_none());
    assert_eq!(*fixture.seen.refusals.lock().unwrap(), [RefusalReason::Address]);
}

#[test]
fn an_export_that_is_closed_to_a_client_refuses_its_handles() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    client.getattr(&root).unwrap();
    let fixture = fixture.restart_with(|export| export.clients("192.0.2.0/24".parse().unwrap()));
    let mut client = fixture.connect();
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_ACCES);
    assert_eq!(*fixture.seen.refusals.lock().unwrap(), [RefusalReason::Address]);
}

/// Returns the words of the reply to a call, after its id.
fn reply(fixture: &Fixture, words: &[u32]) -> Vec<u32> {
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut client = fixture.connect();
    client.send(&marked(&body));
    let reply = client.receive().unwrap();
    reply[4..].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn unknown_programs_versions_and_procedures_are_told() {
    let fixture = Fixture::new();
    let call = |rpc, program, version, procedure| {
        reply(&fixture, &[1, 0, rpc, program, version, procedure, 0, 0, 0, 0])
    };
    let accepted = [1, 0, 0, 0];
    assert_eq!(call(2, NFS, 3, 0), [accepted.as_slice(), &[0]].concat());
    assert_eq!(call(2, 100_000, 2, 0), [accepted.as_slice(), &[1]].concat());
    assert_eq!(call(2, NFS, 4, 0), [accepted.as_slice(), &[2, 3, 3]].concat());
    assert_eq!(call(2, MOUNT, 1, 0), [accepted.as_slice(), &[2, 3, 3]].concat());
    assert_eq!(call(2, NFS, 3, 22), [accepted.as_slice(), &[3]].concat());
    assert_eq!(call(2, NFS, 3, 1), [accepted.as_slice(), &[4]].concat());
    assert_eq!(call(3, NFS, 3, 0), [1, 1, 0, 2, 2]);
    // A credential of Kerberos.
    assert_eq!(reply(&fixture, &[1, 0, 2, NFS, 3, 0, 6, 0, 0, 0]), [1, 1, 1, 5]);
}

#[test]
fn operations_are_observed_with_their_outcome() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    client.lookup(&root, "none").unwrap_err();
    client.create(&root, "file").unwrap();
    assert_eq!(
        *fixture.seen.operations.lock().unwrap(),
        [
            (Operation::Mnt, Outcome::Done),
            (Operation::Lookup, Outcome::Failed(2)),
            (Operation::Create, Outcome::Done)
        ]
    );
}

#[test]
fn an_export_for_somebody_else_needs_root() {
    let fixture = Fixture::without_export(|settings| settings);
    let identity = Identity { uid: 54_321, gid: 54_321 };
    let root: OwnedFd = File::open(fixture.root()).unwrap().into();
    let added = fixture.server.add_export(workspace_nfs::Export::new("other", root, identity));
    if Identity::own().uid == 0 {
        added.unwrap();
    } else {
        assert!(matches!(added, Err(NfsError::CannotActAs { uid: 54_321, .. })));
    }
}

#[test]
fn a_server_of_root_acts_as_the_user_of_the_export() {
    if Identity::own().uid != 0 {
        return workspace_test_support::skip("only root can act as somebody else");
    }
    let fixture = Fixture::without_export(|settings| settings);
    // The directory above belongs to root alone, which does not matter to the server: it has the root open.
    let identity = Identity { uid: 54_321, gid: 54_322 };
    chown(fixture.root(), Some(identity.uid), Some(identity.gid)).unwrap();
    fs::write(fixture.path("foreign"), b"of root").unwrap();
    fs::set_permissions(fixture.path("foreign"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let root: OwnedFd = File::open(fixture.root()).unwrap().into();
    fixture.server.add_export(workspace_nfs::Export::new("sbx-1", root, identity)).unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, b"x").unwrap();
    client.mkdir(&root, "dir", mode(0o700)).unwrap();
    for name in ["file", "dir"] {
        let owner = fs::metadata(fixture.path(name)).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (54_321, 54_322), "{name}");
    }
    let foreign = client.lookup(&root, "foreign").unwrap().0;
    assert_eq!(client.read(&foreign, 0, 10).unwrap_err(), nfsstat3::NFS3ERR_ACCES);
    assert_eq!(client.setattr(&foreign, mode(0o777)).unwrap_err(), nfsstat3::NFS3ERR_PERM);
}
