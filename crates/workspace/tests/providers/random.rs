//! Random sequences of file operations in a workspace: commits have the visible content, and reported changes
//! are the real differences.
//!
//! A seed selects the sequence. `WORKSPACE_TEST_RANDOM=N` runs N of them with each provider, from seed
//! `WORKSPACE_TEST_SEED` (0) on. A failing sequence is repeated with a check after every operation, and
//! reported up to the first operation that shows the failure.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::Trial;
use workspace_state::{
    DifferenceKind, NewSnapshot, NoProgress, Snapshot, SnapshotOptions, snapshot_directory,
};
use workspace_workspace::{Changes, Materialize, NewWorkspace, ProviderKind, ResetMode, Writers};

use crate::fixture::{Fixture, Setting};
use crate::operations::Operations;

/// Argument that makes this program run part of a sequence.
const SUBCOMMAND: &str = "random-operations";
/// Argument for modes that deny access to the owner.
const ALL_MODES: &str = "all";
/// Number of operations that create the base of a sequence.
const BASE: u64 = 60;
/// Number of operations of a sequence.
const LENGTH: u64 = 60;
/// Number of operations between two checks.
const STRIDE: u64 = 10;

/// Runs part of a sequence if the argument says so.
pub(crate) fn entry() -> Option<ExitCode> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [subcommand, directory, modes, seed, from, to] = args.as_slice() else { return None };
    if subcommand != SUBCOMMAND {
        return None;
    }
    #[expect(clippy::disallowed_methods, reason = "a process that does nothing else")]
    std::env::set_current_dir(directory).unwrap();
    let number = |word: &OsStr| word.to_str().unwrap().parse::<u64>().unwrap();
    let seed = number(seed);
    for step in number(from)..number(to) {
        println!("{step}: {}", Operations::new(seed, step, modes == ALL_MODES).run());
    }
    Some(ExitCode::SUCCESS)
}

pub(crate) fn trials() -> Vec<Trial> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("WORKSPACE_TEST_RANDOM").unwrap_or(3);
    let first = number("WORKSPACE_TEST_SEED").unwrap_or(0);
    let of = |setting: Setting| {
        (first..first + count)
            .map(move |seed| setting.trial(&format!("random_operations_{seed}"), move || run(setting, seed)))
    };
    Setting::all().into_iter().flat_map(of).collect()
}

fn run(setting: Setting, seed: u64) {
    let whole = Sequence::new(setting, seed);
    let Err((_, failure)) = whole.until_failure(STRIDE) else { return };
    drop(whole);
    let again = Sequence::new(setting, seed);
    match again.until_failure(1) {
        Err((done, failure)) => {
            panic!("sequence {seed} fails after {} operations: {failure}\n{done}", done.lines().count())
        }
        Ok(()) => panic!("sequence {seed} fails only with few checks: {failure}"),
    }
}

/// A sequence and its fixture.
struct Sequence {
    fixture: Fixture,
    seed: u64,
    /// `None` for an empty workspace.
    base: Option<Snapshot>,
}

impl Sequence {
    fn new(setting: Setting, seed: u64) -> Self {
        let fixture = Fixture::new(setting);
        let directory = tempfile::tempdir_in(fixture.home.path()).unwrap();
        // Far from the seeds of the sequence itself.
        let modes = if rustix::process::geteuid().is_root() { ALL_MODES } else { "open" };
        operate(&fixture, directory.path(), modes, seed ^ 0x5eed_0000, 0..BASE);
        let options = SnapshotOptions {
            record_as_checkout: false,
            use_ignore_files: false,
            ..SnapshotOptions::default()
        };
        let base =
            snapshot_directory(&fixture.store, directory.path(), options, &NoProgress).unwrap().snapshot;
        // Makes it removable.
        fixture.shell_in(fixture.home.path(), &format!("chmod -R u+rwX '{}'", directory.path().display()));
        // Some begin without a snapshot.
        let base = (seed % 3 != 2).then_some(base);
        Self { fixture, seed, base }
    }

