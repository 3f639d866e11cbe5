//! Tests of MOUNT v3: paths, secrets, allowed clients, and the list of mounts.

use std::fs;

use nfs3_types::mount::{dirpath, exports, mountlist, mountstat3};
use nfs3_types::xdr_codec::{Opaque, Void};
use workspace_nfs::{ClientList, Export, Identity, MountSecret, RefusalReason};

use crate::client::MOUNT;
use crate::fixture::{Fixture, NAME, open};

/// Returns the status of a failed MNT as text.
fn refused(result: Result<nfs3_types::nfs3::nfs_fh3, mountstat3>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn exports_and_directories_below_are_mounted() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("a/b")).unwrap();
    fs::write(fixture.path("a/file"), b"").unwrap();
    std::os::unix::fs::symlink("..", fixture.path("a/link")).unwrap();
    let mut client = fixture.connect();
    let root = client.mount("/sbx-1").unwrap();
    assert_eq!(client.mount("sbx-1/").unwrap(), root);
    let a = client.lookup(&root, "a").unwrap().0;
    let b = client.lookup(&a, "b").unwrap().0;
    assert_eq!(client.mount("/sbx-1/a//b/").unwrap(), b);
    assert_eq!(client.mount("/sbx-1/../..").unwrap(), root);
    assert_eq!(refused(client.mount("/sbx-1/a/file")), "MNT3ERR_NOTDIR");
    assert_eq!(refused(client.mount("/sbx-1/a/link")), "MNT3ERR_NOTDIR");
    for none in ["/sbx-1/none", "/sbx-2", "/", "", "/..", "/../etc", "/sbx-1.secret"] {
        assert_eq!(refused(client.mount(none)), "MNT3ERR_NOENT", "{none}");
    }
}

#[test]
fn an_export_with_a_secret_is_mounted_only_by_its_full_path() {
    let secret = MountSecret::random();
    let fixture = Fixture::with_export(|export| export.secret(Some(secret.clone())));
    let info = fixture.server.export_info(NAME).unwrap();
    assert_eq!(info.path, format!("/{NAME}.{}", secret.reveal()));
    let mut client = fixture.connect();
    client.mount(&info.path).unwrap();
    for path in [format!("/{NAME}"), format!("/{NAME}."), format!("/{NAME}.{}x", secret.reveal())] {
        assert_eq!(refused(client.mount(&path)), "MNT3ERR_NOENT", "{path}");
    }
    let refusals = fixture.recorder.refusals.lock();
    assert_eq!(*refusals, [RefusalReason::Secret; 3]);
}

/// Regression test: a client with another address learned from `MNT3ERR_ACCES` that the export exists.
#[test]
fn the_secret_is_checked_before_the_address() {
    let secret = MountSecret::random();
    let clients: ClientList = "192.0.2.0/24".parse().unwrap();
    let fixture = Fixture::with_export(|export| export.secret(Some(secret.clone())).clients(clients));
    let mut client = fixture.connect();
    for path in [format!("/{NAME}"), format!("/{NAME}.{}x", secret.reveal()), "/none".to_owned()] {
        assert_eq!(refused(client.mount(&path)), "MNT3ERR_NOENT", "{path}");
    }
    assert_eq!(refused(client.mount(&format!("/{NAME}.{}", secret.reveal()))), "MNT3ERR_ACCES");
    let refusals = fixture.recorder.refusals.lock();
    let (secret, unknown) = (RefusalReason::Secret, RefusalReason::UnknownExport);
    assert_eq!(*refusals, [secret, secret, unknown, RefusalReason::Address]);
}

#[test]
fn exports_for_other_clients_are_neither_mounted_nor_listed() {
    let fixture = Fixture::new();
    let other = fixture.outside().join("other");
    fs::create_dir(&other).unwrap();
    let other_clients: ClientList = "192.0.2.0/24".parse().unwrap();
    let export = Export::new("other", open(&other), Identity::own()).clients(other_clients);
    fixture.server.add_export(export).unwrap();
    let mut client = fixture.connect();
    assert_eq!(refused(client.mount("/other")), "MNT3ERR_ACCES");
    let listed: exports<'_, '_> = client.call(MOUNT, 5, &Void);
    let listed: Vec<_> = listed.into_inner().into_iter().map(|it| it.ex_dir.0.to_vec()).collect();
    assert_eq!(listed, [b"/sbx-1"]);
}

#[test]
fn mounts_are_counted_until_the_client_unmounts() {
    let fixture = Fixture::new();
    let (mut client, _) = fixture.mount();
    let mounts = |fixture: &Fixture| fixture.server.exports()[0].mounts;
    assert_eq!(mounts(&fixture), 1);
    client.mount("/sbx-1").unwrap();
    assert_eq!(*fixture.recorder.mounts.lock(), ["+sbx-1"], "the second mount is not reported");
    let dump: mountlist<'_, '_> = client.call(MOUNT, 2, &Void);
    let dump: Vec<_> = dump.into_inner().into_iter().map(|it| it.ml_directory.0.to_vec()).collect();
    assert_eq!(dump, [b"/sbx-1"]);
    let _: Void = client.call(MOUNT, 3, &dirpath(Opaque::borrowed(b"/sbx-1")));
    assert_eq!(mounts(&fixture), 0);
    client.mount("/sbx-1").unwrap();
    let _: Void = client.call(MOUNT, 4, &Void);
    assert_eq!(mounts(&fixture), 0);
    let _: Void = client.call(MOUNT, 0, &Void);
    assert_eq!(*fixture.recorder.mounts.lock(), ["+sbx-1", "-sbx-1", "+sbx-1", "-sbx-1"]);
}
