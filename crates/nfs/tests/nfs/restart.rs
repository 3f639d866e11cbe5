//! Restarts: exports that are not added again at once, or not at all.

use std::fs;
use std::path::PathBuf;

use nfs3_types::nfs3::*;

use crate::fixture::{Fixture, NAME, open};

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
    assert_eq!(client.mount(&format!("/{NAME}")).unwrap_err().to_string(), "MNT3ERR_SERVERFAULT");
    assert!(fixture.seen.refusals.lock().unwrap().is_empty());
    assert!(fixture.server.exports().is_empty() && fixture.server.export_info(NAME).is_none());
    // A failure to add it does not make the handles stale.
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
fn an_export_that_is_removed_before_it_is_added_again_is_stale() {
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
fn tables_of_exports_that_nobody_will_add_again_are_removed() {
    let fixture = Fixture::new();
    for name in ["gone", "paused"] {
        fs::create_dir(fixture.outside().join(name)).unwrap();
        let root = open(&fixture.outside().join(name));
        let export = workspace_nfs::Export::new(name, root, workspace_nfs::Identity::own());
        fixture.server.add_export(export).unwrap();
    }
    let (mut client, root) = fixture.mount();
    let [gone, paused] = ["/gone", "/paused"].map(|path| client.mount(path).unwrap());
    // A server was killed while it wrote these.
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
fn a_damaged_table_is_not_waited_for() {
    let fixture = Fixture::new();
    let (_, root) = fixture.mount();
    fs::write(table(&fixture, NAME), b"damaged").unwrap();
    let fixture = fixture.restart_without_export();
    assert_eq!(fixture.connect().getattr(&root).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}
