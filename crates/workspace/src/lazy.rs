//! Lazy mount: the lower layer of workspaces whose layers are not written yet.
//!
//! The lazy mount is a FUSE file system with a directory per snapshot of the store, whose files are loaded on first
//! read. Its process is started when it is first needed, and outlives this one. It is mounted in the mount namespace of
//! the namespace holder.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use workspace_host::NamespaceHolder;
use workspace_host::{dedicated_uids, overlay};
use workspace_mount::{MountOptions, spawn_daemon};
use workspace_state::SnapshotId;

use crate::error::{Context as _, Result, WorkspaceError};
use crate::lazy_command::LazyCommand;

/// Lazy mount, and the command that serves it.
#[derive(Debug)]
pub(crate) struct LazyLayer {
    command: LazyCommand,
    store: PathBuf,
    mountpoint: PathBuf,
    options: MountOptions,
    state: Mutex<MountState>,
}

/// State of the mount that the mutex protects.
#[derive(Debug, Default)]
struct MountState {
    /// Set if the mount is known to support idmapped mounts. A mount that an earlier version of the server started does
    /// not support them.
    supports_idmap: bool,
}

impl LazyLayer {
    pub(crate) fn new(
        command: LazyCommand,
        store: &Path,
        mountpoint: PathBuf,
        holder: &NamespaceHolder,
        owner: Option<(u32, u32)>,
    ) -> Self {
        let escape_overlay_xattrs = overlay::xattrs(holder) == overlay::Xattrs::User;
        let options =
            MountOptions { owner, escape_overlay_xattrs, show_set_id_bits: true, ..MountOptions::default() };
        Self { command, store: store.to_owned(), mountpoint, options, state: Mutex::default() }
    }

    /// Starts the lazy mount if it is not mounted, and returns the path of a snapshot in it. A mount that cannot be
    /// idmapped is replaced if `needs_idmap`; workspaces that use the former mount keep it.
    pub(crate) fn mount_snapshot(
        &self,
        holder: &NamespaceHolder,
        snapshot: &SnapshotId,
        needs_idmap: bool,
    ) -> Result<PathBuf> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut mounted = self.is_mounted(holder)?;
        if mounted && needs_idmap && !state.supports_idmap {
            state.supports_idmap = dedicated_uids::can_idmap(&self.mountpoint);
            if !state.supports_idmap {
                overlay::unmount(holder, &self.mountpoint)?;
                mounted = false;
            }
        }
        if !mounted {
            std::fs::create_dir_all(&self.mountpoint).context("create", &self.mountpoint)?;
            let mut command = overlay::command(holder, self.command.program.as_os_str());
            command.args(&self.command.args);
            spawn_daemon(command, &self.store, &self.mountpoint, &self.options)
                .map_err(|error| WorkspaceError::Lazy(error.to_string()))?;
            state.supports_idmap = needs_idmap && dedicated_uids::can_idmap(&self.mountpoint);
        }
        Ok(self.mountpoint.join(snapshot.to_string()))
    }

    fn is_mounted(&self, holder: &NamespaceHolder) -> Result<bool> {
        let Some(parent) = self.mountpoint.parent() else { return Ok(false) };
        let mountpoint = std::fs::canonicalize(&self.mountpoint).unwrap_or_else(|_| self.mountpoint.clone());
        Ok(overlay::mounted(holder, parent)?.contains(&mountpoint))
    }

    /// Unmounts the lazy mount unless `is_used` returns true. The process of the mount then exits. Returns
    /// true if it was unmounted.
    pub(crate) fn unmount_if_unused(
        &self,
        holder: &NamespaceHolder,
        is_used: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The mounts of a dead holder are gone.
        let is_gone = matches!(holder, NamespaceHolder::Process(process) if !process.is_running());
        if is_used() || is_gone || !self.is_mounted(holder)? {
            return Ok(false);
        }
        Ok(overlay::unmount(holder, &self.mountpoint)?)
    }

    /// Unmounts the lazy mount if its process has died, so that the next call of [`LazyLayer::mount_snapshot`] starts
    /// another. A mount that responds is kept: another thread may have started it.
    pub(crate) fn unmount_if_dead(&self, holder: &NamespaceHolder) -> Result<()> {
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_mounted(holder)? && !overlay::is_responding(holder, &self.mountpoint)? {
            overlay::unmount(holder, &self.mountpoint)?;
        }
        Ok(())
    }
}
