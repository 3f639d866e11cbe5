//! Way from the id in a handle to the file.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode as FileMode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::descriptors::{Descriptor, Mode};
use super::stat::{Stat, stat_any, stat_at, stat_open};
use super::Volume;
use crate::table::{FileId, Location, ROOT};
use crate::wire::Status;

/// Maximum number of directories between a file and the root. Paths of the kernel are not longer.
const DEPTH_MAX: usize = 2048;

/// Each of these belongs to every opened component.
pub(super) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// File of a handle.
pub(crate) struct Node {
    pub(crate) id: FileId,
    /// Inode number that clients see.
    pub(crate) fileid: u64,
    pub(crate) stat: Stat,
    pub(crate) place: Place,
}

/// Way to reach a file.
pub(crate) enum Place {
    /// A descriptor is open.
    Open(Arc<Descriptor>),
    /// The file was seen at this entry a moment ago.
    Entry { parent: Arc<Descriptor>, name: Arc<CStr> },
}

/// Opens a directory entry with `O_PATH`, whatever it is.
pub(super) fn open_path(parent: &Descriptor, name: &CStr, extra: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | extra;
    match rustix::fs::openat2(&parent.fd, name, flags, FileMode::empty(), BENEATH) {
        // A mount.
        Err(Errno::XDEV) => Err(Errno::ACCESS),
        result => result,
    }
}

impl Volume {
    /// Finds the file of a handle.
    pub(crate) fn node(&self, id: FileId) -> Result<Node, Status> {
        if let Some(open) = self.cached(id) {
            let stat = stat_open(&*open)?;
            if !stat.is_removed() {
                let fileid = self.fileid(id, &stat);
                return Ok(Node { id, fileid, stat, place: Place::Open(open) });
            }
            self.descriptors.remove(id);
            return Err(Status::Stale);
        }
        self.entry_of(id)
    }

    /// Finds the entry of the file of a handle. That of the root is open.
    pub(crate) fn entry_of(&self, id: FileId) -> Result<Node, Status> {
        if id == ROOT {
            return self.node(ROOT);
        }
        let (location, stat, parent) = match self.locate(id)? {
            Some(found) => found,
            None => self.search(id)?,
        };
        let fileid = self.fileid(id, &stat);
        Ok(Node { id, fileid, stat, place: Place::Entry { parent, name: location.name } })
    }

    fn cached(&self, id: FileId) -> Option<Arc<Descriptor>> {
        if id == ROOT { Some(Arc::clone(&self.root)) } else { self.descriptors.get(id) }
    }

    pub(crate) fn fileid(&self, id: FileId, stat: &Stat) -> u64 {
        let known = self.table().get(id).map(|entry| entry.fileid);
        known.unwrap_or_else(|| self.seen(stat).fileid)
    }

    /// Looks for a file at its known locations.
    fn locate(&self, id: FileId) -> Result<Option<(Location, Stat, Arc<Descriptor>)>, Status> {
        let (inode, locations) = {
            let table = self.table();
            let entry = table.get(id).ok_or(Status::Stale)?;
            (entry.inode, entry.location.iter().chain(&entry.others).cloned().collect::<Vec<_>>())
        };
        for location in locations {
            let parent = match self.directory(location.parent) {
                Ok(parent) => parent,
                Err(Status::Stale | Status::NoEnt | Status::NotDir) => continue,
                Err(error) => return Err(error),
            };
            match stat_at(&*parent, &location.name) {
                Ok(stat) if self.table().is_same(inode, &stat.inode(self.root_device)) => {
                    return Ok(Some((location, stat, parent)));
                }
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Opens the directory of a handle.
    pub(crate) fn directory(&self, id: FileId) -> Result<Arc<Descriptor>, Status> {
        let (mut directory, mut below) = self.nearest_open(id)?;
        while let Some((id, location)) = below.pop() {
            directory = match self.open_directory(id, &directory, &location.name)? {
                Some(opened) => opened,
                None => self.moved_directory(id)?,
            };
        }
        Ok(directory)
    }

    /// Returns the nearest open directory above one, and the locations from there, the last one first.
    #[allow(clippy::type_complexity, reason = "a name for it would not say more")]
    fn nearest_open(&self, id: FileId) -> Result<(Arc<Descriptor>, Vec<(FileId, Location)>), Status> {
        let mut below = Vec::new();
        let mut next = id;
        while below.len() < DEPTH_MAX {
            if let Some(open) = self.cached(next) {
                return if open.mode == Mode::Directory { Ok((open, below)) } else { Err(Status::NotDir) };
            }
            let location = self.table().get(next).ok_or(Status::Stale)?.location.clone();
            let location = location.ok_or(Status::Stale)?;
            let parent = location.parent;
            below.push((next, location));
            next = parent;
        }
        Err(Status::Stale)
    }

    /// Opens a directory at its known location. `None` if something else is there.
    fn open_directory(
        &self,
        id: FileId,
        parent: &Descriptor,
        name: &CStr,
    ) -> Result<Option<Arc<Descriptor>>, Status> {
        let fd = match open_path(parent, name, OFlags::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = stat_open(&fd)?;
        let is_same = {
            let table = self.table();
            table.get(id).is_some_and(|entry| table.is_same(entry.inode, &stat.inode(self.root_device)))
        };
        if !is_same {
            return Ok(None);
        }
        if !stat.is_directory() {
            return Err(Status::NotDir);
        }
        let open = Arc::new(Descriptor { fd, mode: Mode::Directory });
        self.descriptors.insert(id, &open);
        Ok(Some(open))
    }

    /// Searches a directory that is not at its known location.
    fn moved_directory(&self, id: FileId) -> Result<Arc<Descriptor>, Status> {
        let (location, _, parent) = self.search(id)?;
        self.open_directory(id, &parent, &location.name)?.ok_or(Status::Stale)
    }

    /// Returns the directory above another. That of the root is the root.
    pub(crate) fn parent(&self, id: FileId) -> Result<Node, Status> {
        if id == ROOT {
            return self.node(ROOT);
        }
        let directory = self.directory(id)?;
        // It is used only if clients know it already: a directory that somebody has moved out of the export
        // leads nowhere.
        let above = stat_at_parent(&directory)?;
        let known = self.table().find(&above.inode(self.root_device)).ok_or(Status::Stale)?;
        self.node(known)
    }
}

fn stat_at_parent(directory: &Descriptor) -> Result<Stat, Errno> {
    // The root of the export may be the root of a mount.
    stat_any(directory, c"..")
}
