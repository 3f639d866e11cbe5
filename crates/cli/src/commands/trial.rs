//! `workspace try`. A trial is one run of it, on one directory.
//!
//! The program runs at the real path of the directory ([`real_path`]), or with `--template` in a sandbox, on a copy of
//! the directory at `/workspace` (this module).
//!
//! Changes in the copy are committed, and the sandbox is removed, before the user is asked. So exactly the listed
//! changes are kept, and an interruption at the question leaves no process and no mount.

mod decision;
mod keep;
#[cfg(target_os = "linux")]
mod real_path;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::sync::mpsc;
use workspace_sandbox::runtime::Network as NetworkAccess;
use workspace_sandbox::{Materialize, NewCommit, NewSandbox};
use workspace_state::{
    Durability, InsightDiff, NewSnapshot, Snapshot, SnapshotId, SnapshotOptions, Store, Tree, TreePath, diff,
    ignored_paths, insight, snapshot_directory,
};

use super::diff::print_insight;
use super::report::{SkippedFields, warn_skipped};
use super::snapshot::skipped;
use crate::args::{Network, Try};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::local::{self, CommandOptions, LocalService};
use crate::output::Output;
use crate::remote::shell_exec_line;
use crate::session::{Attachment, CommandExit, Destination, OnClosedStdout, OnSignal};
use crate::signals::Signals;
use crate::stdin::spawn_stdin_reader;
use crate::text::{pluralize, print_stderr};
use crate::user;
use decision::{Decision, Question, print_patch_safely};

/// Number of entries from which a tree is loaded lazily instead of being written before the sandbox starts.
const LARGE_TREE: u64 = 1_000;

/// Template with the programs of this machine.
const BASE_TEMPLATE: &str = "base";

/// Hint for systems without local sandboxes.
const SERVER_HINT: &str = "use a server, for instance one on this machine with RUNTIME=docker: `workspace sandbox create --dir DIR`";

pub(crate) fn run(context: &mut Context, args: &Try) -> Result<Outcome> {
    run_trial(context, args).map_err(CommandError::with_own_failure_status)
}

fn run_trial(context: &mut Context, args: &Try) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        let failed = CommandError::failed("`workspace try` needs Linux");
        return Err(failed.hint(SERVER_HINT));
    }
    #[cfg(target_os = "linux")]
    if args.template.is_none() {
        return real_path::run(context, args);
    }
    let directory = resolve_directory(&args.dir)?;
    let store = context.store_or_create()?;
    print_store_note(&store, &directory);
    let mut trial = TryRun { context, args, directory, store, temporary_snapshots: Vec::new() };
    let result = local::block_on(trial.run());
    // Also after an error. If changes could not be written, their snapshots are no longer in the list.
    let removed = trial.store.remove_snapshots(&trial.temporary_snapshots);
    let outcome = result?;
    removed?;
    Ok(outcome)
}

/// A trial while it runs.
struct TryRun<'a> {
    context: &'a mut Context,
    args: &'a Try,
    directory: PathBuf,
    store: Store,
    /// Snapshots that are removed at the end, whether changes are kept or dropped.
    temporary_snapshots: Vec<SnapshotId>,
}

/// Exit status and changes of a program.
struct TryRunResult {
    exit: CommandExit,
    /// Snapshot of the directory before the program ran.
    before: Snapshot,
    /// Snapshot after it, without files that `.workspaceignore` names.
    after: Snapshot,
    changes: InsightDiff,
    /// New and changed paths that a snapshot of the directory ignores; of an ignored directory, only its own path.
    ignored: Vec<Vec<u8>>,
    /// Created files that a snapshot cannot contain.
    skipped: Vec<SkippedFields>,
    skipped_count: u64,
    /// Stdin that the program did not read.
    stdin: mpsc::Receiver<Vec<u8>>,
}

/// Report as `--json` prints it.
#[derive(Serialize)]
struct Report {
    directory: String,
    exit_code: i32,
    timed_out: bool,
    kept: bool,
    ignored: Vec<TreePath>,
    skipped: Vec<SkippedFields>,
    /// `None` if the changes could not be compared.
    #[serde(flatten)]
    changes: Option<InsightDiff>,
}

