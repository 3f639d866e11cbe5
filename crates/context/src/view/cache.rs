//! Cache of views. A view is the part of a tree that an agent may read. The cache has the view of each directory, so
//! that unchanged directories are not filtered again.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use parking_lot::Mutex;
use workspace_state::{DirectoryNode, NodeId, Timestamp};

/// Maximum number of entries in each half of a [`RecentMap`].
const HALF_MAX: usize = 100_000;

/// Cache of filtered directories. Maps a directory of a tree, together with the rules that apply to it and to
/// everything below it, to the directory that a view shows in its place. Has only directories of views that were
/// committed. One cache serves all projects, agents and policies of a store.
///
/// Also records which directories have hard links below them. Each of the two maps holds at most 200,000 entries, and
/// drops entries that were not used for long.
#[derive(Default)]
pub struct ViewCache {
    /// Shown directories by the directory and rules that they come from.
    shown: Mutex<RecentMap<CacheKey, CachedView>>,
    /// True if an entry below a directory is a hard link. The key is [`DirectoryNode::times`]: the id of the node with
    /// the modification times and link labels of the entries.
    links: Mutex<RecentMap<NodeId, bool>>,
}

/// Directory of a tree, and the rules that apply to it and to everything below it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    id: NodeId,
    /// [`DirectoryNode::times`]; `None` if no times are stored.
    times: Option<NodeId>,
    /// Fingerprint of the rules, as of `Matcher::fingerprint`.
    rules: [u8; 32],
}

/// Result of filtering a directory.
#[derive(Clone)]
pub(super) enum CachedView {
    /// The view does not have the directory.
    Hidden,
    /// The view has this directory in its place, with this modification time.
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
        self.shown.lock().get(key)
    }

    /// Records `node` as the view of the directory of `key`. Also records it as the view of itself: a view that is
    /// filtered again by the same rules does not change.
    pub(super) fn insert(&self, key: CacheKey, node: DirectoryNode, modified: Option<Timestamp>) {
        let key_of_view = CacheKey::new(&node, key.rules);
        let shown = CachedView::Shown { node, modified };
        let mut all = self.shown.lock();
        all.insert(key_of_view, shown.clone());
        all.insert(key, shown);
    }

    pub(super) fn insert_hidden(&self, key: CacheKey) {
        self.shown.lock().insert(key, CachedView::Hidden);
    }

    /// Returns true if an entry below the directory with these times is a hard link (has a link label); `None` if that
    /// is unknown.
    pub(super) fn has_links(&self, times: &NodeId) -> Option<bool> {
        self.links.lock().get(times)
    }

    pub(super) fn set_has_links(&self, times: NodeId, has_links: bool) {
        self.links.lock().insert(times, has_links);
    }
}

/// Map with at most twice [`HALF_MAX`] entries. When the newer half is full, the older half is dropped, and the newer
/// one becomes the older half. A lookup moves an entry from the older to the newer half.
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
