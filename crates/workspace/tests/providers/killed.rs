//! Processes that are killed at different moments while they operate on workspaces: the next process finds every
//! acknowledged operation, and nothing incomplete.
//!
//! Each workspace has a file `mark`, whose content says which operation was the last. The process appends a line to a
//! log before and after each operation that changes it. After a kill, the test compares the workspaces with that log.
//! `fixture.all()` is the set of workspaces under test. `fixture.seen(id)` is a listing of a workspace, and
//! `fixture.checked_out(&snapshot)` a listing of a snapshot in the same format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_host::NamespaceHolder;
use workspace_host::overlay;
use workspace_state::{NewSnapshot, SnapshotId, Store};
use workspace_workspace::{Materialize, NewWorkspace, Phase, ProviderKind, ResetMode, Workspaces, Writers};

use crate::fixture::{Fixture, Setting, options};
use crate::listing::listing;

/// Subcommand of this program that operates on workspaces until the process is killed.
const SUBCOMMAND: &str = "work-until-killed";
/// Script that creates the files of the base snapshot.
const FILES: &str = "mkdir -p d/e; seq 2000 > d/e/list; echo base > mark; ln mark d/linked; chmod 750 d";

/// Operates on workspaces until the process is killed, if the first argument is [`SUBCOMMAND`]. Returns `None` if it is
/// not.
pub(crate) fn entry() -> Option<ExitCode> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [subcommand, home, kind, snapshot, seed] = args.as_slice() else { return None };
    if subcommand != SUBCOMMAND {
        return None;
    }
    let work = Work::new(Path::new(home), kind.parse().unwrap(), snapshot.parse().unwrap());
    let seed: u64 = seed.parse().unwrap();
    for step in 0.. {
        work.step(seed * 1000 + step);
    }
    Some(ExitCode::SUCCESS)
}

/// Workspaces on which the process operates.
struct Work {
    /// Home directory of the fixture.
    home: std::path::PathBuf,
    /// Holder of the namespaces in which overlays are mounted.
    holder: NamespaceHolder,
    /// Set of workspaces.
    all: Workspaces,
    /// Snapshot from which workspaces are created, and to which they are reset.
    base: SnapshotId,
}

impl Work {
    fn new(home: &Path, kind: ProviderKind, base: SnapshotId) -> Self {
        let store = Store::open(home.join("store")).unwrap();
        let holder = NamespaceHolder::find_or_start(home).unwrap();
        let all = Workspaces::open(options(home, &store, &holder, kind)).unwrap();
        Self { home: home.to_owned(), holder, all, base }
    }

    /// Appends a line about the start or end of an operation to the log file, in one `write`.
    fn log(&self, line: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.home.join("log")).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Runs one pseudo-random operation, which only depends on the number `step` and the existing workspaces.
    fn step(&self, step: u64) {
        let random = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let id = format!("w{}", random % 4);
        if self.all.path(&id).is_err() {
            self.log(&format!("begin {id} base"));
            self.all
                .create(&id, &NewWorkspace { snapshot: Some(self.base), ..NewWorkspace::default() })
                .unwrap();
            return self.log(&format!("done {id} base"));
        }
        match random / 4 % 6 {
            0 | 1 => {
                self.log(&format!("begin {id} {step}"));
                let path = self.all.path(&id).unwrap();
                let mut shell = overlay::command(&self.holder, "/bin/sh".as_ref());
                let script = "cd \"$1\" && echo $2 > mark.new && mv mark.new mark";
                shell.args(["-ec", script, "sh"]).arg(path).arg(step.to_string());
                assert!(shell.status().unwrap().success());
                self.log(&format!("done {id} {step}"));
            }
            2 | 3 => drop(self.all.commit(&id, NewSnapshot::with_message("test"), Writers::Running).unwrap()),
            4 => {
                self.log(&format!("begin {id} base"));
                let reset =
                    self.all.reset(&id, Some(self.base), Materialize::Auto, ResetMode::MayMove).unwrap();
                if reset.moved {
                    self.all.finish_reset(&id).unwrap();
                }
                self.log(&format!("done {id} base"));
            }
            _ => {
                self.log(&format!("begin {id} -"));
                self.all.remove(&id).unwrap();
                self.log(&format!("done {id} -"));
            }
        }
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let settings = Setting::all().into_iter().filter(|setting| setting.filesystem != Some("btrfs"));
    settings
        .map(|setting| setting.trial("a_kill_at_any_moment_loses_and_leaves_nothing", move || run(setting)))
        .collect()
}

/// Kills a process several times (`WORKSPACE_TEST_KILLS`, default: 8), and checks the workspaces after each kill.
fn run(setting: Setting) {
    let kills = std::env::var("WORKSPACE_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let mut fixture = Fixture::new(setting);
    let base = fixture.snapshot(FILES);
    let expected = fixture.checked_out(&base);
    // Possible contents of `mark` by workspace.
    let mut contents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for seed in 0..kills {
        fixture.workspaces = None;
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.arg(SUBCOMMAND).arg(fixture.home.path()).arg(setting.kind.to_string());
        let child = child.args([base.id.to_string(), seed.to_string()]).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 + seed * 97 % 500));
        assert!(child.try_wait().unwrap().is_none(), "the process exited by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        // A shell that the process started goes on. Waits for its end: until then, the pipe stays open.
        std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
        fixture.open();
        update(&mut contents, &fs::read_to_string(fixture.home.path().join("log")).unwrap_or_default());
        drop(fs::remove_file(fixture.home.path().join("log")));
        check(&fixture, &mut contents);
        check_layers(&fixture, &expected);
    }
    for entry in fixture.all().list().unwrap() {
        fixture.all().remove(&entry.id).unwrap();
    }
    assert_eq!(fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count(), 0);
    assert!(fixture.store.pins().unwrap().is_empty());
    assert!(overlay::mounted(&fixture.holder, &fixture.home.path().join("workspaces")).unwrap().is_empty());
    fixture
        .all()
        .create("last", &NewWorkspace { snapshot: Some(base.id), ..NewWorkspace::default() })
        .unwrap();
    assert_eq!(fixture.seen("last"), expected);
}

/// Updates the possible contents of `mark` of every workspace from the log. `-` stands for a missing workspace.
fn update(contents: &mut BTreeMap<String, BTreeSet<String>>, log: &str) {
    for line in log.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [event, id, value] = fields.as_slice() else { panic!("{line}") };
        let possible = contents.entry((*id).to_owned()).or_insert_with(|| BTreeSet::from(["-".to_owned()]));
        if *event == "done" {
            possible.clear();
        }
        possible.insert((*value).to_owned());
    }
}

