//! Measurements through the library, in one process with an open store.
//!
//! Every round opens the store again and runs all kinds of work in turn, so that a disturbance of the machine
//! affects all of them alike. The raw appends with which synced commits are compared run between them.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Instant;

use serde::Serialize;
use workspace_state::{Durability, NewSnapshot, Snapshot, SnapshotId, Store, Tree, VirtualTree, diff};

use crate::failure::Failure;
use crate::plan::{Kind, Parameters, Plan};
use crate::rng::Rng;
use crate::stats::{Latency, Spread};
use crate::text::{Language, Writer};

/// Commits of each kind in a round.
const COMMITS: usize = 200;
/// Synced commits and raw appends alternate in runs of this length.
const RUN: usize = 20;
const COMMITTERS: usize = 16;
const COMMITS_PER_COMMITTER: usize = 50;
const CLONES: usize = 1_000;
const DIFFS: usize = 100;
const DIFFERENT: usize = 10;
/// Size of a changed file: one chunk.
const CHANGE: usize = 4 << 10;
/// Largest file of the base tree, which is small: the measurements depend on the number of files, and all are
/// in memory at first.
const BASE_FILE_MAX: usize = 8 << 10;

/// Results of all measurements, for the harness.
#[derive(Serialize)]
struct Numbers {
    files: usize,
    open: Latency,
    buffered: Latency,
    buffered_first: Latency,
    synced: Latency,
    append: Latency,
    rates: Rates,
    clone: Latency,
    restore: Latency,
    restore_read: Latency,
    diff: Latency,
    diff_first: Latency,
}

/// Synced commits per second, one number a round.
#[derive(Serialize)]
struct Rates {
    one: Spread,
    sixteen: Spread,
}

#[derive(Default)]
struct Samples {
    open: Vec<f64>,
    buffered: Vec<f64>,
    buffered_first: Vec<f64>,
    synced: Vec<f64>,
    append: Vec<f64>,
    one: Vec<f64>,
    sixteen: Vec<f64>,
    clone: Vec<f64>,
    restore: Vec<f64>,
    restore_read: Vec<f64>,
    diff: Vec<f64>,
    diff_first: Vec<f64>,
}

impl Samples {
    fn summarize(&mut self, files: usize) -> Numbers {
        Numbers {
            files,
            open: Latency::of(&mut self.open),
            buffered: Latency::of(&mut self.buffered),
            buffered_first: Latency::of(&mut self.buffered_first),
            synced: Latency::of(&mut self.synced),
            append: Latency::of(&mut self.append),
            rates: Rates { one: Spread::of(&mut self.one), sixteen: Spread::of(&mut self.sixteen) },
            clone: Latency::of(&mut self.clone),
            restore: Latency::of(&mut self.restore),
            restore_read: Latency::of(&mut self.restore_read),
            diff: Latency::of(&mut self.diff),
            diff_first: Latency::of(&mut self.diff_first),
        }
    }
}

/// State of a round.
struct Round<'a> {
    store: Store,
    base: &'a Snapshot,
    changed: &'a Snapshot,
    paths: &'a [String],
    editor: Editor,
    samples: &'a mut Samples,
}

/// Source of unique changes.
struct Editor {
    rng: Rng,
    writer: Writer,
}

impl Editor {
    fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), writer: Writer::new() }
    }

    fn content(&mut self) -> Vec<u8> {
        self.writer.text(&mut self.rng, Language::Braces, CHANGE)
    }
}

/// Measures in `dir`, which must be empty, and prints JSON or a table.
pub(crate) fn run(dir: &Path, files: usize, rounds: usize, json: bool) -> Result<(), Failure> {
    let store = dir.join("store");
    let plan = Plan::new(Parameters { files, seed: 1, median: 512 });
    let paths = regular_paths(&plan);
    let (base, changed) = prepare(&store, &plan, &paths)?;
    let mut samples = Samples::default();
    for round in 0..rounds {
        let (store, elapsed) = timed(|| Store::open(&store))?;
        samples.open.push(elapsed);
        let editor = Editor::new(100 + round as u64);
        let samples = &mut samples;
        let mut round = Round { store, base: &base, changed: &changed, paths: &paths, editor, samples };
        round.measure(dir)?;
    }
    let numbers = samples.summarize(files);
    if json {
        println!("{}", serde_json::to_string_pretty(&numbers)?);
    } else {
        print(&numbers);
    }
    Ok(())
}

