//! Processes that are killed at random moments while they work on workspaces: the next one finds everything
//! that was acknowledged, and nothing half made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_host::Holder;
use workspace_host::overlay;
use workspace_state::{NewSnapshot, SnapshotId, Store};
use workspace_workspace::{Kind, Materialize, New, Phase, Workspaces};

use crate::fixture::{Fixture, Setting, options};
use crate::listing::listing;

/// Argument that makes this program work until it is killed.
const WORD: &str = "work-until-killed";
const FILES: &str = "mkdir -p d/e; seq 2000 > d/e/list; echo base > mark; ln mark d/linked; chmod 750 d";

/// Runs the work if the argument says so.
pub(crate) fn entry() -> Option<ExitCode> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [word, home, kind, snapshot, seed] = words.as_slice() else { return None };
    if word != WORD {
        return None;
    }
    let work = Work::new(Path::new(home), kind.parse().unwrap(), snapshot.parse().unwrap());
    let seed: u64 = seed.parse().unwrap();
    for step in 0.. {
        work.step(seed * 1000 + step);
    }
    Some(ExitCode::SUCCESS)
}

struct Work {
    home: std::path::PathBuf,
    holder: Holder,
    all: Workspaces,
    base: SnapshotId,
}

impl Work {
    fn new(home: &Path, kind: Kind, base: SnapshotId) -> Self {
        let store = Store::open(home.join("store")).unwrap();
        let holder = Holder::find_or_start(home).unwrap();
        let all = Workspaces::open(options(home, &store, &holder, kind)).unwrap();
        Self { home: home.to_owned(), holder, all, base }
    }

    /// Appends a line about an operation that begins or ended to a file, in one call.
    fn say(&self, line: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.home.join("said")).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn step(&self, step: u64) {
        let word = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let id = format!("w{}", word % 4);
        if self.all.path(&id).is_err() {
            self.say(&format!("begin {id} base"));
            self.all.create(&id, &New { snapshot: Some(self.base), ..New::default() }).unwrap();
            return self.say(&format!("done {id} base"));
        }
        match word / 4 % 6 {
            0 | 1 => {
                self.say(&format!("begin {id} {step}"));
                let path = self.all.path(&id).unwrap();
                let mut shell = overlay::command(&self.holder, "/bin/sh".as_ref());
                let script = "cd \"$1\" && echo $2 > mark.new && mv mark.new mark";
                shell.args(["-ec", script, "sh"]).arg(path).arg(step.to_string());
                assert!(shell.status().unwrap().success());
                self.say(&format!("done {id} {step}"));
            }
            2 | 3 => drop(self.all.commit(&id, NewSnapshot::with_message("test"), false).unwrap()),
            4 => {
                self.say(&format!("begin {id} base"));
                let switched = self.all.reset(&id, Some(self.base), Materialize::Auto, true).unwrap();
                if switched.moved {
                    self.all.switched(&id).unwrap();
                }
                self.say(&format!("done {id} base"));
            }
            _ => {
                self.say(&format!("begin {id} -"));
                self.all.cleanup(&id).unwrap();
                self.say(&format!("done {id} -"));
            }
        }
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let settings = Setting::all().into_iter().filter(|setting| setting.filesystem != Some("btrfs"));
    settings
        .map(|setting| setting.trial("killed_at_any_moment_nothing_is_lost_or_left", move || run(setting)))
        .collect()
}

fn run(setting: Setting) {
    let times = std::env::var("WORKSPACE_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let mut fixture = Fixture::new(setting);
    let base = fixture.snapshot(FILES);
    let wanted = fixture.checked_out(&base);
    let mut held: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for seed in 0..times {
        fixture.workspaces = None;
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.arg(WORD).arg(fixture.home.path()).arg(setting.kind.to_string());
        let mut child = child.args([base.id.to_string(), seed.to_string()]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 + seed * 97 % 500));
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        fixture.open();
        take(&mut held, &fs::read_to_string(fixture.home.path().join("said")).unwrap_or_default());
        drop(fs::remove_file(fixture.home.path().join("said")));
        check(&fixture, &mut held);
        check_layers(&fixture, &wanted);
    }
    for state in fixture.all().list().unwrap() {
        fixture.all().cleanup(&state.id).unwrap();
    }
    assert_eq!(fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count(), 0);
    assert!(fixture.store.pins().unwrap().is_empty());
    assert!(overlay::mounted(&fixture.holder, &fixture.home.path().join("workspaces")).unwrap().is_empty());
    fixture.all().create("last", &New { snapshot: Some(base.id), ..New::default() }).unwrap();
    assert_eq!(fixture.seen("last"), wanted);
}

/// Updates the possible contents of every workspace from the log. `-` stands for a missing one.
fn take(held: &mut BTreeMap<String, BTreeSet<String>>, said: &str) {
    for line in said.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [word, id, value] = words.as_slice() else { panic!("{line}") };
        let may = held.entry((*id).to_owned()).or_insert_with(|| BTreeSet::from(["-".to_owned()]));
        if *word == "done" {
            may.clear();
        }
        may.insert((*value).to_owned());
    }
}

fn check(fixture: &Fixture, held: &mut BTreeMap<String, BTreeSet<String>>) {
    let states = fixture.all().list().unwrap();
    let (mut pins, mut mounts) = (BTreeSet::new(), BTreeSet::new());
    for state in &states {
        let record = state.record.as_ref().unwrap_or_else(|error| panic!("{}: {error}", state.id));
        assert!(held.contains_key(&state.id), "{} was never made", state.id);
        for generation in [&record.current].into_iter().chain(&record.former) {
            pins.extend(generation.pin.map(|pin| pin.to_string()));
            let mount =
                fixture.home.path().join("workspaces").join(&state.id).join(generation.number.to_string());
            mounts.insert(fs::canonicalize(mount).unwrap().join("mount"));
        }
        if record.phase == Phase::Switching {
            fixture.all().switched(&state.id).unwrap();
        }
    }
    for (id, may) in held {
        let there = states.iter().any(|state| state.id == *id);
        let holds = if there { fixture.run(id, "cat mark").trim().to_owned() } else { "-".to_owned() };
        assert!(may.contains(&holds), "{id} holds {holds}, not one of {may:?}");
        *may = BTreeSet::from([holds]);
        if there {
            let committed = fixture.commit(id);
            assert_eq!(fixture.checked_out(&committed), fixture.seen(id));
        }
    }
    let found: BTreeSet<_> = fixture.store.pins().unwrap().iter().map(|pin| pin.id.to_string()).collect();
    assert_eq!(found, pins);
    let found = overlay::mounted(&fixture.holder, &fixture.home.path().join("workspaces")).unwrap();
    let once: BTreeSet<_> = found.iter().cloned().collect();
    assert_eq!(found.len(), once.len(), "{found:?}");
    assert!(once.is_subset(&mounts), "{once:?} and {mounts:?}");
    let names = fs::read_dir(fixture.home.path().join("workspaces")).unwrap().count();
    assert_eq!(names, states.len());
}

fn check_layers(fixture: &Fixture, wanted: &str) {
    for entry in fs::read_dir(fixture.home.path().join("layers/layers")).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.path().join("layer").exists(), "{entry:?}");
        if entry.file_name().to_string_lossy().starts_with("base") {
            let held = listing(&entry.path().join("tree"));
            let roots: Vec<_> = fixture.store.snapshots().unwrap();
            assert!(held == wanted || roots.iter().any(|one| fixture.checked_out(one) == held), "{entry:?}");
        }
    }
}
