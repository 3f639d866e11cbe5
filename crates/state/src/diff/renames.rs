//! Rename detection: pairs removed and added entries.
//!
//! The input has only the topmost entry of each removed or added subtree. Directories are paired first: two equal
//! directories are one rename, and the entries below them are not listed. A removed topmost directory may also equal an
//! added directory at any depth, and the other way round, so a directory that moved to another depth is found too.
//! Files are paired last, among the remaining entries.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::{Difference, DifferenceKind, UnpairedEntry, list_children};
use crate::entry::{Entry, Node};
use crate::error::Result;
use crate::id::NodeId;
use crate::node::{Extent, FileNode};
use crate::store::Store;
use crate::walk_limits::WalkUsage;

/// Pairs removed and added entries. Appends a rename for each pair to `differences`, and a removal or addition for each
/// entry without a partner.
pub(super) fn pair(
    (old_store, removed): (&Store, Vec<UnpairedEntry>),
    (new_store, added): (&Store, Vec<UnpairedEntry>),
    differences: &mut Vec<Difference>,
    usage: &WalkUsage,
) -> Result<()> {
    let mut removed = UnpairedEntries::new(removed);
    let mut added = UnpairedEntries::new(added);
    pair_by_key(&mut removed, &mut added, |entry| directory_id(entry).copied(), differences);
    let mut forest = expand_added(new_store, added, &mut removed, differences, usage)?;
    let removed = expand_removed(old_store, removed, &mut forest, differences, usage)?;
    let (mut removed, mut added) =
        (UnpairedEntries::new(removed), UnpairedEntries::new(forest.into_remaining()));
    pair_by_key(&mut removed, &mut added, content_key, differences);
    differences.extend(removed.into_remaining().map(|UnpairedEntry { path, entry }| Difference {
        path,
        kind: DifferenceKind::Removed,
        old: Some(entry),
        new: None,
    }));
    differences.extend(added.into_remaining().map(|UnpairedEntry { path, entry }| Difference {
        path,
        kind: DifferenceKind::Added,
        old: None,
        new: Some(entry),
    }));
    Ok(())
}

/// Returns the difference for a pair.
fn renamed(old: UnpairedEntry, new: UnpairedEntry) -> Difference {
    let kind = DifferenceKind::Renamed { from: old.path };
    Difference { path: new.path, kind, old: Some(old.entry), new: Some(new.entry) }
}

/// Returns the id of a directory; `None` for other entries, and for an empty directory, because all empty directories
/// are equal.
fn directory_id(entry: &Entry) -> Option<&NodeId> {
    match &entry.node {
        Node::Directory(directory) if directory.entries > 0 => Some(&directory.id),
        _ => None,
    }
}

/// Returns a key that is equal for files with the same content; `None` for other entries, and for an empty file,
/// because all empty files are equal.
fn content_key(entry: &Entry) -> Option<(u64, NodeId)> {
    let Node::File(file) = &entry.node else { return None };
    match file.extents.as_slice() {
        [] => None,
        [Extent::Data { chunk, len }] => Some((*len, NodeId::from_bytes(*chunk.as_bytes()))),
        extents => {
            let content = FileNode { extents: extents.to_vec(), ..FileNode::default() };
            Some((file.size(), NodeId::of(&content.encode())))
        }
    }
}

/// Entries sorted by path. Each can be taken once; `None` if it was taken.
struct UnpairedEntries(Vec<Option<UnpairedEntry>>);

