//! What every provider has to do.

use std::os::unix::fs::FileExt as _;

use libtest_mimic::Trial;
use workspace_state::{NewSnapshot, Node, Snapshot, Tree, WalkLimits};
use workspace_workspace::{Kind, Materialize, New, Options, WorkspaceError, Workspaces};

use crate::world::{Setting, World, options};

const FILES: &str = "mkdir -p src/deep empty; echo one > one; echo two > src/two; echo three > src/deep/three;
    ln -s ../one src/link; ln one hard; chmod 750 src; chmod 755 src/two; touch -d '2020-01-02 03:04:05.678' one src";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for setting in Setting::all() {
        let mut add = |name: &str, test: fn(Setting)| {
            trials.push(setting.trial(name, move || test(setting)));
        };
        add("a_workspace_holds_its_snapshot", a_workspace_holds_its_snapshot);
        add("changes_are_what_was_changed", changes_are_what_was_changed);
        add("a_commit_holds_what_is_seen", a_commit_holds_what_is_seen);
        add("workspaces_know_nothing_of_each_other", workspaces_know_nothing_of_each_other);
        add("another_process_finds_everything", another_process_finds_everything);
        add("a_reset_workspace_holds_the_other_snapshot", a_reset_workspace_holds_the_other_snapshot);
        add("files_of_any_mode_are_committed_and_restored", files_of_any_mode_are_committed_and_restored);
        add("a_restore_removes_special_files", a_restore_removes_special_files);
        add("a_restore_that_fails_keeps_special_files", a_restore_that_fails_keeps_special_files);
        add("a_workspace_of_too_much_is_refused_and_stays", a_workspace_of_too_much_is_refused_and_stays);
        add("what_cannot_be_is_refused_and_leaves_nothing", what_cannot_be_is_refused_and_leaves_nothing);
        add("nothing_stays_of_one_that_is_removed", nothing_stays_of_one_that_is_removed);
        match setting.kind {
            Kind::Clone => add("clones_share_their_blocks", clones_share_their_blocks),
            Kind::Overlay => add("one_whose_mount_is_gone_is_revived", one_whose_mount_is_gone_is_revived),
            Kind::Copy if !rustix::process::geteuid().is_root() => {
                add(
                    "a_commit_fails_over_files_that_nobody_can_read",
                    a_commit_fails_over_files_that_nobody_can_read,
                );
            }
            Kind::Copy => {}
        }
    }
    trials
}

fn from(snapshot: &Snapshot) -> New<'static> {
    New { snapshot: Some(snapshot.id), ..New::default() }
}

fn a_workspace_holds_its_snapshot(setting: Setting) {
    let world = World::new(setting);
    let snapshot = world.snapshot(FILES);
    let made = world.all().create("a", &from(&snapshot)).unwrap();
    assert_eq!(made.provider, setting.kind);
    assert_eq!(world.seen("a"), world.checked_out(&snapshot));
    assert_eq!(world.changes("a"), [""; 0]);
    world.all().create("empty", &New::default()).unwrap();
    assert_eq!(world.run("empty", "ls -A"), "");
}

fn changes_are_what_was_changed(setting: Setting) {
    let world = World::new(setting);
    world.all().create("a", &from(&world.snapshot(FILES))).unwrap();
    world.run(
        "a",
        "echo more >> one; rm -r src/deep; mkdir new; echo x > new/file; rm hard; chmod 700 src/two",
    );
    world.run("a", "echo back > tmp; mv tmp one; echo one > one; touch src/link2; rm src/link2");
    assert_eq!(
        world.changes("a"),
        [
            "Removed hard",
            "Added new",
            "Added new/file",
            "Removed src/deep",
            "Removed src/deep/three",
            "ModeChanged src/two"
        ]
    );
}

fn a_commit_holds_what_is_seen(setting: Setting) {
    let world = World::new(setting);
    let base = world.snapshot(FILES);
    world.all().create("a", &from(&base)).unwrap();
    world.run("a", "mv src moved; rm one; mkdir one; echo in > one/in; ln hard moved/linked; rm -r empty; echo f > empty");
    let first = world.commit("a");
    assert_eq!(first.parents, [base.id]);
    assert_eq!(world.checked_out(&first), world.seen("a"));
    world.run(
        "a",
        "rm -r one; echo file > one; rm empty; mkdir empty; ln -sf nowhere moved/two; rm moved/linked",
    );
    let second = world.commit("a");
    assert_eq!(second.parents, [first.id]);
    assert_eq!(world.checked_out(&second), world.seen("a"));
    // What was committed is what another workspace begins with.
    world.all().create("b", &from(&second)).unwrap();
    assert_eq!(world.seen("b"), world.seen("a"));
    assert_eq!(world.changes("b"), [""; 0]);
}

