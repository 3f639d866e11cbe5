//! A trial at the real path of a directory, over a read-only view of the host's files.
//!
//! The *target directory* is the directory of the user that the program works on. It is called `directory` here, and
//! [`TargetDir`] when it is opened. The *trial directory* ([`TrialDir`]) is the bookkeeping of the trial, elsewhere.
//!
//! Nothing is copied before the program runs: the program sees the target directory through an overlay, and its changes
//! are in the upper directory of the overlay, which is in the trial directory. When the program has ended, no process
//! and no mount is left. Then the user is asked, and the changes are written to the target directory or dropped.

mod git;
mod host_view;
mod keep;
mod program;
mod secrets;
mod trial_dir;
mod upper;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use tokio::sync::mpsc;
use workspace_host::NamespaceHolder;
use workspace_host::limits::Limits;
use workspace_host::network::{Egress, Uplink};
use workspace_host::overlay;
use workspace_host::read_only_host::{Mount, ReadOnlyHostProgram};
use workspace_sandbox::runtime::Network as NetworkAccess;
use workspace_state::{
    Attributes as TreeAttributes, Cancel, Durability, InsightDiff, NewSnapshot, Store, Tree, VirtualTree,
    insight, quote_path,
};

use super::super::diff::print_insight;
use super::super::report::{SkippedFields, print_skipped};
use super::decision::{Decision, Question, print_patch_safely};
use super::{Report, resolve_directory};
use crate::args::Try;
use crate::context::Context;
use crate::error::{CommandError, ErrorKind, Outcome, Result, io_hint, listed_paths};
use crate::local;
use crate::output::Output;
use crate::screen;
use crate::session::CommandExit;
use crate::signals::Signals;
use crate::text::{pluralize, print_stderr, shell_word};
use keep::{ChangeWriter, Checks, KeepError, WriteCounts};
use program::{OutputTarget, RunOptions};
use secrets::Secrets;
use trial_dir::{Phase, TrialDir};
use upper::{Change, ChangeKind, Scan, TargetDir, UpperContent, join, split};

const PROCESSES_MAX: u32 = 32_768;
/// File in the trial directory with the changes that are being written: those that were checked, as [`Change`]s in
/// JSON. After an interruption `--apply` writes exactly these.
const PLAN_FILE: &str = "plan.json";

pub(super) fn run(context: &mut Context, args: &Try) -> Result<Outcome> {
    if let Some(trial_dir) = &args.apply {
        return apply(context, args, trial_dir);
    }
    let directory = resolve_directory(&args.dir)?;
    let (home, homes) = host_view::homes();
    let secrets = host_view::find_secrets(args, &homes, context.store_path())?;
    if args.list_hidden {
        for path in &secrets.hidden {
            context.output.line(quote_path(path.as_os_str().as_bytes()))?;
        }
        context.output.flush()?;
        return Ok(Outcome::Done);
    }
    let network = super::network(args.network, &args.allowed)?;
    let trial_dir = TrialDir::new(&directory)?;
    trial_dir::remove_leftovers(&trial_dir);
    let mut trial = TryRun { context, args, directory, home, secrets, network, trial_dir: Some(trial_dir) };
    let result = local::block_on(trial.run());
    if let Some(trial_dir) = trial.trial_dir.take() {
        trial_dir.remove();
    }
    result
}

/// A trial while it runs.
struct TryRun<'a> {
    context: &'a mut Context,
    args: &'a Try,
    /// Target directory.
    directory: PathBuf,
    /// `HOME`, if it is a usable directory.
    home: Option<PathBuf>,
    secrets: Secrets,
    network: NetworkAccess,
    /// Trial directory, which is removed at the end; `None` once it has to stay for `--apply`.
    trial_dir: Option<TrialDir>,
}

/// Exit status and changes of a program.
struct TryRunResult {
    exit: CommandExit,
    /// Changes as they are written to the target directory.
    content: UpperContent,
    /// `None` if the changes could not be compared, or nothing was changed.
    trees: Option<Trees>,
    /// Changes as they are shown to the user; `None` if they could not be compared.
    changes: Option<InsightDiff>,
    /// Stdin that the program did not read.
    stdin: mpsc::Receiver<Vec<u8>>,
}

/// Trees of the changed paths before and after the trial.
struct Trees {
    /// Keeps the store open, from which the trees are read.
    _store: Store,
    before: Tree,
    after: Tree,
}

