//! Random sequences of file operations in a workspace: commits have the visible content, and reported changes
//! are the real differences.
//!
//! A seed selects a sequence. `WORKSPACE_TEST_RANDOM=N` runs N sequences (default: 3) with each provider (method of
//! making the directory of a workspace). The seed of the first one is `WORKSPACE_TEST_SEED` (default: 0). A sequence
//! that fails is run again with a check after every operation, and is reported up to the first operation after which a
//! check fails.
//!
//! `fixture.all()` is the set of workspaces under test. `fixture.seen(id)` is a listing of a workspace, and
//! `fixture.checked_out(&snapshot)` a listing of a snapshot in the same format (`listing.rs`).

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

/// Subcommand of this program that runs part of a sequence in a directory.
const SUBCOMMAND: &str = "random-operations";
/// Argument of the subcommand that allows modes that deny access to the owner.
const ALL_MODES: &str = "all";
/// Number of operations that create the base, the snapshot from which the workspace of a sequence is created.
const BASE_LENGTH: u64 = 60;
/// Number of operations of a sequence.
const LENGTH: u64 = 60;
/// Number of operations between two checks.
const CHECK_INTERVAL: u64 = 10;

/// Runs part of a sequence if the first argument is [`SUBCOMMAND`]. Returns `None` if it is not.
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

/// Runs a sequence. If it fails, runs it again with a check after every operation.
fn run(setting: Setting, seed: u64) {
    let sequence = Sequence::new(setting, seed);
    let Err((_, failure)) = sequence.run(CHECK_INTERVAL) else { return };
    drop(sequence);
    let again = Sequence::new(setting, seed);
    match again.run(1) {
        Err((done, failure)) => {
            panic!("sequence {seed} fails after {} operations: {failure}\n{done}", done.lines().count())
        }
        Ok(()) => panic!("sequence {seed} fails only with few checks: {failure}"),
    }
}

/// Sequence of operations with its fixture.
struct Sequence {
    fixture: Fixture,
    /// Seed of the random operations.
    seed: u64,
    /// Base snapshot; `None` if the first workspace is created empty.
    base: Option<Snapshot>,
}

impl Sequence {
    fn new(setting: Setting, seed: u64) -> Self {
        let fixture = Fixture::new(setting);
        let directory = tempfile::tempdir_in(fixture.home.path()).unwrap();
        // Only root can read files with modes that deny access to the owner. `open` stands for all other modes.
        let modes = if rustix::process::geteuid().is_root() { ALL_MODES } else { "open" };
        // The seed for the base is not the seed of a sequence.
        operate(&fixture, directory.path(), modes, seed ^ 0x5eed_0000, 0..BASE_LENGTH);
        let options = SnapshotOptions {
            record_as_checkout: false,
            use_ignore_files: false,
            ..SnapshotOptions::default()
        };
        let base =
            snapshot_directory(&fixture.store, directory.path(), options, &NoProgress).unwrap().snapshot;
        // Makes the temporary directory removable.
        fixture.shell_in(fixture.home.path(), &format!("chmod -R u+rwX '{}'", directory.path().display()));
        // One sequence of three begins with an empty workspace.
        let base = (seed % 3 != 2).then_some(base);
        Self { fixture, seed, base }
    }

