//! Read-only workspaces, and workspaces that follow an anchor.
//!
//! The *head* of a project is the snapshot of its present files. An *anchor* is a mount that shows a head to several
//! read-only workspaces, its *followers*. A *switch* of the anchor replaces the head for all of them. The *sequence* is
//! the number of changes of the project's head so far. The files of a head are in *layers*, read-only directories that
//! are the lower directories of overlays. `fixture.all()` is the set of workspaces under test. `followed(id)` returns
//! the name of the anchor that a workspace follows, and the head that it shows. `release_former_heads` releases the
//! layers of heads that no process uses any more.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_host::{anchor, overlay};
use workspace_state::{NewSnapshot, Snapshot, SnapshotId};
use workspace_workspace::{
    AnchorToFollow, Materialize, NewWorkspace, ProviderKind, ResetMode, ShownHead, UnusedLayers,
    WorkspaceInfo, Writers,
};

use crate::fixture::{Fixture, Setting};

/// Name of the anchor that most tests use.
const MAIN: &str = "main";

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 17] = [
        ("a_read_only_workspace_has_no_upper_directory", a_read_only_workspace_has_no_upper_directory),
        ("an_empty_workspace_can_be_read_only", an_empty_workspace_can_be_read_only),
        ("a_reset_keeps_a_workspace_read_only", a_reset_keeps_a_workspace_read_only),
        ("a_copy_is_never_read_only", a_copy_is_never_read_only),
        ("followers_share_each_new_head", followers_share_each_new_head),
        (
            "a_commit_of_a_follower_has_the_files_of_its_head",
            a_commit_of_a_follower_has_the_files_of_its_head,
        ),
        ("a_head_with_equal_files_is_not_mounted", a_head_with_equal_files_is_not_mounted),
        (
            "a_late_follower_does_not_bring_back_an_earlier_head",
            a_late_follower_does_not_bring_back_an_earlier_head,
        ),
        ("layers_of_a_former_head_stay_while_it_is_used", layers_of_a_former_head_stay_while_it_is_used),
        (
            "anchor_and_layers_are_removed_with_the_last_follower",
            anchor_and_layers_are_removed_with_the_last_follower,
        ),
        ("followers_are_loaded_after_a_restart", followers_are_loaded_after_a_restart),
        ("the_next_switch_cleans_up_an_interrupted_switch", the_next_switch_cleans_up_an_interrupted_switch),
        ("an_unused_anchor_is_removed_at_the_next_start", an_unused_anchor_is_removed_at_the_next_start),
        ("a_head_that_was_left_mounted_is_replaced", a_head_that_was_left_mounted_is_replaced),
        ("a_follower_moves_to_another_anchor", a_follower_moves_to_another_anchor),
        (
            "a_change_of_the_anchor_that_cannot_be_recorded_is_repeated",
            a_change_of_the_anchor_that_cannot_be_recorded_is_repeated,
        ),
        (
            "layers_of_a_removed_anchor_stay_while_a_former_follower_uses_them",
            layers_of_a_removed_anchor_stay_while_a_former_follower_uses_them,
        ),
    ];
    tests
        .into_iter()
        .map(|(name, test)| {
            Trial::test(format!("followers::{name}"), move || {
                test();
                Ok(())
            })
        })
        .collect()
}

/// Returns the parameters of a read-only workspace.
fn read_only(snapshot: Option<SnapshotId>) -> NewWorkspace<'static> {
    NewWorkspace { snapshot, read_only: true, ..NewWorkspace::default() }
}

fn a_read_only_workspace_has_no_upper_directory() {
    let mut fixture = Fixture::new(Setting::OVERLAY);
    let base = fixture.snapshot("mkdir d; echo 1 > d/file; chmod 750 .");
    let info = fixture.all().create("a", &read_only(Some(base.id))).unwrap();
    assert!(info.read_only && info.provider == ProviderKind::Overlay);
    assert_eq!(fixture.seen("a"), fixture.checked_out(&base));
    assert_eq!(fixture.run("a", "touch new 2>/dev/null || echo refused"), "refused\n");
    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names(&fixture.all().directory_of("a").join("1")), ["mount"]);
    assert_eq!(fixture.changes("a"), [""; 0]);
    assert_eq!(fixture.commit("a").tree, base.tree);
    fixture.open();
    assert!(fixture.all().get("a").unwrap().read_only);
    assert_eq!(fixture.commit("a").tree, base.tree);
    assert_eq!(fixture.all().usage("a").unwrap().files, 0);
    fixture.all().remove("a").unwrap();
    assert!(!fixture.all().directory_of("a").exists());
}