impl TryRun<'_> {
    async fn run(&mut self) -> Result<Outcome> {
        // From here on a signal removes the sandbox and the snapshots.
        let mut signals = Signals::new()?;
        let (before, materialize) = self.take_snapshot()?;
        let mut ran = self.run_in_sandbox(before, materialize, &mut signals).await?;
        self.show(&ran)?;
        let question = Question {
            args: self.args,
            json: self.context.output.is_json(),
            directory: &self.directory,
            changed: !ran.changes.entries.is_empty(),
        };
        let from = Tree::of_snapshot(&self.store, &ran.before)?;
        let to = Tree::of_snapshot(&self.store, &ran.after)?;
        let decision =
            question.decide(&mut ran.stdin, &mut signals, &|| print_patch_safely(&from, &to)).await?;
        let kept = match decision {
            Decision::Keep => {
                self.keep(&ran)?;
                true
            }
            Decision::Drop => false,
        };
        let outcome = super::exec::exit_outcome(ran.exit.exit_code, ran.exit.timed_out);
        self.report(ran, kept)?;
        Ok(outcome)
    }

    /// Takes a snapshot of the directory. If it is large, the sandbox loads each file on first read: writing all of
    /// them first would only pay off if other sandboxes used them, too.
    fn take_snapshot(&mut self) -> Result<(Snapshot, Materialize)> {
        let new = self.new_snapshot("before", Vec::new());
        // The snapshot does not count as the checkout of the directory, so that a trial whose changes are dropped does
        // not affect the next snapshot of the directory.
        let options = SnapshotOptions { new, record_as_checkout: false, ..SnapshotOptions::default() };
        let report = snapshot_directory(&self.store, &self.directory, options, &self.context.progress)?;
        self.temporary_snapshots.push(report.snapshot.id);
        warn_skipped(&skipped(&report), report.skipped_count);
        if report.ignored_count > 0 {
            print_stderr(
                "note: files that .workspaceignore names are not in the sandbox, and stay unchanged",
            );
        }
        let is_large = report.files + report.directories + report.symlinks >= LARGE_TREE;
        Ok((report.snapshot, if is_large { Materialize::Lazy } else { Materialize::Full }))
    }

    fn new_snapshot(&self, when: &str, parents: Vec<SnapshotId>) -> NewSnapshot {
        let line = self.args.words.join(" ");
        let message = format!("{when} `workspace try -- {line}`");
        let durability = Durability::Buffered;
        NewSnapshot { parents, author: user::name(), message, durability, ..NewSnapshot::default() }
    }

    /// Runs the program in a sandbox, commits its changes, and removes the sandbox.
    async fn run_in_sandbox(
        &mut self,
        before: Snapshot,
        materialize: Materialize,
        signals: &mut Signals,
    ) -> Result<TryRunResult> {
        let local_service = LocalService::start(&self.store, before.id, &self.directory).await?;
        let ran = self.run_and_commit(&local_service, before, materialize, signals).await;
        let shut_down = local_service.shut_down().await;
        let ran = ran?;
        shut_down?;
        Ok(ran)
    }

    async fn run_and_commit(
        &mut self,
        local_service: &LocalService,
        before: Snapshot,
        materialize: Materialize,
        signals: &mut Signals,
    ) -> Result<TryRunResult> {
        let new = NewSandbox { materialize, ..self.new_sandbox(&before)? };
        let sandbox = local_service.create(new, signals).await?;
        let options = CommandOptions {
            command_line: shell_exec_line(&self.args.words),
            envs: self.envs(),
            timeout: self.args.timeout,
        };
        let json = self.context.output.is_json();
        let mut stdin = spawn_stdin_reader();
        let exit = if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !json {
            local::run_in_terminal(local_service.service(), &sandbox, options, &mut stdin, signals).await?
        } else {
            let destination = match json {
                true => Destination::Stderr,
                false => Destination::Streams(&mut self.context.output, OnClosedStdout::Drain),
            };
            let attachment = Attachment {
                stdin: Some(&mut stdin),
                destination,
                signals,
                on_signal: OnSignal::ForwardInterrupt,
                timeout: None,
            };
            local::run(local_service.service(), &sandbox, options, attachment).await?
        };
        self.commit(local_service, &sandbox, before, exit, stdin).await
    }

    fn envs(&self) -> BTreeMap<String, String> {
        self.args.envs.iter().cloned().collect()
    }

    fn new_sandbox(&self, before: &Snapshot) -> Result<NewSandbox> {
        let network = network(self.args.network, &self.args.allowed)?;
        let (template, snapshot) =
            (self.args.template.clone().unwrap_or_else(|| BASE_TEMPLATE.to_owned()), Some(before.id));
        Ok(NewSandbox { template, snapshot, network, ..NewSandbox::default() })
    }

    /// Commits the workspace of the sandbox, without files that `.workspaceignore` names.
    async fn commit(
        &mut self,
        local_service: &LocalService,
        sandbox: &str,
        before: Snapshot,
        exit: CommandExit,
        stdin: mpsc::Receiver<Vec<u8>>,
    ) -> Result<TryRunResult> {
        let committed =
            local_service.commit(sandbox, NewCommit { buffered: true, ..NewCommit::default() }).await?;
        self.temporary_snapshots.push(committed.snapshot.id);
        let skipped = committed.skipped.iter().map(SkippedFields::of).collect();
        let from = Tree::of_snapshot(&self.store, &before)?;
        let with_ignored = Tree::of_snapshot(&self.store, &committed.snapshot)?;
        let ignored = ignored_paths(&from, &diff(&from, &with_ignored)?)?;
        let mut tree = self.store.restore(&committed.snapshot.id)?;
        for path in &ignored {
            tree.remove(path)?;
        }
        let after = tree.commit(self.new_snapshot("after", vec![before.id]))?;
        self.temporary_snapshots.push(after.id);
        let changes = insight(&from, &Tree::of_snapshot(&self.store, &after)?)?;
        let skipped_count = committed.skipped_count;
        Ok(TryRunResult { exit, before, after, changes, ignored, skipped, skipped_count, stdin })
    }

    /// Lists the changes on stderr.
    fn show(&self, ran: &TryRunResult) -> Result<()> {
        if self.context.output.is_json() {
            return Ok(());
        }
        super::exec::print_failure(ran.exit.failure_reason.as_deref(), ran.exit.timed_out);
        warn_skipped(&ran.skipped, ran.skipped_count);
        if !ran.ignored.is_empty() {
            let count = pluralize(ran.ignored.len() as u64, "path", "paths");
            print_stderr(&format!("note: not kept because .workspaceignore names them: {count}"));
        }
        if ran.changes.entries.is_empty() {
            print_stderr("nothing was changed");
            return Ok(());
        }
        let mut output = Output::to_stderr();
        print_insight(&mut output, &ran.changes).and_then(|()| output.flush())
    }

    fn report(&mut self, ran: TryRunResult, kept: bool) -> Result<()> {
        if !self.context.output.is_json() {
            return Ok(());
        }
        let ignored = ran.ignored.into_iter().map(TreePath).collect();
        let TryRunResult { exit: CommandExit { exit_code, timed_out, .. }, skipped, changes, .. } = ran;
        let directory = self.directory.to_string_lossy().into_owned();
        let report =
            Report { directory, exit_code, timed_out, kept, ignored, skipped, changes: Some(changes) };
        self.context.output.record(&report)?;
        self.context.output.flush()
    }
}

