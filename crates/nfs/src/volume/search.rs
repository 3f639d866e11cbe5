//! Search for files that a local process, not a client, has renamed. Their locations are wrong in the table that maps
//! the ids in file handles to files.
//!
//! A search is a walk over the exported tree that compares inode numbers. A walk does not end where it finds its file:
//! it updates the location of every known file that it meets at a new place. So files that were moved together cost
//! only one walk. The number of entries and the depth are bounded, so a file in a very large tree may not be found. Its
//! handle is stale then. The same holds for a file that is moved during the walk to a directory that was already read.
//!
//! The result of the last walk is kept for a short time as a [`Walked`]. A search for a file that this walk did not
//! meet fails without another walk, because after the removal of a directory, clients ask for each file in it. This
//! does not hold for a walk that could not read a part of the tree.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::Volume;
use super::descriptors::{Descriptor, OpenMode};
use super::locate::{LocatedFile, open_component};
use super::stat::{stat_at, stat_open};
use super::streams::Stream;
use super::walked::{LastWalks, Walked};
use crate::table::{FileId, Inode, Location, ROOT, Seen};
use crate::wire::Status;

/// Maximum number of entries in a walk.
const ENTRIES_MAX: usize = 100_000;

/// Maximum number of directories on the path of a walk.
const DEPTH_MAX: usize = 64;

impl Volume {
    /// Searches for a file that is not at any of its known locations: in the directory where it was seen last, then in
    /// the whole tree. Updates the table. Returns the new location of the file, its attributes and the open directory
    /// that contains it.
    ///
    /// Fails with `STALE` if the file was not found, and with `JUKEBOX` (the client tries again later) if the last walk
    /// was too recent for another one.
    pub(super) fn search(&self, id: FileId) -> Result<LocatedFile, Status> {
        let mut last = self.searches.last.lock();
        // Another search, for whose end this one has waited, may have found the file.
        if let Some(found) = self.locate_in_open(id)? {
            return Ok(found);
        }
        let (inode, parent) = {
            let table = self.table();
            let entry = table.get(id).ok_or(Status::Stale)?;
            (entry.inode, entry.location.as_ref().map(|location| location.parent))
        };
        if let Some(parent) = parent
            && let Some(found) = self.search_directory(&mut last, id, inode, parent)?
        {
            return Ok(found);
        }
        if let Some(tree) = &last.tree {
            if tree.excludes(&self.table(), id, &inode) {
                return Err(Status::Stale);
            }
            if tree.is_resting() {
                return Err(Status::Jukebox);
            }
        }
        let mut walk = Walk::new(self, id, inode, ROOT, Arc::clone(&self.root));
        walk.run();
        let (walked, found) = walk.end();
        last.tree = Some(walked);
        found?.ok_or(Status::Stale)
    }

    /// Searches for a file in the directory in which it was seen last, where most renames stay. `None` if it is not
    /// there, or if that directory was walked too recently.
    fn search_directory(
        &self,
        last: &mut LastWalks,
        id: FileId,
        inode: Inode,
        parent: FileId,
    ) -> Result<Option<LocatedFile>, Status> {
        let Some(open) = self.open_known(parent) else { return Ok(None) };
        let is_skipped = last.directory.as_ref().is_some_and(|(searched, walked)| {
            *searched == parent && (walked.excludes(&self.table(), id, &inode) || walked.is_resting())
        });
        if is_skipped {
            return Ok(None);
        }
        let mut walk = Walk::new(self, id, inode, parent, open);
        walk.scan();
        let (walked, found) = walk.end();
        last.directory = Some((parent, walked));
        found
    }

    /// Looks for a file at those of its known locations whose directories are open.
    fn locate_in_open(&self, id: FileId) -> Result<Option<LocatedFile>, Status> {
        let (inode, locations) = self.known_locations(id)?;
        for location in locations {
            if let Some(parent) = self.open_known(location.parent)
                && let Some(stat) = self.stat_if_same(inode, &parent, &location.name)?
            {
                return Ok(Some((location, stat, parent)));
            }
        }
        Ok(None)
    }

