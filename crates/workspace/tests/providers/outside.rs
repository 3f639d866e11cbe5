//! Workspaces whose processes the server did not start, and cannot freeze.
//!
//! A *settled* commit is read again afterwards, and is undone if both reads differ. A *move* replaces the files of a
//! workspace by those of another snapshot in the same directory, and gives the workspace another *base*, the snapshot
//! that its changes are compared with. `fixture.all()` is the set of workspaces under test.

use std::fs;
use std::process::{Child, Stdio};

use libtest_mimic::Trial;
use workspace_host::overlay;
use workspace_state::{Cancel, GcOptions, NewSnapshot, NoProgress, Node, Snapshot, SnapshotId, Tree};
use workspace_test_support::wait_until;
use workspace_workspace::{
    ConditionalCommit, MoveStart, MoveTarget, NewWorkspace, Options, ProviderKind, ProviderPreference,
    WorkspaceError, Workspaces, Writers,
};

use crate::fixture::{Fixture, Setting, options};

/// Number of commits that are checked while a process writes.
const COMMITS: usize = 5;

pub(crate) fn trials() -> Vec<Trial> {
    let is_supported = |setting: &Setting| setting.kind != ProviderKind::Overlay;
    Setting::all().into_iter().filter(is_supported).flat_map(of_setting).collect()
}

fn of_setting(setting: Setting) -> Vec<Trial> {
    vec![
        setting.trial("a_settled_commit_is_the_content_of_one_moment", move || commit_settled(setting)),
        setting.trial("writers_outside_of_the_callers_control_are_noticed", move || {
            commit_outside_writers(setting);
        }),
        setting
            .trial("only_plain_directories_are_made_if_that_is_required", move || plain_directories(setting)),
        setting
            .trial("a_missing_or_replaced_directory_is_not_read", move || read_replaced_directory(setting)),
        setting.trial("an_unchanged_workspace_moves_in_place", move || move_unchanged(setting)),
        setting.trial("a_moved_workspace_with_changes_does_not_count_as_unchanged", move || {
            move_with_changes_is_not_unchanged(setting);
        }),
        setting.trial("an_interrupted_move_is_continued", move || continue_move(setting)),
        setting.trial("a_workspace_with_changes_is_not_moved", move || move_changed(setting)),
        setting.trial("a_workspace_moves_to_files_with_changes_to_its_base", move || move_to_merged(setting)),
    ]
}

fn create(fixture: &Fixture, id: &str, snapshot: &Snapshot) {
    fixture
        .all()
        .create(id, &NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() })
        .unwrap();
}

/// Process that writes to a workspace until it is dropped.
struct Writer(Child);