/// Returns the network access that `--network` and `--allow` give to a program in a local sandbox.
pub(super) fn network(network: Network, allowed: &[String]) -> Result<NetworkAccess> {
    match network {
        Network::None if allowed.is_empty() => Ok(NetworkAccess::None),
        Network::None => Err(CommandError::usage("--allow needs --network egress")
            .hint("set both, or neither for a program without a network")),
        Network::Egress => {
            let parsed = allowed.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>();
            let parsed = parsed.map_err(|error| {
                CommandError::usage(format!("--allow: {error}"))
                    .hint("a host name, *.example.com or addresses such as 10.1.0.0/16")
            })?;
            Ok(NetworkAccess::Egress { allow: Some(parsed).filter(|list| !list.is_empty()) })
        }
    }
}

/// Resolves symlinks in the path of the directory. Fails for the root directory, and for one that contains the home
/// directory.
fn resolve_directory(typed: &Path) -> Result<PathBuf> {
    let not_found = |error: &std::io::Error| {
        CommandError::failed(format!("cannot find {}: {error}", typed.display())).hint(io_hint(error))
    };
    let path = std::fs::canonicalize(typed).map_err(|error| not_found(&error))?;
    if !path.is_dir() {
        return Err(not_found(&std::io::ErrorKind::NotADirectory.into()));
    }
    let home = std::env::var_os("HOME").and_then(|home| std::fs::canonicalize(home).ok());
    let what = match home {
        _ if path.parent().is_none() => "is the root directory",
        Some(home) if home.starts_with(&path) => "contains your home directory",
        _ => return Ok(path),
    };
    Err(CommandError::usage(format!("{} {what}: too large for a trial", path.display())).hint(
        "change to the directory that the program works on, or name it: `workspace try --dir DIR -- …`",
    ))
}

/// Prints a note if the store is in the directory, because a snapshot of the directory does not contain it.
fn print_store_note(store: &Store, directory: &Path) {
    let path = std::fs::canonicalize(store.path()).unwrap_or_else(|_| store.path().to_owned());
    if path.starts_with(directory) {
        print_stderr(&format!("note: the store {} is not in the sandbox", path.display()));
    }
}
