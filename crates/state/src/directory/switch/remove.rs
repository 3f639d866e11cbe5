//! Removal of entries that the new tree does not have.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Mode, Stat, fchmod, fstat, unlinkat};
use rustix::io::Errno;

use crate::directory::error::{Context, Result};
use crate::directory::listing::Listing;
use crate::directory::path::{WRITE, open_as_owner, open_directory};
use crate::entry::{Entry, Node};
use crate::mutex::lock;
use crate::tree_path::join;

use super::{Switch, ids};

/// Name of a directory to remove, its status, and its entry in the old tree.
type Subdirectory = (Vec<u8>, Stat, Option<Entry>);

/// Handling of untracked entries: those that no tree has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Untracked {
    Keep,
    Remove,
}

impl Switch<'_> {
    /// Removes the old tree's entry. Untracked entries below it are kept, and so are the directories around
    /// them.
    pub(super) fn remove(
        &self,
        fd: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        old: Option<&Entry>,
    ) -> Result<()> {
        self.remove_entry(fd, entry_path, name, old, Untracked::Keep)
    }

    /// Removes a directory that a file replaces. If forced, untracked entries below it are removed as well.
    pub(super) fn remove_replaced_directory(
        &self,
        fd: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        old: Option<&Entry>,
    ) -> Result<()> {
        let untracked = if self.options.force { Untracked::Remove } else { Untracked::Keep };
        self.remove_entry(fd, entry_path, name, old, untracked)
    }

    fn remove_entry(
        &self,
        fd: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        old: Option<&Entry>,
        untracked: Untracked,
    ) -> Result<()> {
        let Some(stat) = self.stat(fd, entry_path, name)? else { return Ok(()) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            unlinkat(fd, name, AtFlags::empty()).context("remove", &self.full_path(entry_path))?;
            self.removed.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.empty(entry_path, old, untracked)?;
        self.remove_emptied(fd, entry_path, name, &stat)
    }

    /// Removes the old tree's entries from a directory. It is closed while its subdirectories are emptied.
    fn empty(&self, entry_path: &[u8], old: Option<&Entry>, untracked: Untracked) -> Result<()> {
        let (fd, _) =
            open_as_owner(self.root, entry_path, WRITE).context("open", &self.full_path(entry_path))?;
        if fstat(&fd).context("stat", &self.full_path(entry_path))?.st_mode & 0o700 != 0o700 {
            fchmod(&fd, Mode::RWXU).context("change", &self.full_path(entry_path))?;
        }
        let subdirectories = self.remove_leaves(&fd, entry_path, old, untracked)?;
        if subdirectories.is_empty() {
            return Ok(());
        }
        drop(fd);
        for (name, _, old) in &subdirectories {
            self.empty(&join(entry_path, name), old.as_ref(), untracked)?;
        }
        let fd = open_directory(self.root, entry_path).context("open", &self.full_path(entry_path))?;
        for (name, stat, _) in &subdirectories {
            self.remove_emptied(&fd, &join(entry_path, name), name, stat)?;
        }
        Ok(())
    }

    /// Removes entries that are not directories; returns the directories.
    fn remove_leaves(
        &self,
        fd: &OwnedFd,
        entry_path: &[u8],
        old: Option<&Entry>,
        untracked: Untracked,
    ) -> Result<Vec<Subdirectory>> {
        let tree = match old.map(|old| &old.node) {
            Some(Node::Directory(node)) => Listing::of(self.store, ids(Some(node)))?,
            _ => Listing::default(),
        };
        let mut subdirectories = Vec::new();
        for name in self.list_names(fd, entry_path)? {
            let old = tree.get(&name).map(|raw| self.decode_entry(raw)).transpose()?;
            if old.is_none() && untracked == Untracked::Keep {
                continue;
            }
            let path = join(entry_path, &name);
            let Some(stat) = self.stat(fd, &path, &name)? else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                subdirectories.push((name, stat, old));
            } else {
                unlinkat(fd, name.as_slice(), AtFlags::empty()).context("remove", &self.full_path(&path))?;
                self.removed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(subdirectories)
    }

    /// Removes a directory, or restores its mode if it is not empty.
    fn remove_emptied(&self, fd: &OwnedFd, entry_path: &[u8], name: &[u8], former_stat: &Stat) -> Result<()> {
        lock(&self.records).push((entry_path.to_vec(), None));
        match unlinkat(fd, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.removed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                let remaining = open_directory(fd, name).context("open", &self.full_path(entry_path))?;
                let mode = Mode::from_raw_mode(former_stat.st_mode & 0o7777);
                fchmod(&remaining, mode).context("change", &self.full_path(entry_path))
            }
            Err(error) => Err(error).context("remove", &self.full_path(entry_path)),
        }
    }
}