impl UnpairedEntries {
    fn new(mut unpaired: Vec<UnpairedEntry>) -> Self {
        unpaired.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Self(unpaired.into_iter().map(Some).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_available(&self, index: usize) -> bool {
        self.0[index].is_some()
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &UnpairedEntry)> {
        self.0.iter().enumerate().filter_map(|(index, unpaired)| Some((index, unpaired.as_ref()?)))
    }

    /// Returns the entries that were not taken.
    fn into_remaining(self) -> impl DoubleEndedIterator<Item = UnpairedEntry> {
        self.0.into_iter().flatten()
    }
}

/// Index of entries that may be one side of a rename. Values are indexes into the list of entries, in its order.
struct Candidates<K> {
    /// Entries by key and base name.
    named: HashMap<(K, Vec<u8>), VecDeque<usize>>,
    /// Entries by key alone.
    any: HashMap<K, VecDeque<usize>>,
}

impl<K: Hash + Eq + Copy> Candidates<K> {
    /// Adds all entries that have a key.
    fn new<'f>(
        unpaired: impl Iterator<Item = (usize, &'f UnpairedEntry)>,
        key: impl Fn(&Entry) -> Option<K>,
    ) -> Self {
        let mut candidates = Self { named: HashMap::new(), any: HashMap::new() };
        for (index, unpaired) in unpaired {
            if let Some(key) = key(&unpaired.entry) {
                candidates.named.entry((key, unpaired.entry.name.clone())).or_default().push_back(index);
                candidates.any.entry(key).or_default().push_back(index);
            }
        }
        candidates
    }

    /// Takes the first available candidate with this key and base name. Drops the candidates before it, which are no
    /// longer available.
    fn take_named(&mut self, key: K, name: &[u8], is_available: impl Fn(usize) -> bool) -> Option<usize> {
        pop_available(self.named.get_mut(&(key, name.to_vec()))?, is_available)
    }

    /// Takes the first available candidate with this key.
    fn take_any(&mut self, key: K, is_available: impl Fn(usize) -> bool) -> Option<usize> {
        pop_available(self.any.get_mut(&key)?, is_available)
    }

    /// Takes a candidate with this key, preferably with this base name.
    fn take(&mut self, key: K, name: &[u8], is_available: impl Fn(usize) -> bool) -> Option<usize> {
        self.take_named(key, name, &is_available).or_else(|| self.take_any(key, &is_available))
    }
}

/// Pops the first available index.
fn pop_available(queue: &mut VecDeque<usize>, is_available: impl Fn(usize) -> bool) -> Option<usize> {
    while let Some(index) = queue.pop_front() {
        if is_available(index) {
            return Some(index);
        }
    }
    None
}

/// Pairs entries with equal keys: first entries with the same base name, then the others.
fn pair_by_key<K: Hash + Eq + Copy>(
    removed: &mut UnpairedEntries,
    added: &mut UnpairedEntries,
    key: impl Fn(&Entry) -> Option<K>,
    differences: &mut Vec<Difference>,
) {
    if removed.is_empty() || added.is_empty() {
        return;
    }
    let mut candidates = Candidates::new(removed.iter(), &key);
    for with_same_name in [true, false] {
        for slot in &mut added.0 {
            let Some(new) = slot.as_ref() else { continue };
            let Some(key) = key(&new.entry) else { continue };
            let is_available = |index| removed.is_available(index);
            let old = match with_same_name {
                true => candidates.take_named(key, &new.entry.name, is_available),
                false => candidates.take_any(key, is_available),
            };
            let Some(old) = old.and_then(|index| removed.0[index].take()) else { continue };
            differences.extend(slot.take().map(|new| renamed(old, new)));
        }
    }
}

/// All added subtrees in depth-first order: the descendants of an entry follow directly after it.
#[derive(Default)]
struct Forest(Vec<ForestEntry>);

/// Added entry.
struct ForestEntry {
    /// `None` once the entry, or a directory above it, is paired.
    unpaired: Option<UnpairedEntry>,
    /// Index of the parent; `None` for a topmost entry.
    parent: Option<usize>,
    /// Number of parents.
    depth: usize,
    /// True if an entry below is paired. The directory can then not be paired as a whole any more.
    is_changed: bool,
}

impl Forest {
    /// Appends an entry. Returns its index.
    fn add(&mut self, unpaired: UnpairedEntry, parent: Option<usize>) -> usize {
        let depth = parent.map_or(0, |parent| self.0[parent].depth + 1);
        self.0.push(ForestEntry { unpaired: Some(unpaired), parent, depth, is_changed: false });
        self.0.len() - 1
    }

    /// Marks an entry and all directories above it as changed.
    fn mark_ancestors_changed(&mut self, mut index: Option<usize>) {
        while let Some(entry) = index.map(|index| &mut self.0[index]).filter(|entry| !entry.is_changed) {
            entry.is_changed = true;
            index = entry.parent;
        }
    }

    /// Returns true if neither the entry nor an entry below it is paired.
    fn is_unchanged(&self, index: usize) -> bool {
        self.0[index].unpaired.is_some() && !self.0[index].is_changed
    }

    /// Takes an entry out, together with everything below it.
    fn take(&mut self, index: usize) -> Option<UnpairedEntry> {
        let depth = self.0[index].depth;
        for descendant in self.0[index + 1..].iter_mut().take_while(|entry| entry.depth > depth) {
            descendant.unpaired = None;
        }
        self.mark_ancestors_changed(self.0[index].parent);
        self.0[index].unpaired.take()
    }

    /// Returns the entries that are not paired.
    fn into_remaining(self) -> Vec<UnpairedEntry> {
        self.0.into_iter().filter_map(|entry| entry.unpaired).collect()
    }
}

/// Lists all added entries at any depth. A directory that equals a topmost removed directory becomes a rename, and the
/// entries below it are not listed.
fn expand_added(
    store: &Store,
    added: UnpairedEntries,
    removed: &mut UnpairedEntries,
    differences: &mut Vec<Difference>,
    usage: &WalkUsage,
) -> Result<Forest> {
    let mut candidates = Candidates::new(removed.iter(), |entry| directory_id(entry).copied());
    let mut forest = Forest::default();
    let mut queue: Vec<_> = added.into_remaining().rev().map(|unpaired| (unpaired, None)).collect();
    let mut children = Vec::new();
    while let Some((new, parent)) = queue.pop() {
        let old = directory_id(&new.entry)
            .and_then(|id| candidates.take(*id, &new.entry.name, |index| removed.is_available(index)))
            .and_then(|index| removed.0[index].take());
        if let Some(old) = old {
            differences.push(renamed(old, new));
            forest.mark_ancestors_changed(parent);
            continue;
        }
        list_children(store, &new.path, &new.entry, &mut children, usage)?;
        let index = forest.add(new, parent);
        queue.extend(children.drain(..).rev().map(|unpaired| (unpaired, Some(index))));
    }
    Ok(forest)
}

/// Lists all removed entries at any depth. A directory that equals an added directory becomes a rename, and the entries
/// below it are not listed.
fn expand_removed(
    store: &Store,
    removed: UnpairedEntries,
    added: &mut Forest,
    differences: &mut Vec<Difference>,
    usage: &WalkUsage,
) -> Result<Vec<UnpairedEntry>> {
    let unpaired =
        added.0.iter().enumerate().filter_map(|(index, entry)| Some((index, entry.unpaired.as_ref()?)));
    let mut candidates = Candidates::new(unpaired, |entry| directory_id(entry).copied());
    let mut listed = Vec::new();
    let mut queue: Vec<_> = removed.into_remaining().rev().collect();
    let mut children = Vec::new();
    while let Some(old) = queue.pop() {
        let new = directory_id(&old.entry)
            .and_then(|id| candidates.take(*id, &old.entry.name, |index| added.is_unchanged(index)))
            .and_then(|index| added.take(index));
        if let Some(new) = new {
            differences.push(renamed(old, new));
            continue;
        }
        list_children(store, &old.path, &old.entry, &mut children, usage)?;
        listed.push(old);
        queue.extend(children.drain(..).rev());
    }
    Ok(listed)
}
