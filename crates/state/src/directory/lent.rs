//! Reaching directories that keep even their owner out, by their own modes or by that of one above them.
//!
//! They are lent the bits that are missing for as long as some work takes, and get back their modes after it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Access, Mode, fchmod, fstat};
use rustix::io::Errno;

use super::error::{Context, Result};
use super::path::{open_as_owner, open_directory, shown};
use super::read::looks;
use super::stat_index::Looks;

/// Directories beneath a root that were lent permissions.
pub(super) struct Lent<'r> {
    root: &'r OwnedFd,
    /// Where the root is, for people.
    at: &'r Path,
    /// The modes they had, in the order they were changed: what is above comes before what is below.
    modes: Mutex<Vec<(Vec<u8>, Mode)>>,
}

impl<'r> Lent<'r> {
    pub(super) fn new(root: &'r OwnedFd, at: &'r Path) -> Self {
        Self { root, at, modes: Mutex::default() }
    }

    /// Opens a directory, lending what is missing for `need` to it and, on the way to it, to those above.
    pub(super) fn open(&self, path: &[u8], need: Access) -> Result<OwnedFd, Errno> {
        match self.lend(path, need) {
            Err(Errno::ACCESS) => {}
            other => return other,
        }
        for above in above(path) {
            match self.lend(above, Access::EXEC_OK) {
                // Somebody else's may be passed through all the same: what is below it tells.
                Ok(_) | Err(Errno::ACCESS) => {}
                Err(error) => return Err(error),
            }
        }
        self.lend(path, need)
    }

    fn lend(&self, path: &[u8], need: Access) -> Result<OwnedFd, Errno> {
        let (fd, before) = open_as_owner(self.root, path, need)?;
        let mut modes = self.modes.lock().unwrap_or_else(PoisonError::into_inner);
        modes.extend(before.map(|mode| (path.to_vec(), mode)));
        Ok(fd)
    }

    /// Puts back all modes, also when one of them fails; how the directories look then.
    pub(super) fn give_back(&self) -> Result<Vec<(Vec<u8>, Looks)>> {
        let modes = std::mem::take(&mut *self.modes.lock().unwrap_or_else(PoisonError::into_inner));
        // From below: nothing is reached any more through one that has its mode again.
        let done: Vec<Result<_>> =
            modes.into_iter().rev().map(|(path, mode)| self.put_back(path, mode)).collect();
        done.into_iter().collect()
    }

    fn put_back(&self, path: Vec<u8>, mode: Mode) -> Result<(Vec<u8>, Looks)> {
        let here = || shown(self.at, &path);
        let fd = open_directory(self.root, &path).on("open", &here())?;
        fchmod(&fd, mode).on("change", &here())?;
        let looks = looks(&fstat(&fd).on("stat", &here())?);
        Ok((path, looks))
    }
}

/// The directories above a path, from the root down.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    std::iter::once(0).chain(ends).map(|end| &path[..end])
}
