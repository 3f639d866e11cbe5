//! Pauses of sandboxes: the columns `pause`, `pause_snapshot` and `remaining_ms`.

use super::{Change, Sandbox, Sandboxes};
use crate::clock::now;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::state::{State, VisibleState};
use crate::statement::Statement;
use crate::string_enum::string_enum;

/// SQL condition of sandboxes that are shown as paused.
pub(super) const IS_PAUSED: &str = "((state = 'running' AND COALESCE(pause, '') = 'memory')
    OR (state = 'stopped' AND COALESCE(pause, '') = 'disk'))";

string_enum! {
    /// Step of a pause or resume. After a restart, the server continues or undoes an unfinished step.
    pub enum PauseStep {
        /// The processes of the sandbox are about to be frozen. A restarted server undoes that.
        Freezing = "freezing",
        /// Paused in memory: all processes of the sandbox are frozen.
        Memory = "memory",
        /// A snapshot of the workspace is being made, for a pause to disk. A restarted server undoes that.
        Pausing = "pausing",
        /// The snapshot is durable, and the processes are about to be killed. A restarted server continues.
        Committed = "committed",
        /// Paused on disk: only the snapshot is left.
        Disk = "disk",
        /// The sandbox is being started from the snapshot. A restarted server undoes that.
        Resuming = "resuming",
    }
}

impl Sandboxes<'_> {
    /// Counts the sandboxes of an owner on all servers that are paused on disk, are being paused to disk, or are being
    /// resumed from it.
    pub async fn count_on_disk(&self, owner: &str) -> Result<u64> {
        let select = Statement::new(
            "SELECT COUNT(*) AS total FROM sandboxes
             WHERE owner = $1 AND pause IN ('pausing', 'committed', 'disk', 'resuming')",
        );
        let row = select.text("owner", owner).one(&mut *self.database.reader().await?).await?;
        Row(row).count("total")
    }
}

impl Sandbox {
    /// Returns the state that clients see.
    pub fn visible_state(&self) -> VisibleState {
        VisibleState::of(self.state, self.pause)
    }

    /// Returns true if the sandbox is paused, in memory or on disk.
    pub fn is_paused(&self) -> bool {
        self.visible_state() == VisibleState::Paused
    }

    /// Returns whether a transition to `next` is allowed. A sandbox that is paused on disk can be resumed and
    /// removed.
    pub fn can_become(&self, next: State) -> bool {
        let is_on_disk = self.state == State::Stopped && self.pause == Some(PauseStep::Disk);
        self.state.can_become(next) || (is_on_disk && matches!(next, State::Starting | State::Stopping))
    }

    /// Checks that a change of the state is allowed, and adds its consequences for the pause: a sandbox that
    /// stopped or failed is no longer paused in memory, and the rest of its lifetime continues.
    pub(super) fn complete_change(&self, change: Change) -> Result<Change> {
        if let Some(to) = change.state {
            let resumes = change.pause == Some(Some(PauseStep::Resuming));
            if !self.can_become(to) || (to == State::Starting && !resumes) {
                return Err(CatalogError::Transition { id: self.id.clone(), from: self.state, to });
            }
        }
        let stops_or_fails = matches!(change.state, Some(State::Error | State::Stopped));
        let is_paused_with_processes = match self.pause {
            Some(PauseStep::Freezing | PauseStep::Memory | PauseStep::Pausing) => true,
            Some(PauseStep::Committed | PauseStep::Disk | PauseStep::Resuming) | None => false,
        };
        if change.pause.is_some() || !stops_or_fails || !is_paused_with_processes {
            return Ok(change);
        }
        let expires_at = change.expires_at.or_else(|| self.remaining_ms.map(|left| now() + left));
        Ok(Change { pause: Some(None), remaining_ms: Some(None), expires_at, ..change })
    }
}

impl VisibleState {
    /// Returns the visible state of a sandbox with this state and step of a pause.
    pub fn of(state: State, pause: Option<PauseStep>) -> Self {
        match (state, pause) {
            (State::Running, Some(PauseStep::Memory)) | (State::Stopped, Some(PauseStep::Disk)) => {
                Self::Paused
            }
            (State::Starting, _) => Self::Starting,
            (State::Running, _) => Self::Running,
            (State::Stopping, _) => Self::Stopping,
            (State::Stopped, _) => Self::Stopped,
            (State::Error, _) => Self::Error,
        }
    }
}