fn workspaces_know_nothing_of_each_other(setting: Setting) {
    let world = World::new(setting);
    let snapshot = world.snapshot(FILES);
    for id in ["a", "b"] {
        world.all().create(id, &from(&snapshot)).unwrap();
    }
    world.run("a", "echo changed > one; rm -r src");
    assert_eq!(world.seen("b"), world.checked_out(&snapshot));
    world.all().cleanup("a").unwrap();
    assert_eq!(world.seen("b"), world.checked_out(&snapshot));
}

fn another_process_finds_everything(setting: Setting) {
    let mut world = World::new(setting);
    let snapshot = world.snapshot(FILES);
    world.all().create("a", &from(&snapshot)).unwrap();
    world.run("a", "echo changed > src/two");
    let seen = world.seen("a");
    world.open();
    assert_eq!(world.seen("a"), seen);
    assert_eq!(world.changes("a"), ["Modified src/two"]);
    let record = world.all().record("a").unwrap();
    assert_eq!(record.current.base, Some(snapshot.id));
    // What it lies over is still held.
    world.all().collect(false).unwrap();
    assert_eq!(world.seen("a"), seen);
    let exists = world.all().create("a", &from(&snapshot)).unwrap_err();
    assert!(matches!(exists, WorkspaceError::Exists { .. }), "{exists}");
}

fn a_reset_workspace_holds_the_other_snapshot(setting: Setting) {
    let mut world = World::new(setting);
    let first = world.snapshot(FILES);
    world.all().create("a", &from(&first)).unwrap();
    world.run("a", "echo changed > one; rm -r src; mkdir -p x/y; echo z > x/y/z");
    let second = world.commit("a");
    world.run("a", "echo lost > lost");
    for snapshot in [&first, &second] {
        let switched = world.all().reset("a", Some(snapshot.id), Materialize::Auto, true).unwrap();
        assert_eq!(switched.moved, setting.kind == Kind::Overlay);
        world.all().switched("a").unwrap();
        assert_eq!(world.seen("a"), world.checked_out(snapshot));
        assert_eq!(world.changes("a"), [""; 0]);
        world.run("a", "echo again > again");
        assert_eq!(world.changes("a"), ["Added again"]);
    }
    world.open();
    assert_eq!(world.changes("a"), ["Added again"]);
}

/// Of modes that keep even the owner out, and with set-id bits; whatever the workspace is made from.
fn files_of_any_mode_are_committed_and_restored(setting: Setting) {
    let world = World::new(setting);
    let base = world.snapshot(FILES);
    for (id, snapshot) in [("empty", None), ("full", Some(base.id))] {
        world.all().create(id, &New { snapshot, ..New::default() }).unwrap();
        assert_eq!(world.changes(id), [""; 0]);
        world.run(
            id,
            "for mode in 000 0300 0100 0400 2755 4711 6000 7777; do
                echo $mode > file-$mode; mkdir -p dir-$mode/in; echo $mode > dir-$mode/in/file
                ln file-$mode dir-$mode/hard; ln -s ../file-$mode dir-$mode/link
                chmod $mode file-$mode dir-$mode/in dir-$mode
             done; chmod 0300 .",
        );
        let seen = world.seen(id);
        let committed = world.commit(id);
        assert_eq!(world.checked_out(&committed), seen);
        let fork = format!("{id}-fork");
        world.all().create(&fork, &from(&committed)).unwrap();
        assert_eq!(world.seen(&fork), seen);
        assert_eq!(world.changes(&fork), [""; 0]);
        for snapshot in [&base, &committed] {
            let switched = world.all().reset(&fork, Some(snapshot.id), Materialize::Auto, true).unwrap();
            assert_eq!(switched.made.provider, setting.kind);
            world.all().switched(&fork).unwrap();
            assert_eq!(world.seen(&fork), world.checked_out(snapshot));
            assert_eq!(world.changes(&fork), [""; 0]);
        }
    }
}

