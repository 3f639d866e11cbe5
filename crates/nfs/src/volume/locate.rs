//! Way from the id in a handle to the file.

use std::ffi::CStr;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode as FileMode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Volume;
use super::descriptors::{Descriptor, Mode};
use super::stat::{Stat, stat_any, stat_at, stat_open};
use crate::table::{FileId, Inode, Location, ROOT};
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

/// Location of a file, its attributes, and the open directory that contains it.
pub(super) type Found = (Location, Stat, Arc<Descriptor>);

/// Opens a directory entry with `O_PATH`, whatever it is. Fails with `ACCESS` for a mount.
pub(super) fn open_path(parent: &Descriptor, name: &CStr, extra: OFlags) -> Result<OwnedFd, Errno> {
    match open_component(parent, name, extra) {
        Err(Errno::XDEV) => Err(Errno::ACCESS),
        result => result,
    }
}

/// Does the same as [`open_path`], but fails with `XDEV` for a mount.
pub(super) fn open_component(parent: &Descriptor, name: &CStr, extra: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | extra;
    rustix::fs::openat2(&parent.fd, name, flags, FileMode::empty(), BENEATH)
}

/// Files of a volume, as an operation finds them.
pub(crate) struct Files<'a> {
    volume: &'a Volume,
    /// Called before a search, which may take long.
    before_search: &'a dyn Fn(),
}

impl Deref for Files<'_> {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        self.volume
    }
}

impl Volume {
    /// Returns the files for an operation. `before_search` is called before anything that may take long.
    pub(crate) fn files<'a>(&'a self, before_search: &'a dyn Fn()) -> Files<'a> {
        Files { volume: self, before_search }
    }

    fn cached(&self, id: FileId) -> Option<Arc<Descriptor>> {
        if id == ROOT { Some(Arc::clone(&self.root)) } else { self.descriptors.get(id) }
    }

    pub(crate) fn fileid(&self, id: FileId, stat: &Stat) -> u64 {
        let known = self.table().get(id).map(|entry| entry.fileid);
        known.unwrap_or_else(|| self.seen(stat).fileid)
    }

    /// Returns the inode of a file and its known locations.
    pub(super) fn known_locations(&self, id: FileId) -> Result<(Inode, Vec<Location>), Status> {
        let table = self.table();
        let entry = table.get(id).ok_or(Status::Stale)?;
        Ok((entry.inode, entry.location.iter().chain(&entry.others).cloned().collect()))
    }

    /// Returns the attributes of a directory entry; `None` if it is not this file.
    pub(super) fn stat_if_same(
        &self,
        inode: Inode,
        parent: &Descriptor,
        name: &CStr,
    ) -> Result<Option<Stat>, Status> {
        match stat_at(parent, name) {
            Ok(stat) => {
                let is_same = self.table().is_same(inode, &stat.inode(self.root_device));
                Ok(is_same.then_some(stat))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Files<'_> {
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

    /// Searches a file that is not at its known locations.
    fn search(&self, id: FileId) -> Result<Found, Status> {
        (self.before_search)();
        self.volume.search(id)
    }

    /// Looks for a file at its known locations.
    fn locate(&self, id: FileId) -> Result<Option<Found>, Status> {
        let (inode, locations) = self.known_locations(id)?;
        for location in locations {
            let parent = match self.directory(location.parent) {
                Ok(parent) => parent,
                Err(Status::Stale | Status::NoEnt | Status::NotDir) => continue,
                Err(error) => return Err(error),
            };
            if let Some(stat) = self.stat_if_same(inode, &parent, &location.name)? {
                return Ok(Some((location, stat, parent)));
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;
    use crate::volume::tests::open_volume;

    #[test]
    fn another_thread_may_lead_before_a_search_and_only_then() {
        let directory = tempfile::tempdir().unwrap();
        let volume = open_volume(directory.path());
        let root = directory.path().join("root");
        let searches = Cell::new(0);
        let before_search = || searches.set(searches.get() + 1);
        let files = volume.files(&before_search);
        let id = |parent, name| {
            let stat = stat_at(&*files.directory(parent).unwrap(), name).unwrap();
            files.id_of(parent, name, &stat).0
        };
        fs::create_dir(root.join("dir")).unwrap();
        fs::write(root.join("dir/file"), b"").unwrap();
        let dir = id(ROOT, c"dir");
        let file = id(dir, c"file");
        files.node(file).unwrap();
        assert_eq!(searches.get(), 0);
        fs::rename(root.join("dir/file"), root.join("file")).unwrap();
        files.node(file).unwrap();
        assert_eq!(searches.get(), 1);
        volume.close_all();
        fs::rename(root.join("dir"), root.join("moved")).unwrap();
        files.directory(dir).unwrap();
        assert_eq!(searches.get(), 2);
    }
}
