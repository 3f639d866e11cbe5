//! Tests that every provider must pass. A provider is a method of making the directory of a workspace: overlay, clone
//! (reflinked files) or copy. A few tests at the end of the list are for one provider only.
//!
//! A reset replaces the content of a workspace by that of another snapshot. An overlay moves to a new directory, until
//! `finish_reset` or `undo_reset` ends the reset; the other providers replace files in place. `fixture.all()` is the
//! set of workspaces under test. `fixture.seen(id)` is a listing of a workspace, and `fixture.checked_out(&snapshot)` a
//! listing of a snapshot in the same format.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use libtest_mimic::Trial;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use workspace_state::{Cancel, NewSnapshot, Node, Snapshot, Tree, WalkLimits};
use workspace_test_support::wait_until;
use workspace_workspace::{
    ConditionalCommit, KeptContent, Materialize, NewWorkspace, Options, Phase, ProviderKind, ResetMode,
    UnusedLayers, WorkspaceError, Workspaces, Writers,
};

use crate::fixture::{Fixture, Setting, options};

/// Script that creates files, directories, a symlink and a hard link, with various modes and times.
const FILES: &str = "mkdir -p src/deep empty; echo one > one; echo two > src/two; echo three > src/deep/three;
    ln -s ../one src/link; ln one hard; chmod 750 src; chmod 755 src/two; touch -d '2020-01-02 03:04:05.678' one src";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for setting in Setting::all() {
        let mut add = |name: &str, test: fn(Setting)| {
            trials.push(setting.trial(name, move || test(setting)));
        };
        add("a_workspace_holds_its_snapshot", a_workspace_holds_its_snapshot);
        add("the_root_is_opened_whatever_its_mode", the_root_is_opened_whatever_its_mode);
        add("changes_are_reported", changes_are_reported);
        add("a_commit_has_the_visible_content", a_commit_has_the_visible_content);
        add("an_unchanged_workspace_is_recognised", an_unchanged_workspace_is_recognised);
        add("workspaces_are_independent", workspaces_are_independent);
        add("another_process_opens_existing_workspaces", another_process_opens_existing_workspaces);
        add("a_reset_workspace_holds_the_other_snapshot", a_reset_workspace_holds_the_other_snapshot);
        add("files_of_any_mode_are_committed_and_restored", files_of_any_mode_are_committed_and_restored);
        add("a_reset_removes_special_files", a_reset_removes_special_files);
        add("a_failed_reset_keeps_special_files", a_failed_reset_keeps_special_files);
        add(
            "a_workspace_beyond_the_limits_is_refused_and_kept",
            a_workspace_beyond_the_limits_is_refused_and_kept,
        );
        add("invalid_requests_are_refused_and_leave_nothing", invalid_requests_are_refused_and_leave_nothing);
        add("a_removed_workspace_leaves_nothing", a_removed_workspace_leaves_nothing);
        add("the_content_of_a_removed_workspace_can_be_kept", the_content_of_a_removed_workspace_can_be_kept);
        match setting.kind {
            ProviderKind::Clone => add("clones_share_their_blocks", clones_share_their_blocks),
            ProviderKind::Overlay => {
                add(
                    "a_workspace_whose_mount_is_gone_is_mounted_again",
                    a_workspace_whose_mount_is_gone_is_mounted_again,
                );
                add(
                    "a_reset_whose_end_cannot_be_recorded_stays_in_progress",
                    a_reset_whose_end_cannot_be_recorded_stays_in_progress,
                );
                add(
                    "an_unresolved_reset_of_an_unused_workspace_keeps_the_directory_that_was_written_to",
                    an_unresolved_reset_of_an_unused_workspace_keeps_the_directory_that_was_written_to,
                );
            }
            ProviderKind::Copy => {
                add("a_partly_reset_workspace_is_not_committed", a_partly_reset_workspace_is_not_committed);
                if !rustix::process::geteuid().is_root() {
                    add("a_commit_fails_if_files_cannot_be_read", a_commit_fails_if_files_cannot_be_read);
                }
            }
        }
    }
    trials
}

/// Returns the parameters of a workspace that is created from a snapshot.
fn from(snapshot: &Snapshot) -> NewWorkspace<'static> {
    NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() }
}

