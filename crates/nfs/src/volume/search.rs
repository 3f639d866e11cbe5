//! Search for files that somebody has renamed inside the directory, unseen by the server.
//!
//! A search is a walk over the tree that compares inode numbers. It is bounded, and what it has seen answers the
//! searches that follow shortly after: when a whole directory was removed, clients ask for each file in it.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::Volume;
use super::descriptors::{Descriptor, Mode};
use super::locate::open_path;
use super::stat::{Stat, stat_at, stat_open};
use super::streams::Stream;
use super::walked::{Last, Walked};
use crate::table::{FileId, Inode, Location, ROOT};
use crate::wire::Status;

/// Maximum number of entries in a walk.
const ENTRIES_MAX: usize = 100_000;

/// Maximum depth of a walk.
const DEPTH_MAX: usize = 64;

impl Volume {
    /// Searches a file that is not at any known location.
    pub(super) fn search(&self, id: FileId) -> Result<(Location, Stat, Arc<Descriptor>), Status> {
        let (inode, parent) = {
            let table = self.table();
            let entry = table.get(id).ok_or(Status::Stale)?;
            (entry.inode, entry.location.as_ref().map(|location| location.parent))
        };
        let mut last = self.searches.last.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut walk = Walk::new(self, inode);
        let found = walk.run();
        last.tree = Some(walk.end());
        let (path, name, stat, open) = found?.ok_or(Status::Stale)?;
        let mut parent = ROOT;
        for (name, stat) in path {
            parent = self.id_of(parent, &name, &stat).0;
        }
        Ok(self.found(parent, &name, stat, open))
    }

    /// Searches a file in the directory in which it was seen last: most renames stay there.
    fn search_directory(
        &self,
        last: &mut Last,
        id: FileId,
        inode: Inode,
        parent: FileId,
    ) -> Result<Option<(Location, Stat, Arc<Descriptor>)>, Status> {
        let Some(open) = self.open_known(parent) else { return Ok(None) };
        let is_known = last.directory.as_ref().is_some_and(|(searched, walked)| {
            *searched == parent && (walked.excludes(&self.table(), id, &inode) || walked.is_resting())
        });
        if is_known {
            return Ok(None);
        }
        let mut walk = Walk::new(self, inode);
        let found = walk.scan(&open, &mut Vec::new());
        last.directory = Some((parent, walk.end()));
        Ok(found?.map(|(name, stat)| self.found(parent, &name, stat, open)))
    }

    /// Opens a directory, if that needs no search.
    fn open_known(&self, id: FileId) -> Option<Arc<Descriptor>> {
        if id == ROOT { Some(Arc::clone(&self.root)) } else { self.descriptors.get(id) }
            .filter(|open| open.mode == Mode::Directory)
    }

    fn found(
        &self,
        parent: FileId,
        name: &CStr,
        stat: Stat,
        open: Arc<Descriptor>,
    ) -> (Location, Stat, Arc<Descriptor>) {
        self.id_of(parent, name, &stat);
        (Location { parent, name: Arc::from(name) }, stat, open)
    }
}

/// Path of directories below the root, with their status, then the name and the status of the file, and its directory.
type FoundFile = (Vec<(CString, Stat)>, CString, Stat, Arc<Descriptor>);

/// Directory of a walk whose entries have been read.
struct Level {
    open: Arc<Descriptor>,
    /// Directories that were not entered yet.
    directories: Vec<CString>,
    /// Name and status of this directory; `None` for the root.
    entry: Option<(CString, Stat)>,
}

struct Walk<'a> {
    volume: &'a Volume,
    inode: Inode,
    began: Instant,
    next_id: FileId,
    seen: HashSet<u64>,
    entries: usize,
}

impl<'a> Walk<'a> {
    fn new(volume: &'a Volume, inode: Inode) -> Self {
        let next_id = volume.table().next_unassigned();
        Self { volume, inode, began: Instant::now(), next_id, seen: HashSet::new(), entries: 0 }
    }

    fn end(self) -> Walked {
        Walked { began: self.began, ended: Instant::now(), next_id: self.next_id, seen: self.seen }
    }

    /// Walks over the whole tree, depth first, so that few descriptors are open.
    fn run(&mut self) -> Result<Option<FoundFile>, Status> {
        let mut levels: Vec<Level> = Vec::new();
        let mut next = Some((Arc::clone(&self.volume.root), None));
        loop {
            if let Some((open, entry)) = next.take() {
                let mut directories = Vec::new();
                let found = self.scan(&open, &mut directories)?;
                levels.push(Level { open: Arc::clone(&open), directories, entry });
                if let Some((name, stat)) = found {
                    let path = levels.into_iter().filter_map(|level| level.entry).collect();
                    return Ok(Some((path, name, stat, open)));
                }
            }
            let Some(level) = levels.last_mut() else { return Ok(None) };
            let Some(name) = level.directories.pop() else {
                levels.pop();
                continue;
            };
            if levels.len() < DEPTH_MAX && self.entries < ENTRIES_MAX {
                let parent = Arc::clone(&levels[levels.len() - 1].open);
                next = enter(&parent, name);
            }
        }
    }

    /// Reads a directory. Returns the file if it is there, else adds all directories in it.
    fn scan(
        &mut self,
        open: &Descriptor,
        directories: &mut Vec<CString>,
    ) -> Result<Option<(CString, Stat)>, Status> {
        let mut stream = match Stream::open(open) {
            Ok(stream) => stream,
            Err(Errno::ACCESS | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        while self.entries < ENTRIES_MAX {
            let Some(entry) = stream.next()? else { break };
            if matches!(entry.name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            self.seen.insert(entry.number);
            if entry.number == self.inode.number
                && let Some(stat) = self.check(open, entry.name)
            {
                return Ok(Some((entry.name.to_owned(), stat)));
            }
            if matches!(entry.kind, FileType::Directory | FileType::Unknown) {
                directories.push(entry.name.to_owned());
            }
        }
        Ok(None)
    }

    fn check(&self, open: &Descriptor, name: &CStr) -> Option<Stat> {
        let stat = stat_at(open, name).ok()?;
        let inode = stat.inode(self.volume.root_device);
        self.volume.table().is_same(self.inode, &inode).then_some(stat)
    }
}

/// Opens a directory of a walk. `None` if it cannot be entered, or is gone.
#[allow(clippy::type_complexity, reason = "it is the state of one loop")]
fn enter(parent: &Descriptor, name: CString) -> Option<(Arc<Descriptor>, Option<(CString, Stat)>)> {
    let fd = open_path(parent, &name, rustix::fs::OFlags::DIRECTORY).ok()?;
    let stat = stat_open(&fd).ok()?;
    Some((Arc::new(Descriptor { fd, mode: Mode::Directory }), Some((name, stat))))
}
