//! Removal of entries on disk that the new tree of a switch does not have, or of a directory that a file replaces.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Mode, Stat, fchmod, fstat, unlinkat};
use rustix::io::Errno;

use crate::directory::error::{Context, Result};
use crate::directory::path::{WRITE_ACCESS, open_directory, open_with_owner_access};
use crate::directory::tree_listing::Listing;
use crate::entry::{Entry, Node};
use crate::tree_path::join;

use super::{OpenDirectory, Switch, tree_ids};

/// Name of a directory to remove, its status, and its entry in the old tree.
type Subdirectory = (Vec<u8>, Stat, Option<Entry>);

/// Handling of untracked entries in a removed directory: entries that the old tree does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Untracked {
    Keep,
    Remove,
}

impl Switch<'_> {
    /// Removes an entry of the old tree from the directory `parent`. Keeps untracked entries below it, and the
    /// directories that contain them.
    pub(super) fn remove(
        &self,
        parent: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        old: Option<&Entry>,
    ) -> Result<()> {
        self.remove_entry(parent, entry_path, name, old, Untracked::Keep)
    }

    /// Removes a directory that a file replaces. With `force`, removes untracked entries below it as well.
    pub(super) fn remove_replaced_directory(
        &self,
        parent: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        old: Option<&Entry>,
    ) -> Result<()> {
        let untracked = if self.options.force { Untracked::Remove } else { Untracked::Keep };
        self.remove_entry(parent, entry_path, name, old, untracked)
    }

    /// Removes an entry with everything below it, except untracked entries if these are kept.
    fn remove_entry(
        &self,
        parent: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        old: Option<&Entry>,
        untracked: Untracked,
    ) -> Result<()> {
        let Some(stat) = self.stat(parent, entry_path, name)? else { return Ok(()) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            unlinkat(parent, name, AtFlags::empty()).context("remove", &self.full_path(entry_path))?;
            self.removed.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.remove_content(entry_path, old, untracked)?;
        self.remove_if_empty(parent, entry_path, name, &stat)
    }

    /// Removes the entries of the old tree from the directory at `entry_path`, and its untracked entries if these are
    /// not kept. Closes the directory while it processes the subdirectories. May change the mode of the directory;
    /// [`Self::remove_if_empty`] restores it.
    fn remove_content(&self, entry_path: &[u8], old: Option<&Entry>, untracked: Untracked) -> Result<()> {
        let (directory, _) = open_with_owner_access(self.root, entry_path, WRITE_ACCESS)
            .context("open", &self.full_path(entry_path))?;
        if fstat(&directory).context("stat", &self.full_path(entry_path))?.st_mode & 0o700 != 0o700 {
            fchmod(&directory, Mode::RWXU).context("change the mode of", &self.full_path(entry_path))?;
        }
        let subdirectories = self.remove_files(&directory, entry_path, old, untracked)?;
        if subdirectories.is_empty() {
            return Ok(());
        }
        drop(directory);
        for (name, _, old) in &subdirectories {
            self.remove_content(&join(entry_path, name), old.as_ref(), untracked)?;
        }
        let directory = open_directory(self.root, entry_path).context("open", &self.full_path(entry_path))?;
        for (name, stat, _) in &subdirectories {
            self.remove_if_empty(&directory, &join(entry_path, name), name, stat)?;
        }
        Ok(())
    }

    /// Removes the files and symlinks in `directory`, and returns the subdirectories to remove.
    fn remove_files(
        &self,
        directory: &OwnedFd,
        entry_path: &[u8],
        old: Option<&Entry>,
        untracked: Untracked,
    ) -> Result<Vec<Subdirectory>> {
        let from = match old.map(|old| &old.node) {
            Some(Node::Directory(node)) => tree_ids(Some(node)),
            _ => None,
        };
        let (tree, record) = (Listing::of(self.store, from)?, self.record_of(entry_path, from)?);
        let open = OpenDirectory { fd: directory, path: entry_path, record: record.as_ref() };
        let mut subdirectories = Vec::new();
        for name in self.list_names(directory, entry_path)? {
            let old = tree.get(&name).map(|raw| self.decode_entry(raw)).transpose()?;
            if old.is_none() && untracked == Untracked::Keep {
                continue;
            }
            let path = join(entry_path, &name);
            let Some(stat) = self.stat(directory, &path, &name)? else { continue };
            if self.keeps_edit(&open, &name, Some(&stat), (old.as_ref(), None))? {
                continue;
            }
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                subdirectories.push((name, stat, old));
            } else {
                unlinkat(directory, name.as_slice(), AtFlags::empty())
                    .context("remove", &self.full_path(&path))?;
                self.removed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(subdirectories)
    }

    /// Removes the subdirectory `name` of `parent`, or restores its mode if it is not empty. Removes its stat record in
    /// both cases.
    fn remove_if_empty(
        &self,
        parent: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        former_stat: &Stat,
    ) -> Result<()> {
        // Removes the stat record. A directory that is not empty has only untracked entries.
        self.records.lock().push((entry_path.to_vec(), None));
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.removed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                let remaining = open_directory(parent, name).context("open", &self.full_path(entry_path))?;
                let mode = Mode::from_raw_mode(former_stat.st_mode & 0o7777);
                fchmod(&remaining, mode).context("change the mode of", &self.full_path(entry_path))
            }
            Err(error) => Err(error).context("remove", &self.full_path(entry_path)),
        }
    }
}