fn a_workspace_holds_its_snapshot(setting: Setting) {
    let fixture = Fixture::new(setting);
    let snapshot = fixture.snapshot(FILES);
    let info = fixture.all().create("a", &from(&snapshot)).unwrap();
    assert_eq!(info.provider, setting.kind);
    assert_eq!(fixture.seen("a"), fixture.checked_out(&snapshot));
    assert_eq!(fixture.changes("a"), [""; 0]);
    fixture.all().create("empty", &NewWorkspace::default()).unwrap();
    assert_eq!(fixture.run("empty", "ls -A"), "");
}

/// Reads a file below an open directory, with the permissions of this process.
fn read_below(root: &OwnedFd, name: &str) -> Result<String, Errno> {
    let file = openat(root, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(std::io::read_to_string(std::fs::File::from(file)).unwrap())
}

fn the_root_is_opened_whatever_its_mode(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &from(&fixture.snapshot(FILES))).unwrap();
    fixture.run("a", "echo new > new; chmod 0 .");
    let root = fixture.all().open_root("a").unwrap();
    fixture.run("a", "chmod 755 .");
    assert_eq!(read_below(&root, "one").unwrap(), "one\n");
    assert_eq!(read_below(&root, "new").unwrap(), "new\n");
    let other = fixture.snapshot("echo other > other");
    fixture.all().reset("a", Some(other.id), Materialize::Auto, ResetMode::MayMove).unwrap();
    fixture.all().finish_reset("a").unwrap();
    let root = fixture.all().open_root("a").unwrap();
    assert_eq!(read_below(&root, "other").unwrap(), "other\n");
    assert_eq!(read_below(&root, "new").unwrap_err(), Errno::NOENT);
    let missing = fixture.all().open_root("b").unwrap_err();
    assert!(matches!(missing, WorkspaceError::NotFound { .. }), "{missing}");
    if setting.kind == ProviderKind::Overlay {
        workspace_host::overlay::unmount(&fixture.holder, &fixture.all().path("a").unwrap()).unwrap();
        fixture.all().open_root("a").unwrap_err();
    }
}

