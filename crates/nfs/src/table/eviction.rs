//! Eviction of files from a table that uses too much memory: about those that were not used for the longest time.
//!
//! The files are in a queue, the clock. The file at its front is evicted if it was not used since it was there last but
//! one, or else goes to the back. A directory stays as long as a file below it is in the table, because the way to that
//! file leads through it. The root is not in the table.

use std::collections::HashMap;

use super::Table;
use super::entry::{FileId, ROOT};

/// Part of its memory that a table gives back at once when it uses too much: one in this number. Then the files that
/// stay are passed seldom.
const EVICTED_PART: usize = 16;

/// Number of times that a file goes to the back of the clock after its last use.
pub(super) const ROUNDS: u8 = 2;

/// Capacity of a map below which it is not made smaller.
const CAPACITY_MIN: usize = 64;

impl Table {
    /// Evicts files if the table uses too much memory.
    pub(super) fn make_room(&mut self) {
        if self.memory.is_exceeded() {
            let target = self.memory.used() - self.memory.used() / EVICTED_PART;
            self.evict_until(|table| table.memory.used() <= target);
        }
    }

    /// Gives back memory that other tables need, and that evicted and removed files have left.
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

    fn evict_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        let mut passed = 0;
        while !is_done(self) {
            let Some(id) = self.clock.pop_front() else { return };
            let Some(entry) = self.files.get(&id) else { continue };
            let rounds = entry.rounds.get();
            let is_kept = rounds > 0 || self.children.contains_key(&id);
            // Renames on the server may make a table in which two directories are each below the other.
            let is_cycle = passed > (usize::from(ROUNDS) + 1) * self.files.len();
            if is_kept && !is_cycle {
                entry.rounds.set(rounds.saturating_sub(1));
                self.clock.push_back(id);
                passed += 1;
            } else {
                self.evict(id, &is_done);
                passed = 0;
            }
        }
    }

    /// Evicts a file, and then the directories above it that have nothing else below them and were not used either.
    /// Otherwise a long chain of directories would have to be passed for each of them.
    fn evict(&mut self, id: FileId, is_done: impl Fn(&Self) -> bool) {
        let mut next = Some(id);
        while let Some(id) = next {
            let parent = self.files.get(&id).and_then(|entry| entry.location.as_ref()).map(|it| it.parent);
            self.forget(id);
            self.evicted.push(id);
            next = parent.filter(|parent| {
                let is_idle = self.files.get(parent).is_some_and(|entry| entry.rounds.get() == 0);
                is_idle && !self.children.contains_key(parent) && !is_done(self)
            });
        }
    }

    /// Evicts the files whose way from the root has lost a directory.
    pub(super) fn evict_unreachable(&mut self) {
        let mut is_reached = HashMap::from([(ROOT, true)]);
        let mut way = Vec::new();
        for id in self.files.keys() {
            let mut next = *id;
            let result = loop {
                if let Some(known) = is_reached.get(&next) {
                    break *known;
                }
                let Some(entry) = self.files.get(&next) else { break false };
                // Without a name it is searched, and with more than one it may be elsewhere.
                let (Some(location), []) = (&entry.location, entry.others.as_slice()) else { break true };
                // In a cycle it stays so.
                is_reached.insert(next, false);
                way.push(next);
                next = location.parent;
            };
            is_reached.extend(way.drain(..).map(|id| (id, result)));
        }
        let lost = is_reached.into_iter().filter(|(_, is_reached)| !is_reached).map(|(id, _)| id);
        for id in lost {
            self.forget(id);
            self.evicted.push(id);
        }
    }

    /// Removes files from the clock that are not in the table any more, when they are the majority.
    pub(super) fn trim_clock(&mut self) {
        if self.clock.len() > CAPACITY_MIN + 2 * self.files.len() {
            let files = &self.files;
            self.clock.retain(|id| files.contains_key(id));
        }
    }

    /// Returns the files that were evicted since the last call. Their handles are stale.
    pub(crate) fn take_evicted(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.evicted)
    }
}
