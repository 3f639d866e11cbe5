//! Lookup of the file that a file handle names.
//!
//! A handle has an id. The table of the volume (the directory of an export) knows the inode of the file with this id
//! and its locations: directory and name. If the file is at none of them, because a local process has moved it, a
//! search over the tree follows.

use std::ffi::CStr;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode as FileMode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Volume;
use super::descriptors::{Descriptor, OpenMode};
use super::stat::{Stat, stat_any, stat_at, stat_open};
use crate::table::{FileId, Inode, Location, ROOT};
use crate::wire::Status;

/// Maximum number of directories between a file and the root. A path of the kernel (4096 bytes) has no more components.
const DEPTH_MAX: usize = 2048;

/// Restrictions with which every path component is opened.
pub(super) const COMPONENT_FLAGS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// File that was found by its handle.
pub(crate) struct FoundFile {
    pub(crate) id: FileId,
    /// Inode number that clients see.
    pub(crate) fileid: u64,
    pub(crate) stat: Stat,
    pub(crate) locator: Locator,
}

/// Method to access a file.
pub(crate) enum Locator {
    /// By a descriptor of the file.
    Open(Arc<Descriptor>),
    /// By an entry of an open directory, at which the file was just seen.
    Entry { parent: Arc<Descriptor>, name: Arc<CStr> },
}

/// Location of a file, its attributes, and the open directory that contains it.
pub(super) type LocatedFile = (Location, Stat, Arc<Descriptor>);

/// Opens a directory entry of any type with `O_PATH`. Fails with `ACCESS` for a mount point.
pub(super) fn open_path(parent: &Descriptor, name: &CStr, extra: OFlags) -> Result<OwnedFd, Errno> {
    match open_component(parent, name, extra) {
        Err(Errno::XDEV) => Err(Errno::ACCESS),
        result => result,
    }
}

/// Opens a directory entry like [`open_path`], but fails with `XDEV` for a mount point.
pub(super) fn open_component(parent: &Descriptor, name: &CStr, extra: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | extra;
    rustix::fs::openat2(&parent.fd, name, flags, FileMode::empty(), COMPONENT_FLAGS)
}

/// Volume with the hook of the operation that looks up files in it.
pub(crate) struct Files<'a> {
    volume: &'a Volume,
    /// Called before a search, which may take long, so that another thread serves the connection meanwhile.
    before_search: &'a dyn Fn(),
}

impl Deref for Files<'_> {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        self.volume
    }
}

impl Volume {
    /// Returns the files of the volume for an operation. `before_search` is called before a search.
    pub(crate) fn files<'a>(&'a self, before_search: &'a dyn Fn()) -> Files<'a> {
        Files { volume: self, before_search }
    }

    /// Returns the open descriptor of a file or directory; `None` if none is open.
    fn cached(&self, id: FileId) -> Option<Arc<Descriptor>> {
        if id == ROOT { Some(Arc::clone(&self.root)) } else { self.descriptors.get(id) }
    }

    /// Returns the inode number that clients see: that in the table, or that of the status if the file is not there.
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

    /// Returns the status of a directory entry; `None` if there is no entry or it has another inode.
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
    /// Finds the file with an id. Fails with STALE if it is not in the table or not in the tree any more.
    pub(crate) fn find_file(&self, id: FileId) -> Result<FoundFile, Status> {
        if let Some(open) = self.cached(id) {
            let stat = stat_open(&*open)?;
            if !stat.is_removed() {
                let fileid = self.fileid(id, &stat);
                return Ok(FoundFile { id, fileid, stat, locator: Locator::Open(open) });
            }
            self.descriptors.remove(id);
            return Err(Status::Stale);
        }
        self.entry_of(id)
    }

    /// Finds a directory entry of the file with an id, even if the file is open. The root, which has no entry, is found
    /// by its descriptor.
    pub(crate) fn entry_of(&self, id: FileId) -> Result<FoundFile, Status> {
        if id == ROOT {
            return self.find_file(ROOT);
        }
        let (location, stat, parent) = match self.locate(id)? {
            Some(found) => found,
            None => self.search(id)?,
        };
        let fileid = self.fileid(id, &stat);
        Ok(FoundFile { id, fileid, stat, locator: Locator::Entry { parent, name: location.name } })
    }

    /// Searches the tree for a file that is not at its known locations.
    fn search(&self, id: FileId) -> Result<LocatedFile, Status> {
        (self.before_search)();
        self.volume.search(id)
    }

    /// Looks for a file at its known locations. `None` if it is at none of them.
    fn locate(&self, id: FileId) -> Result<Option<LocatedFile>, Status> {
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

    /// Opens the directory with an id: first the nearest open directory above it, and from there one component at a
    /// time.
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

    /// Returns the nearest open directory at or above the directory with an id, and the ids and locations of the
    /// directories from there to the id. The last element is nearest to the open directory.
    #[allow(clippy::type_complexity, reason = "a name for it would not say more")]
    fn nearest_open(&self, id: FileId) -> Result<(Arc<Descriptor>, Vec<(FileId, Location)>), Status> {
        let mut below = Vec::new();
        let mut next = id;
        while below.len() < DEPTH_MAX {
            if let Some(open) = self.cached(next) {
                return if open.mode == OpenMode::Directory {
                    Ok((open, below))
                } else {
                    Err(Status::NotDir)
                };
            }
            let location = self.table().get(next).ok_or(Status::Stale)?.location.clone();
            let location = location.ok_or(Status::Stale)?;
            let parent = location.parent;
            below.push((next, location));
            next = parent;
        }
        Err(Status::Stale)
    }

    /// Opens the directory with an id at an entry, and caches its descriptor. `None` if the entry does not exist or has
    /// another inode.
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
        let open = Arc::new(Descriptor { fd, mode: OpenMode::Directory });
        self.descriptors.insert(id, &open);
        Ok(Some(open))
    }

    /// Searches the tree for a directory that is not at its known location, and opens it.
    fn moved_directory(&self, id: FileId) -> Result<Arc<Descriptor>, Status> {
        let (location, _, parent) = self.search(id)?;
        self.open_directory(id, &parent, &location.name)?.ok_or(Status::Stale)
    }

    /// Returns the parent directory of a directory. The parent of the root is the root.
    pub(crate) fn parent(&self, id: FileId) -> Result<FoundFile, Status> {
        if id == ROOT {
            return self.find_file(ROOT);
        }
        let directory = self.directory(id)?;
        // The parent must be in the table already. If a local process has moved the directory out of the export, its
        // parent is outside of the root, and must not be reached.
        let above = stat_at_parent(&directory)?;
        let known = self.table().find(&above.inode(self.root_device)).ok_or(Status::Stale)?;
        self.find_file(known)
    }
}

/// Returns the status of the parent of a directory.
fn stat_at_parent(directory: &Descriptor) -> Result<Stat, Errno> {
    // The parent may be the root of the export, which may be a mount point.
    stat_any(directory, c"..")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;
    use crate::volume::tests::open_volume;

    #[test]
    fn the_hook_is_called_before_a_search_and_only_then() {
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
        files.find_file(file).unwrap();
        assert_eq!(searches.get(), 0);
        fs::rename(root.join("dir/file"), root.join("file")).unwrap();
        files.find_file(file).unwrap();
        assert_eq!(searches.get(), 1);
        volume.close_all();
        fs::rename(root.join("dir"), root.join("moved")).unwrap();
        files.directory(dir).unwrap();
        assert_eq!(searches.get(), 2);
    }
}
