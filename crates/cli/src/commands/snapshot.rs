//! `workspace snapshot`

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use workspace_state::{
    Durability, SnapshotId, SnapshotOptions, SnapshotReport, Store, TreePath, quote_path, snapshot_directory,
};

use super::record::new_snapshot;
use crate::args::SnapshotArgs;
use crate::context::{Context, References};
use crate::error::{Outcome, Result};
use crate::fields::SnapshotFields;
use crate::{names, text};

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    snapshot: SnapshotFields<'a>,
    files: u64,
    directories: u64,
    symlinks: u64,
    bytes: u64,
    files_read: u64,
    skipped: Vec<SkippedFields>,
}

/// Something that is not in the snapshot.
#[derive(Serialize)]
struct SkippedFields {
    path: TreePath,
    reason: String,
}

pub(crate) fn run(context: &mut Context, args: SnapshotArgs) -> Result<Outcome> {
    let store = context.store_or_create()?;
    let parents = parents(&store, &args.parents)?;
    let durability = if args.buffered { Durability::Buffered } else { Durability::Synced };
    let new = new_snapshot(&store, args.record, parents, durability)?;
    let options = SnapshotOptions { new, ignore: !args.no_ignore };
    let report = snapshot_directory(&store, &args.directory, options, &context.progress)?;
    warn(&report);
    print(context, &store, &report)?;
    Ok(Outcome::with_reservations_if(lacks_content(&report)))
}

fn parents(store: &Store, texts: &[String]) -> Result<Vec<SnapshotId>> {
    texts.iter().map(|text| Ok(names::snapshot(store, text)?.id)).collect()
}

/// Names on stderr what was left out.
pub(super) fn warn(report: &SnapshotReport) {
    for skipped in &report.skipped {
        let path = quote_path(skipped.path.as_os_str().as_bytes());
        text::print_stderr(&format!("warning: skipped {path}: {}", skipped.reason));
    }
}

/// Whether content is missing that a snapshot could have held. Sockets and the like never are part of one.
pub(super) fn lacks_content(report: &SnapshotReport) -> bool {
    report.skipped.iter().any(|skipped| skipped.reason.is_loss())
}

fn print(context: &mut Context, store: &Store, report: &SnapshotReport) -> Result<()> {
    if !context.output.json() {
        return context.output.line(report.snapshot.id);
    }
    let references = References::read(store)?;
    let skipped = report.skipped.iter().map(|skipped| SkippedFields {
        path: TreePath(skipped.path.as_os_str().as_bytes().to_vec()),
        reason: skipped.reason.to_string(),
    });
    context.output.record(&Report {
        snapshot: SnapshotFields::new(&report.snapshot, references.of(&report.snapshot.id)),
        files: report.files,
        directories: report.directories,
        symlinks: report.symlinks,
        bytes: report.bytes,
        files_read: report.files_read,
        skipped: skipped.collect(),
    })
}