fn an_empty_workspace_can_be_read_only() {
    let fixture = Fixture::new(Setting::OVERLAY);
    fixture.all().create("a", &read_only(None)).unwrap();
    assert_eq!(fixture.run("a", "ls -A; touch new 2>/dev/null || echo refused"), "refused\n");
    assert_eq!(fixture.changes("a"), [""; 0]);
}

fn a_reset_keeps_a_workspace_read_only() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let (first, second) = (fixture.snapshot("echo 1 > file"), fixture.snapshot("echo 2 > file"));
    fixture.all().create("a", &read_only(Some(first.id))).unwrap();
    let reset = fixture.all().reset("a", Some(second.id), Materialize::Auto, ResetMode::MayMove).unwrap();
    assert!(reset.moved && reset.workspace.read_only);
    fixture.all().finish_reset("a").unwrap();
    assert_eq!(fixture.run("a", "cat file; touch new 2>/dev/null || echo refused"), "2\nrefused\n");
}

fn a_copy_is_never_read_only() {
    let fixture = Fixture::new(Setting::COPY);
    let base = fixture.snapshot("echo 1 > file");
    assert!(!fixture.all().create("a", &read_only(Some(base.id))).unwrap().read_only);
    fixture.run("a", "touch new");
}

/// Former head of [`head`] for the first head of a project.
const NO_PARENT: Option<&Snapshot> = None;

/// Commits a head with two files that contain `number`. `parent` is the former head.
fn head(fixture: &Fixture, number: u32, parent: Option<&Snapshot>) -> Snapshot {
    let mut tree = match parent {
        Some(parent) => fixture.store.restore(&parent.id).unwrap(),
        None => fixture.store.empty_tree().unwrap(),
    };
    for path in ["a", "b"] {
        tree.write(path.as_bytes(), format!("{number}\n").as_bytes()).unwrap();
    }
    let parents = parent.iter().map(|parent| parent.id).collect();
    tree.commit(NewSnapshot { parents, ..NewSnapshot::default() }).unwrap()
}

/// Creates the workspace `id`, which follows the anchor `name`. `snapshot` has sequence 1.
fn follow(fixture: &Fixture, id: &str, name: &str, snapshot: &Snapshot) -> WorkspaceInfo {
    let anchor = Some(AnchorToFollow { name, sequence: 1 });
    let new = NewWorkspace { snapshot: Some(snapshot.id), anchor, ..NewWorkspace::default() };
    fixture.all().create(id, &new).unwrap()
}

/// Returns the head that a follower sees.
fn shown(fixture: &Fixture, id: &str) -> ShownHead {
    fixture.all().followed(id).unwrap().1.unwrap()
}

fn followers_share_each_new_head() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let first = head(&fixture, 1, NO_PARENT);
    let info = follow(&fixture, "a", MAIN, &first);
    assert!(info.read_only && info.anchor == Some(fixture.all().anchor_directory(MAIN)));
    let second = head(&fixture, 2, Some(&first));
    assert!(fixture.all().switch_anchor(MAIN, second.id, 2).unwrap());
    // The anchor has a head with a higher sequence than `first`, so the new follower shows the head of the anchor.
    follow(&fixture, "b", MAIN, &first);
    for id in ["a", "b"] {
        assert_eq!(fixture.run(id, "cat a b"), "2\n2\n");
        assert_eq!(shown(&fixture, id), ShownHead { snapshot: second.id, sequence: 2 });
    }
    assert_eq!(fixture.run("a", "touch new 2>/dev/null || echo refused"), "refused\n");
    // The head of a new follower has a higher sequence than that of the anchor, so all followers show it at once.
    let third = head(&fixture, 3, Some(&second));
    let anchor = Some(AnchorToFollow { name: MAIN, sequence: 3 });
    let new = NewWorkspace { snapshot: Some(third.id), anchor, ..NewWorkspace::default() };
    fixture.all().create("c", &new).unwrap();
    assert_eq!((fixture.run("c", "cat a"), fixture.run("a", "cat a")), ("3\n".to_owned(), "3\n".to_owned()));
    assert_eq!(shown(&fixture, "a"), ShownHead { snapshot: third.id, sequence: 3 });
}

