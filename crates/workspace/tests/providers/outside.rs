//! Workspaces whose processes the caller did not start, and cannot freeze.

use std::fs;
use std::process::{Child, Stdio};

use libtest_mimic::Trial;
use workspace_host::overlay;
use workspace_state::{Cancel, GcOptions, NewSnapshot, NoProgress, Node, Snapshot, SnapshotId, Tree};
use workspace_workspace::{MoveStart, MoveTarget, NewWorkspace, ProviderKind, WorkspaceError};

use crate::fixture::{Fixture, Setting};

/// Number of commits that are checked while a process writes.
const COMMITS: usize = 5;

pub(crate) fn trials() -> Vec<Trial> {
    let plain = |setting: &Setting| setting.kind != ProviderKind::Overlay;
    Setting::all().into_iter().filter(plain).flat_map(of_setting).collect()
}

fn of_setting(setting: Setting) -> Vec<Trial> {
    vec![
        setting.trial("a_settled_commit_is_the_content_of_one_moment", move || settled(setting)),
        setting.trial("a_missing_or_replaced_directory_is_not_read", move || replaced(setting)),
        setting.trial("an_unchanged_workspace_moves_in_place", move || moved(setting)),
        setting.trial("an_interrupted_move_is_continued", move || interrupted(setting)),
        setting.trial("a_workspace_with_changes_is_not_moved", move || not_moved(setting)),
        setting.trial("a_workspace_moves_to_files_with_changes_to_its_base", move || merged(setting)),
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

fn number(tree: &Tree, path: &str) -> u64 {
    let Node::File(file) = tree.entry(path).unwrap().unwrap().node else { panic!("{path} is a file") };
    String::from_utf8(tree.read(&file).unwrap()).unwrap().trim().parse().unwrap()
}

fn settled(setting: Setting) {
    let fixture = Fixture::new(setting);
    // `z` is read after the many files in between, and written after `a`.
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
    let torn: Vec<_> =
        found.iter().filter(|(a, z)| a.checked_sub(*z).is_none_or(|ahead| ahead > 1)).collect();
    assert!(torn.is_empty(), "{torn:?} of {found:?}; {changing} attempts failed");
    // Attempts that failed left no snapshots.
    assert_eq!(fixture.store.snapshots().unwrap().len(), 1 + COMMITS);
}

fn replaced(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot("echo a > a");
    create(&fixture, "w", &base);
    let path = fixture.all().path("w").unwrap();
    let elsewhere = fixture.home.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("secret"), "secret").unwrap();
    let refused = || {
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
    refused();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    refused();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "a file").unwrap();
    refused();
    assert_eq!(fixture.store.snapshots().unwrap().len(), 1);
    fixture.all().remove("w").unwrap();
}

fn move_to(fixture: &Fixture, start: MoveStart, to: SnapshotId) -> bool {
    move_to_target(fixture, start, MoveTarget::unchanged(to))
}

fn move_to_target(fixture: &Fixture, start: MoveStart, target: MoveTarget) -> bool {
    let cancel = Cancel::new();
    fixture.all().cancellable(&cancel).move_in_place("w", start, target).unwrap()
}

/// Returns the paths that differ from the base.
fn changed(fixture: &Fixture) -> Vec<String> {
    let cancel = Cancel::new();
    let changes = fixture.all().cancellable(&cancel).changes_while_running("w").unwrap();
    let differences = changes.differences().unwrap();
    differences.iter().map(|one| String::from_utf8_lossy(&one.path).into_owned()).collect()
}

fn moved(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    let base = fixture.snapshot("mkdir d; echo a > a; echo b > d/b; echo c > c; chmod 600 c");
    let next = fixture.snapshot("mkdir e; echo A > a; echo c > c; chmod 640 c; echo new > e/new");
    create(&fixture, "w", &base);
    let inode = |fixture: &Fixture| fixture.run("w", "stat -c %i . c | tr '\\n' ' '");
    let before = inode(&fixture);
    assert!(move_to(&fixture, MoveStart::ExpectContent(base.id), next.id));
    assert_eq!(fixture.run("w", "cat a c e/new; ls; stat -c %a c"), "A\nc\nnew\na\nc\ne\n640\n");
    assert_eq!(inode(&fixture), before, "unchanged content is not written again");
    assert_eq!(changed(&fixture), [""; 0]);
    assert_eq!(fixture.all().record("w").unwrap().current.base, Some(next.id));
    // Work goes on from there, also in another process, and the way back is a move as well.
    fixture.open();
    fixture.run("w", "echo mine > mine");
    assert_eq!(changed(&fixture), ["mine"]);
    fixture.run("w", "rm mine");
    assert!(move_to(&fixture, MoveStart::ExpectContent(next.id), base.id));
    assert_eq!(fixture.run("w", "cat a d/b; ls"), "a\nb\na\nc\nd\n");
    assert_eq!(fixture.store.snapshots().unwrap().len(), 2, "temporary snapshots are removed");
}

fn interrupted(setting: Setting) {
    let mut fixture = Fixture::new(setting);
    let base = fixture.snapshot("echo a > a; echo b > b; touch -d @1000 b");
    let next = fixture.snapshot("echo A > a; echo b > b; touch -d @1000 b");
    create(&fixture, "w", &base);
    // Killed before anything was written; the agent has gone on meanwhile.
    fixture.run("w", "echo more >> b; echo mine > mine");
    fixture.open();
    assert!(move_to(&fixture, MoveStart::Continue, next.id));
    assert_eq!(fixture.run("w", "cat a b mine"), "A\nb\nmore\nmine\n");
    assert_eq!(changed(&fixture), ["b", "mine"]);
    // Killed after everything was written.
    assert!(move_to(&fixture, MoveStart::Continue, next.id));
    // Changes in the way are kept, and so is the base.
    fixture.run("w", "echo other > a");
    assert!(!move_to(&fixture, MoveStart::Continue, base.id));
    assert_eq!(fixture.run("w", "cat a"), "other\n");
    assert_eq!(changed(&fixture), ["a", "b", "mine"]);
}

fn not_moved(setting: Setting) {
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
    // Special files are in no snapshot, and stay.
    fixture.run("w", "echo a > a; chmod 644 a; mkfifo pipe");
    let base_times = fixture.all().record("w").unwrap().current.base;
    assert_eq!(base_times, Some(base.id));
    assert!(move_to(&fixture, MoveStart::ExpectContent(base.id), next.id));
    assert_eq!(fixture.run("w", "cat a; test -p pipe && echo pipe"), "A\npipe\n");
}

fn merged(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot("echo a > a; echo b > b");
    let head = fixture.snapshot("echo A > a; echo b > b");
    let files = fixture.snapshot("echo A > a; echo mine > b; echo new > new");
    create(&fixture, "w", &base);
    fixture.run("w", "echo mine > b; echo new > new");
    let cancel = Cancel::new();
    let workspaces = fixture.all().cancellable(&cancel);
    let theirs = workspaces.commit_settled("w", &NewSnapshot::default()).unwrap().snapshot;
    let target = MoveTarget { files: files.id, base: head.id };
    assert!(move_to_target(&fixture, MoveStart::ExpectContent(theirs.id), target));
    fixture.store.remove_snapshots(&[files.id, theirs.id]).unwrap();
    assert_eq!(fixture.run("w", "cat a b new"), "A\nmine\nnew\n");
    assert_eq!(fixture.all().record("w").unwrap().current.base, Some(head.id));
    assert_eq!(changed(&fixture), ["b", "new"]);
    // The next commit follows the new base, and needs nothing of the removed snapshots.
    fixture.store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    let next = workspaces.commit_settled("w", &NewSnapshot::default()).unwrap().snapshot;
    assert_eq!((next.tree, next.parents), (files.tree, vec![head.id]));
    let verified = fixture.store.verify(&NoProgress).unwrap();
    assert!(verified.damage.is_empty(), "{verified:?}");
}
