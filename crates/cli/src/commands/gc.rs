//! `workspace gc`

use serde::Serialize;
use workspace_state::{GcOptions, GcReport, Retention, RetentionPlan, SnapshotId, Store, StoreError};

use crate::args::Gc;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::output::Output;
use crate::text::{first_line, format_bytes, pluralize};
use crate::time;

/// JSON output. Live objects are reachable from a snapshot, dead ones are not.
#[derive(Serialize)]
struct Report {
    dry_run: bool,
    removed_snapshots: Vec<SnapshotId>,
    live_objects: u64,
    live_bytes: u64,
    dead_objects: u64,
    dead_bytes: u64,
    /// Size of dead packs that stay until the processes that may read them have exited.
    condemned_bytes: u64,
    freed_bytes: u64,
    packs_removed: u64,
    packs_rewritten: u64,
}

/// Effect of the collection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Objects are deleted.
    Delete,
    /// The result is only reported.
    DryRun,
}

pub(crate) fn run(context: &mut Context, args: &Gc) -> Result<Outcome> {
    let store = context.store()?;
    let mode = if args.dry_run { Mode::DryRun } else { Mode::Delete };
    let plan = plan(&store, args)?;
    let removed: Vec<SnapshotId> = plan.iter().flat_map(|plan| &plan.remove).map(|it| it.id).collect();
    if mode == Mode::Delete && !removed.is_empty() {
        store.remove_snapshots(&removed)?;
    }
    let report = store
        .collect_garbage(&GcOptions { dry_run: args.dry_run }, &context.progress)
        .map_err(|error| collection_error(error, &removed))?;
    if context.output.is_json() {
        context.output.record(&record(mode, removed, &report))?;
    } else {
        print_removed(&mut context.output, plan.as_ref(), mode)?;
        print(&mut context.output, &report, mode)?;
    }
    Ok(Outcome::Done)
}

/// Adds a hint if another garbage collection is running. The snapshots in `removed` have been removed by then.
fn collection_error(error: StoreError, removed: &[SnapshotId]) -> CommandError {
    let is_refusal = matches!(error, StoreError::Refused(_));
    let failed = CommandError::from(error);
    match (is_refusal, removed.len() as u64) {
        (false, _) => failed,
        (true, 0) => failed.hint("try again when it is done"),
        (true, count) => failed.hint(format!(
            "{} removed; try again when it is done",
            pluralize(count, "snapshot was", "snapshots were")
        )),
    }
}

/// Returns the snapshots to remove by the retention rules; `None` if there are no rules.
fn plan(store: &Store, args: &Gc) -> Result<Option<RetentionPlan>> {
    let rules = Retention {
        keep_last: args.keep_last,
        keep_since: args.keep_since,
        keep_labelled: args.keep_labelled,
    };
    let has_rules = args.keep_last.is_some() || args.keep_since.is_some() || args.keep_labelled;
    Ok(if has_rules { Some(store.retention_plan(&rules)?) } else { None })
}

fn record(mode: Mode, removed_snapshots: Vec<SnapshotId>, report: &GcReport) -> Report {
    Report {
        dry_run: mode == Mode::DryRun,
        removed_snapshots,
        live_objects: report.live_objects,
        live_bytes: report.live_bytes,
        dead_objects: report.dead_objects,
        dead_bytes: report.dead_bytes,
        condemned_bytes: report.condemned_bytes,
        freed_bytes: report.freed_bytes,
        packs_removed: report.packs_removed,
        packs_rewritten: report.packs_rewritten,
    }
}

fn print_removed(output: &mut Output, plan: Option<&RetentionPlan>, mode: Mode) -> Result<()> {
    let Some(plan) = plan else { return Ok(()) };
    let verb = if mode == Mode::DryRun { "would remove" } else { "removed" };
    for snapshot in &plan.remove {
        let (time, message) = (time::format(snapshot.time), first_line(&snapshot.message));
        output.line(format!("{verb} snapshot {}  {time}  {message}", snapshot.id).trim_end())?;
    }
    if mode == Mode::DryRun && !plan.remove.is_empty() {
        output.line("the sizes below do not include data that only these snapshots use")?;
    }
    Ok(())
}

fn print(output: &mut Output, report: &GcReport, mode: Mode) -> Result<()> {
    let objects = |count| pluralize(count, "object", "objects");
    output.line(format_args!(
        "in use    {}, {}",
        objects(report.live_objects),
        format_bytes(report.live_bytes)
    ))?;
    output.line(format_args!(
        "unused    {}, {}",
        objects(report.dead_objects),
        format_bytes(report.dead_bytes)
    ))?;
    if report.condemned_bytes > 0 {
        let pending = format_bytes(report.condemned_bytes);
        output.line(format_args!("pending   {pending}, until the processes that may use it exit"))?;
    }
    if mode == Mode::DryRun {
        return output.line("nothing was removed: this was a dry run");
    }
    output.line(format_args!(
        "freed     {}: {} removed, {} rewritten",
        format_bytes(report.freed_bytes),
        pluralize(report.packs_removed, "pack", "packs"),
        report.packs_rewritten
    ))?;
    if report.freed_bytes == 0 && report.dead_bytes > 0 {
        output.line("a pack is rewritten once most of it is unused")?;
    }
    Ok(())
}
