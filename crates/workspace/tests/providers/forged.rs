//! Attributes by which the kernel keeps notes about overlays, set by somebody else: they are data, hide nothing and lead
//! nowhere, whichever way they came.

use std::io::BufReader;

use libtest_mimic::Trial;
use workspace_state::{ImportOptions, NewSnapshot, Quiet, Snapshot, import_tar};
use workspace_workspace::New;

use crate::world::{Setting, World};

const FILES: &str = "mkdir -p hidden/deep target plain; echo 1 > hidden/deep/file; echo 2 > hidden/file;
    echo 3 > target/file; echo 4 > plain/file; echo 5 > file";
/// Every note there is, where the kernel would heed it and where not.
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
        add("forged_notes_of_an_agent_are_data", forged_notes_of_an_agent_are_data);
        add("forged_notes_of_a_directory_are_data", forged_notes_of_a_directory_are_data);
        add("forged_notes_of_an_archive_are_data", forged_notes_of_an_archive_are_data);
    }
    trials
}

fn from(snapshot: &Snapshot) -> New<'static> {
    New { snapshot: Some(snapshot.id), ..New::default() }
}

/// A workspace from it shows it, as do those after it.
fn holds(world: &World, id: &str, snapshot: &Snapshot) {
    let wanted = world.checked_out(snapshot);
    for name in ["opaque", "redirect", "metacopy", "whiteout", "origin", "overlay.opaque"] {
        assert!(wanted.contains(&format!("user.overlay.{name}=")), "{name} is lost: {wanted}");
    }
    for path in ["hidden/deep/file", "hidden/file", "target/file", "plain/file", "file", ".wh.file"] {
        assert!(wanted.contains(&format!("{path:?}\tfile")), "{path} is lost");
    }
    world.all().create(id, &from(snapshot)).unwrap();
    assert_eq!(world.seen(id), wanted);
    assert_eq!(world.changes(id), [""; 0]);
    world.run(id, "echo more >> hidden/deep/file; echo more >> plain/file; echo more >> target/file; chmod 700 hidden plain target .");
    let after = world.seen(id);
    let next = world.commit(id);
    assert_eq!(world.checked_out(&next), after);
    let second = format!("{id}-next");
    world.all().create(&second, &from(&next)).unwrap();
    assert_eq!(world.seen(&second), after);
    world.all().create(&format!("{id}-again"), &from(snapshot)).unwrap();
    assert_eq!(world.seen(&format!("{id}-again")), wanted);
}

fn forged_notes_of_an_agent_are_data(setting: Setting) {
    let mut world = World::new(setting);
    world.all().create("a", &from(&world.snapshot(FILES))).unwrap();
    world.run("a", FORGE);
    let seen = world.seen("a");
    assert!(seen.contains("user.overlay.opaque=x"), "{seen}");
    let snapshot = world.commit("a");
    assert_eq!(world.checked_out(&snapshot), seen);
    holds(&world, "b", &snapshot);
    world.open();
    assert_eq!(world.seen("a"), seen);
    // The same in what is all new.
    world.all().create("new", &New::default()).unwrap();
    world.run("new", &format!("{FILES}; {FORGE}"));
    let snapshot = world.commit("new");
    assert_eq!(world.checked_out(&snapshot), world.seen("new"));
    holds(&world, "c", &snapshot);
}

fn forged_notes_of_a_directory_are_data(setting: Setting) {
    let world = World::new(setting);
    holds(&world, "a", &world.snapshot(&format!("{FILES}; {FORGE}")));
}

fn forged_notes_of_an_archive_are_data(setting: Setting) {
    let world = World::new(setting);
    let directory = tempfile::tempdir_in(world.home.path()).unwrap();
    world.shell_in(directory.path(), &format!("mkdir in; cd in; {FILES}; {FORGE}"));
    if rustix::process::geteuid().is_root() {
        world.shell_in(directory.path(), "mknod in/hidden/whiteout c 0 0");
    }
    world.shell_in(directory.path(), "tar --format=posix --xattrs --xattrs-include='*' -C in -cf archive .");
    let archive = std::fs::File::open(directory.path().join("archive")).unwrap();
    let (new, options) = (NewSnapshot::with_message("test"), ImportOptions::default());
    let report = import_tar(&world.store, &mut BufReader::new(archive), new, &options, &Quiet).unwrap();
    assert_eq!(report.skipped.len(), usize::from(rustix::process::geteuid().is_root()));
    holds(&world, "a", &report.snapshot);
}