    /// Runs the whole sequence. On failure, returns the operations so far and the error.
    fn until_failure(&self, stride: u64) -> Result<(), (String, String)> {
        let mut done = String::new();
        let mut at = Stage {
            fixture: &self.fixture,
            id: "w".to_owned(),
            before: String::new(),
            base: self.base.clone(),
        };
        at.begin().map_err(|failure| (String::new(), failure))?;
        for step in (0..LENGTH).step_by(usize::try_from(stride).unwrap()) {
            let path = self.fixture.all().path(&at.id).unwrap();
            done += &operate(&self.fixture, &path, ALL_MODES, self.seed, step..step + stride);
            let end = step + stride;
            let checked = catch_unwind(AssertUnwindSafe(|| at.check(end)));
            match checked {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return Err((done, failure)),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                    return Err((done, text));
                }
            }
        }
        Ok(())
    }
}

/// Runs part of a sequence in a directory, in the namespaces of the namespace holder.
fn operate(fixture: &Fixture, directory: &Path, modes: &str, seed: u64, steps: Range<u64>) -> String {
    let numbers = [seed, steps.start, steps.end].map(|number| number.to_string());
    let [seed, from, to] = numbers.each_ref().map(OsStr::new);
    fixture.run_self(&[SUBCOMMAND.as_ref(), directory.as_os_str(), modes.as_ref(), seed, from, to])
}

/// The current workspace of the sequence.
struct Stage<'a> {
    fixture: &'a Fixture,
    id: String,
    /// Its content when it was made.
    before: String,
    /// Base of the first one.
    base: Option<Snapshot>,
}

impl Stage<'_> {
    fn begin(&mut self) -> Result<(), String> {
        let snapshot = self.base.as_ref().map(|base| base.id);
        self.fixture.all().create(&self.id, &NewWorkspace { snapshot, ..NewWorkspace::default() }).unwrap();
        self.before = self.fixture.seen(&self.id);
        let Some(base) = &self.base else {
            let changes = self.fixture.changes(&self.id);
            return if changes.is_empty() {
                Ok(())
            } else {
                Err(format!("changes of an empty workspace: {changes:?}"))
            };
        };
        expect_same("the new workspace and its base", &self.before, &self.fixture.checked_out(base))
    }

    /// Resets a workspace to another snapshot, as if it had been made from it by the same provider.
    fn restore(&self, id: &str, snapshot: &Snapshot) -> Result<(), String> {
        let all = self.fixture.all();
        let reset = all.reset(id, Some(snapshot.id), Materialize::Auto, ResetMode::MayMove).unwrap();
        if reset.moved {
            all.finish_reset(id).unwrap();
        }
        if reset.workspace.provider != self.fixture.kind {
            return Err(format!("restored by {}", reset.workspace.provider));
        }
        expect_same(
            "the snapshot and the reset workspace",
            &self.fixture.checked_out(snapshot),
            &self.fixture.seen(id),
        )?;
        let changes = self.fixture.changes(id);
        if changes.is_empty() { Ok(()) } else { Err(format!("changes after a restore: {changes:?}")) }
    }

    /// Returns the part of a visible listing that snapshots hold. The kernel does not always show hard links
    /// of a copied-up file as such.
    fn comparable(&self, listing: &str) -> String {
        let links = self.fixture.kind != ProviderKind::Overlay;
        let held = |line: &&str| !line.contains("\tspecial\t") && (links || !line.starts_with("one file"));
        listing.lines().filter(held).map(|line| format!("{line}\n")).collect()
    }

    fn check(&mut self, end: u64) -> Result<(), String> {
        let (fixture, seen) = (self.fixture, self.fixture.seen(&self.id));
        let changes = fixture.all().changes(&self.id, Writers::Running).unwrap();
        let (before, after) = (lines(&self.before), lines(&seen));
        let expected = differences(&before, &after);
        let reported = reported_changes(&changes, &before, &after);
        if expected != reported {
            let lost: Vec<_> = expected.difference(&reported).collect();
            let false_: Vec<_> = reported.difference(&expected).collect();
            return Err(format!(
                "unreported changes: {lost:?}; reported changes that were not made: {false_:?}"
            ));
        }
        let new = NewSnapshot::with_message("test");
        let committed = fixture.all().commit(&self.id, new.clone(), Writers::Running).unwrap();
        let skipped: BTreeSet<_> =
            committed.skipped.iter().map(|skipped| format!("{:?}", skipped.path)).collect();
        let special =
            after.iter().filter(|(_, line)| line.starts_with("special")).map(|(path, _)| path.clone());
        if skipped != special.collect() {
            return Err(format!("skipped: {:?}", committed.skipped));
        }
        let snapshot = committed.snapshot;
        let held = fixture.checked_out(&snapshot);
        expect_same("the workspace and its commit", &self.comparable(&seen), &self.comparable(&held))?;
        let again = fixture.all().commit(&self.id, new, Writers::Running).unwrap().snapshot;
        if (again.tree, again.times) != (snapshot.tree, snapshot.times) {
            return Err("a commit without changes has another tree".to_owned());
        }
        let next = format!("w{end}");
        fixture.all().create(&next, &from(&again)).unwrap();
        let seen_there = fixture.seen(&next);
        expect_same("the commit and a workspace made from it", &held, &seen_there)?;
        let there = fixture.changes(&next);
        if !there.is_empty() {
            return Err(format!("changes of a new workspace: {there:?}"));
        }
        if let Some(base) = &self.base {
            self.restore(&next, base)?;
            self.restore(&next, &again)?;
        }
        // Half of the time the sequence continues there.
        let gone = if end / STRIDE % 2 == 1 {
            self.before = seen_there;
            std::mem::replace(&mut self.id, next)
        } else {
            next
        };
        fixture.all().remove(&gone).unwrap();
        Ok(())
    }
}