    /// Runs the whole sequence, with a check after every `interval` operations. If a check fails, returns the
    /// operations so far and the failure.
    fn run(&self, interval: u64) -> Result<(), (String, String)> {
        let mut done = String::new();
        let mut state = State {
            fixture: &self.fixture,
            id: "w".to_owned(),
            before: String::new(),
            base: self.base.clone(),
        };
        state.begin().map_err(|failure| (String::new(), failure))?;
        for step in (0..LENGTH).step_by(usize::try_from(interval).unwrap()) {
            let path = self.fixture.all().path(&state.id).unwrap();
            done += &operate(&self.fixture, &path, ALL_MODES, self.seed, step..step + interval);
            let end = step + interval;
            let checked = catch_unwind(AssertUnwindSafe(|| state.check(end)));
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

/// Runs part of a sequence in a directory, in the namespaces of the namespace holder (the process that keeps the mounts
/// of overlays). Returns a line per operation.
fn operate(fixture: &Fixture, directory: &Path, modes: &str, seed: u64, steps: Range<u64>) -> String {
    let numbers = [seed, steps.start, steps.end].map(|number| number.to_string());
    let [seed, from, to] = numbers.each_ref().map(OsStr::new);
    fixture.run_self(&[SUBCOMMAND.as_ref(), directory.as_os_str(), modes.as_ref(), seed, from, to])
}

/// State of a running sequence.
struct State<'a> {
    fixture: &'a Fixture,
    /// Id of the workspace in which the next operations run.
    id: String,
    /// Listing of that workspace when it was created.
    before: String,
    /// Base snapshot of the first workspace; `None` if it was created empty.
    base: Option<Snapshot>,
}

impl State<'_> {
    /// Creates the first workspace, and checks that it shows the base.
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

    /// Resets a workspace to another snapshot, and checks that it is then the same as a new workspace of that snapshot.
    fn check_reset(&self, id: &str, snapshot: &Snapshot) -> Result<(), String> {
        let all = self.fixture.all();
        // An overlay moves to a new directory. No process uses the workspace, so none has to be switched to it, and the
        // reset can be ended.
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

    /// Returns the lines of a listing that a workspace and its commit must have in common. Snapshots do not hold
    /// special files, such as sockets. For an overlay, hard links are left out, too: the kernel does not always show
    /// the names of a copied-up file as hard links.
    fn comparable(&self, listing: &str) -> String {
        let compares_links = self.fixture.kind != ProviderKind::Overlay;
        let is_compared =
            |line: &&str| !line.contains("\tspecial\t") && (compares_links || !line.starts_with("one file"));
        listing.lines().filter(is_compared).map(|line| format!("{line}\n")).collect()
    }

    /// Compares the workspace with its reported changes, its commit, and a new workspace of that commit. `end` is the
    /// number of operations so far.
    fn check(&mut self, end: u64) -> Result<(), String> {
        let (fixture, seen) = (self.fixture, self.fixture.seen(&self.id));
        let changes = fixture.all().changes(&self.id, Writers::Running).unwrap();
        let (before, after) = (lines(&self.before), lines(&seen));
        let expected = differences(&before, &after);
        let reported = reported_changes(&changes, &before, &after);
        if expected != reported {
            let missing: Vec<_> = expected.difference(&reported).collect();
            let wrong: Vec<_> = reported.difference(&expected).collect();
            return Err(format!(
                "unreported changes: {missing:?}; reported changes that were not made: {wrong:?}"
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
        let committed_listing = fixture.checked_out(&snapshot);
        expect_same(
            "the workspace and its commit",
            &self.comparable(&seen),
            &self.comparable(&committed_listing),
        )?;
        let again = fixture.all().commit(&self.id, new, Writers::Running).unwrap().snapshot;
        if (again.tree, again.times) != (snapshot.tree, snapshot.times) {
            return Err("a commit without changes has another tree".to_owned());
        }
        let next = format!("w{end}");
        fixture.all().create(&next, &from(&again)).unwrap();
        let seen_in_next = fixture.seen(&next);
        expect_same("the commit and a workspace made from it", &committed_listing, &seen_in_next)?;
        let changes_of_next = fixture.changes(&next);
        if !changes_of_next.is_empty() {
            return Err(format!("changes of a new workspace: {changes_of_next:?}"));
        }
        if let Some(base) = &self.base {
            self.check_reset(&next, base)?;
            self.check_reset(&next, &again)?;
        }
        // With a check after every `CHECK_INTERVAL` operations, the sequence continues in the new workspace after every
        // second check. With more checks, it does so after all checks at 10 to 19 operations, 30 to 39, and so on.
        let to_remove = if end / CHECK_INTERVAL % 2 == 1 {
            self.before = seen_in_next;
            std::mem::replace(&mut self.id, next)
        } else {
            next
        };
        fixture.all().remove(&to_remove).unwrap();
        Ok(())
    }
}

/// Returns the parameters of a workspace that is created from a snapshot.
fn from(snapshot: &Snapshot) -> NewWorkspace<'static> {
    NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() }
}

/// Fails with the different lines if two listings differ. `subjects` says of what they are.
fn expect_same(subjects: &str, one: &str, other: &str) -> Result<(), String> {
    if one == other {
        return Ok(());
    }
    let (ones, others): (BTreeSet<_>, BTreeSet<_>) = (one.lines().collect(), other.lines().collect());
    let only = |one: &BTreeSet<&str>, other: &BTreeSet<&str>| {
        one.difference(other).map(|line| format!("  {line}\n")).collect::<String>()
    };
    Err(format!("{subjects} differ:\n{}and\n{}", only(&ones, &others), only(&others, &ones)))
}

/// Parses a listing. Returns the type, content hash, mode and attributes of each entry by path, without its time.
fn lines(listing: &str) -> BTreeMap<String, String> {
    let fields = |line: &str| -> Option<(String, String)> {
        let fields: Vec<_> = line.split('\t').collect();
        let [path, type_and_content, mode, _, xattrs] = fields.as_slice() else { return None };
        Some(((*path).to_owned(), format!("{type_and_content} {mode} {xattrs}")))
    };
    listing.lines().filter_map(fields).collect()
}

/// Returns the differences between two parsed listings, without special files. Each is a path after `-` (removed), `+`
/// (added) or `~` (changed).
fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> BTreeSet<String> {
    let without_special = |line: Option<&String>| line.filter(|line| !line.starts_with("special")).cloned();
    let mut found = BTreeSet::new();
    for path in before.keys().chain(after.keys()) {
        match (without_special(before.get(path)), without_special(after.get(path))) {
            (Some(_), None) => drop(found.insert(format!("- {path}"))),
            (None, Some(_)) => drop(found.insert(format!("+ {path}"))),
            (Some(old), Some(new)) if old != new => drop(found.insert(format!("~ {path}"))),
            _ => {}
        }
    }
    found
}

/// Returns the reported changes in the format of [`differences`]. A rename is a removal and an addition of all entries.
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

/// Returns `path` and all paths below it in a parsed listing, without special files.
fn below<'a>(lines: &'a BTreeMap<String, String>, path: &str) -> impl Iterator<Item = &'a String> {
    let (own_path, prefix) = (path.to_owned(), format!("{}/", path.trim_end_matches('"')));
    let paths = lines.iter().filter(|(_, line)| !line.starts_with("special")).map(|(path, _)| path);
    paths.filter(move |path| **path == own_path || path.starts_with(&prefix))
}

/// Returns a path as listings show it.
fn quoted(path: &[u8]) -> String {
    format!("{:?}", Path::new(OsStr::from_bytes(path)))
}
