//! Temporary access to directories whose mode, or the mode of a parent, denies access to their owner.
//!
//! An operation adds the missing permission bits, and restores the modes afterwards.

use std::os::fd::OwnedFd;
use std::path::Path;

use parking_lot::Mutex;
use rustix::fs::{Access, Mode, fchmod, fstat};
use rustix::io::Errno;

use super::error::{Context, Result};
use super::path::{full_path, open_directory, open_with_owner_access};
use super::read::fingerprint;
use super::stat_index::StatFingerprint;

/// List of the directories beneath a root whose modes were changed temporarily.
pub(super) struct TemporaryAccess<'r> {
    root: &'r OwnedFd,
    /// Path of the root, for error messages.
    root_path: &'r Path,
    /// Original modes in the order of the changes: parents before children.
    modes: Mutex<Vec<(Vec<u8>, Mode)>>,
}

impl<'r> TemporaryAccess<'r> {
    pub(super) fn new(root: &'r OwnedFd, root_path: &'r Path) -> Self {
        Self { root, root_path, modes: Mutex::default() }
    }

    /// Opens a directory with the access `need`. If that is denied, adds the missing permissions to the directory and
    /// to its parents first.
    pub(super) fn open(&self, path: &[u8], need: Access) -> Result<OwnedFd, Errno> {
        match self.grant(path, need) {
            Err(Errno::ACCESS) => {}
            other => return other,
        }
        for parent in parents(path) {
            match self.grant(parent, Access::EXEC_OK) {
                // The parent belongs to another user, but may still be searchable. The next step shows that.
                Ok(_) | Err(Errno::ACCESS) => {}
                Err(error) => return Err(error),
            }
        }
        self.grant(path, need)
    }

    /// Opens a directory, after adding missing permissions to it, but not to its parents.
    fn grant(&self, path: &[u8], need: Access) -> Result<OwnedFd, Errno> {
        let (fd, former_mode) = open_with_owner_access(self.root, path, need)?;
        let mut modes = self.modes.lock();
        modes.extend(former_mode.map(|mode| (path.to_vec(), mode)));
        Ok(fd)
    }

    /// Restores all modes, even if one of them fails. Returns the fingerprints of the directories afterwards.
    pub(super) fn restore(&self) -> Result<Vec<(Vec<u8>, StatFingerprint)>> {
        let modes = std::mem::take(&mut *self.modes.lock());
        // Children first, because a restored parent may deny access to its children.
        let restored: Vec<Result<_>> =
            modes.into_iter().rev().map(|(path, mode)| self.restore_mode(path, mode)).collect();
        restored.into_iter().collect()
    }

    /// Restores the mode of one directory. Returns its path and its fingerprint.
    fn restore_mode(&self, path: Vec<u8>, mode: Mode) -> Result<(Vec<u8>, StatFingerprint)> {
        let directory_path = || full_path(self.root_path, &path);
        let fd = open_directory(self.root, &path).context("open", &directory_path())?;
        fchmod(&fd, mode).context("change the mode of", &directory_path())?;
        let fingerprint = fingerprint(&fstat(&fd).context("stat", &directory_path())?);
        Ok((path, fingerprint))
    }
}

/// Iterates over the parents of a path, from the root down.
fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    std::iter::once(0).chain(ends).map(|end| &path[..end])
}