impl Writer {
    fn start(fixture: &Fixture, id: &str, script: &str) -> Self {
        let mut command = overlay::command(&fixture.holder, "/bin/sh".as_ref());
        command.args(["-c", &format!("cd \"$1\" && {script}"), "sh"]).arg(fixture.all().path(id).unwrap());
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns the number that a file contains.
fn number(tree: &Tree, path: &str) -> u64 {
    let Node::File(file) = tree.entry(path).unwrap().unwrap().node else { panic!("{path} is a file") };
    String::from_utf8(tree.read(&file).unwrap()).unwrap().trim().parse().unwrap()
}

fn commit_settled(setting: Setting) {
    let fixture = Fixture::new(setting);
    // The process writes the same number to `a` and then to `z`. A commit reads `a` first, then the files in `m`, then
    // `z`.
    let base =
        fixture.snapshot("echo 0 > a; echo 0 > z; mkdir m; for i in $(seq 300); do echo $i > m/$i; done");
    create(&fixture, "w", &base);
    let _writer = Writer::start(
        &fixture,
        "w",
        "i=0; while :; do i=$((i+1)); echo $i > .a; mv .a a; echo $i > .z; mv .z z; \
         [ $((i%40)) = 0 ] && sleep 0.4; done",
    );
    let (mut found, mut changing) = (Vec::new(), 0);
    while found.len() < COMMITS {
        let cancel = Cancel::new();
        match fixture.all().cancellable(&cancel).commit_settled("w", &NewSnapshot::default()) {
            Ok(committed) => {
                let tree = Tree::of_snapshot(&fixture.store, &committed.snapshot).unwrap();
                found.push((number(&tree, "a"), number(&tree, "z")));
            }
            Err(WorkspaceError::Changing { .. }) => changing += 1,
            Err(error) => panic!("{error}"),
        }
    }
    // In the content of one moment, `a` is equal to `z` or greater by 1.
    let torn: Vec<_> =
        found.iter().filter(|(a, z)| a.checked_sub(*z).is_none_or(|ahead| ahead > 1)).collect();
    assert!(torn.is_empty(), "{torn:?} of {found:?}; {changing} attempts failed");
    // Attempts that failed left no snapshots.
    assert_eq!(fixture.store.snapshots().unwrap().len(), 1 + COMMITS);
}

/// Clients of the kernel's NFS server write while all processes of the sandbox are frozen.
fn commit_outside_writers(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    fixture.workspaces = None;
    let options = options(fixture.home.path(), &fixture.store, &fixture.holder, setting.kind);
    let opened = Workspaces::open(Options { outside_writers: Writers::Running, ..options });
    fixture.workspaces = Some(opened.unwrap());
    let base = fixture.snapshot("head -c 4000000 /dev/zero > file");
    create(&fixture, "w", &base);
    let commit = || fixture.all().commit("w", NewSnapshot::default(), Writers::Stopped);
    commit().unwrap();
    let writer = Writer::start(&fixture, "w", "while :; do echo x >> file; done");
    wait_until("a commit reports that a file keeps changing", || commit().is_err());
    drop(writer);
    commit().unwrap();
}

fn plain_directories(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    fixture.workspaces = None;
    let options = options(fixture.home.path(), &fixture.store, &fixture.holder, ProviderKind::Overlay);
    let opened =
        Workspaces::open(Options { provider: ProviderPreference::PlainDirectory, ..options }).unwrap();
    let selection = opened.provider_selection().clone();
    let can_clone = selection.unavailable_reason(ProviderKind::Clone).is_none();
    let expected = if can_clone { ProviderKind::Clone } else { ProviderKind::Copy };
    assert_eq!((selection.kind, selection.is_fallback), (expected, false), "{selection:?}");
    fixture.workspaces = Some(opened);
}

fn read_replaced_directory(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot("echo a > a");
    create(&fixture, "w", &base);
    let path = fixture.all().path("w").unwrap();
    let other_directory = fixture.home.path().join("elsewhere");
    fs::create_dir(&other_directory).unwrap();
    fs::write(other_directory.join("secret"), "secret").unwrap();
    let assert_unusable = || {
        let cancel = Cancel::new();
        let workspaces = fixture.all().cancellable(&cancel);
        let committed = workspaces.commit_settled("w", &NewSnapshot::default()).map(|_| ());
        let compared = workspaces.changes_while_running("w").map(|_| ());
        let target = MoveTarget::unchanged(base.id);
        let moved = workspaces.move_in_place("w", MoveStart::ExpectContent(base.id), target).map(|_| ());
        for result in [committed, compared, moved] {
            assert!(matches!(result, Err(WorkspaceError::Unusable { .. })), "{result:?}");
        }
    };
    fs::remove_dir_all(&path).unwrap();
    assert_unusable();
    std::os::unix::fs::symlink(&other_directory, &path).unwrap();
    assert_unusable();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "a file").unwrap();
    assert_unusable();
    assert_eq!(fixture.store.snapshots().unwrap().len(), 1);
    fixture.all().remove("w").unwrap();
}

/// Moves the workspace `w` to the files of a base.
fn move_to(fixture: &Fixture, start: MoveStart, to: SnapshotId) -> bool {
    move_to_target(fixture, start, MoveTarget::unchanged(to))
}

/// Moves the workspace `w`. Returns false if the workspace was not changed.
fn move_to_target(fixture: &Fixture, start: MoveStart, target: MoveTarget) -> bool {
    let cancel = Cancel::new();
    fixture.all().cancellable(&cancel).move_in_place("w", start, target).unwrap()
}

/// Returns the paths in the workspace `w` that differ from its base.
fn changed(fixture: &Fixture) -> Vec<String> {
    let cancel = Cancel::new();
    let changes = fixture.all().cancellable(&cancel).changes_while_running("w").unwrap();
    let differences = changes.differences().unwrap();
    differences.iter().map(|change| String::from_utf8_lossy(&change.path).into_owned()).collect()
}

fn move_unchanged(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    let base = fixture.snapshot("mkdir d; echo a > a; echo b > d/b; echo c > c; chmod 600 c");
    let next = fixture.snapshot("mkdir e; echo A > a; echo c > c; chmod 640 c; echo new > e/new");
    create(&fixture, "w", &base);
    let inodes = |fixture: &Fixture| fixture.run("w", "stat -c %i . c | tr '\\n' ' '");
    let before = inodes(&fixture);
    assert!(move_to(&fixture, MoveStart::ExpectContent(base.id), next.id));
    assert_eq!(fixture.run("w", "cat a c e/new; ls; stat -c %a c"), "A\nc\nnew\na\nc\ne\n640\n");
    assert_eq!(inodes(&fixture), before, "unchanged content is not written again");
    assert_eq!(changed(&fixture), [""; 0]);
    assert_eq!(fixture.all().record("w").unwrap().current.base, Some(next.id));
    // Later changes are compared with the new base, also by another process. The workspace can be moved back.
    fixture.open();
    fixture.run("w", "echo mine > mine");
    assert_eq!(changed(&fixture), ["mine"]);
    fixture.run("w", "rm mine");
    assert!(move_to(&fixture, MoveStart::ExpectContent(next.id), base.id));
    assert_eq!(fixture.run("w", "cat a d/b; ls"), "a\nb\na\nc\nd\n");
    assert_eq!(fixture.store.snapshots().unwrap().len(), 2, "temporary snapshots are removed");
}

/// Regression test: after a move to equal files with another base, the workspace still counted as unchanged, so its
/// changes since the base were not committed.
fn move_with_changes_is_not_unchanged(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot("echo a > a; touch -d @1000 a");
    let next = fixture.snapshot("echo A > a; touch -d @1000 a");
    create(&fixture, "w", &base);
    let cancel = Cancel::new();
    let workspaces = fixture.all().cancellable(&cancel);
    // The digest is reliable only when the times of the files are old enough.
    wait_until("the workspace is known to be unchanged", || {
        workspaces.commit_if_changed("w", NewSnapshot::default(), Writers::Stopped).unwrap();
        !workspaces.may_have_changed("w").unwrap()
    });
    let target = MoveTarget { files: base.id, base: next.id };
    assert!(move_to_target(&fixture, MoveStart::ExpectContent(base.id), target));
    assert!(workspaces.may_have_changed("w").unwrap());
    let committed = workspaces.commit_if_changed("w", NewSnapshot::default(), Writers::Stopped).unwrap();
    assert!(matches!(committed, ConditionalCommit::Committed(_)));
}

fn continue_move(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    let base = fixture.snapshot("echo a > a; echo b > b; touch -d @1000 b");
    let next = fixture.snapshot("echo A > a; echo b > b; touch -d @1000 b");
    create(&fixture, "w", &base);
    // Simulates a move whose process was killed before a file was replaced. The agent has changed files meanwhile.
    fixture.run("w", "echo more >> b; echo mine > mine");
    fixture.open();
    assert!(move_to(&fixture, MoveStart::Continue, next.id));
    assert_eq!(fixture.run("w", "cat a b mine"), "A\nb\nmore\nmine\n");
    assert_eq!(changed(&fixture), ["b", "mine"]);
    // Simulates a move whose process was killed after all files were replaced.
    assert!(move_to(&fixture, MoveStart::Continue, next.id));
    // The agent has changed a file that would be replaced, so the workspace keeps its files and base.
    fixture.run("w", "echo other > a");
    assert!(!move_to(&fixture, MoveStart::Continue, base.id));
    assert_eq!(fixture.run("w", "cat a"), "other\n");
    assert_eq!(changed(&fixture), ["a", "b", "mine"]);
}

fn move_changed(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot("echo a > a; echo b > b");
    let next = fixture.snapshot("echo A > a; echo b > b");
    create(&fixture, "w", &base);
    for change in ["echo more >> b", "echo b > b; echo new > new", "rm new; chmod 700 b", "chmod 644 b; rm a"]
    {
        fixture.run("w", change);
        assert!(!move_to(&fixture, MoveStart::ExpectContent(base.id), next.id), "{change}");
    }
    assert_eq!(changed(&fixture), ["a"]);
    assert_eq!(fixture.store.snapshots().unwrap().len(), 2);
    // Special files, such as named pipes, are in no snapshot, and are kept.
    fixture.run("w", "echo a > a; chmod 644 a; mkfifo pipe");
    let present_base = fixture.all().record("w").unwrap().current.base;
    assert_eq!(present_base, Some(base.id));
    assert!(move_to(&fixture, MoveStart::ExpectContent(base.id), next.id));
    assert_eq!(fixture.run("w", "cat a; test -p pipe && echo pipe"), "A\npipe\n");
}

fn move_to_merged(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot("echo a > a; echo b > b");
    let head = fixture.snapshot("echo A > a; echo b > b");
    let files = fixture.snapshot("echo A > a; echo mine > b; echo new > new");
    create(&fixture, "w", &base);
    fixture.run("w", "echo mine > b; echo new > new");
    let cancel = Cancel::new();
    let workspaces = fixture.all().cancellable(&cancel);
    let committed = workspaces.commit_settled("w", &NewSnapshot::default()).unwrap().snapshot;
    let target = MoveTarget { files: files.id, base: head.id };
    assert!(move_to_target(&fixture, MoveStart::ExpectContent(committed.id), target));
    fixture.store.remove_snapshots(&[files.id, committed.id]).unwrap();
    assert_eq!(fixture.run("w", "cat a b new"), "A\nmine\nnew\n");
    assert_eq!(fixture.all().record("w").unwrap().current.base, Some(head.id));
    assert_eq!(changed(&fixture), ["b", "new"]);
    // The new base is the parent of the next commit, which needs no object of the removed snapshots.
    fixture.store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    let next = workspaces.commit_settled("w", &NewSnapshot::default()).unwrap().snapshot;
    assert_eq!((next.tree, next.parents), (files.tree, vec![head.id]));
    let verified = fixture.store.verify(&NoProgress).unwrap();
    assert!(verified.damage.is_empty(), "{verified:?}");
}
