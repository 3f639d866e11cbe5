//! Search for files that were renamed on the server, not by a client, so that their locations in the table are wrong.
//!
//! A search is a walk over the exported tree that compares inode numbers. The number of entries and the depth are
//! bounded, so a file in a very large tree may not be found and is stale for its clients. The last walk is kept for a
//! short time as a [`Walked`], and a search for a file that this walk did not see fails without another walk: after a
//! directory was removed, clients ask for each file in it.

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
    /// Searches for a file that is not at any of its known locations: in the directory where it was seen last, then in
    /// the whole tree. Updates the table. Returns the new location of the file, its attributes and the open directory
    /// that contains it.
    ///
    /// Fails with `STALE` if the file was not found, and with `JUKEBOX` (the client tries again later) if the last walk
    /// was too recent for another one.
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

    /// Searches for a file in the directory in which it was seen last, where most renames stay. `None` if it is not
    /// there, or if that directory was walked too recently.
    fn search_directory(
        &self,
        last: &mut Last,
        id: FileId,
        inode: Inode,
        parent: FileId,
    ) -> Result<Option<(Location, Stat, Arc<Descriptor>)>, Status> {
        let Some(open) = self.open_known(parent) else { return Ok(None) };
        let is_skipped = last.directory.as_ref().is_some_and(|(searched, walked)| {
            *searched == parent && (walked.excludes(&self.table(), id, &inode) || walked.is_resting())
        });
        if is_skipped {
            return Ok(None);
        }
        let mut walk = Walk::new(self, inode);
        let found = walk.scan(&open, &mut Vec::new());
        last.directory = Some((parent, walk.end()));
        Ok(found?.map(|(name, stat)| self.found(parent, &name, stat, open)))
    }

    /// Returns the descriptor of a directory if it is open already: to open it may need another search.
    fn open_known(&self, id: FileId) -> Option<Arc<Descriptor>> {
        if id == ROOT { Some(Arc::clone(&self.root)) } else { self.descriptors.get(id) }
            .filter(|open| open.mode == Mode::Directory)
    }

    /// Records the new location of a file in the table, and returns the result of the search.
    fn found(
        &self,
        parent: FileId,
        name: &CStr,
        stat: Stat,
        open: Arc<Descriptor>,
    ) -> (Location, Stat, Arc<Descriptor>) {
        // Updates the location; the id is known already.
        self.id_of(parent, name, &stat);
        (Location { parent, name: Arc::from(name) }, stat, open)
    }
}

/// Directories on the path from the root to the file, with their attributes; then the name and the attributes of the
/// file, and the open directory that contains it.
type FoundFile = (Vec<(CString, Stat)>, CString, Stat, Arc<Descriptor>);

/// Directory on the current path of a walk. Its entries have been read.
struct Level {
    open: Arc<Descriptor>,
    /// Directories in it that were not entered yet.
    directories: Vec<CString>,
    /// Name and attributes of this directory; `None` for the root.
    entry: Option<(CString, Stat)>,
}

/// Walk that looks for one file and notes all others.
struct Walk<'a> {
    volume: &'a Volume,
    /// Inode of the file that is looked for.
    inode: Inode,
    began: Instant,
    /// Next id that the table would assign when the walk began. The result says nothing about files with later ids.
    next_id: FileId,
    /// Inode numbers of all entries so far.
    seen: HashSet<u64>,
    /// Number of entries so far.
    entries: usize,
}

impl<'a> Walk<'a> {
    fn new(volume: &'a Volume, inode: Inode) -> Self {
        let next_id = volume.table().next_unassigned();
        Self { volume, inode, began: Instant::now(), next_id, seen: HashSet::new(), entries: 0 }
    }

    /// Returns what the walk has seen, for the searches that follow.
    fn end(self) -> Walked {
        Walked { began: self.began, ended: Instant::now(), next_id: self.next_id, seen: self.seen }
    }

    /// Walks over the whole tree until the file is found. The walk is depth-first, so that only the directories on the
    /// current path are open.
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

    /// Reads a directory. Returns the name and the attributes of the file if it is there; otherwise adds the names of
    /// all subdirectories to `directories`. A directory that cannot be read counts as empty.
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
                && let Some(stat) = self.stat_if_same(open, entry.name)
            {
                return Ok(Some((entry.name.to_owned(), stat)));
            }
            if matches!(entry.kind, FileType::Directory | FileType::Unknown) {
                directories.push(entry.name.to_owned());
            }
        }
        Ok(None)
    }

    /// Returns the attributes of an entry if it is the file that is looked for.
    fn stat_if_same(&self, open: &Descriptor, name: &CStr) -> Option<Stat> {
        let stat = stat_at(open, name).ok()?;
        let inode = stat.inode(self.volume.root_device);
        self.volume.table().is_same(self.inode, &inode).then_some(stat)
    }
}

/// Opens a directory for [`Walk::run`]. `None` if it cannot be entered, or is gone.
#[allow(clippy::type_complexity, reason = "it is the state of one loop")]
fn enter(parent: &Descriptor, name: CString) -> Option<(Arc<Descriptor>, Option<(CString, Stat)>)> {
    let fd = open_path(parent, &name, rustix::fs::OFlags::DIRECTORY).ok()?;
    let stat = stat_open(&fd).ok()?;
    Some((Arc::new(Descriptor { fd, mode: Mode::Directory }), Some((name, stat))))
}
