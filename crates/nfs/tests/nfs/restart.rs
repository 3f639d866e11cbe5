//! Restarts of the server, after which an export is added again later or not at all.
//!
//! The server keeps a table of file handles for each export in its state directory. While the export of such a table
//! was not added again, clients get JUKEBOX, which asks them to try again later.

use std::fs;
use std::path::PathBuf;

use nfs3_types::nfs3::*;
use workspace_nfs::RefusalReason;

use crate::fixture::{Fixture, NAME, open};

/// Returns the path of the table of an export.
fn table(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.outside().join("state/tables").join(name)
}

#[test]
fn clients_wait_for_an_export_that_is_not_added_again_yet() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    let fixture = fixture.restart_without_export();
    let mut client = fixture.connect();
    assert_eq!(client.getattr(&file).unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    // The export may have a secret, which is not known yet, so its name is not revealed.
    assert_eq!(client.mount(&format!("/{NAME}")).unwrap_err().to_string(), "MNT3ERR_NOENT");
    assert_eq!(*fixture.recorder.refusals.lock(), [RefusalReason::UnknownExport]);
    assert!(fixture.server.exports().is_empty() && fixture.server.export_info(NAME).is_none());
    // A failed attempt to add the export does not make its handles stale.
    fs::write(fixture.outside().join("file"), b"").unwrap();
    let no_directory = workspace_nfs::Export::new(
        NAME,
        open(&fixture.outside().join("file")),
        workspace_nfs::Identity::own(),
    );
    fixture.server.add_export(no_directory).unwrap_err();
    assert_eq!(client.getattr(&file).unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    fixture.server.add_export(fixture.export()).unwrap();
    client.getattr(&file).unwrap();
    fixture.server.remove_export(NAME).unwrap();
    assert_eq!(client.getattr(&file).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn handles_are_stale_when_an_export_is_added_again_with_another_revision() {
    let fixture = Fixture::new();
    let (_, root) = fixture.mount();
    let fixture = fixture.restart_without_export();
    let mut client = fixture.connect();
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    fixture.server.add_export(fixture.export().revision("2")).unwrap();
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn removal_before_an_export_is_added_again_makes_its_handles_stale() {
    let fixture = Fixture::new();
    let (_, root) = fixture.mount();
    let fixture = fixture.restart_without_export();
    let mut client = fixture.connect();
    fixture.server.remove_export(NAME).unwrap();
    assert_eq!(client.getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(client.mount(&format!("/{NAME}")).unwrap_err().to_string(), "MNT3ERR_NOENT");
    assert!(!table(&fixture, NAME).exists());
}

#[test]
fn retain_tables_removes_tables_of_exports_that_are_not_kept() {
    let fixture = Fixture::new();
    for name in ["gone", "paused"] {
        fs::create_dir(fixture.outside().join(name)).unwrap();
        let root = open(&fixture.outside().join(name));
        let export = workspace_nfs::Export::new(name, root, workspace_nfs::Identity::own());
        fixture.server.add_export(export).unwrap();
    }
    let (mut client, root) = fixture.mount();
    let [gone, paused] = ["/gone", "/paused"].map(|path| client.mount(path).unwrap());
    // Files that a server leaves if it is killed while it rewrites tables.
    for name in ["gone.new", "paused.new", "lost.new"] {
        fs::write(table(&fixture, name), b"incomplete").unwrap();
    }
    let fixture = fixture.restart();
    fixture.server.retain_tables(|name| name == "paused").unwrap();
    let mut client = fixture.connect();
    assert_eq!(client.getattr(&gone).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(client.getattr(&paused).unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    client.getattr(&root).unwrap();
    let mut left: Vec<_> =
        fs::read_dir(table(&fixture, "")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["paused", NAME]);
}

#[test]
fn handles_are_stale_at_once_if_their_table_is_damaged() {
    let fixture = Fixture::new();
    let (_, root) = fixture.mount();
    fs::write(table(&fixture, NAME), b"damaged").unwrap();
    let fixture = fixture.restart_without_export();
    assert_eq!(fixture.connect().getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}