impl TryRun<'_> {
    fn trial_dir(&mut self) -> Result<&mut TrialDir> {
        self.trial_dir.as_mut().ok_or_else(|| CommandError::failed("the directory of the trial was removed"))
    }

    async fn run(&mut self) -> Result<Outcome> {
        let mut signals = Signals::new()?;
        let (directory, home) = (self.directory.clone(), self.home.clone());
        let trial_dir = self
            .trial_dir
            .as_mut()
            .ok_or_else(|| CommandError::failed("the directory of the trial was removed"))?;
        let host_view::HostView { mounts, omitted_mounts, dropped } =
            host_view::create_host_view(trial_dir, &directory, home.as_deref(), &self.secrets)?;
        self.print_hidden_count();
        self.trial_dir()?.record_start()?;
        let host = self.read_only_host(mounts, omitted_mounts)?;
        let stdout = if self.context.output.is_json() { OutputTarget::Stderr } else { OutputTarget::Stdout };
        let options = RunOptions { timeout: self.args.timeout, stdout };
        let (exit, stdin) = program::run(host, options, &mut signals).await?;
        let ChangeSet { content, trees, changes } = match self.read_changes(&mut signals).await {
            Ok(read) => read,
            Err(error) => return Err(self.save_if_wanted(error)),
        };
        let mut ran = TryRunResult { exit, content, trees, changes, stdin };
        if let Err(error) = self.show(&ran, &dropped)
            && !self.args.keep
        {
            return Err(self.save_if_wanted(error));
        }
        let question = Question {
            args: self.args,
            json: self.context.output.is_json(),
            directory: &self.directory,
            changed: !ran.content.changes.is_empty(),
        };
        let trees = ran.trees.as_ref();
        let show_patch = || match trees {
            Some(trees) => print_patch_safely(&trees.before, &trees.after),
            None => Err(CommandError::failed("the difference cannot be shown")),
        };
        let kept = match question.decide(&mut ran.stdin, &mut signals, &show_patch).await {
            Ok(Decision::Keep) => {
                self.keep(&ran.content)?;
                true
            }
            Ok(Decision::Drop) => false,
            Err(error) => return Err(self.save_if_wanted(error)),
        };
        let outcome = super::super::exec::exit_outcome(ran.exit.exit_code, ran.exit.timed_out);
        self.report(ran, kept)?;
        Ok(outcome)
    }

    /// Saves the changes for `--apply` after an error, if the user wants or may want to keep them. Returns the error,
    /// with hints.
    fn save_if_wanted(&mut self, error: CommandError) -> CommandError {
        let can_ask =
            !self.context.output.is_json() && io::stdin().is_terminal() && io::stderr().is_terminal();
        let may_be_wanted = !self.args.drop && (self.args.keep || can_ask);
        if matches!(error.kind, ErrorKind::Interrupted(_)) || !may_be_wanted {
            return error;
        }
        match self.trial_dir.take() {
            Some(mut trial_dir) => save_for_apply(&mut trial_dir, error),
            None => error,
        }
    }

    fn print_hidden_count(&self) {
        if !self.context.output.is_json() && io::stderr().is_terminal() {
            let count = pluralize(self.secrets.hidden.len() as u64, "secret path is", "secret paths are");
            print_stderr(&format!(
                "note: {count} hidden from the program; `workspace try --list-hidden` lists them"
            ));
        }
    }

    /// Creates the description of the program's namespaces, arguments and limits. Starts a namespace holder if the
    /// program has a network.
    fn read_only_host(
        &mut self,
        mounts: Vec<Mount>,
        omitted_mounts: Vec<PathBuf>,
    ) -> Result<ReadOnlyHostProgram> {
        let cwd = std::env::current_dir().ok().and_then(|cwd| fs::canonicalize(cwd).ok());
        let cwd =
            cwd.filter(|cwd| cwd.starts_with(&self.directory)).unwrap_or_else(|| self.directory.clone());
        let on_terminal =
            io::stdin().is_terminal() && io::stdout().is_terminal() && !self.context.output.is_json();
        let egress = match &self.network {
            NetworkAccess::None => None,
            NetworkAccess::Egress { allow } => Some(Egress {
                allow: allow.clone(),
                deny: workspace_sandbox::Settings::new(&self.directory).egress_deny,
                except: Vec::new(),
                dns: None,
                uplink: Uplink::UserMode,
            }),
        };
        let environment = host_view::environment(self.args, &cwd);
        let trial_dir = self.trial_dir()?;
        let holder = match &egress {
            None => NamespaceHolder::None,
            Some(_) if workspace_host::network::unavailable_reason().is_some() => {
                let reason = workspace_host::network::unavailable_reason().unwrap_or_default();
                return Err(CommandError::failed(format!("sandboxes have no network access here: {reason}"))
                    .hint("without `--network` the program runs without a network"));
            }
            Some(_) => NamespaceHolder::find_or_start(&trial_dir.path).map_err(|error| {
                CommandError::failed(error.to_string()).hint("without `--network` none is needed")
            })?,
        };
        Ok(ReadOnlyHostProgram {
            id: trial_dir.id(),
            holder,
            mounts,
            omitted_mounts: omitted_mounts.into_iter().map(PathBuf::into_os_string).collect(),
            cwd: cwd.into_os_string(),
            args: self.args.words.iter().map(Into::into).collect(),
            environment,
            terminal: on_terminal.then(screen::size),
            limits: Limits { processes: Some(PROCESSES_MAX), ..Limits::default() },
            egress,
        })
    }

    /// Reads the changes in a thread for blocking work. A signal cancels the work.
    async fn read_changes(&mut self, signals: &mut Signals) -> Result<ChangeSet> {
        let cancel = Cancel::new();
        let (upper, store) = (self.trial_dir()?.upper(), self.trial_dir()?.store_path());
        let (directory, flag) = (self.directory.clone(), cancel.clone());
        let identity = self.trial_dir()?.record.identity;
        let mut reading = tokio::task::spawn_blocking(move || {
            let target = open_target(&directory, identity)?;
            read_changes(&upper, &directory, &target, &store, &flag)
        });
        let joined = tokio::select! {
            read = &mut reading => read,
            signal = signals.next() => {
                cancel.cancel();
                drop(reading.await);
                return Err(CommandError::interrupted(signal));
            }
        };
        joined.map_err(|error| CommandError::failed(error.to_string()))?
    }

    /// Lists the changes on stderr.
    fn show(&self, ran: &TryRunResult, dropped: &[(PathBuf, String)]) -> Result<()> {
        if self.context.output.is_json() {
            return Ok(());
        }
        super::super::exec::print_failure(ran.exit.failure_reason.as_deref(), ran.exit.timed_out);
        print_skipped(&skipped(&ran.content));
        print_losses(&ran.content);
        for (upper, what) in dropped {
            if fs::read_dir(upper).is_ok_and(|mut names| names.next().is_some()) {
                print_stderr(&format!("note: changes in {what} are dropped"));
            }
        }
        if ran.content.changes.is_empty() {
            print_stderr("nothing was changed");
            return Ok(());
        }
        let Some(changes) = &ran.changes else {
            for change in &ran.content.changes {
                let what = if matches!(change.kind, ChangeKind::Remove) { "removed" } else { "changed" };
                print_stderr(&format!("{what:<13}{}", quote_path(&change.path)));
            }
            return Ok(());
        };
        let mut output = Output::to_stderr();
        print_insight(&mut output, changes).and_then(|()| output.flush())
    }

    /// Writes the changes to the target directory. If that fails, they are saved for `--apply`.
    fn keep(&mut self, content: &UpperContent) -> Result<()> {
        let directory = self.directory.clone();
        let Some(mut trial_dir) = self.trial_dir.take() else {
            return Err(CommandError::failed("the directory of the trial was removed"));
        };
        let counts = write_changes(&mut trial_dir, &directory, content.changes.clone(), Checks::All);
        match counts {
            Ok(counts) => {
                print_counts(&counts);
                self.trial_dir = Some(trial_dir);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn report(&mut self, ran: TryRunResult, kept: bool) -> Result<()> {
        if !self.context.output.is_json() {
            return Ok(());
        }
        let report = Report {
            directory: self.directory.to_string_lossy().into_owned(),
            exit_code: ran.exit.exit_code,
            timed_out: ran.exit.timed_out,
            kept,
            ignored: Vec::new(),
            skipped: skipped(&ran.content),
            changes: ran.changes,
        };
        self.context.output.record(&report)?;
        self.context.output.flush()
    }
}

fn skipped(content: &UpperContent) -> Vec<SkippedFields> {
    content.skipped.iter().map(|(path, reason)| SkippedFields::new(path, reason.clone())).collect()
}

fn print_losses(content: &UpperContent) {
    for (path, what) in &content.lost_properties {
        print_stderr(&format!("warning: {} loses {what}", quote_path(path)));
    }
}

fn print_counts(counts: &WriteCounts) {
    let (written, removed) =
        (pluralize(counts.written, "path", "paths"), pluralize(counts.removed, "path", "paths"));
    print_stderr(&format!("kept: wrote {written}, removed {removed}"));
}

/// Checks the changes, writes the plan ([`PLAN_FILE`]), and makes the changes in the target directory. If that fails,
/// they are saved for `--apply`, and hints of the error say where.
fn write_changes(
    trial_dir: &mut TrialDir,
    directory: &Path,
    mut changes: Vec<Change>,
    checks: Checks,
) -> Result<WriteCounts> {
    let (upper, id) = (trial_dir.upper(), trial_dir.id());
    let failed = |error: &io::Error| {
        CommandError::failed(format!("cannot write to {}: {error}", directory.display())).hint(io_hint(error))
    };
    let mut write = || -> Result<WriteCounts> {
        let identity = trial_dir.record.identity.filter(|_| checks != Checks::None);
        let target = open_target(directory, identity)?;
        if checks != Checks::Resumed {
            keep::record_before(&target, &mut changes).map_err(|error| failed(&error))?;
        }
        let started = trial_dir.record.started;
        let writer =
            ChangeWriter { target: &target, upper: &upper, changes: &changes, id: &id, started, checks };
        let conflicts = writer.find_conflicts().map_err(|error| failed(&error))?;
        if !conflicts.is_empty() {
            return Err(conflict_error(directory, &conflicts, trial_dir.record.phase));
        }
        if checks != Checks::Resumed {
            write_plan(trial_dir, &changes).map_err(|error| failed(&error))?;
        }
        trial_dir.set_phase(Phase::Keeping)?;
        writer.run().map_err(|error| match error {
            KeepError::Changed(paths) => conflict_error(directory, &paths, Phase::Keeping),
            KeepError::Failed(path, error) => {
                let path = directory.join(OsStr::from_bytes(&path));
                CommandError::failed(format!("cannot write {}: {error}", path.display()))
                    .hint(io_hint(&error))
            }
        })
    };
    match write() {
        Ok(counts) => {
            // If this process is killed, the next trial then removes the trial directory. An error is ignored: in phase
            // `Keeping`, `--apply` would write the same changes again.
            let _ = trial_dir.set_phase(Phase::Running);
            Ok(counts)
        }
        Err(error) => Err(save_for_apply(trial_dir, error)),
    }
}

/// Saves the changes for `--apply`: the trial directory stays, without its parts that are no longer needed. Adds hints
/// to the error.
fn save_for_apply(trial_dir: &mut TrialDir, error: CommandError) -> CommandError {
    let (upper, path) = (trial_dir.upper(), shell_word(&trial_dir.path.to_string_lossy()).into_owned());
    let error = if trial_dir.record.phase == Phase::Keeping {
        error
            .hint(format!("some changes were written; all of them are still in {}", upper.display()))
            .hint(format!("`workspace try --apply {path}` writes the rest"))
    } else {
        match trial_dir.set_phase(Phase::Saved) {
            Ok(()) => error.hint(format!(
                "nothing is lost: the changes are in {}, and `workspace try --apply {path}` writes them",
                upper.display()
            )),
            Err(other) => error
                .hint(format!(
                    "the changes are in {}: copy them before the next trial removes them",
                    upper.display()
                ))
                .hint(other.message),
        }
    };
    trial_dir.remove_unneeded();
    error
        .hint(format!("`workspace try --apply {path} --force` overwrites the other changes"))
        .hint(format!("`workspace try --apply {path} --drop` drops them"))
}

fn conflict_error(directory: &Path, paths: &[Vec<u8>], phase: Phase) -> CommandError {
    let paths: Vec<PathBuf> = paths.iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
    let directory = directory.display();
    CommandError::failed(if phase == Phase::Keeping {
        format!("{directory} has conflicting changes by another process, so the rest was not written")
    } else {
        format!("{directory} has conflicting changes by another process, so nothing was written")
    })
    .hint(format!("changed by both:\n  {}", listed_paths(&paths)))
}

/// Opens the target directory. Fails if its device and inode are not `identity`, those at the start of the trial;
/// `None` if they are not checked.
fn open_target(directory: &Path, identity: Option<(u64, u64)>) -> Result<TargetDir> {
    let failed = |error: io::Error| {
        CommandError::failed(format!("cannot read {}: {error}", directory.display())).hint(io_hint(&error))
    };
    let target = TargetDir::open(directory).map_err(failed)?;
    let current = target.identity().map_err(failed)?;
    if identity.is_some_and(|recorded| recorded != current) {
        return Err(CommandError::failed(format!(
            "{} was replaced: it is not the directory that the program ran on",
            directory.display()
        ))
        .hint("move the original directory back"));
    }
    Ok(target)
}

fn write_plan(trial_dir: &TrialDir, changes: &[Change]) -> io::Result<()> {
    let new = trial_dir.path.join("plan.new");
    fs::write(&new, serde_json::to_vec(changes)?)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, trial_dir.path.join(PLAN_FILE))
}

/// Runs `workspace try --apply`: writes or drops changes that were saved for it, or whose writing was interrupted.
fn apply(context: &mut Context, args: &Try, trial_dir: &Path) -> Result<Outcome> {
    let mut trial_dir = TrialDir::open(trial_dir)?;
    let directory = PathBuf::from(&trial_dir.record.target);
    if args.drop {
        trial_dir.remove();
        return Ok(Outcome::Done);
    }
    let failed = |error: io::Error| {
        CommandError::failed(format!("cannot read the changes in {}: {error}", trial_dir.path.display()))
            .hint("its directory `directory/upper` has the changed files")
    };
    let changes = match fs::read(trial_dir.path.join(PLAN_FILE)) {
        Ok(text) => serde_json::from_slice::<Vec<Change>>(&text).map_err(|error| failed(error.into()))?,
        // An error came before the plan was written.
        Err(error) if error.kind() == io::ErrorKind::NotFound && trial_dir.record.phase == Phase::Saved => {
            let target = open_target(&directory, trial_dir.record.identity.filter(|_| !args.force))?;
            let (upper, cancel) = (trial_dir.upper(), Cancel::new());
            let content = Scan { upper: &upper, target: &target, cancel: &cancel }.run().map_err(failed)?;
            print_skipped(&skipped(&content));
            print_losses(&content);
            content.changes
        }
        Err(error) => return Err(failed(error)),
    };
    let checks = match (args.force, trial_dir.record.phase) {
        (true, _) => Checks::None,
        (false, Phase::Keeping) => Checks::Resumed,
        (false, _) => Checks::All,
    };
    let counts = write_changes(&mut trial_dir, &directory, changes, checks)?;
    if !context.output.is_json() {
        print_counts(&counts);
    }
    trial_dir.remove();
    Ok(Outcome::Done)
}

/// Changes of a trial, with the meaning of the fields of [`TryRunResult`].
struct ChangeSet {
    content: UpperContent,
    trees: Option<Trees>,
    changes: Option<InsightDiff>,
}

/// Reads the changes from the directory `upper`, and compares the changed paths before and after the trial, as trees in
/// a temporary store at `store`. If only the comparison fails, prints a warning: changes can be kept without it.
fn read_changes(
    upper: &Path,
    directory: &Path,
    target: &TargetDir,
    store: &Path,
    cancel: &Cancel,
) -> Result<ChangeSet> {
    let failed = |error: io::Error| {
        CommandError::failed(format!("cannot read the changes in {}: {error}", directory.display()))
            .hint(io_hint(&error))
    };
    let mut content = Scan { upper, target, cancel }.run().map_err(failed)?;
    match make_trees(upper, target, &mut content, store, cancel) {
        Ok((trees, changes)) => {
            let trees = (!content.changes.is_empty()).then_some(trees);
            Ok(ChangeSet { content, trees, changes: Some(changes) })
        }
        Err(error) if cancel.is_cancelled() => Err(error),
        Err(error) => {
            // The disk space of the trees may be needed to write the changes.
            let _ = overlay::remove_tree(&NamespaceHolder::None, store);
            print_stderr(&format!("warning: cannot compare the changes: {}", error.message));
            Ok(ChangeSet { content, trees: None, changes: None })
        }
    }
}

/// Stores the changed paths before and after the trial as two trees, and compares them. Adds files whose former content
/// cannot be read to `content.skipped`.
fn make_trees(
    upper: &Path,
    target: &TargetDir,
    content: &mut UpperContent,
    store: &Path,
    cancel: &Cancel,
) -> Result<(Trees, InsightDiff)> {
    let store = Store::open_or_create(store)?.with_cancel(cancel.clone());
    let (mut before, mut after) = (store.empty_tree()?, store.empty_tree()?);
    for change in &content.changes {
        add_former_content(&mut before, target, change, &mut content.skipped, cancel)?;
        add_new_content(&mut after, upper, change, target)?;
    }
    let commit = |tree: &mut VirtualTree| -> Result<Tree> {
        let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() };
        let snapshot = tree.commit(new)?;
        Ok(Tree::of_snapshot(&store, &snapshot)?)
    };
    let (before, after) = (commit(&mut before)?, commit(&mut after)?);
    let changes = insight(&before, &after)?;
    Ok((Trees { _store: store, before, after }, changes))
}