/// Without a holder there is nobody who may read them.
fn a_commit_fails_over_files_that_nobody_can_read(setting: Setting) {
    let mut world = World::new(setting);
    world.all().create("a", &New::default()).unwrap();
    world.run("a", "echo x > shut; mkdir d; echo y > d/file; mkfifo pipe; chmod 000 shut d");
    let options = options(world.home.path(), &world.store, &world.holder, Kind::Copy);
    world.workspaces = None;
    world.workspaces = Some(Workspaces::open(Options { holder: Err("none".to_owned()), ..options }).unwrap());
    let before = world.store.snapshots().unwrap().len();
    let failed = world.all().commit("a", NewSnapshot::default(), true).map(drop).unwrap_err();
    let told = "a snapshot would lack `d` (no permission to read it), `shut` (no permission to read it)";
    assert_eq!(failed.to_string(), told);
    assert_eq!(world.all().changes("a", true).map(drop).unwrap_err().to_string(), told);
    assert_eq!(world.store.snapshots().unwrap().len(), before);
    world.run("a", "chmod 600 shut; chmod 700 d");
    let committed = world.all().commit("a", NewSnapshot::default(), true).unwrap();
    let skipped: Vec<_> = committed.skipped.iter().map(|one| one.path.as_os_str()).collect();
    assert_eq!(skipped, ["pipe"]);
}

fn a_restore_removes_special_files(setting: Setting) {
    let world = World::new(setting);
    let base = world.snapshot(FILES);
    world.all().create("a", &from(&base)).unwrap();
    world.run("a", "mkfifo pipe src/deep/pipe; chmod 000 src/deep; touch -d 2020-01-01 empty");
    // More than a report names.
    world.run("a", "seq 1100 | sed s/^/many-/ | xargs mkfifo");
    world.all().reset("a", Some(base.id), Materialize::Auto, true).unwrap();
    world.all().switched("a").unwrap();
    assert_eq!(world.seen("a"), world.checked_out(&base));
}

/// Nothing brings them back: no snapshot holds them.
fn a_restore_that_fails_keeps_special_files(setting: Setting) {
    let world = World::new(setting);
    let (base, other) =
        (world.snapshot(FILES), world.snapshot("head -c 300000 /dev/urandom > big; echo x > pipe"));
    world.all().create("a", &from(&base)).unwrap();
    world.run("a", "mkfifo pipe src/deep/pipe; touch -d 2020-01-01 src/deep; chmod 500 src/deep");
    let present = || (world.seen("a"), world.run("a", "stat -c %i pipe src/deep/pipe"));
    let before = present();
    damage(&world, &other, "big");
    let failed = world.all().reset("a", Some(other.id), Materialize::Full, true).unwrap_err();
    assert!(failed.to_string().contains("damaged"), "{failed}");
    assert_eq!(present(), before);
    world.all().reset("a", Some(base.id), Materialize::Full, true).unwrap();
    world.all().switched("a").unwrap();
    assert_eq!(world.seen("a"), world.checked_out(&base));
}

/// Damages the content of a file of a snapshot in the store.
fn damage(world: &World, snapshot: &Snapshot, path: &str) {
    let tree = Tree::of_snapshot(&world.store, snapshot).unwrap();
    let Some(Node::File(file)) = tree.entry(path).unwrap().map(|entry| entry.node) else { panic!("{path}") };
    let start = tree.read(&file).unwrap()[..64].to_vec();
    for pack in std::fs::read_dir(world.store.path().join("packs")).unwrap() {
        let pack = pack.unwrap().path();
        let content = std::fs::read(&pack).unwrap();
        if let Some(at) = content.windows(start.len()).position(|window| window == start) {
            let pack = std::fs::File::options().write(true).open(&pack).unwrap();
            return pack.write_all_at(&[content[at] ^ 1], at as u64).unwrap();
        }
    }
    panic!("{path} is in no pack");
}

