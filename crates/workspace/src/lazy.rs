//! The lazy view as the lowest layer of workspaces whose own layers are not written yet.
//!
//! One view serves all snapshots of the store, from a process that outlives this one. It is mounted where workspaces
//! are mounted, and started when it is first needed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use workspace_host::Holder;
use workspace_host::{overlay, own_users};
use workspace_mount::{ViewOptions, spawn_daemon};
use workspace_state::SnapshotId;

use crate::error::{Context as _, Result, WorkspaceError};
use crate::lazy_command::LazyCommand;

#[derive(Debug)]
pub(crate) struct Lazy {
    command: LazyCommand,
    store: PathBuf,
    mountpoint: PathBuf,
    options: ViewOptions,
    turn: Mutex<Turn>,
}

/// Knowledge of whoever has the turn.
#[derive(Debug, Default)]
struct Turn {
    /// Set if the mounted view can be shown to users of sandboxes' own. A view of a server that did not know of them cannot.
    is_showable: bool,
}

impl Lazy {
    pub(crate) fn new(
        command: LazyCommand,
        store: &Path,
        mountpoint: PathBuf,
        holder: &Holder,
        owner: Option<(u32, u32)>,
    ) -> Self {
        let escape = overlay::xattrs(holder) == overlay::Xattrs::User;
        let options = ViewOptions { owner, escape, keep_set_id: true, ..ViewOptions::default() };
        Self { command, store: store.to_owned(), mountpoint, options, turn: Mutex::default() }
    }

    /// Where a snapshot is seen. The view is mounted if it is not. If it is to be `shown` to a user of a sandbox's own and cannot
    /// be, another takes its place; whoever uses the former one goes on.
    pub(crate) fn path(&self, holder: &Holder, snapshot: &SnapshotId, shown: bool) -> Result<PathBuf> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut mounted = self.is_mounted(holder)?;
        if mounted && shown && !turn.is_showable {
            turn.is_showable = own_users::can_idmap(&self.mountpoint);
            if !turn.is_showable {
                overlay::unmount(holder, &self.mountpoint)?;
                mounted = false;
            }
        }
        if !mounted {
            std::fs::create_dir_all(&self.mountpoint).on("make", &self.mountpoint)?;
            let mut command = overlay::command(holder, self.command.program.as_os_str());
            command.args(&self.command.words);
            spawn_daemon(command, &self.store, &self.mountpoint, &self.options)
                .map_err(|error| WorkspaceError::Lazy(error.to_string()))?;
            turn.is_showable = shown && own_users::can_idmap(&self.mountpoint);
        }
        Ok(self.mountpoint.join(snapshot.to_string()))
    }

    fn is_mounted(&self, holder: &Holder) -> Result<bool> {
        let Some(parent) = self.mountpoint.parent() else { return Ok(false) };
        let wanted = std::fs::canonicalize(&self.mountpoint).unwrap_or_else(|_| self.mountpoint.clone());
        Ok(overlay::mounted(holder, parent)?.contains(&wanted))
    }

    /// Takes the view away, whose process then ends, unless it is used. Returns whether there was one.
    pub(crate) fn end(&self, holder: &Holder, is_used: &dyn Fn() -> bool) -> Result<bool> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // What a holder that has ended had mounted went with it.
        let is_gone = matches!(holder, Holder::Process(held) if !held.is_running());
        if is_used() || is_gone || !self.is_mounted(holder)? {
            return Ok(false);
        }
        Ok(overlay::unmount(holder, &self.mountpoint)?)
    }

    /// Takes the view away after its process has died, so that the next who needs it starts another. Somebody else may have
    /// started it meanwhile: one that answers stays.
    pub(crate) fn give_up(&self, holder: &Holder) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_mounted(holder)? && !overlay::is_responding(holder, &self.mountpoint)? {
            overlay::unmount(holder, &self.mountpoint)?;
        }
        Ok(())
    }
}
