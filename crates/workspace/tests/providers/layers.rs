//! Layers: read-only directories with the files of snapshots, the lower directories of overlays. Workspaces share them.
//!
//! A *stack* is the list of layers that together show one tree: a *base* with the whole tree, and *deltas* over it,
//! each with the changes since the layer below. Large trees are written in the background. Until then, the *lazy mount*
//! is the lower directory: a FUSE mount that loads files on first read. `fixture.all()` is the set of workspaces under
//! test. `fixture.seen(id)` is a listing of a workspace, and `fixture.checked_out(&snapshot)` a listing of a snapshot
//! in the same format. `fixture.snapshot(script)` commits the files that a script makes in a new directory.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_state::Snapshot;
use workspace_workspace::{Materialize, NewWorkspace};

use crate::fixture::{Fixture, Setting};

/// Script that creates 1,500 files: too many to be written before the workspace is created.
const MANY: &str =
    "for d in 1 2 3 4 5 6; do mkdir $d; (cd $d; seq 250 | split -l 1 -a 3); done; chmod 700 3/xaaa";

pub(crate) fn trials() -> Vec<Trial> {
    let add = |name: &str, test: fn()| {
        Trial::test(format!("layers::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        add(
            "a_large_snapshot_is_usable_before_it_is_written",
            a_large_snapshot_is_usable_before_it_is_written,
        ),
        add("a_commit_adds_only_a_delta_layer", a_commit_adds_only_a_delta_layer),
        add("a_long_history_has_a_bounded_stack", a_long_history_has_a_bounded_stack),
    ]
}

/// Returns the parameters of a workspace that is created from a snapshot.
fn from(snapshot: &Snapshot, materialize: Materialize) -> NewWorkspace<'static> {
    NewWorkspace { snapshot: Some(snapshot.id), materialize, ..NewWorkspace::default() }
}

fn a_large_snapshot_is_usable_before_it_is_written() {
    let mut fixture = Fixture::with_lazy_mount(Setting::OVERLAY);
    let snapshot = fixture.snapshot(MANY);
    let first = fixture.all().create("a", &from(&snapshot, Materialize::Auto)).unwrap();
    assert!(first.lazy);
    assert_eq!(fixture.seen("a"), fixture.checked_out(&snapshot));
    fixture.run("a", "echo changed > 1/xaaa; rm -r 2; mv 3 moved; echo new > new");
    let deadline = Instant::now() + Duration::from_secs(60);
    while fixture.all().is_materializing() {
        assert!(Instant::now() < deadline, "the snapshot is still being written");
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = fixture.all().create("b", &from(&snapshot, Materialize::Auto)).unwrap();
    assert!(!second.lazy);
    assert_eq!(fixture.seen("b"), fixture.checked_out(&snapshot));
    // The first workspace still uses the lazy mount, also when the workspaces are opened again, as after a restart.
    fixture.open();
    let committed = fixture.commit("a");
    assert_eq!(fixture.checked_out(&committed), fixture.seen("a"));
    fixture.all().create("c", &from(&committed, Materialize::Auto)).unwrap();
    assert_eq!(fixture.seen("c"), fixture.seen("a"));
    // New snapshots: their files have other times, so there are no layers of them yet.
    let lazy = fixture.all().create("d", &from(&fixture.snapshot(MANY), Materialize::Lazy)).unwrap();
    assert!(lazy.lazy && !fixture.all().is_materializing());
    let full = fixture.all().create("e", &from(&fixture.snapshot(MANY), Materialize::Full)).unwrap();
    assert!(!full.lazy);
}

/// Returns the names of all layers on disk.
fn layers(fixture: &Fixture) -> Vec<String> {
    let entries = std::fs::read_dir(fixture.home.path().join("layers/layers")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn a_commit_adds_only_a_delta_layer() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let base =
        fixture.snapshot("mkdir -p a/b c; echo 1 > a/b/file; echo 2 > c/file; echo 3 > top; chmod 555 c");
    fixture.all().create("first", &from(&base, Materialize::Auto)).unwrap();
    fixture
        .run("first", "echo more > a/b/more; chmod 755 c; rm c/file; chmod 555 c; touch -d 2001-01-01 top");
    let next = fixture.commit("first");
    fixture.all().create("second", &from(&next, Materialize::Auto)).unwrap();
    assert_eq!(fixture.seen("second"), fixture.seen("first"));
    let delta = layers(&fixture).into_iter().find(|name| name.starts_with("delta")).unwrap();
    let tree = fixture.home.path().join("layers/layers").join(delta).join("tree");
    let listed = crate::listing::listing(&tree);
    let names: Vec<_> = listed.lines().map(|line| line.split('\t').next().unwrap()).collect();
    // The new file `a/b/more` with its parent directories, the whiteout `c/file` (which marks the file as removed) with
    // its parent directory, and `top`, of which only the time changed.
    assert_eq!(names, [r#""""#, r#""a""#, r#""a/b""#, r#""a/b/more""#, r#""c""#, r#""c/file""#, r#""top""#]);
}

fn a_long_history_has_a_bounded_stack() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let mut snapshot = fixture.snapshot("mkdir d; seq 100 > d/list");
    for step in 0..40 {
        let id = format!("step-{step}");
        fixture.all().create(&id, &from(&snapshot, Materialize::Auto)).unwrap();
        fixture.run(&id, &format!("echo {step} > d/{step}; rm -f d/$(({step} - 3))"));
        snapshot = fixture.commit(&id);
        assert!(fixture.all().record(&id).unwrap().current.layers.len() <= 25);
    }
    fixture.all().create("last", &from(&snapshot, Materialize::Auto)).unwrap();
    assert_eq!(fixture.seen("last"), fixture.checked_out(&snapshot));
    let bases = layers(&fixture).iter().filter(|name| name.starts_with("base")).count();
    assert_eq!(bases, 1);
}