fn from(snapshot: &Snapshot) -> NewWorkspace<'static> {
    NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() }
}

fn expect_same(what: &str, one: &str, other: &str) -> Result<(), String> {
    if one == other {
        return Ok(());
    }
    let (ones, others): (BTreeSet<_>, BTreeSet<_>) = (one.lines().collect(), other.lines().collect());
    let only = |one: &BTreeSet<&str>, other: &BTreeSet<&str>| {
        one.difference(other).map(|line| format!("  {line}\n")).collect::<String>()
    };
    Err(format!("{what} differ:\n{}and\n{}", only(&ones, &others), only(&others, &ones)))
}

/// Parses a listing into lines by path, without times.
fn lines(listing: &str) -> BTreeMap<String, String> {
    let fields = |line: &str| -> Option<(String, String)> {
        let fields: Vec<_> = line.split('\t').collect();
        let [path, what, mode, _, xattrs] = fields.as_slice() else { return None };
        Some(((*path).to_owned(), format!("{what} {mode} {xattrs}")))
    };
    listing.lines().filter_map(fields).collect()
}

/// Returns the differences between two listings.
fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> BTreeSet<String> {
    let there = |line: Option<&String>| line.filter(|line| !line.starts_with("special")).cloned();
    let mut reported = BTreeSet::new();
    for path in before.keys().chain(after.keys()) {
        match (there(before.get(path)), there(after.get(path))) {
            (Some(_), None) => drop(reported.insert(format!("- {path}"))),
            (None, Some(_)) => drop(reported.insert(format!("+ {path}"))),
            (Some(old), Some(new)) if old != new => drop(reported.insert(format!("~ {path}"))),
            _ => {}
        }
    }
    reported
}

/// Returns the reported changes, with a rename as a removal and an addition.
fn reported_changes(
    changes: &Changes,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let mut reported = BTreeSet::new();
    for difference in changes.differences().unwrap() {
        let path = quoted(&difference.path);
        match &difference.kind {
            DifferenceKind::Added => drop(reported.insert(format!("+ {path}"))),
            DifferenceKind::Removed => drop(reported.insert(format!("- {path}"))),
            DifferenceKind::Renamed { from } => {
                reported.extend(below(before, &quoted(from)).map(|path| format!("- {path}")));
                reported.extend(below(after, &path).map(|path| format!("+ {path}")));
            }
            _ => drop(reported.insert(format!("~ {path}"))),
        }
    }
    reported
}

/// Returns a path and those below it, without special files.
fn below<'a>(lines: &'a BTreeMap<String, String>, path: &str) -> impl Iterator<Item = &'a String> {
    let (own, inside) = (path.to_owned(), format!("{}/", path.trim_end_matches('"')));
    let held = lines.iter().filter(|(_, line)| !line.starts_with("special")).map(|(path, _)| path);
    held.filter(move |path| **path == own || path.starts_with(&inside))
}

fn quoted(path: &[u8]) -> String {
    format!("{:?}", Path::new(OsStr::from_bytes(path)))
}
