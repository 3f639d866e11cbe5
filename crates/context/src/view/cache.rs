//! Cache of the views of directories.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use workspace_state::{DirectoryNode, NodeId, Timestamp};

/// Maximum number of entries in the newer half of a cache.
const HALF_MAX: usize = 100_000;

/// Directories of views that were committed before, by the directory that they show, and the rules that decide it and
/// what is below it.
/// One cache serves all projects, agents and policies of a store.
///
/// Holds at most 200,000 directories, and forgets those that were not used for longest.
#[derive(Default)]
pub struct ViewCache {
    shown: Mutex<RecentMap<CacheKey, CachedView>>,
    links: Mutex<RecentMap<NodeId, bool>>,
}

/// Directory of a tree, and the fingerprint of the rules that decide it and what is below it
/// (`Matcher::fingerprint`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    id: NodeId,
    times: Option<NodeId>,
    rules: [u8; 32],
}

/// View of a directory.
#[derive(Clone)]
pub(super) enum CachedView {
    /// Nothing is shown.
    Hidden,
    /// This directory is shown.
    Shown { node: DirectoryNode, modified: Option<Timestamp> },
}

impl CacheKey {
    pub(super) fn new(node: &DirectoryNode, rules: [u8; 32]) -> Self {
        Self { id: node.id, times: node.times, rules }
    }
}

impl fmt::Debug for ViewCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ViewCache").finish_non_exhaustive()
    }
}

impl ViewCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn get(&self, key: &CacheKey) -> Option<CachedView> {
        lock(&self.shown).get(key)
    }

    /// Remembers the view of a directory, and that it is its own view.
    pub(super) fn insert(&self, key: CacheKey, node: DirectoryNode, modified: Option<Timestamp>) {
        let own = CacheKey::new(&node, key.rules);
        let shown = CachedView::Shown { node, modified };
        let mut all = lock(&self.shown);
        all.insert(own, shown.clone());
        all.insert(key, shown);
    }

    pub(super) fn insert_hidden(&self, key: CacheKey) {
        lock(&self.shown).insert(key, CachedView::Hidden);
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
struct RecentMap<K, V> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
}

impl<K, V> Default for RecentMap<K, V> {
    fn default() -> Self {
        Self { newer: HashMap::new(), older: HashMap::new() }
    }
}

impl<K: Hash + Eq + Copy, V: Clone> RecentMap<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.newer.get(key) {
            return Some(value.clone());
        }
        let value = self.older.remove(key)?;
        self.insert(*key, value.clone());
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.newer.len() >= HALF_MAX {
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
        let mut map = RecentMap::default();
        map.insert(0, "used");
        map.insert(1, "unused");
        for key in 2..(2 * HALF_MAX + 2) {
            map.insert(key, "new");
            if key % 1_000 == 0 {
                assert_eq!(map.get(&0), Some("used"));
            }
        }
        assert_eq!((map.get(&0), map.get(&1)), (Some("used"), None));
        assert!(map.newer.len() + map.older.len() <= 2 * HALF_MAX);
    }
}
