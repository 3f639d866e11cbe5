//! `workspace snapshot`

use serde::Serialize;
use workspace_state::{Durability, SnapshotId, SnapshotOptions, SnapshotReport, Store, snapshot_directory};

use super::record::new_snapshot;
use super::report::{Report, SkippedFields, warn_skipped};
use crate::args::SnapshotArgs;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::names;

#[derive(Serialize)]
struct ExtraFields {
    files_read: u64,
}

pub(crate) fn run(context: &mut Context, args: SnapshotArgs) -> Result<Outcome> {
    let store = context.store_or_create()?;
    let parents = parents(&store, &args.parents)?;
    let durability = if args.buffered { Durability::Buffered } else { Durability::Synced };
    let new = new_snapshot(&store, args.metadata, parents, durability)?;
    let options = SnapshotOptions { new, use_ignore_files: !args.no_ignore, ..SnapshotOptions::default() };
    let report = snapshot_directory(&store, &args.directory, options, &context.progress)?;
    let skipped = skipped(&report);
    warn_skipped(&skipped, report.skipped_count);
    let fields = Report {
        files: report.files,
        directories: report.directories,
        symlinks: report.symlinks,
        bytes: report.bytes,
        skipped,
        more: ExtraFields { files_read: report.files_read },
    };
    fields.print(context, &store, &report.snapshot)?;
    Ok(Outcome::with_warnings_if(has_unreadable_entries(&report)))
}

fn parents(store: &Store, texts: &[String]) -> Result<Vec<SnapshotId>> {
    texts.iter().map(|text| Ok(names::snapshot(store, text)?.id)).collect()
}

/// Returns the entries that were skipped.
pub(super) fn skipped(report: &SnapshotReport) -> Vec<SkippedFields> {
    report.skipped.iter().map(SkippedFields::of).collect()
}

/// Returns true if the snapshot lacks entries that could not be read: no permission, or they kept changing. Sockets,
/// pipes and devices do not count, because no snapshot contains them.
pub(super) fn has_unreadable_entries(report: &SnapshotReport) -> bool {
    report.skipped.iter().any(|skipped| skipped.reason.is_loss())
}
