//! `workspace sandbox commit`, `restore`, `rebase` and `fork`

use serde::Serialize;
use serde::de::DeserializeOwned;
use workspace_api::sandbox_snapshots::{
    CommitSandbox, CommitSandboxResult, Durability, ForkSandbox, ForkSandboxResult, RebaseSandbox,
    RebaseSandboxResult, RestoreSandbox, RestoreSandboxResult, WorkspaceProcess,
};
use workspace_api::snapshots::SkippedEntry;

use super::super::exec::to_map;
use super::super::rebase_report::RebaseReport;
use super::show::show;
use crate::args::{SandboxCommit, SandboxFork, SandboxRebase, SandboxRestore};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, find_sandbox, with_client};
use crate::text::print_stderr;

/// Posts to a path below a sandbox.
async fn post<T: DeserializeOwned>(
    client: &Client,
    sandbox: &str,
    path: &str,
    body: &impl Serialize,
) -> Result<T> {
    let id = find_sandbox(client, sandbox).await?;
    client.post(&format!("/api/v1/sandboxes/{id}/{path}"), body).await
}

pub(super) fn commit(context: &mut Context, args: &SandboxCommit) -> Result<Outcome> {
    let body = CommitSandbox {
        message: args.message.clone().unwrap_or_default(),
        labels: to_map(&args.labels),
        durability: if args.buffered { Durability::Buffered } else { Durability::Synced },
    };
    let committed: CommitSandboxResult =
        with_client(&args.server, async |client| post(client, &args.sandbox, "commit", &body).await)?;
    print_skipped(&committed.skipped);
    show(context, &committed, |committed| vec![committed.snapshot.id.clone()])
}

/// Prints a warning for each entry that the server skipped.
pub(super) fn print_skipped(skipped: &[SkippedEntry]) {
    for SkippedEntry { path, reason } in skipped {
        print_stderr(&format!("warning: skipped {path}: {reason}"));
    }
}

pub(super) fn restore(context: &mut Context, args: &SandboxRestore) -> Result<Outcome> {
    let body = RestoreSandbox { snapshot: args.snapshot.clone(), force: !args.no_force };
    let restored: RestoreSandboxResult =
        with_client(&args.server, async |client| post(client, &args.sandbox, "restore", &body).await)?;
    print_ended(&restored.ended);
    show(context, &restored, |_| Vec::new())
}

fn print_ended(ended: &[WorkspaceProcess]) {
    for process in ended {
        print_stderr(&format!("note: killed {} {} ({})", process.pid, process.command, process.why));
    }
}

pub(super) fn rebase(context: &mut Context, args: &SandboxRebase) -> Result<Outcome> {
    let body = RebaseSandbox { force: args.force };
    let rebased: RebaseSandboxResult =
        with_client(&args.server, async |client| post(client, &args.sandbox, "rebase", &body).await)?;
    print_ended(&rebased.ended);
    let report = RebaseReport {
        state: rebased.state,
        sequence: rebased.sequence,
        former: rebased.former.as_deref(),
        merged: &rebased.merged,
        conflicts: &rebased.conflicts,
    };
    report.print(context, &rebased)
}

pub(super) fn fork(context: &mut Context, args: &SandboxFork) -> Result<Outcome> {
    let body = ForkSandbox {
        count: args.count,
        timeout_seconds: args.timeout.map(|lifetime| lifetime.as_secs()),
        on_end: args.on_end.map(Into::into),
        labels: to_map(&args.labels),
        message: args.message.clone().unwrap_or_default(),
    };
    let forked: ForkSandboxResult =
        with_client(&args.server, async |client| post(client, &args.sandbox, "fork", &body).await)?;
    show(context, &forked, |forked| forked.sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect())
}
