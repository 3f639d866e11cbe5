//! Eviction of files from the table of file handles when it uses too much memory. It evicts approximately the files
//! that were not used for the longest time, by the clock algorithm.
//!
//! The files are in a queue, the clock. A use gives a file [`CHANCES_MAX`] chances. The file at the front of the queue
//! is evicted if it has no chance left; otherwise it loses one and goes to the back. A directory stays as long as a
//! file below it is in the table, because the path to that file leads through it. The root is not in the table.

use std::collections::HashMap;

use super::Table;
use super::entry::{FileId, ROOT};

/// Divisor for the memory that a table releases at once when it uses too much: a sixteenth. If it released less, the
/// eviction would run more often and pass over the same files each time.
const EVICTED_DIVISOR: usize = 16;

/// Number of times that a file goes to the back of the queue after its last use.
pub(super) const CHANCES_MAX: u8 = 2;

/// Minimum capacity of a map or queue that is made smaller, in elements.
const CAPACITY_MIN: usize = 64;

impl Table {
    /// Evicts files if the table uses too much memory.
    pub(super) fn make_room(&mut self) {
        if self.memory.is_exceeded() {
            let target = self.memory.used() - self.memory.used() / EVICTED_DIVISOR;
            self.evict_until(|table| table.memory.used() <= target);
        }
    }

    /// Evicts files if other tables need the memory, and shrinks maps in which evicted and removed files have left
    /// room.
    pub(super) fn shrink(&mut self) {
        self.evict_until(|table| !table.memory.is_exceeded());
        let enough = CAPACITY_MIN.max(2 * self.files.len());
        if self.files.capacity() > 2 * enough {
            self.trim_clock();
            self.files.shrink_to(enough);
            self.by_inode.shrink_to(enough);
            self.children.shrink_to(enough);
            self.clock.shrink_to(enough);
        }
    }

    /// Evicts files until `is_done` returns true or the table is empty.
    fn evict_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        let mut passed = 0;
        while !is_done(self) {
            let Some(id) = self.clock.pop_front() else { return };
            let Some(entry) = self.files.get(&id) else { continue };
            let chances = entry.chances.get();
            let is_kept = chances > 0 || self.children.contains_key(&id);
            // Renames by local processes may leave a table in which two directories are each below the other.
            let is_cycle = passed > (usize::from(CHANCES_MAX) + 1) * self.files.len();
            if is_kept && !is_cycle {
                entry.chances.set(chances.saturating_sub(1));
                self.clock.push_back(id);
                passed += 1;
            } else {
                self.evict(id, &is_done);
                passed = 0;
            }
        }
    }

    /// Evicts a file, and then the directories above it that have nothing else below them and have no chance left.
    /// Otherwise the eviction of a long chain of directories would pass over the queue once for each of them.
    fn evict(&mut self, id: FileId, is_done: impl Fn(&Self) -> bool) {
        let mut next = Some(id);
        while let Some(id) = next {
            let parent = self.files.get(&id).and_then(|entry| entry.location.as_ref()).map(|it| it.parent);
            self.forget(id);
            self.evicted.push(id);
            next = parent.filter(|parent| {
                let is_idle = self.files.get(parent).is_some_and(|entry| entry.chances.get() == 0);
                is_idle && !self.children.contains_key(parent) && !is_done(self)
            });
        }
    }

    /// Evicts the files that cannot be reached from the root, because a directory on their path is not in the table.
    pub(super) fn evict_unreachable(&mut self) {
        let mut is_reached = HashMap::from([(ROOT, true)]);
        let mut path = Vec::new();
        for id in self.files.keys() {
            let mut next = *id;
            let result = loop {
                if let Some(known) = is_reached.get(&next) {
                    break *known;
                }
                let Some(entry) = self.files.get(&next) else { break false };
                // A file without a known location may be found by a search, and one with several by another location.
                let (Some(location), []) = (&entry.location, entry.others.as_slice()) else { break true };
                // False until the parent is known; this stays so for directories in a cycle.
                is_reached.insert(next, false);
                path.push(next);
                next = location.parent;
            };
            is_reached.extend(path.drain(..).map(|id| (id, result)));
        }
        let lost = is_reached.into_iter().filter(|(_, is_reached)| !is_reached).map(|(id, _)| id);
        for id in lost {
            self.forget(id);
            self.evicted.push(id);
        }
    }

    /// Removes ids from the clock that are not in the table any more, when they are the majority.
    pub(super) fn trim_clock(&mut self) {
        if self.clock.len() > CAPACITY_MIN + 2 * self.files.len() {
            let files = &self.files;
            self.clock.retain(|id| files.contains_key(id));
        }
    }

    /// Returns the ids of the files that were evicted since the last call. Their handles are stale.
    pub(crate) fn take_evicted(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.evicted)
    }
}
