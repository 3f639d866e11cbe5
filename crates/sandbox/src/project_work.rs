//! Work in sandboxes of projects that the server completes by itself: when a sandbox ends, and while it runs.
//!
//! The service commits the files; a [`WorkRecorder`] knows projects and completions.

use std::fmt::Debug;

use async_trait::async_trait;
use workspace_state::SnapshotId;

use crate::hooks::HookFailure;
use crate::lineage::ProjectBase;

/// Occasion at which the server completes the work in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The sandbox was deleted or has expired, and its files are about to be removed.
    End,
    /// The sandbox runs, and nothing in it changes files.
    Quiet,
}

impl Occasion {
    /// Returns the message of the snapshot, which the history of the project shows.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::End => "changes at the end of the sandbox",
            Self::Quiet => "automatic merge",
        }
    }
}

/// Files of a sandbox of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Id of the sandbox.
    pub sandbox: String,
    /// Owner of the sandbox.
    pub owner: String,
    /// Head of the project that the workspace was made from or rebased onto.
    pub base: ProjectBase,
    /// Snapshot of the files.
    pub snapshot: SnapshotId,
    /// Occasion of the completion.
    pub occasion: Occasion,
}

/// Relation of the files of a sandbox to its completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkNewness {
    /// They have changes that no completion has.
    New,
    /// There is nothing to complete, or the project does not exist any more.
    Known,
    /// A former attempt to end the sandbox recorded them as this completion.
    Recorded(String),
    /// An earlier completion of the sandbox is not decided yet. Ask again later.
    Postponed,
}

/// Recorder of completions. It is called from the start of the sandbox service on, even before that has returned, while
/// nothing else records completions of the sandbox ([`Service::lock_work`](crate::Service::lock_work)). Each call is
/// dropped after [`Settings::hook_timeout`](crate::Settings), and may be repeated then.
#[async_trait]
pub trait WorkRecorder: Send + Sync + Debug {
    /// Compares the files with those that were completed before. Records nothing.
    async fn newness(&self, work: &Work) -> Result<WorkNewness, HookFailure>;

    /// Records a completion and returns its id. The same work recorded twice is one completion. `None` if the project
    /// does not exist any more. The snapshot is durable.
    async fn record(&self, work: &Work) -> Result<Option<String>, HookFailure>;
}