fn changes_are_reported(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &from(&fixture.snapshot(FILES))).unwrap();
    fixture.run(
        "a",
        "echo more >> one; rm -r src/deep; mkdir new; echo x > new/file; rm hard; chmod 700 src/two",
    );
    fixture.run("a", "echo back > tmp; mv tmp one; echo one > one; touch src/link2; rm src/link2");
    assert_eq!(
        fixture.changes("a"),
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

fn a_commit_has_the_visible_content(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot(FILES);
    fixture.all().create("a", &from(&base)).unwrap();
    fixture.run("a", "mv src moved; rm one; mkdir one; echo in > one/in; ln hard moved/linked; rm -r empty; echo f > empty");
    let first = fixture.commit("a");
    assert_eq!(first.parents, [base.id]);
    assert_eq!(fixture.checked_out(&first), fixture.seen("a"));
    fixture.run(
        "a",
        "rm -r one; echo file > one; rm empty; mkdir empty; ln -sf nowhere moved/two; rm moved/linked",
    );
    let second = fixture.commit("a");
    assert_eq!(second.parents, [first.id]);
    assert_eq!(fixture.checked_out(&second), fixture.seen("a"));
    // The committed content is the base of another workspace.
    fixture.all().create("b", &from(&second)).unwrap();
    assert_eq!(fixture.seen("b"), fixture.seen("a"));
    assert_eq!(fixture.changes("b"), [""; 0]);
}

fn an_unchanged_workspace_is_recognised(setting: Setting) {
    let fixture = Fixture::new(setting);
    let all = fixture.all();
    all.create("base", &from(&fixture.snapshot(FILES))).unwrap();
    all.create("empty", &NewWorkspace::default()).unwrap();
    let (not_cancelled, new) = (Cancel::new(), || NewSnapshot::with_message("test"));
    let cancellable = all.cancellable(&not_cancelled);
    for id in ["base", "empty"] {
        assert!(!all.is_known_unchanged(id) && cancellable.may_have_changed(id).unwrap(), "{id}");
        for change in
            ["echo x > new", "echo y > new", "chmod 600 new", "mkdir more", "mv new more/", "rm -r more"]
        {
            fixture.run(id, change);
            assert!(!all.is_known_unchanged(id), "{id}: {change}");
            let committed = cancellable.commit_if_changed(id, new(), Writers::Stopped).unwrap();
            assert!(matches!(committed, ConditionalCommit::Committed(_)), "{id}: {change}");
            // Only when the clock of the file system has advanced, a later change is certain to change the times.
            wait_until("the workspace is known to be unchanged", || {
                let committed = cancellable.commit_if_changed(id, new(), Writers::Stopped).unwrap();
                assert!(matches!(committed, ConditionalCommit::Unchanged(_)), "{id}: {change}");
                all.is_known_unchanged(id)
            });
            assert!(!cancellable.may_have_changed(id).unwrap(), "{id}: {change}");
        }
        // More entries than `is_known_unchanged` compares.
        fixture.run(id, "i=0; while [ $i -lt 100 ]; do : > file-$i; i=$((i + 1)); done");
        cancellable.commit_if_changed(id, new(), Writers::Stopped).unwrap();
        wait_until("a comparison of all entries finds no change", || {
            cancellable.commit_if_changed(id, new(), Writers::Stopped).unwrap();
            !cancellable.may_have_changed(id).unwrap()
        });
        assert!(!all.is_known_unchanged(id), "{id}");
    }
    assert!(!all.is_known_unchanged("missing"));
}

fn workspaces_are_independent(setting: Setting) {
    let fixture = Fixture::new(setting);
    let snapshot = fixture.snapshot(FILES);
    for id in ["a", "b"] {
        fixture.all().create(id, &from(&snapshot)).unwrap();
    }
    fixture.run("a", "echo changed > one; rm -r src");
    assert_eq!(fixture.seen("b"), fixture.checked_out(&snapshot));
    fixture.all().remove("a").unwrap();
    assert_eq!(fixture.seen("b"), fixture.checked_out(&snapshot));
}

fn another_process_opens_existing_workspaces(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    let snapshot = fixture.snapshot(FILES);
    let info = fixture.all().create("a", &from(&snapshot)).unwrap();
    fixture.run("a", "echo changed > src/two");
    let seen = fixture.seen("a");
    fixture.open();
    assert_eq!(fixture.all().get("a").unwrap(), info);
    assert_eq!(fixture.seen("a"), seen);
    assert_eq!(fixture.changes("a"), ["Modified src/two"]);
    let record = fixture.all().record("a").unwrap();
    assert_eq!(record.current.base, Some(snapshot.id));
    // The layers below the workspace are in use, so they are not removed.
    fixture.all().collect_layers(UnusedLayers::Expired).unwrap();
    assert_eq!(fixture.seen("a"), seen);
    let exists = fixture.all().create("a", &from(&snapshot)).unwrap_err();
    assert!(matches!(exists, WorkspaceError::Exists { .. }), "{exists}");
}

fn a_reset_workspace_holds_the_other_snapshot(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    let first = fixture.snapshot(FILES);
    fixture.all().create("a", &from(&first)).unwrap();
    fixture.run("a", "echo changed > one; rm -r src; mkdir -p x/y; echo z > x/y/z");
    let second = fixture.commit("a");
    fixture.run("a", "echo lost > lost");
    for snapshot in [&first, &second] {
        let reset =
            fixture.all().reset("a", Some(snapshot.id), Materialize::Auto, ResetMode::MayMove).unwrap();
        assert_eq!(reset.moved, setting.kind == ProviderKind::Overlay);
        fixture.all().finish_reset("a").unwrap();
        assert_eq!(fixture.seen("a"), fixture.checked_out(snapshot));
        assert_eq!(fixture.changes("a"), [""; 0]);
        fixture.run("a", "echo again > again");
        assert_eq!(fixture.changes("a"), ["Added again"]);
    }
    fixture.open();
    assert_eq!(fixture.changes("a"), ["Added again"]);
}

/// The files have modes that deny access to their owner, or set-id bits. The workspaces were created empty, or from a
/// snapshot.
fn files_of_any_mode_are_committed_and_restored(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot(FILES);
    for (id, snapshot) in [("empty", None), ("full", Some(base.id))] {
        fixture.all().create(id, &NewWorkspace { snapshot, ..NewWorkspace::default() }).unwrap();
        assert_eq!(fixture.changes(id), [""; 0]);
        fixture.run(
            id,
            "for mode in 000 0300 0100 0400 2755 4711 6000 7777; do
                echo $mode > file-$mode; mkdir -p dir-$mode/in; echo $mode > dir-$mode/in/file
                ln file-$mode dir-$mode/hard; ln -s ../file-$mode dir-$mode/link
                chmod $mode file-$mode dir-$mode/in dir-$mode
             done; chmod 0300 .",
        );
        let seen = fixture.seen(id);
        let committed = fixture.commit(id);
        assert_eq!(fixture.checked_out(&committed), seen);
        let fork = format!("{id}-fork");
        fixture.all().create(&fork, &from(&committed)).unwrap();
        assert_eq!(fixture.seen(&fork), seen);
        assert_eq!(fixture.changes(&fork), [""; 0]);
        for snapshot in [&base, &committed] {
            let reset =
                fixture.all().reset(&fork, Some(snapshot.id), Materialize::Auto, ResetMode::MayMove).unwrap();
            assert_eq!(reset.workspace.provider, setting.kind);
            fixture.all().finish_reset(&fork).unwrap();
            assert_eq!(fixture.seen(&fork), fixture.checked_out(snapshot));
            assert_eq!(fixture.changes(&fork), [""; 0]);
        }
    }
}

/// Files without read permission can be read only through a namespace holder (a process that keeps a user namespace).
fn a_commit_fails_if_files_cannot_be_read(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    fixture.all().create("a", &NewWorkspace::default()).unwrap();
    fixture.run("a", "echo x > shut; mkdir d; echo y > d/file; mkfifo pipe; chmod 000 shut d");
    let options = options(fixture.home.path(), &fixture.store, &fixture.holder, ProviderKind::Copy);
    fixture.workspaces = None;
    fixture.workspaces =
        Some(Workspaces::open(Options { holder: Err("none".to_owned()), ..options }).unwrap());
    let before = fixture.store.snapshots().unwrap().len();
    let failed = fixture.all().commit("a", NewSnapshot::default(), Writers::Stopped).map(drop).unwrap_err();
    let message = "a snapshot would lack `d` (no permission to read it), `shut` (no permission to read it)";
    assert_eq!(failed.to_string(), message);
    assert_eq!(fixture.all().changes("a", Writers::Stopped).map(drop).unwrap_err().to_string(), message);
    assert_eq!(fixture.store.snapshots().unwrap().len(), before);
    fixture.run("a", "chmod 600 shut; chmod 700 d");
    let committed = fixture.all().commit("a", NewSnapshot::default(), Writers::Stopped).unwrap();
    let skipped: Vec<_> = committed.skipped.iter().map(|entry| entry.path.as_os_str()).collect();
    assert_eq!(skipped, ["pipe"]);
}

fn a_reset_removes_special_files(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot(FILES);
    fixture.all().create("a", &from(&base)).unwrap();
    fixture.run("a", "mkfifo pipe src/deep/pipe; chmod 000 src/deep; touch -d 2020-01-01 empty");
    // Special files (here: named pipes), more than the report of a commit lists.
    fixture.run("a", "seq 1100 | sed s/^/many-/ | xargs mkfifo");
    fixture.all().reset("a", Some(base.id), Materialize::Auto, ResetMode::MayMove).unwrap();
    fixture.all().finish_reset("a").unwrap();
    assert_eq!(fixture.seen("a"), fixture.checked_out(&base));
}

/// Special files, such as named pipes, cannot be restored from a snapshot, because no snapshot holds them.
fn a_failed_reset_keeps_special_files(setting: Setting) {
    let fixture = Fixture::new(setting);
    let (base, other) =
        (fixture.snapshot(FILES), fixture.snapshot("head -c 300000 /dev/urandom > big; echo x > pipe"));
    fixture.all().create("a", &from(&base)).unwrap();
    fixture.run("a", "mkfifo pipe src/deep/pipe; touch -d 2020-01-01 src/deep; chmod 500 src/deep");
    let content = || (fixture.seen("a"), fixture.run("a", "stat -c %i pipe src/deep/pipe"));
    let before = content();
    damage(&fixture, &other, "big");
    let failed = fixture.all().reset("a", Some(other.id), Materialize::Full, ResetMode::MayMove).unwrap_err();
    assert!(failed.to_string().contains("damaged"), "{failed}");
    assert_eq!(content(), before);
    fixture.all().reset("a", Some(base.id), Materialize::Full, ResetMode::MayMove).unwrap();
    fixture.all().finish_reset("a").unwrap();
    assert_eq!(fixture.seen("a"), fixture.checked_out(&base));
}

/// The reset replaces the file `x` by a directory before it fails, because `x/big` is damaged in the store. The reset
/// cannot be undone, because the former content of `x` is damaged, too.
fn a_partly_reset_workspace_is_not_committed(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    let base = fixture.snapshot("head -c 300000 /dev/urandom > x");
    let other = fixture.snapshot("mkdir x; head -c 300000 /dev/urandom > x/big");
    let whole = fixture.snapshot(FILES);
    fixture.all().create("a", &from(&base)).unwrap();
    damage(&fixture, &base, "x");
    damage(&fixture, &other, "x/big");
    let reset = |fixture: &Fixture, to: &Snapshot| {
        fixture.all().reset("a", Some(to.id), Materialize::Full, ResetMode::MayMove)
    };
    let failed = reset(&fixture, &other).unwrap_err();
    assert!(failed.to_string().contains("damaged"), "{failed}");
    let record = fixture.all().record("a").unwrap();
    assert_eq!((record.phase, record.current.base), (Phase::Resetting, Some(other.id)));
    assert_eq!(fixture.all().pending_reset("a").unwrap(), None, "no process is to be switched");
    let refused = fixture.all().commit("a", NewSnapshot::default(), Writers::Stopped).map(drop).unwrap_err();
    assert!(matches!(refused, WorkspaceError::Unusable { .. }), "{refused}");
    // Another reset gives the workspace the whole content of a snapshot.
    reset(&fixture, &whole).unwrap();
    // The store pins the snapshot of the former content, too, which could not be put back. That pin has another holder.
    let pins = fixture.store.pins().unwrap();
    assert_eq!(pins.iter().filter(|pin| pin.holder.starts_with("workspace ")).count(), 1, "{pins:#?}");
    fixture.open();
    assert_eq!(fixture.all().record("a").unwrap().phase, Phase::Ready);
    assert_eq!(fixture.seen("a"), fixture.checked_out(&whole));
    assert_eq!(fixture.commit("a").parents, [whole.id]);
}

fn a_reset_whose_end_cannot_be_recorded_stays_in_progress(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot(FILES);
    fixture.all().create("a", &from(&base)).unwrap();
    fixture.run("a", "echo changed > one");
    let seen = fixture.seen("a");
    let other = fixture.snapshot("echo other > other");
    fixture.all().reset("a", Some(other.id), Materialize::Auto, ResetMode::MayMove).unwrap();
    let reset = fixture.all().record("a").unwrap();
    // A directory in the place of the new record keeps it from being written.
    let obstacle = fixture.all().directory_of("a").join("record.new");
    std::fs::create_dir(&obstacle).unwrap();
    fixture.all().finish_reset("a").unwrap_err();
    assert_eq!(fixture.all().record("a").unwrap(), reset);
    fixture.all().undo_reset("a").unwrap_err();
    assert_eq!(fixture.all().record("a").unwrap(), reset);
    assert!(fixture.all().pending_reset("a").unwrap().is_some());
    std::fs::remove_dir(&obstacle).unwrap();
    // The second call has no effect.
    for _ in 0..2 {
        fixture.all().undo_reset("a").unwrap();
        let record = fixture.all().record("a").unwrap();
        assert_eq!((record.phase, record.current.base), (Phase::Ready, Some(base.id)));
        assert_eq!(fixture.seen("a"), seen);
    }
}

/// In a sandbox, this happens after a restore of which it is not known whether the processes use the new directory. The
/// processes have ended since.
fn an_unresolved_reset_of_an_unused_workspace_keeps_the_directory_that_was_written_to(setting: Setting) {
    let fixture = Fixture::new(setting);
    let [base, other] = ["echo base > base", "echo other > other"].map(|line| fixture.snapshot(line));
    for (id, writes_to_new) in [("a", false), ("b", true)] {
        fixture.all().create(id, &from(&base)).unwrap();
        fixture.run(id, "echo old > written");
        let old = fixture.seen(id);
        fixture.all().reset(id, Some(other.id), Materialize::Full, ResetMode::MayMove).unwrap();
        if writes_to_new {
            fixture.run(id, "echo new > written");
        }
        let expected = if writes_to_new { fixture.seen(id) } else { old };
        // The second call has no effect.
        for _ in 0..2 {
            fixture.all().settle_reset_of_unused(id).unwrap();
            assert_eq!(fixture.all().record(id).unwrap().phase, Phase::Ready);
            assert_eq!(fixture.seen(id), expected);
        }
    }
    fixture.all().settle_reset_of_unused("missing").unwrap();
}

/// Changes a byte of the stored content of a file of a snapshot, in the packs (files with stored content) of the store.
fn damage(fixture: &Fixture, snapshot: &Snapshot, path: &str) {
    let tree = Tree::of_snapshot(&fixture.store, snapshot).unwrap();
    let Some(Node::File(file)) = tree.entry(path).unwrap().map(|entry| entry.node) else { panic!("{path}") };
    let start = tree.read(&file).unwrap()[..64].to_vec();
    for pack in std::fs::read_dir(fixture.store.path().join("packs")).unwrap() {
        let pack = pack.unwrap().path();
        let content = std::fs::read(&pack).unwrap();
        if let Some(at) = content.windows(start.len()).position(|window| window == start) {
            let pack = std::fs::File::options().write(true).open(&pack).unwrap();
            return pack.write_all_at(&[content[at] ^ 1], at as u64).unwrap();
        }
    }
    panic!("{path} is in no pack");
}

fn a_workspace_beyond_the_limits_is_refused_and_kept(setting: Setting) {
    const UNLIMITED: WalkLimits = WalkLimits { entries: u64::MAX, metadata: u64::MAX };
    let mut fixture = Fixture::new(setting);
    fixture.all().create("a", &NewWorkspace::default()).unwrap();
    let long_names = "name=$(printf 'n%.0s' $(seq 200)); mkdir -p $name/$name; touch $name/$name/$name";
    let store = fixture.store.clone();
    for (create_files, limits, description, remove_files) in [
        (
            "mkdir d; touch $(seq -f d/%g 30)",
            WalkLimits { entries: 25, ..UNLIMITED },
            "25 entries",
            "rm d/1?",
        ),
        (long_names, WalkLimits { metadata: 1_000, ..UNLIMITED }, "1000 bytes of names", "rm -r n*"),
    ] {
        fixture.run("a", create_files);
        fixture.store = store.with_walk_limits(limits);
        fixture.open();
        let before = store.snapshots().unwrap().len();
        let committed = fixture.all().commit("a", NewSnapshot::default(), Writers::Stopped).map(drop);
        for refused in [committed, fixture.all().changes("a", Writers::Stopped).map(drop)] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, WorkspaceError::TooLarge(_)), "{refused:?}");
            let message = refused.to_string();
            assert!(message.contains(description) && message.contains("remove some"), "{message}");
        }
        assert_eq!(store.snapshots().unwrap().len(), before);
        fixture.run("a", remove_files);
        fixture.commit("a");
        fixture.changes("a");
    }
}