fn a_commit_of_a_follower_has_the_files_of_its_head() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let first = head(&fixture, 1, NO_PARENT);
    follow(&fixture, "a", MAIN, &first);
    let second = head(&fixture, 2, Some(&first));
    fixture.all().switch_anchor(MAIN, second.id, 2).unwrap();
    let committed = fixture.commit("a");
    assert_eq!((committed.tree, committed.parents), (second.tree, vec![second.id]));
    assert_ne!(committed.id, second.id);
    assert_eq!(fixture.changes("a"), [""; 0]);
}

fn a_head_with_equal_files_is_not_mounted() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let first = head(&fixture, 1, NO_PARENT);
    follow(&fixture, "a", MAIN, &first);
    let mut tree = fixture.store.restore(&first.id).unwrap();
    let equal = tree.commit(NewSnapshot::default()).unwrap();
    assert!(!fixture.all().switch_anchor(MAIN, equal.id, 2).unwrap());
    assert_eq!(shown(&fixture, "a"), ShownHead { snapshot: equal.id, sequence: 2 });
    assert!(!fixture.all().switch_anchor(MAIN, first.id, 1).unwrap());
    assert_eq!(shown(&fixture, "a"), ShownHead { snapshot: equal.id, sequence: 2 });
    assert!(!fixture.all().switch_anchor("other", first.id, 2).unwrap(), "no workspace follows the anchor");
}

/// Regression test: a head with the files of the present one did not raise the sequence, so a new follower whose
/// creator had read the project between the two brought all followers back to the earlier head.
fn a_late_follower_does_not_bring_back_an_earlier_head() {
    let mut fixture = Fixture::new(Setting::OVERLAY);
    let first = head(&fixture, 1, None);
    follow(&fixture, "a", MAIN, &first);
    let second = head(&fixture, 2, Some(&first));
    let third = fixture.store.restore(&first.id).unwrap().commit(NewSnapshot::default()).unwrap();
    assert!(!fixture.all().switch_anchor(MAIN, third.id, 3).unwrap());
    let join = |fixture: &Fixture, id: &str| {
        let anchor = Some(AnchorToFollow { name: MAIN, sequence: 2 });
        let new = NewWorkspace { snapshot: Some(second.id), anchor, ..NewWorkspace::default() };
        fixture.all().create(id, &new).unwrap();
        assert_eq!(
            (fixture.run("a", "cat a"), fixture.run(id, "cat a")),
            ("1\n".to_owned(), "1\n".to_owned())
        );
    };
    join(&fixture, "b");
    // The sequence is on disk, too.
    fixture.open();
    join(&fixture, "c");
    assert_eq!(shown(&fixture, "a"), ShownHead { snapshot: third.id, sequence: 3 });
}

/// Opens the root directory of the present head. While it is open, the head is in use.
fn open_head(fixture: &Fixture) -> OwnedFd {
    overlay::open_root(&fixture.holder, &anchor::head_path(&fixture.all().anchor_directory(MAIN))).unwrap()
}

/// Waits until the layers of `count` heads are kept.
fn wait_for_heads(fixture: &Fixture, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while fixture.all().kept_heads(MAIN) != count {
        assert!(Instant::now() < deadline, "{} heads are kept", fixture.all().kept_heads(MAIN));
        fixture.all().release_former_heads();
        std::thread::yield_now();
    }
}

/// Returns the number of layers on disk.
fn layer_directories(fixture: &Fixture) -> usize {
    fs::read_dir(fixture.home.path().join("layers/layers")).unwrap().count()
}

fn layers_of_a_former_head_stay_while_it_is_used() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let mut last = head(&fixture, 0, NO_PARENT);
    follow(&fixture, "a", MAIN, &last);
    let root = open_head(&fixture);
    for number in 1..30 {
        last = head(&fixture, number, Some(&last));
        assert!(fixture.all().switch_anchor(MAIN, last.id, i64::from(number)).unwrap());
    }
    wait_for_heads(&fixture, 2);
    fixture.all().collect_layers(UnusedLayers::All).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&root)));
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "0\n");
    let before = layer_directories(&fixture);
    drop(root);
    wait_for_heads(&fixture, 1);
    fixture.all().collect_layers(UnusedLayers::All).unwrap();
    assert!(layer_directories(&fixture) <= before);
    assert_eq!(fixture.run("a", "cat a b"), "29\n29\n");
}

