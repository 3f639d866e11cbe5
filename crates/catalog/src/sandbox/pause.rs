//! Pauses of sandboxes: the columns `pause`, `pause_snapshot` and `remaining_ms`.

use super::{Change, Sandbox, Sandboxes};
use crate::clock::now;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::state::{State, VisibleState};
use crate::statement::Statement;
use crate::string_enum::string_enum;

/// Condition of sandboxes that are shown as paused.
pub(super) const IS_PAUSED: &str = "((state = 'running' AND COALESCE(pause, '') = 'memory')
    OR (state = 'stopped' AND COALESCE(pause, '') = 'disk'))";

string_enum! {
    /// Step of a pause or resume, for the server that continues or undoes it.
    pub enum PauseStep {
        /// Its processes are about to be frozen. The next server undoes that.
        Freezing = "freezing",
        /// Paused in memory: all its processes are frozen.
        Memory = "memory",
        /// A snapshot of its workspace is being made. The next server undoes that.
        Pausing = "pausing",
        /// The snapshot is durable, and its processes are about to be killed. The next server continues.
        Committed = "committed",
        /// Paused on disk: only the snapshot is left.
        Disk = "disk",
        /// It is being started from the snapshot. The next server undoes that.
        Resuming = "resuming",
    }
}

impl Sandboxes<'_> {
    /// Counts the sandboxes of an owner on all servers that are paused on disk, or about to be.
    pub async fn count_paused(&self, owner: &str) -> Result<u64> {
        let select = Statement::new(
            "SELECT COUNT(*) AS total FROM sandboxes
             WHERE owner = $1 AND pause IN ('pausing', 'committed', 'disk', 'resuming')",
        );
        let row = select.text("owner", owner).one(&mut *self.database.connection().await?).await?;
        Row(row).count("total")
    }
}

impl Sandbox {
    /// Returns the state that clients see.
    pub fn visible_state(&self) -> VisibleState {
        VisibleState::of(self.state, self.pause)
    }

    /// Returns true if it is paused, in memory or on disk.
    pub fn is_paused(&self) -> bool {
        self.visible_state() == VisibleState::Paused
    }

    /// Returns whether a transition to `next` is allowed. A sandbox that is paused on disk can be resumed and
    /// removed.
    pub fn can_become(&self, next: State) -> bool {
        let is_on_disk = self.state == State::Stopped && self.pause == Some(PauseStep::Disk);
        self.state.can_become(next) || (is_on_disk && matches!(next, State::Starting | State::Stopping))
    }

    /// Adds what a change of the state means for the pause: if its processes are gone, it is no longer paused
    /// in memory, and the rest of its lifetime continues.
    pub(super) fn complete_change(&self, change: Change) -> Result<Change> {
        if let Some(to) = change.state {
            let resumes = change.pause == Some(Some(PauseStep::Resuming));
            if !self.can_become(to) || (to == State::Starting && !resumes) {
                return Err(CatalogError::Transition { id: self.id.clone(), from: self.state, to });
            }
        }
        let has_ended = matches!(change.state, Some(State::Error | State::Stopped));
        let has_processes = match self.pause {
            Some(PauseStep::Freezing | PauseStep::Memory | PauseStep::Pausing) => true,
            Some(PauseStep::Committed | PauseStep::Disk | PauseStep::Resuming) | None => false,
        };
        if change.pause.is_some() || !has_ended || !has_processes {
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
