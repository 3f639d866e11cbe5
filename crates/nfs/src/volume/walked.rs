//! Results of searches, which answer the searches that follow shortly after.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::table::{FileId, Inode, Table};

/// Time for which a file that a walk did not see counts as removed.
const WALK_VALID: Duration = Duration::from_secs(5);

/// Time from one walk to the next, as a multiple of its duration: walks take a tenth of a processor at most.
const REST: u32 = 10;

/// Searches of a volume. One goes on at a time.
#[derive(Debug, Default)]
pub(super) struct Searches {
    pub(super) last: Mutex<Last>,
}

#[derive(Debug, Default)]
pub(super) struct Last {
    /// The last directory that was searched alone.
    pub(super) directory: Option<(FileId, Walked)>,
    /// The last walk over the whole tree.
    pub(super) tree: Option<Walked>,
}

/// Result of a walk.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// Id that was to be assigned next when it began.
    pub(super) next_id: FileId,
    /// Inode numbers of all entries that were seen.
    pub(super) seen: HashSet<u64>,
    /// False if a part of the tree could not be read, so that files that were not seen may be there. A walk that has
    /// reached its limits is complete: another would end at the same place.
    pub(super) is_complete: bool,
}

impl Walked {
    /// Returns true if a file that was known when the walk began was not there. False if that is not certain.
    pub(super) fn excludes(&self, table: &Table, id: FileId, inode: &Inode) -> bool {
        let is_recent = self.began.elapsed() < WALK_VALID;
        self.is_complete
            && is_recent
            && table.is_older(id, self.next_id)
            && !self.seen.contains(&inode.number)
    }

    pub(super) fn is_resting(&self) -> bool {
        self.ended.elapsed() < (self.ended - self.began) * REST
    }
}
