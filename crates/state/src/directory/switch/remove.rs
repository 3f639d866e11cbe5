//! Taking away what the new tree does not have.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Mode, fchmod, unlinkat};
use rustix::io::Errno;

use crate::directory::error::{Context, Result};
use crate::directory::listing::Listing;
use crate::directory::path::open_as_owner;
use crate::tree::{Entry, Node, join};

use super::{Switch, TEMPORARY, WRITE, ids, locked};

impl Switch<'_> {
    /// Removes what the old tree has at a name. What it does not know stays, and so do the directories
    /// around it, unless forced and in the way.
    pub(super) fn remove(&self, fd: &OwnedFd, here: &[u8], name: &[u8], old: Option<&Entry>) -> Result<()> {
        let Some(stat) = self.stat(fd, here, name)? else { return Ok(()) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            unlinkat(fd, name, AtFlags::empty()).on("remove", &self.shown(here))?;
            self.removed.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let (below, _) = open_as_owner(fd, name, WRITE).on("open", &self.shown(here))?;
        if stat.st_mode & 0o700 != 0o700 {
            fchmod(&below, Mode::RWXU).on("change", &self.shown(here))?;
        }
        let tree = match old.map(|old| &old.node) {
            Some(Node::Directory(node)) => Listing::of(self.store, ids(Some(node)))?,
            _ => Listing::default(),
        };
        for child in self.names(&below, here)? {
            let old = tree.get(&child).map(|raw| self.entry(raw)).transpose()?;
            if old.is_some() || self.options.force {
                self.remove(&below, &join(here, &child), &child, old.as_ref())?;
            }
        }
        locked(&self.records).push((here.to_vec(), None));
        match unlinkat(fd, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.removed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                fchmod(&below, Mode::from_raw_mode(stat.st_mode & 0o7777)).on("change", &self.shown(here))
            }
            Err(error) => Err(error).on("remove", &self.shown(here)),
        }
    }

    /// Files that an interrupted checkout was writing. One that a tree knows is a file like any other.
    pub(super) fn remove_leftovers(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        old: &Listing,
        new: &Listing,
    ) -> Result<()> {
        for name in self.names(fd, path)? {
            if name.starts_with(TEMPORARY) && !old.has(&name) && !new.has(&name) {
                unlinkat(fd, name.as_slice(), AtFlags::empty())
                    .on("remove", &self.shown(&join(path, &name)))?;
            }
        }
        Ok(())
    }
}