fn invalid_requests_are_refused_and_leave_nothing(setting: Setting) {
    let fixture = Fixture::new(setting);
    let unknown = workspace_state::SnapshotId::generate();
    let refused = fixture
        .all()
        .create("a", &NewWorkspace { snapshot: Some(unknown), ..NewWorkspace::default() })
        .unwrap_err();
    assert!(matches!(refused, WorkspaceError::UnknownSnapshot(id) if id == unknown), "{refused}");
    for id in ["", ".", "..", "a/b", "a\0b", &"x".repeat(101)] {
        let refused = fixture.all().create(id, &NewWorkspace::default()).unwrap_err();
        assert!(matches!(refused, WorkspaceError::BadName { .. }), "{refused}");
    }
    assert!(fixture.all().list().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count(), 0);
    let missing = fixture.all().commit("a", NewSnapshot::default(), Writers::Running).unwrap_err();
    assert!(matches!(missing, WorkspaceError::NotFound { .. }), "{missing}");
    fixture.all().remove("a").unwrap();
}

fn a_removed_workspace_leaves_nothing(setting: Setting) {
    let fixture = Fixture::new(setting);
    let snapshot = fixture.snapshot(FILES);
    fixture.all().create("a", &from(&snapshot)).unwrap();
    fixture.run("a", "mkdir -p d/e; echo x > d/e/f; chmod 000 d/e d");
    fixture.all().remove("a").unwrap();
    assert_eq!(std::fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count(), 0);
    let left = workspace_host::overlay::mounted(&fixture.holder, fixture.home.path()).unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert!(fixture.store.pins().unwrap().is_empty());
    fixture.all().create("a", &from(&snapshot)).unwrap();
    assert_eq!(fixture.changes("a"), [""; 0]);
}

