//! Report of a rebase: of a sandbox, or of the workspace of an agent.

use serde::Serialize;
use workspace_api::projects::{CompletionConflict, MergedFile};
use workspace_api::sandbox_snapshots::RebaseState;

use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::text::escape_controls;

/// Parts of the result of a rebase that are printed.
pub(super) struct RebaseReport<'r> {
    pub(super) state: RebaseState,
    /// Sequence of the head.
    pub(super) sequence: u64,
    /// Id of a snapshot with the former files, if a rule dropped a version of the agent.
    pub(super) former: Option<&'r str>,
    pub(super) merged: &'r [MergedFile],
    pub(super) conflicts: &'r [CompletionConflict],
}

impl RebaseReport<'_> {
    /// Prints the report, or `record`, of which it is a part, as JSON. The outcome is a warning if there are conflicts.
    pub(super) fn print(&self, context: &mut Context, record: &impl Serialize) -> Result<Outcome> {
        if context.output.is_json() {
            context.output.record(record)?;
        } else {
            self.lines().iter().try_for_each(|line| context.output.line(escape_controls(line)))?;
        }
        Ok(Outcome::with_warnings_if(self.state == RebaseState::Conflicts))
    }

    fn lines(&self) -> Vec<String> {
        let summary = match self.state {
            RebaseState::Rebased => format!("rebased onto sequence {}", self.sequence),
            RebaseState::Current => format!("already at sequence {}", self.sequence),
            RebaseState::Conflicts => format!("not rebased onto sequence {}", self.sequence),
        };
        let merged = self.merged.iter().map(|file| format!("merged    {} ({})", file.path, file.strategy));
        let former = self.former.iter().map(|former| format!("former    {former}"));
        let conflicts =
            self.conflicts.iter().map(|conflict| format!("conflict  {} ({})", conflict.path, conflict.class));
        [summary].into_iter().chain(merged).chain(former).chain(conflicts).collect()
    }
}
