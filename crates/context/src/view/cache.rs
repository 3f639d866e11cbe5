//! Memory of directories of views.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use workspace_state::{DirectoryNode, NodeId, Timestamp};

/// Largest number of directories of a generation.
const GENERATION_MAX: usize = 100_000;

/// Directories of views that were committed before, by the directory that they show and the rules below it.
/// One cache serves all projects, agents and policies of a store.
///
/// Holds at most 200,000 directories, and forgets those that were not used for longest.
#[derive(Default)]
pub struct ViewCache {
    shown: Mutex<Generations<Key, Remembered>>,
    links: Mutex<Generations<NodeId, bool>>,
}

/// Directory of a tree, and the hash of the rules that can match in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    id: NodeId,
    times: Option<NodeId>,
    rules: [u8; 32],
}

/// View of a directory.
#[derive(Clone)]
pub(super) enum Remembered {
    /// Nothing is shown.
    Hidden,
    /// This directory is shown.
    Shown { node: DirectoryNode, modified: Option<Timestamp> },
}

impl Key {
    pub(super) fn new(node: &DirectoryNode, rules: [u8; 32]) -> Self {
        Self { id: node.id, times: node.times, rules }
    }
}

impl ViewCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn get(&self, key: &Key) -> Option<Remembered> {
        lock(&self.shown).get(key)
    }

    /// Remembers the view of a directory, and that it is its own view.
    pub(super) fn insert(&self, key: Key, node: DirectoryNode, modified: Option<Timestamp>) {
        let own = Key::new(&node, key.rules);
        let shown = Remembered::Shown { node, modified };
        let mut all = lock(&self.shown);
        all.insert(own, shown.clone());
        all.insert(key, shown);
    }

    pub(super) fn insert_hidden(&self, key: Key) {
        lock(&self.shown).insert(key, Remembered::Hidden);
    }

    /// Returns true if something below a directory with these times has a link label; `None` if that is unknown.
    pub(super) fn has_links(&self, times: &NodeId) -> Option<bool> {
        lock(&self.links).get(times)
    }

    pub(super) fn set_has_links(&self, times: NodeId, has_links: bool) {
        lock(&self.links).insert(times, has_links);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Map that forgets old entries: when the newer half is full, the older half is dropped.
struct Generations<K, V> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self { newer: HashMap::new(), older: HashMap::new() }
    }
}

impl<K: Hash + Eq + Copy, V: Clone> Generations<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.newer.get(key) {
            return Some(value.clone());
        }
        let value = self.older.remove(key)?;
        self.insert(*key, value.clone());
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.newer.len() >= GENERATION_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_in_use_survive_and_others_are_forgotten() {
        let mut map = Generations::default();
        map.insert(0, "used");
        map.insert(1, "unused");
        for key in 2..(2 * GENERATION_MAX + 2) {
            map.insert(key, "new");
            if key % 1_000 == 0 {
                assert_eq!(map.get(&0), Some("used"));
            }
        }
        assert_eq!((map.get(&0), map.get(&1)), (Some("used"), None));
        assert!(map.newer.len() + map.older.len() <= 2 * GENERATION_MAX);
    }
}