/// Returns the regular files of a plan.
pub(crate) fn regular_paths(plan: &Plan) -> Vec<String> {
    let regular = plan.files.iter().filter(|entry| !matches!(entry.kind, Kind::Symlink(_)));
    regular.map(|entry| plan.path(entry)).collect()
}

/// Creates the base snapshot, and one in which a few files differ.
fn prepare(store: &Path, plan: &Plan, paths: &[String]) -> Result<(Snapshot, Snapshot), Failure> {
    let store = Store::open_or_create(store)?;
    let writer = Writer::new();
    let mut tree = store.empty_tree()?;
    for entry in &plan.files {
        if !matches!(entry.kind, Kind::Symlink(_)) {
            let mut rng = Rng::for_item(plan.parameters.seed, entry.content);
            let size = entry.size.min(BASE_FILE_MAX);
            tree.write(plan.path(entry), writer.text(&mut rng, Language::Braces, size))?;
        }
    }
    let base = tree.commit(snapshot(Durability::Synced))?;
    let mut editor = Editor::new(99);
    for _ in 0..DIFFERENT {
        let path = editor.rng.pick(paths);
        tree.write(path, editor.writer.text(&mut editor.rng, Language::Braces, CHANGE))?;
    }
    let changed = tree.commit(snapshot(Durability::Synced))?;
    Ok((base, changed))
}

fn snapshot(durability: Durability) -> NewSnapshot {
    NewSnapshot { message: "bench".to_owned(), durability, ..NewSnapshot::default() }
}

/// Returns the result of `work` and its time in microseconds.
fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, f64), E> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_secs_f64() * 1e6))
}

impl Round<'_> {
    fn measure(&mut self, dir: &Path) -> Result<(), Failure> {
        self.diffs()?;
        self.restores()?;
        self.clones()?;
        let first = self.buffered()?;
        self.samples.buffered_first.extend(first);
        self.warm_up()?;
        let later = self.buffered()?;
        self.samples.buffered.extend(later);
        self.synced_and_appends(dir)?;
        let rate = self.committers(1, COMMITS)?;
        self.samples.one.push(rate);
        let rate = self.committers(COMMITTERS, COMMITS_PER_COMMITTER)?;
        self.samples.sixteen.push(rate);
        Ok(())
    }

    /// Measures diffs. The first one finds nothing in memory.
    fn diffs(&mut self) -> Result<(), Failure> {
        for position in 0..=DIFFS {
            let (changes, elapsed) = timed(|| {
                let from = Tree::of_snapshot(&self.store, self.base)?;
                let to = Tree::of_snapshot(&self.store, self.changed)?;
                diff(&from, &to)
            })?;
            assert!(changes.len() <= DIFFERENT, "only {DIFFERENT} files were changed");
            assert!(!changes.is_empty(), "some files were changed");
            let samples = if position == 0 { &mut self.samples.diff_first } else { &mut self.samples.diff };
            samples.push(elapsed);
        }
        Ok(())
    }

    fn restores(&mut self) -> Result<(), Failure> {
        for _ in 0..COMMITS {
            let (_, elapsed) = timed(|| self.store.restore(&self.base.id))?;
            self.samples.restore.push(elapsed);
            let path = self.editor.rng.pick(self.paths);
            let (_, elapsed) =
                timed(|| -> Result<_, Failure> { Ok(self.store.restore(&self.base.id)?.read(path)?) })?;
            self.samples.restore_read.push(elapsed);
        }
        Ok(())
    }

    /// Measures clones. One is too short for the clock: a sample is the mean of many, which are dropped
    /// outside of it.
    fn clones(&mut self) -> Result<(), Failure> {
        let mut tree = self.store.restore(&self.base.id)?;
        let path = self.editor.rng.pick(self.paths).clone();
        tree.write(&path, self.editor.content())?;
        let mut clones = Vec::with_capacity(CLONES);
        for _ in 0..COMMITS {
            let start = Instant::now();
            clones.extend((0..CLONES).map(|_| tree.clone()));
            self.samples.clone.push(start.elapsed().as_secs_f64() * 1e6 / CLONES as f64);
            clones.clear();
        }
        Ok(())
    }

    fn buffered(&mut self) -> Result<Vec<f64>, Failure> {
        let mut tree = self.store.restore(&self.base.id)?;
        (0..COMMITS).map(|_| self.change_and_commit(&mut tree, Durability::Buffered)).collect()
    }

    /// Reads every directory, as a search has done after some thousand steps.
    fn warm_up(&self) -> Result<(), Failure> {
        Ok(Tree::of_snapshot(&self.store, self.base)?.walk(&mut |_, _| Ok(()))?)
    }

    fn synced_and_appends(&mut self, dir: &Path) -> Result<(), Failure> {
        let mut file = OpenOptions::new().append(true).create(true).open(dir.join("append"))?;
        let mut tree = self.store.restore(&self.base.id)?;
        // Syncs what the buffered commits left behind, which must not count here.
        self.change_and_commit(&mut tree, Durability::Synced)?;
        for _ in 0..COMMITS / RUN {
            for _ in 0..RUN {
                let elapsed = self.change_and_commit(&mut tree, Durability::Synced)?;
                self.samples.synced.push(elapsed);
            }
            for _ in 0..RUN {
                let content = self.editor.content();
                let (_, elapsed) = timed(|| file.write_all(&content).and_then(|()| file.sync_data()))?;
                self.samples.append.push(elapsed);
            }
        }
        Ok(())
    }

    fn change_and_commit(&mut self, tree: &mut VirtualTree, durability: Durability) -> Result<f64, Failure> {
        let path = self.editor.rng.pick(self.paths);
        let content = self.editor.writer.text(&mut self.editor.rng, Language::Braces, CHANGE);
        let new = snapshot(durability);
        let start = Instant::now();
        tree.write(path, content)?;
        tree.commit(new)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }

    /// Returns the synced commits per second of `count` threads, each with its own tree.
    fn committers(&mut self, count: usize, commits: usize) -> Result<f64, Failure> {
        let seed = self.editor.rng.next();
        let (store, base, paths) = (&self.store, &self.base.id, self.paths);
        let work: Vec<_> = (0..count).map(|worker| changes(paths, commits, seed ^ worker as u64)).collect();
        let start = Instant::now();
        thread::scope(|scope| {
            let workers: Vec<_> =
                work.into_iter().map(|work| scope.spawn(move || commit_many(store, base, work))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a committer does not panic"))
        })?;
        Ok((count * commits) as f64 / start.elapsed().as_secs_f64())
    }
}

