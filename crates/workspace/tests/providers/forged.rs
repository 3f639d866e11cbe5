//! Forged overlay attributes: extended attributes `user.overlay.*` that agents or users have set, not the kernel. They
//! must be stored like other attributes, and must have no effect on overlays, whether they come from an agent, a
//! directory or an archive. `fixture.all()` is the set of workspaces under test. `fixture.seen(id)` is a listing of a
//! workspace, and `fixture.checked_out(&snapshot)` a listing of a snapshot in the same format.

use std::io::BufReader;

use libtest_mimic::Trial;
use workspace_state::{ImportOptions, NewSnapshot, NoProgress, Snapshot, import_tar};
use workspace_workspace::NewWorkspace;

use crate::fixture::{Fixture, Setting};

/// Script that creates the files.
const FILES: &str = "mkdir -p hidden/deep target plain; echo 1 > hidden/deep/file; echo 2 > hidden/file;
    echo 3 > target/file; echo 4 > plain/file; echo 5 > file";
/// Script that sets all overlay attributes, on entries where the kernel would interpret them and on others. The `.wh.`
/// files have the names of whiteouts in container images.
const FORGE: &str = "
    for name in opaque whiteouts; do for value in y x; do for path in hidden plain/file .; do
        setfattr -n user.overlay.$name -v $value $path; done; done; done
    setfattr -n user.overlay.redirect -v /target hidden
    setfattr -n user.overlay.redirect -v target plain
    setfattr -n user.overlay.metacopy file; setfattr -n user.overlay.metacopy -v '' hidden/file
    setfattr -n user.overlay.whiteout -v y target/file
    setfattr -n user.overlay.origin -v 0x00fb1d0001 hidden/deep/file; setfattr -n user.overlay.impure -v y target
    setfattr -n user.overlay.overlay.opaque -v y target; setfattr -n user.overlay.overlay.whiteout -v y plain/file
    echo trap > .wh.file; echo trap > hidden/.wh..wh..opq";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for setting in Setting::all() {
        let mut add = |name: &str, test: fn(Setting)| trials.push(setting.trial(name, move || test(setting)));
        add("overlay_attributes_of_an_agent_are_data", overlay_attributes_of_an_agent_are_data);
        add("overlay_attributes_of_a_directory_are_data", overlay_attributes_of_a_directory_are_data);
        add("overlay_attributes_of_an_archive_are_data", overlay_attributes_of_an_archive_are_data);
    }
    trials
}

/// Returns the parameters of a workspace that is created from a snapshot.
fn from(snapshot: &Snapshot) -> NewWorkspace<'static> {
    NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() }
}

/// Checks that a workspace that is created from a snapshot shows the content of the snapshot, with all forged
/// attributes. Checks the same for workspaces that are created from a later commit of it.
fn assert_unchanged(fixture: &Fixture, id: &str, snapshot: &Snapshot) {
    let expected = fixture.checked_out(snapshot);
    for name in ["opaque", "redirect", "metacopy", "whiteout", "origin", "overlay.opaque"] {
        assert!(expected.contains(&format!("user.overlay.{name}=")), "{name} is lost: {expected}");
    }
    for path in ["hidden/deep/file", "hidden/file", "target/file", "plain/file", "file", ".wh.file"] {
        assert!(expected.contains(&format!("{path:?}\tfile")), "{path} is lost");
    }
    fixture.all().create(id, &from(snapshot)).unwrap();
    assert_eq!(fixture.seen(id), expected);
    assert_eq!(fixture.changes(id), [""; 0]);
    fixture.run(id, "echo more >> hidden/deep/file; echo more >> plain/file; echo more >> target/file; chmod 700 hidden plain target .");
    let after = fixture.seen(id);
    let next = fixture.commit(id);
    assert_eq!(fixture.checked_out(&next), after);
    let second = format!("{id}-next");
    fixture.all().create(&second, &from(&next)).unwrap();
    assert_eq!(fixture.seen(&second), after);
    fixture.all().create(&format!("{id}-again"), &from(snapshot)).unwrap();
    assert_eq!(fixture.seen(&format!("{id}-again")), expected);
}

fn overlay_attributes_of_an_agent_are_data(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    fixture.all().create("a", &from(&fixture.snapshot(FILES))).unwrap();
    fixture.run("a", FORGE);
    let seen = fixture.seen("a");
    assert!(seen.contains("user.overlay.opaque=x"), "{seen}");
    let snapshot = fixture.commit("a");
    assert_eq!(fixture.checked_out(&snapshot), seen);
    assert_unchanged(&fixture, "b", &snapshot);
    fixture.open();
    assert_eq!(fixture.seen("a"), seen);
    // The same in a workspace that is created empty, where all directories are new.
    fixture.all().create("new", &NewWorkspace::default()).unwrap();
    fixture.run("new", &format!("{FILES}; {FORGE}"));
    let snapshot = fixture.commit("new");
    assert_eq!(fixture.checked_out(&snapshot), fixture.seen("new"));
    assert_unchanged(&fixture, "c", &snapshot);
}

fn overlay_attributes_of_a_directory_are_data(setting: Setting) {
    let fixture = Fixture::new(setting);
    assert_unchanged(&fixture, "a", &fixture.snapshot(&format!("{FILES}; {FORGE}")));
}

fn overlay_attributes_of_an_archive_are_data(setting: Setting) {
    let fixture = Fixture::new(setting);
    let directory = tempfile::tempdir_in(fixture.home.path()).unwrap();
    fixture.shell_in(directory.path(), &format!("mkdir in; cd in; {FILES}; {FORGE}"));
    if rustix::process::geteuid().is_root() {
        fixture.shell_in(directory.path(), "mknod in/hidden/whiteout c 0 0");
    }
    fixture
        .shell_in(directory.path(), "tar --format=posix --xattrs --xattrs-include='*' -C in -cf archive .");
    let archive = std::fs::File::open(directory.path().join("archive")).unwrap();
    let (new, options) = (NewSnapshot::with_message("test"), ImportOptions::default());
    let report =
        import_tar(&fixture.store, &mut BufReader::new(archive), new, &options, &NoProgress).unwrap();
    assert_eq!(report.skipped.len(), usize::from(rustix::process::geteuid().is_root()));
    assert_unchanged(&fixture, "a", &report.snapshot);
}
