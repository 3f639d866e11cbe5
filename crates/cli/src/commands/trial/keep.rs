//! Writes the changes of a trial in a sandbox to its directory: the difference between the snapshots before and after
//! it.

use std::os::unix::fs::MetadataExt as _;

use workspace_state::{CheckoutOptions, DirectoryError, apply_changes};

use super::super::checkout::summary;
use super::{TryRun, TryRunResult};
use crate::error::{CommandError, Result, listed_paths};
use crate::text::print_stderr;

impl TryRun<'_> {
    /// Writes the changes to the directory. If that fails, the snapshots before and after stay, so that nothing is
    /// lost.
    pub(super) fn keep(&mut self, ran: &TryRunResult) -> Result<()> {
        let options = CheckoutOptions { owner: self.owner(), ..CheckoutOptions::default() };
        let (before, after) = (&ran.before, &ran.after);
        let progress = &self.context.progress;
        let kept = apply_changes(&self.store, before, after, &self.directory, &options, progress);
        match kept {
            Ok(report) => {
                print_stderr(&format!("kept: {}", summary(&report)));
                Ok(())
            }
            Err(error) => {
                self.temporary_snapshots.retain(|id| *id != ran.before.id && *id != ran.after.id);
                // The snapshots were committed without a sync, because they were temporary.
                self.store.sync()?;
                Err(self.explain(error, ran))
            }
        }
    }

    /// Returns the owner of new files if root runs this: the owner of the directory.
    fn owner(&self) -> Option<(u32, u32)> {
        let metadata = std::fs::metadata(&self.directory).ok()?;
        rustix::process::geteuid().is_root().then(|| (metadata.uid(), metadata.gid()))
    }

    /// Adds hints how to show, write or drop the changes by their snapshots.
    fn explain(&self, error: DirectoryError, ran: &TryRunResult) -> CommandError {
        let failed = match error {
            DirectoryError::LocalEdits { paths, directory } => CommandError::failed(format!(
                "{} has conflicting changes by another process, so nothing was written",
                directory.display()
            ))
            .hint(format!("changed by both:\n  {}", listed_paths(&paths))),
            error => error.into(),
        };
        let (before, after, directory) = (ran.before.id, ran.after.id, self.directory.display());
        failed
            .hint(format!("nothing is lost: `workspace diff {before} {after} --patch` shows the changes"))
            .hint(format!("`workspace checkout {after} {directory} --force` overwrites the other changes"))
            .hint(format!("`workspace rm {before} {after}` drops them"))
    }
}
