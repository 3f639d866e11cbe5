//! Lazy mount: the lower directory of overlays whose layers (the lower directories on disk) are not written yet.
//!
//! The lazy mount is a FUSE file system with a directory per snapshot of the store, whose files are loaded on first
//! read. The process that serves it is started when it is first needed, and outlives this process. It is mounted in the
//! mount namespace of the *namespace holder*: a process that keeps the namespaces in which an unprivileged server
//! mounts.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
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
    /// Path of the store.
    store: PathBuf,
    /// Directory of the mount.
    mountpoint: PathBuf,
    options: MountOptions,
    state: Mutex<MountState>,
}

/// State of the lazy mount that the mutex protects. The mutex is also held while the mount is changed.
#[derive(Debug, Default)]
struct MountState {
    /// Set if the lazy mount is known to support idmapped mounts of it. A lazy mount that an earlier version of the
    /// server started does not support them.
    supports_idmap: bool,
}

impl LazyLayer {
    /// Returns the lazy mount of a store. Nothing is mounted yet. `owner` is the UID and GID that own all files; `None`
    /// for those of this process.
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

    /// Starts the lazy mount if it is not mounted, and returns the path of a snapshot in it. If `needs_idmap` is set
    /// and the present mount cannot be idmapped, replaces it. Workspaces that use the replaced mount keep it.
    pub(crate) fn mount_snapshot(
        &self,
        holder: &NamespaceHolder,
        snapshot: &SnapshotId,
        needs_idmap: bool,
    ) -> Result<PathBuf> {
        let mut state = self.state.lock();
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

    /// Unmounts the lazy mount unless `is_used` returns true. Returns true if it was unmounted: its process then exits.
    pub(crate) fn unmount_if_unused(
        &self,
        holder: &NamespaceHolder,
        is_used: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let _state = self.state.lock();
        // The mounts of a dead holder have disappeared.
        let is_holder_dead = matches!(holder, NamespaceHolder::Process(process) if !process.is_running());
        if is_used() || is_holder_dead || !self.is_mounted(holder)? {
            return Ok(false);
        }
        Ok(overlay::unmount(holder, &self.mountpoint)?)
    }

    /// Unmounts the lazy mount if its process has died, so that the next call of [`LazyLayer::mount_snapshot`] starts
    /// another process. A mount that responds is kept: another thread may have started it.
    pub(crate) fn unmount_if_dead(&self, holder: &NamespaceHolder) -> Result<()> {
        let _state = self.state.lock();
        if self.is_mounted(holder)? && !overlay::is_responding(holder, &self.mountpoint)? {
            overlay::unmount(holder, &self.mountpoint)?;
        }
        Ok(())
    }
}