fn a_workspace_of_too_much_is_refused_and_stays(setting: Setting) {
    const NONE: WalkLimits = WalkLimits { entries: u64::MAX, metadata: u64::MAX };
    let mut world = World::new(setting);
    world.all().create("a", &New::default()).unwrap();
    let long = "name=$(printf 'n%.0s' $(seq 200)); mkdir -p $name/$name; touch $name/$name/$name";
    let store = world.store.clone();
    for (files, limits, told, less) in [
        ("mkdir d; touch $(seq -f d/%g 30)", WalkLimits { entries: 25, ..NONE }, "25 entries", "rm d/1?"),
        (long, WalkLimits { metadata: 1_000, ..NONE }, "1000 bytes of names", "rm -r n*"),
    ] {
        world.run("a", files);
        world.store = store.with_walk_limits(limits);
        world.open();
        let before = store.snapshots().unwrap().len();
        let committed = world.all().commit("a", NewSnapshot::default(), true).map(drop);
        for refused in [committed, world.all().changes("a", true).map(drop)] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, WorkspaceError::TooLarge(_)), "{refused:?}");
            let message = refused.to_string();
            assert!(message.contains(told) && message.contains("remove some"), "{message}");
        }
        assert_eq!(store.snapshots().unwrap().len(), before);
        world.run("a", less);
        world.commit("a");
        world.changes("a");
    }
}

fn what_cannot_be_is_refused_and_leaves_nothing(setting: Setting) {
    let world = World::new(setting);
    let unknown = workspace_state::SnapshotId::generate();
    let refused = world.all().create("a", &New { snapshot: Some(unknown), ..New::default() }).unwrap_err();
    assert!(matches!(refused, WorkspaceError::UnknownSnapshot(id) if id == unknown), "{refused}");
    for id in ["", ".", "..", "a/b", "a\0b", &"x".repeat(101)] {
        let refused = world.all().create(id, &New::default()).unwrap_err();
        assert!(matches!(refused, WorkspaceError::BadName { .. }), "{refused}");
    }
    assert!(world.all().list().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(world.home.path().join("workspaces")).unwrap().count(), 0);
    let missing = world.all().commit("a", NewSnapshot::default(), false).unwrap_err();
    assert!(matches!(missing, WorkspaceError::NotFound { .. }), "{missing}");
    world.all().cleanup("a").unwrap();
}

fn nothing_stays_of_one_that_is_removed(setting: Setting) {
    let world = World::new(setting);
    let snapshot = world.snapshot(FILES);
    world.all().create("a", &from(&snapshot)).unwrap();
    world.run("a", "mkdir -p d/e; echo x > d/e/f; chmod 000 d/e d");
    world.all().cleanup("a").unwrap();
    assert_eq!(std::fs::read_dir(world.home.path().join("workspaces")).unwrap().count(), 0);
    let left = workspace_host::overlay::mounted(&world.holder, world.home.path()).unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert!(world.store.pins().unwrap().is_empty());
    world.all().create("a", &from(&snapshot)).unwrap();
    assert_eq!(world.changes("a"), [""; 0]);
}

fn clones_share_their_blocks(setting: Setting) {
    let world = World::new(setting);
    let snapshot = world.snapshot("head -c 20000000 /dev/urandom > big");
    let used = || {
        let home = std::fs::File::open(world.home.path()).unwrap();
        rustix::fs::syncfs(&home).unwrap();
        let found = rustix::fs::fstatvfs(&home).unwrap();
        (found.f_blocks - found.f_bfree) * found.f_frsize
    };
    // Writes the layer.
    world.all().create("first", &from(&snapshot)).unwrap();
    let before = used();
    for id in ["a", "b", "c"] {
        world.all().create(id, &from(&snapshot)).unwrap();
    }
    let after = used();
    assert!(after < before + (8 << 20), "{before} and {after}");
    world.run("a", "printf changed | dd of=big conv=notrunc status=none");
    assert_eq!(world.changes("a"), ["Modified big"]);
    assert_eq!(world.changes("b"), [""; 0]);
    assert_eq!(world.seen("c"), world.checked_out(&snapshot));
}

fn one_whose_mount_is_gone_is_revived(setting: Setting) {
    let mut world = World::new(setting);
    world.all().create("a", &from(&world.snapshot(FILES))).unwrap();
    world.run("a", "echo changed > one; rm -r src");
    let seen = world.seen("a");
    assert!(workspace_host::overlay::unmount(&world.holder, &world.all().path("a").unwrap()).unwrap());
    world.open();
    let made = world.all().revive("a").unwrap();
    assert_eq!(made, world.all().get("a").unwrap());
    assert_eq!(world.seen("a"), seen);
    // Once is enough.
    world.all().revive("a").unwrap();
    assert_eq!(workspace_host::overlay::mounted(&world.holder, world.home.path()).unwrap().len(), 1);
    let committed = world.commit("a");
    assert_eq!(world.checked_out(&committed), seen);
}
