//! Results of walks, which answer the searches that follow shortly after.
//!
//! A search looks for a file that a local process has moved, so that it is not where the table of file handles says. It
//! walks over one directory or over the whole tree. A walk records all inode numbers that it meets.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::table::{FileId, Inode, Table};

/// Time after the start of a walk during which a file that the walk did not meet counts as removed.
const WALK_VALID: Duration = Duration::from_secs(5);

/// Minimum pause after a walk, as a multiple of its duration, so that walks take at most a tenth of a processor.
const REST_FACTOR: u32 = 10;

/// Searches of a volume (the directory of an export). The lock is held during a search, so there is one at a time.
#[derive(Debug, Default)]
pub(super) struct Searches {
    pub(super) last: Mutex<LastWalks>,
}

/// Results of the last walks; `None` before the first.
#[derive(Debug, Default)]
pub(super) struct LastWalks {
    /// Last walk over a single directory, with the id of this directory.
    pub(super) directory: Option<(FileId, Walked)>,
    /// Last walk over the whole tree.
    pub(super) tree: Option<Walked>,
}

/// Result of a walk.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// Next id that the table would have assigned when the walk began. The result says nothing about later ids.
    pub(super) next_id: FileId,
    /// Inode numbers of all entries that the walk met.
    pub(super) seen: HashSet<u64>,
    /// False if a part of the tree could not be read: files that the walk did not meet may be there. A walk that has
    /// reached its maximum number of entries or depth counts as complete, because another walk would end there too.
    pub(super) is_complete: bool,
}

impl Walked {
    /// Returns true if the walk shows that a file is not there: its id was assigned before the walk, and the walk did
    /// not meet its inode number. Returns false if that is not certain, or the walk is too old.
    pub(super) fn excludes(&self, table: &Table, id: FileId, inode: &Inode) -> bool {
        let is_recent = self.began.elapsed() < WALK_VALID;
        self.is_complete
            && is_recent
            && table.is_older(id, self.next_id)
            && !self.seen.contains(&inode.number)
    }

    /// Returns true during the pause after the walk, in which no other walk may start.
    pub(super) fn is_resting(&self) -> bool {
        self.ended.elapsed() < (self.ended - self.began) * REST_FACTOR
    }
}
