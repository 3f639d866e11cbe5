//! Tests of access to the server: allowed clients, RPC programs and versions, and the user as which the server acts.

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
    assert_eq!(*fixture.recorder.refusals.lock(), [RefusalReason::Address]);
}

#[test]
fn handles_are_refused_if_their_export_does_not_allow_the_client_any_more() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    client.getattr(&root).unwrap();
    let fixture = fixture.restart_with(|export| export.clients("192.0.2.0/24".parse().unwrap()));
    let mut client = fixture.connect();
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_ACCES);
    assert_eq!(*fixture.recorder.refusals.lock(), [RefusalReason::Address]);
}

/// Sends a call, and returns the words of the reply without the record mark and the xid.
fn reply(fixture: &Fixture, words: &[u32]) -> Vec<u32> {
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut client = fixture.connect();
    client.send(&marked(&body));
    let reply = client.receive().unwrap();
    reply[4..].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn unknown_programs_versions_and_procedures_have_their_rpc_errors() {
    let fixture = Fixture::new();
    let call = |rpc, program, version, procedure| {
        reply(&fixture, &[1, 0, rpc, program, version, procedure, 0, 0, 0, 0])
    };
    // A reply (1) that is accepted (0), with an empty verifier (0, 0). The RPC status follows.
    let accepted = [1, 0, 0, 0];
    assert_eq!(call(2, NFS, 3, 0), [accepted.as_slice(), &[0]].concat());
    assert_eq!(call(2, 100_000, 2, 0), [accepted.as_slice(), &[1]].concat());
    assert_eq!(call(2, NFS, 4, 0), [accepted.as_slice(), &[2, 3, 3]].concat());
    assert_eq!(call(2, MOUNT, 1, 0), [accepted.as_slice(), &[2, 3, 3]].concat());
    assert_eq!(call(2, NFS, 3, 22), [accepted.as_slice(), &[3]].concat());
    assert_eq!(call(2, NFS, 3, 1), [accepted.as_slice(), &[4]].concat());
    // A denied reply (1, 1): RPC version mismatch (0), lowest and highest version.
    assert_eq!(call(3, NFS, 3, 0), [1, 1, 0, 2, 2]);
    // A Kerberos credential (6) is denied: authentication error (1), too weak (5).
    assert_eq!(reply(&fixture, &[1, 0, 2, NFS, 3, 0, 6, 0, 0, 0]), [1, 1, 1, 5]);
}

#[test]
fn operations_are_observed_with_their_outcome() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    client.lookup(&root, "none").unwrap_err();
    client.create(&root, "file").unwrap();
    assert_eq!(
        *fixture.recorder.operations.lock(),
        [
            (Operation::Mnt, Outcome::Done),
            (Operation::Lookup, Outcome::Failed(2)),
            (Operation::Create, Outcome::Done)
        ]
    );
}

#[test]
fn only_a_server_of_root_can_export_as_another_user() {
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
    // The directory above the exported one belongs to root, but the server has a descriptor of the exported directory.
    let identity = Identity { uid: 54_321, gid: 54_322 };
    chown(fixture.root(), Some(identity.uid), Some(identity.gid)).unwrap();
    fs::write(fixture.path("foreign"), b"of root").unwrap();
    fs::set_permissions(fixture.path("foreign"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
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