/// Checks that workspaces have a possible content and can be committed, and that there are no other pins, mounts and
/// directories than theirs. Then each workspace has only one possible content.
fn check(fixture: &Fixture, contents: &mut BTreeMap<String, BTreeSet<String>>) {
    let states = fixture.all().list().unwrap();
    let (mut pins, mut mounts) = (BTreeSet::new(), BTreeSet::new());
    for state in &states {
        let record = state.record.as_ref().unwrap_or_else(|error| panic!("{}: {error}", state.id));
        assert!(contents.contains_key(&state.id), "{} was never created", state.id);
        for generation in [&record.current].into_iter().chain(&record.former) {
            pins.extend(generation.pin.map(|pin| pin.to_string()));
            let mount =
                fixture.home.path().join("workspaces").join(&state.id).join(generation.number.to_string());
            mounts.insert(fs::canonicalize(mount).unwrap().join("mount"));
        }
        if record.phase == Phase::Resetting {
            fixture.all().finish_reset(&state.id).unwrap();
        }
    }
    for (id, possible) in contents {
        let exists = states.iter().any(|state| state.id == *id);
        let mark = if exists { fixture.run(id, "cat mark").trim().to_owned() } else { "-".to_owned() };
        assert!(possible.contains(&mark), "{id} holds {mark}, not one of {possible:?}");
        *possible = BTreeSet::from([mark]);
        if exists {
            let committed = fixture.commit(id);
            assert_eq!(fixture.checked_out(&committed), fixture.seen(id));
        }
    }
    // Removes temporary snapshots that the killed process had made during resets, as a server does when it starts.
    fixture.store.remove_snapshots(&fixture.store.abandoned_snapshots().unwrap()).unwrap();
    let found: BTreeSet<_> = fixture.store.pins().unwrap().iter().map(|pin| pin.id.to_string()).collect();
    assert_eq!(found, pins);
    let found = overlay::mounted(&fixture.holder, &fixture.home.path().join("workspaces")).unwrap();
    let distinct: BTreeSet<_> = found.iter().cloned().collect();
    assert_eq!(found.len(), distinct.len(), "{found:?}");
    assert!(distinct.is_subset(&mounts), "{distinct:?} and {mounts:?}");
    let names = fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count();
    assert_eq!(names, states.len());
}

/// Checks that all layers (lower directories of overlays) on disk are complete. `expected` is the listing of the base
/// snapshot.
fn check_layers(fixture: &Fixture, expected: &str) {
    for entry in fs::read_dir(fixture.home.path().join("layers/layers")).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.path().join("layer").exists(), "{entry:?}");
        if entry.file_name().to_string_lossy().starts_with("base") {
            let listed = listing(&entry.path().join("tree"));
            let snapshots: Vec<_> = fixture.store.snapshots().unwrap();
            assert!(
                listed == expected
                    || snapshots.iter().any(|snapshot| fixture.checked_out(snapshot) == listed),
                "{entry:?}"
            );
        }
    }
}