fn anchor_and_layers_are_removed_with_the_last_follower() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let first = head(&fixture, 1, NO_PARENT);
    for id in ["a", "b"] {
        follow(&fixture, id, MAIN, &first);
    }
    fixture.all().remove("a").unwrap();
    let second = head(&fixture, 2, Some(&first));
    assert!(fixture.all().switch_anchor(MAIN, second.id, 2).unwrap());
    assert_eq!(fixture.run("b", "cat a"), "2\n");
    fixture.all().remove("b").unwrap();
    let directory = fixture.all().anchor_directory(MAIN);
    assert!(!directory.exists() && fixture.all().followed("b").is_none());
    assert_eq!(overlay::mounted(&fixture.holder, fixture.home.path()).unwrap(), Vec::<PathBuf>::new());
    fixture.all().collect_layers(UnusedLayers::All).unwrap();
    assert_eq!(layer_directories(&fixture), 0);
    // The same name can be used again.
    follow(&fixture, "c", MAIN, &first);
    assert_eq!(fixture.run("c", "cat a"), "1\n");
}

fn followers_are_loaded_after_a_restart() {
    let mut fixture = Fixture::new(Setting::OVERLAY);
    let first = head(&fixture, 1, NO_PARENT);
    follow(&fixture, "a", MAIN, &first);
    let root = open_head(&fixture);
    let second = head(&fixture, 2, Some(&first));
    fixture.all().switch_anchor(MAIN, second.id, 2).unwrap();
    fixture.open();
    assert_eq!(shown(&fixture, "a"), ShownHead { snapshot: second.id, sequence: 2 });
    assert_eq!(fixture.run("a", "cat a b"), "2\n2\n");
    let third = head(&fixture, 3, Some(&second));
    assert!(fixture.all().switch_anchor(MAIN, third.id, 3).unwrap());
    assert_eq!(fixture.run("a", "cat a b"), "3\n3\n");
    // A watch (inotify) reports that no process uses a head any more. That of the first head ended with the restart, so
    // the layers of this head are kept.
    fixture.all().release_former_heads();
    fixture.all().collect_layers(UnusedLayers::All).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&root)));
    assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "1\n");
    assert_eq!(fixture.commit("a").tree, third.tree);
}

fn the_next_switch_cleans_up_an_interrupted_switch() {
    let mut fixture = Fixture::new(Setting::OVERLAY);
    let first = head(&fixture, 1, NO_PARENT);
    follow(&fixture, "a", MAIN, &first);
    let directory = fixture.all().anchor_directory(MAIN);
    let layer = fixture.home.path().join("layer");
    fs::create_dir(&layer).unwrap();
    let empty = fixture.home.path().join("empty");
    fs::create_dir(&empty).unwrap();
    // A helper process of the switch is killed after the new head is mounted beneath the former one.
    let step = anchor::AnchorStep::Mounted;
    anchor::switch_killed(&fixture.holder, &directory, &[layer, empty], step).unwrap_err();
    fixture.open();
    assert_eq!(fixture.run("a", "cat a"), "1\n");
    let second = head(&fixture, 2, Some(&first));
    assert!(fixture.all().switch_anchor(MAIN, second.id, 2).unwrap());
    assert_eq!(fixture.run("a", "cat a"), "2\n");
    assert_eq!(overlay::mounted(&fixture.holder, &directory).unwrap().len(), 2);
}

fn an_unused_anchor_is_removed_at_the_next_start() {
    let mut fixture = Fixture::new(Setting::OVERLAY);
    let first = head(&fixture, 1, NO_PARENT);
    follow(&fixture, "a", MAIN, &first);
    let directory = fixture.all().anchor_directory(MAIN);
    fixture.workspaces = None;
    // Simulates a server that was killed before it wrote the record of the only follower.
    fs::remove_file(fixture.home.path().join("workspaces/a/record")).unwrap();
    fixture.open();
    assert!(fixture.all().get("a").is_err() && !directory.exists());
    assert_eq!(overlay::mounted(&fixture.holder, fixture.home.path()).unwrap(), Vec::<PathBuf>::new());
}