/// Adds the former content at the path of a change to a tree.
fn add_former_content(
    tree: &mut VirtualTree,
    target: &TargetDir,
    change: &Change,
    skipped: &mut Vec<(Vec<u8>, String)>,
    cancel: &Cancel,
) -> Result<()> {
    let parent = split(&change.path).0;
    if !parent.is_empty() && target.open_directory(parent).is_ok_and(|it| it.is_some()) {
        tree.mkdir(parent)?;
    }
    let found = target.stat(&change.path).ok().flatten();
    match found {
        // Only the directory itself was changed; its entries have separate changes.
        Some(stat)
            if matches!(change.kind, ChangeKind::Directory(_))
                && upper::file_type(&stat) == FileType::Directory =>
        {
            let mode = (stat.st_mode & 0o7777) as u16;
            Ok(tree.put_directory(&change.path, TreeAttributes { mode, ..TreeAttributes::default() })?)
        }
        Some(_) => add_descendants(tree, target, &change.path, skipped, cancel),
        None => Ok(()),
    }
}

/// Adds a path of the target directory with all its descendants to a tree.
fn add_descendants(
    tree: &mut VirtualTree,
    target: &TargetDir,
    path: &[u8],
    skipped: &mut Vec<(Vec<u8>, String)>,
    cancel: &Cancel,
) -> Result<()> {
    let mut pending = vec![path.to_vec()];
    while let Some(path) = pending.pop() {
        if cancel.is_cancelled() {
            return Err(CommandError::failed("interrupted"));
        }
        let Ok(Some(stat)) = target.stat(&path) else { continue };
        let attributes = TreeAttributes { mode: (stat.st_mode & 0o7777) as u16, ..TreeAttributes::default() };
        match upper::file_type(&stat) {
            FileType::Directory => {
                tree.put_directory(&path, attributes)?;
                pending.extend(target.names(&path).unwrap_or_default().iter().map(|name| join(&path, name)));
            }
            FileType::RegularFile => match target.open_file(&path) {
                Ok(mut file) => tree.put_file(&path, &mut file, attributes)?,
                Err(error) => skipped.push((path, format!("its former content cannot be read: {error}"))),
            },
            FileType::Symlink => tree.symlink(&path, target.read_link(&path).unwrap_or_default())?,
            _ => {}
        }
    }
    Ok(())
}