/// Generates the changes of a committer, before the clock runs.
fn changes(paths: &[String], count: usize, seed: u64) -> Vec<(&String, Vec<u8>)> {
    let mut editor = Editor::new(seed);
    (0..count).map(|_| (editor.rng.pick(paths), editor.content())).collect()
}

fn commit_many(store: &Store, base: &SnapshotId, changes: Vec<(&String, Vec<u8>)>) -> Result<(), Failure> {
    let mut tree = store.restore(base)?;
    for (path, content) in changes {
        tree.write(path, content)?;
        tree.commit(snapshot(Durability::Synced))?;
    }
    Ok(())
}

fn print(numbers: &Numbers) {
    println!("{} files; microseconds", numbers.files);
    println!("{:<34} {:>9} {:>9} {:>9} {:>9} {:>9}", "work", "min", "p10", "p50", "p90", "p99");
    for (work, latency) in [
        ("open the store", numbers.open),
        ("change 1 file, commit buffered", numbers.buffered),
        ("the same, nothing in memory", numbers.buffered_first),
        ("change 1 file, commit synced", numbers.synced),
        ("append of 4 KiB + fdatasync", numbers.append),
        ("clone", numbers.clone),
        ("restore", numbers.restore),
        ("restore and read a file", numbers.restore_read),
        ("diff, 10 changed", numbers.diff),
        ("the same, nothing in memory", numbers.diff_first),
    ] {
        let Latency { min, p10, p50, p90, p99, .. } = latency;
        println!("{work:<34} {min:>9.2} {p10:>9.2} {p50:>9.2} {p90:>9.2} {p99:>9.2}");
    }
    let (one, sixteen) = (numbers.rates.one.median, numbers.rates.sixteen.median);
    println!("synced commits/s: one committer {one:.0}, {COMMITTERS} committers {sixteen:.0}");
}
