//! What workspaces lie over: layers that are shared, written ahead or loaded as they are read.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_state::Snapshot;
use workspace_workspace::{Materialize, New};

use crate::world::{Setting, World};

/// More than are written at once.
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
        add("a_step_costs_a_layer_of_its_change", a_step_costs_a_layer_of_its_change),
        add("a_long_line_of_steps_stays_a_short_stack", a_long_line_of_steps_stays_a_short_stack),
    ]
}

fn from(snapshot: &Snapshot, materialize: Materialize) -> New<'static> {
    New { snapshot: Some(snapshot.id), materialize, ..New::default() }
}

fn a_large_snapshot_is_usable_before_it_is_written() {
    let mut world = World::with_view(Setting::OVERLAY);
    let snapshot = world.snapshot(MANY);
    let first = world.all().create("a", &from(&snapshot, Materialize::Auto)).unwrap();
    assert!(first.lazy);
    assert_eq!(world.seen("a"), world.checked_out(&snapshot));
    world.run("a", "echo changed > 1/xaaa; rm -r 2; mv 3 moved; echo new > new");
    let until = Instant::now() + Duration::from_secs(60);
    while world.all().is_materializing() {
        assert!(Instant::now() < until, "it is still being written");
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = world.all().create("b", &from(&snapshot, Materialize::Auto)).unwrap();
    assert!(!second.lazy);
    assert_eq!(world.seen("b"), world.checked_out(&snapshot));
    // The first goes on over what it was made on, also with another process.
    world.open();
    let committed = world.commit("a");
    assert_eq!(world.checked_out(&committed), world.seen("a"));
    world.all().create("c", &from(&committed, Materialize::Auto)).unwrap();
    assert_eq!(world.seen("c"), world.seen("a"));
    let lazy = world.all().create("d", &from(&world.snapshot(MANY), Materialize::Lazy)).unwrap();
    assert!(lazy.lazy && !world.all().is_materializing());
    let full = world.all().create("e", &from(&world.snapshot(MANY), Materialize::Full)).unwrap();
    assert!(!full.lazy);
}

fn layers(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.home.path().join("layers/layers")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn a_step_costs_a_layer_of_its_change() {
    let world = World::new(Setting::OVERLAY);
    let base =
        world.snapshot("mkdir -p a/b c; echo 1 > a/b/file; echo 2 > c/file; echo 3 > top; chmod 555 c");
    world.all().create("first", &from(&base, Materialize::Auto)).unwrap();
    world.run("first", "echo more > a/b/more; chmod 755 c; rm c/file; chmod 555 c; touch -d 2001-01-01 top");
    let next = world.commit("first");
    world.all().create("second", &from(&next, Materialize::Auto)).unwrap();
    assert_eq!(world.seen("second"), world.seen("first"));
    let delta = layers(&world).into_iter().find(|name| name.starts_with("delta")).unwrap();
    let tree = world.home.path().join("layers/layers").join(delta).join("tree");
    let listed = crate::listing::listing(&tree);
    let names: Vec<_> = listed.lines().map(|line| line.split('\t').next().unwrap()).collect();
    // What changed, where it is, a whiteout, and what only has another time.
    assert_eq!(names, [r#""""#, r#""a""#, r#""a/b""#, r#""a/b/more""#, r#""c""#, r#""c/file""#, r#""top""#]);
}

fn a_long_line_of_steps_stays_a_short_stack() {
    let world = World::new(Setting::OVERLAY);
    let mut snapshot = world.snapshot("mkdir d; seq 100 > d/list");
    for step in 0..40 {
        let id = format!("step-{step}");
        world.all().create(&id, &from(&snapshot, Materialize::Auto)).unwrap();
        world.run(&id, &format!("echo {step} > d/{step}; rm -f d/$(({step} - 3))"));
        snapshot = world.commit(&id);
        assert!(world.all().record(&id).unwrap().current.layers.len() <= 25);
    }
    world.all().create("last", &from(&snapshot, Materialize::Auto)).unwrap();
    assert_eq!(world.seen("last"), world.checked_out(&snapshot));
    let bases = layers(&world).iter().filter(|name| name.starts_with("base")).count();
    assert_eq!(bases, 1);
}
