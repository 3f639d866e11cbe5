//! Report on a new snapshot, shared by the commands that make one.

use std::os::unix::ffi::OsStrExt as _;

use serde::Serialize;
use workspace_state::{SkippedEntry, Snapshot, Store, TreePath, quote_path};

use crate::context::{Context, References};
use crate::error::Result;
use crate::fields::SnapshotFields;
use crate::text::print_stderr;

/// Report on a new snapshot.
#[derive(Serialize)]
pub(super) struct Report<More> {
    /// Number of files; hard links count separately.
    pub(super) files: u64,
    /// Number of directories without the root.
    pub(super) directories: u64,
    pub(super) symlinks: u64,
    pub(super) bytes: u64,
    pub(super) skipped: Vec<SkippedFields>,
    /// Fields that only one command has.
    #[serde(flatten)]
    pub(super) more: More,
}

/// Entry that was skipped.
#[derive(Serialize)]
pub(super) struct SkippedFields {
    path: TreePath,
    reason: String,
}

impl SkippedFields {
    pub(super) fn new(path: &[u8], reason: impl Into<String>) -> Self {
        Self { path: TreePath(path.to_vec()), reason: reason.into() }
    }

    pub(super) fn of(skipped: &SkippedEntry) -> Self {
        Self::new(skipped.path.as_os_str().as_bytes(), skipped.reason.to_string())
    }
}

/// Prints a warning on stderr for each skipped entry.
pub(super) fn print_skipped(skipped: &[SkippedFields]) {
    for SkippedFields { path, reason } in skipped {
        print_stderr(&format!("warning: skipped {}: {reason}", quote_path(&path.0)));
    }
}

/// Prints a warning with the number of entries beyond those that a report lists; nothing for 0. `what` is the end of
/// the sentence.
pub(super) fn warn_unlisted(count: u64, what: &str) {
    if count > 0 {
        print_stderr(&format!("warning: {count} more {what}"));
    }
}

/// Prints a warning for each skipped entry of a directory, and one for those beyond the list. `count` is the number of
/// all skipped entries.
pub(super) fn warn_skipped(skipped: &[SkippedFields], count: u64) {
    print_skipped(skipped);
    warn_unlisted(count - skipped.len() as u64, "entries cannot be in a snapshot");
}

/// Report with its snapshot, as `--json` prints it.
#[derive(Serialize)]
struct ReportFields<'a, More> {
    #[serde(flatten)]
    snapshot: SnapshotFields<'a>,
    #[serde(flatten)]
    report: &'a Report<More>,
}

impl<More: Serialize> Report<More> {
    /// Prints the id of the snapshot, or with `--json` the report.
    pub(super) fn print(&self, context: &mut Context, store: &Store, snapshot: &Snapshot) -> Result<()> {
        if !context.output.is_json() {
            return context.output.line(snapshot.id);
        }
        let references = References::read(store)?;
        let snapshot = SnapshotFields::new(snapshot, references.of(&snapshot.id));
        context.output.record(&ReportFields { snapshot, report: self })
    }
}