/// Simulates a head that a killed server left mounted, and that could not be removed at the next start.
fn a_head_that_was_left_mounted_is_replaced() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let directory = fixture.all().anchor_directory(MAIN);
    let layers = ["left", "left-empty"].map(|name| fixture.home.path().join(name));
    for path in [&directory, &layers[0], &layers[1]] {
        fs::create_dir_all(path).unwrap();
    }
    fs::write(layers[0].join("a"), "left\n").unwrap();
    assert!(anchor::mount_unless_mounted(&fixture.holder, &directory, &layers).unwrap());
    let first = head(&fixture, 1, NO_PARENT);
    follow(&fixture, "a", MAIN, &first);
    assert_eq!(fixture.run("a", "cat a b"), "1\n1\n");
    assert_eq!(shown(&fixture, "a"), ShownHead { snapshot: first.id, sequence: 1 });
    assert_eq!(overlay::mounted(&fixture.holder, &directory).unwrap().len(), 2);
    assert!(!fixture.all().switch_anchor(MAIN, first.id, 2).unwrap(), "the head is mounted");
    let second = head(&fixture, 2, Some(&first));
    assert!(fixture.all().switch_anchor(MAIN, second.id, 2).unwrap());
    assert_eq!(fixture.run("a", "cat a b"), "2\n2\n");
    fixture.all().remove("a").unwrap();
    assert!(!directory.exists());
}

fn a_follower_moves_to_another_anchor() {
    let mut fixture = Fixture::new(Setting::OVERLAY);
    let (first, other) = (head(&fixture, 1, NO_PARENT), head(&fixture, 100, NO_PARENT));
    follow(&fixture, "a", MAIN, &first);
    let to = AnchorToFollow { name: "other", sequence: 7 };
    let directory = fixture.all().begin_anchor_change("a", &to, other.id).unwrap();
    assert_eq!(directory, Some(fixture.all().anchor_directory("other")));
    assert_eq!(shown(&fixture, "a").snapshot, first.id, "its processes still use the former anchor");
    fixture.all().finish_anchor_change("a", "other").unwrap();
    assert_eq!(shown(&fixture, "a"), ShownHead { snapshot: other.id, sequence: 7 });
    assert!(!fixture.all().anchor_directory(MAIN).exists());
    assert_eq!(fixture.all().begin_anchor_change("a", &to, other.id).unwrap(), None);
    fixture.open();
    assert_eq!(fixture.run("a", "cat a"), "100\n");
    let committed = fixture.all().commit("a", NewSnapshot::default(), Writers::Running).unwrap();
    assert_eq!(committed.snapshot.tree, other.tree);
}

fn a_change_of_the_anchor_that_cannot_be_recorded_is_repeated() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let (first, other) = (head(&fixture, 1, NO_PARENT), head(&fixture, 100, NO_PARENT));
    follow(&fixture, "a", MAIN, &first);
    let to = AnchorToFollow { name: "other", sequence: 7 };
    fixture.all().begin_anchor_change("a", &to, other.id).unwrap();
    // A directory in the place of the new record keeps it from being written.
    let obstacle = fixture.all().directory_of("a").join("record.new");
    fs::create_dir(&obstacle).unwrap();
    fixture.all().finish_anchor_change("a", "other").unwrap_err();
    assert_eq!(fixture.all().followed("a").unwrap().0, MAIN);
    fs::remove_dir(&obstacle).unwrap();
    assert!(fixture.all().begin_anchor_change("a", &to, other.id).unwrap().is_some());
    fixture.all().finish_anchor_change("a", "other").unwrap();
    assert_eq!(fixture.all().followed("a").unwrap().0, "other");
    assert!(!fixture.all().anchor_directory(MAIN).exists(), "the former anchor is not left behind");
}

fn layers_of_a_removed_anchor_stay_while_a_former_follower_uses_them() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let (first, other) = (head(&fixture, 1, NO_PARENT), head(&fixture, 100, NO_PARENT));
    follow(&fixture, "a", MAIN, &first);
    let open_root = open_head(&fixture);
    let to = AnchorToFollow { name: "other", sequence: 7 };
    fixture.all().begin_anchor_change("a", &to, other.id).unwrap();
    fixture.all().finish_anchor_change("a", "other").unwrap();
    assert!(!fixture.all().anchor_directory(MAIN).exists());
    fixture.all().release_former_heads();
    fixture.all().collect_layers(UnusedLayers::All).unwrap();
    assert_eq!(layer_directories(&fixture), 2);
    let path = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open_root)));
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "1\n");
    drop(open_root);
    let deadline = Instant::now() + Duration::from_secs(10);
    while layer_directories(&fixture) != 1 {
        assert!(Instant::now() < deadline, "the layers of the removed anchor stay");
        fixture.all().release_former_heads();
        fixture.all().collect_layers(UnusedLayers::All).unwrap();
        std::thread::yield_now();
    }
}