/// Adds the new content at the path of a change to a tree. Fifos are left out, because a tree cannot contain them.
fn add_new_content(tree: &mut VirtualTree, upper: &Path, change: &Change, target: &TargetDir) -> Result<()> {
    let path = &change.path;
    let with_mode = |mode: u32| TreeAttributes { mode: (mode & 0o7777) as u16, ..TreeAttributes::default() };
    let failed = |error: io::Error| {
        CommandError::failed(format!("cannot read {}: {error}", quote_path(path))).hint(io_hint(&error))
    };
    let parent = split(path).0;
    if !parent.is_empty() {
        tree.mkdir(parent)?;
    }
    match &change.kind {
        ChangeKind::Remove | ChangeKind::Fifo(_) => {}
        ChangeKind::Directory(attributes) => {
            tree.put_directory(path, with_mode(attributes.mode))?;
        }
        ChangeKind::File(attributes) => {
            let mut file = fs::File::open(upper.join(OsStr::from_bytes(path))).map_err(failed)?;
            tree.put_file(path, &mut file, with_mode(attributes.mode))?;
        }
        ChangeKind::Link(to) => {
            let mut file = match fs::File::open(upper.join(OsStr::from_bytes(path))) {
                Ok(file) => file,
                Err(_) => target.open_file(to).map_err(failed)?,
            };
            let mode = rustix::fs::fstat(&file).map(|stat| stat.st_mode).unwrap_or(0o644);
            tree.put_file(path, &mut file, with_mode(mode))?;
        }
        ChangeKind::Symlink(to) => tree.symlink(path, to.clone())?,
    }
    Ok(())
}