    /// Returns the descriptor of a directory if it is open already. Does not open it, because that may need another
    /// search.
    fn open_known(&self, id: FileId) -> Option<Arc<Descriptor>> {
        if id == ROOT { Some(Arc::clone(&self.root)) } else { self.descriptors.get(id) }
            .filter(|open| open.mode == OpenMode::Directory)
    }
}

/// Directory on the current path of a walk.
struct Level {
    open: Arc<Descriptor>,
    id: LevelId,
    /// Directories in it that were not entered yet.
    directories: Vec<CString>,
}

/// Id of a directory on the current path.
enum LevelId {
    Assigned(FileId),
    /// Name and inode of a directory that is not in the table. An id is assigned when one is needed.
    Unassigned(CString, Seen),
}

/// Walk that looks for one file, records the inode numbers of all entries, and updates the locations of files that were
/// moved.
struct Walk<'a> {
    volume: &'a Volume,
    /// Id and inode of the file that is looked for.
    id: FileId,
    inode: Inode,
    began: Instant,
    /// Next id that the table would assign when the walk began. The result says nothing about files with later ids.
    next_id: FileId,
    /// Current path, from the directory where the walk began.
    levels: Vec<Level>,
    /// Inode numbers of all entries so far.
    seen: HashSet<u64>,
    /// Number of entries so far.
    entries: usize,
    /// Location of the file that is looked for, and the open directory that contains it.
    found: Option<(Location, Arc<Descriptor>)>,
    /// False if a part of the tree could not be read.
    is_complete: bool,
    /// First error other than a missing permission.
    failure: Option<Errno>,
}

impl<'a> Walk<'a> {
    /// Begins a walk at a directory.
    fn new(volume: &'a Volume, id: FileId, inode: Inode, top: FileId, open: Arc<Descriptor>) -> Self {
        Self {
            volume,
            id,
            inode,
            began: Instant::now(),
            next_id: volume.table().next_unassigned(),
            levels: vec![Level { open, id: LevelId::Assigned(top), directories: Vec::new() }],
            seen: HashSet::new(),
            entries: 0,
            found: None,
            is_complete: true,
            failure: None,
        }
    }

    /// Returns the result of the walk for later searches, and the file if it was found. The second result is an error
    /// if the file was not found and a part of the tree could not be read for a reason other than a missing permission.
    fn end(self) -> (Walked, Result<Option<LocatedFile>, Status>) {
        let walked = Walked {
            began: self.began,
            ended: Instant::now(),
            next_id: self.next_id,
            seen: self.seen,
            is_complete: self.is_complete,
        };
        let found = match (self.found, self.failure) {
            (Some((location, parent)), _) => {
                // The attributes may have changed since the walk was there.
                match self.volume.stat_if_same(self.inode, &parent, &location.name) {
                    Ok(Some(stat)) => Ok(Some((location, stat, parent))),
                    Ok(None) => Err(Status::Jukebox),
                    Err(error) => Err(error),
                }
            }
            (None, Some(failure)) => Err(failure.into()),
            (None, None) => Ok(None),
        };
        (walked, found)
    }

