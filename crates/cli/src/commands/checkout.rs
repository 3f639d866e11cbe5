//! `workspace checkout`

use serde::Serialize;
use workspace_state::{CheckoutOptions, CheckoutReport, SnapshotId, checkout};

use crate::args::Checkout;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::names;
use crate::text::{format_bytes, pluralize, print_stderr};

#[derive(Serialize)]
struct Report {
    snapshot: SnapshotId,
    written: u64,
    removed: u64,
    /// Number of entries that were compared and not changed.
    unchanged: u64,
    bytes: u64,
    /// True if the command finished an interrupted checkout.
    resumed: bool,
    /// True if the directory already was a checkout of the snapshot: nothing was compared or written.
    already: bool,
}

pub(crate) fn run(context: &mut Context, args: &Checkout) -> Result<Outcome> {
    let store = context.store()?;
    let snapshot = names::snapshot(&store, &args.snapshot)?;
    let options = CheckoutOptions {
        force: args.force,
        keep_set_id: args.keep_set_id,
        sync: args.sync,
        ..CheckoutOptions::default()
    };
    let report = checkout(&store, &snapshot, &args.directory, &options, &context.progress)?;
    if context.output.is_json() {
        let CheckoutReport { written, removed, unchanged, bytes, resumed, up_to_date, .. } = report;
        let id = snapshot.id;
        let report =
            Report { snapshot: id, written, removed, unchanged, bytes, resumed, already: up_to_date };
        context.output.record(&report)?;
    } else {
        print_stderr(&summary(&report));
    }
    Ok(Outcome::Done)
}

/// Formats a report on one line.
pub(super) fn summary(report: &CheckoutReport) -> String {
    if report.up_to_date {
        return "already checked out; local changes, if any, were kept (--force discards them)".to_owned();
    }
    let resumed = if report.resumed { "finished an interrupted checkout: " } else { "" };
    format!(
        "{resumed}wrote {} ({}), removed {}",
        pluralize(report.written, "entry", "entries"),
        format_bytes(report.bytes),
        report.removed
    )
}