fn the_content_of_a_removed_workspace_can_be_kept(setting: Setting) {
    let fixture = Fixture::new(setting);
    fixture.all().create("a", &from(&fixture.snapshot(FILES))).unwrap();
    let kept = fixture.all().keep_content("a").unwrap();
    if setting.kind == ProviderKind::Overlay {
        assert_eq!(kept, KeptContent::InLayers);
        assert!(fixture.all().get("a").is_ok());
    } else {
        let KeptContent::Directory(directory) = &kept else { panic!("{kept:?}") };
        assert_eq!(std::fs::read_to_string(directory.join("src/two")).unwrap(), "two\n");
        assert!(fixture.all().get("a").is_err());
        // A caller that was interrupted repeats the call.
        assert_eq!(fixture.all().keep_content("a").unwrap(), kept);
    }
    assert_eq!(fixture.all().keep_content("b").unwrap(), KeptContent::Missing);
}

fn clones_share_their_blocks(setting: Setting) {
    let fixture = Fixture::new(setting);
    let snapshot = fixture.snapshot("head -c 20000000 /dev/urandom > big");
    let used = || {
        let home = std::fs::File::open(fixture.home.path()).unwrap();
        rustix::fs::syncfs(&home).unwrap();
        let found = rustix::fs::fstatvfs(&home).unwrap();
        (found.f_blocks - found.f_bfree) * found.f_frsize
    };
    // Writes the layer, whose files the other workspaces reflink.
    fixture.all().create("first", &from(&snapshot)).unwrap();
    let before = used();
    for id in ["a", "b", "c"] {
        fixture.all().create(id, &from(&snapshot)).unwrap();
    }
    let after = used();
    assert!(after < before + (8 << 20), "{before} and {after}");
    fixture.run("a", "printf changed | dd of=big conv=notrunc status=none");
    assert_eq!(fixture.changes("a"), ["Modified big"]);
    assert_eq!(fixture.changes("b"), [""; 0]);
    assert_eq!(fixture.seen("c"), fixture.checked_out(&snapshot));
}

fn a_workspace_whose_mount_is_gone_is_mounted_again(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    fixture.all().create("a", &from(&fixture.snapshot(FILES))).unwrap();
    fixture.run("a", "echo changed > one; rm -r src");
    let seen = fixture.seen("a");
    assert!(workspace_host::overlay::unmount(&fixture.holder, &fixture.all().path("a").unwrap()).unwrap());
    fixture.open();
    let info = fixture.all().remount("a").unwrap();
    assert_eq!(info, fixture.all().get("a").unwrap());
    assert_eq!(fixture.seen("a"), seen);
    // The second call has no effect.
    fixture.all().remount("a").unwrap();
    assert_eq!(workspace_host::overlay::mounted(&fixture.holder, fixture.home.path()).unwrap().len(), 1);
    let committed = fixture.commit("a");
    assert_eq!(fixture.checked_out(&committed), seen);
}