    /// Walks over the whole tree. The walk is depth-first, so that only the directories on the current path are open.
    fn run(&mut self) {
        self.scan();
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.directories.pop() else {
                self.levels.pop();
                continue;
            };
            if self.levels.len() < DEPTH_MAX && self.entries < ENTRIES_MAX {
                self.enter(name);
            }
        }
    }

    /// Opens a subdirectory of the current directory and reads it.
    fn enter(&mut self, name: CString) {
        let Some(parent) = self.levels.last() else { return };
        let opened = open_component(&parent.open, &name, OFlags::DIRECTORY)
            .and_then(|fd| stat_open(&fd).map(|stat| (fd, stat)));
        match opened {
            Ok((fd, stat)) => {
                let known = self.volume.table().find(&stat.inode(self.volume.root_device));
                let id = known
                    .map_or_else(|| LevelId::Unassigned(name, self.volume.seen(&stat)), LevelId::Assigned);
                let open = Arc::new(Descriptor { fd, mode: OpenMode::Directory });
                self.levels.push(Level { open, id, directories: Vec::new() });
                self.scan();
            }
            Err(error) => self.missed(error),
        }
    }

    /// Reads the current directory.
    fn scan(&mut self) {
        let Some(open) = self.levels.last().map(|level| Arc::clone(&level.open)) else { return };
        let mut stream = match Stream::open(&open) {
            Ok(stream) => stream,
            Err(error) => return self.missed(error),
        };
        let mut directories = Vec::new();
        while self.entries < ENTRIES_MAX {
            let entry = match stream.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    self.missed(error);
                    break;
                }
            };
            if matches!(entry.name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            self.seen.insert(entry.number);
            if self.may_be_moved(entry.number, entry.name) {
                self.update_location(&open, entry.name);
            }
            if matches!(entry.kind, FileType::Directory | FileType::Unknown) {
                directories.push(entry.name.to_owned());
            }
        }
        if let Some(level) = self.levels.last_mut() {
            level.directories = directories;
        }
    }

    /// Returns true if an entry of the current directory may be the file that is looked for, or another known file at
    /// an unknown location.
    ///
    /// A listing has inode numbers but no devices. This assumes that the file is on the device of the root, or on that
    /// of the file that is looked for. In an overlay, files on the devices of other layers are not recognised here;
    /// they need a search of their own.
    fn may_be_moved(&self, number: u64, name: &CStr) -> bool {
        let parent = match self.levels.last().map(|level| &level.id) {
            Some(LevelId::Assigned(id)) => Some(*id),
            _ => None,
        };
        let table = self.volume.table();
        let is_elsewhere = |device| table.is_elsewhere((device, number), parent, name);
        number == self.inode.number
            || is_elsewhere(0)
            || self.inode.device != 0 && is_elsewhere(self.inode.device)
    }

    /// Updates the location of the file at an entry of the current directory, if it is a known file.
    fn update_location(&mut self, open: &Arc<Descriptor>, name: &CStr) {
        let stat = match stat_at(open, name) {
            Ok(stat) => stat,
            // Its inode number was recorded, so the walk does not make its handle stale.
            Err(Errno::ACCESS) => return,
            Err(error) => return self.missed(error),
        };
        let Some(id) = self.volume.table().find(&stat.inode(self.volume.root_device)) else { return };
        let parent = self.current_id();
        self.volume.id_of(parent, name, &stat);
        if self.volume.open_known(parent).is_none() {
            // The searches that wait for the end of this one need the open directory to find their files.
            self.volume.descriptors.insert(parent, open);
        }
        if id == self.id {
            self.found = Some((Location { parent, name: Arc::from(name) }, Arc::clone(open)));
        }
    }

    /// Returns the id of the current directory. Assigns ids to the directories on the path that have none.
    fn current_id(&mut self) -> FileId {
        let mut current = ROOT;
        for level in &mut self.levels {
            current = match &level.id {
                LevelId::Assigned(id) => *id,
                LevelId::Unassigned(name, seen) => self.volume.table().id_of(current, name, *seen).0,
            };
            level.id = LevelId::Assigned(current);
        }
        current
    }

    /// Records that a part of the tree could not be read. Directories that were removed in the meantime count as read.
    /// Mount points count as read too: they are other file systems, to which no file of this one can be moved.
    fn missed(&mut self, error: Errno) {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => {}
            Errno::ACCESS => self.is_complete = false,
            _ => {
                self.is_complete = false;
                self.failure.get_or_insert(error);
            }
        }
    }
}
