//! Rename detection: pairs removed and added entries.
//!
//! Directories come first: a pair of equal ones is one rename, and neither is expanded. A directory that was
//! removed at the top level is looked up among all added entries, and the other way round, so that one that
//! moved up or down is found as well. Files are paired last, among the remaining entries.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::{Difference, DifferenceKind, Found, list_below};
use crate::entry::{Entry, Node};
use crate::error::Result;
use crate::id::NodeId;
use crate::node::{Extent, FileNode};
use crate::store::Store;
use crate::walk_limits::WalkUsage;

/// Turns removed and added entries into differences: renames, removals and additions.
pub(super) fn settle(
    (old_store, removed): (&Store, Vec<Found>),
    (new_store, added): (&Store, Vec<Found>),
    differences: &mut Vec<Difference>,
    usage: &WalkUsage,
) -> Result<()> {
    let mut removed = Roots::new(removed);
    let mut added = Roots::new(added);
    pair(&mut removed, &mut added, |entry| directory_id(entry).copied(), differences);
    let mut forest = expand_added(new_store, added, &mut removed, differences, usage)?;
    let removed = expand_removed(old_store, removed, &mut forest, differences, usage)?;
    let (mut removed, mut added) = (Roots::new(removed), Roots::new(forest.rest()));
    pair(&mut removed, &mut added, content_key, differences);
    differences.extend(removed.rest().map(|Found { path, entry }| Difference {
        path,
        kind: DifferenceKind::Removed,
        old: Some(entry),
        new: None,
    }));
    differences.extend(added.rest().map(|Found { path, entry }| Difference {
        path,
        kind: DifferenceKind::Added,
        old: None,
        new: Some(entry),
    }));
    Ok(())
}

fn renamed(old: Found, new: Found) -> Difference {
    let kind = DifferenceKind::Renamed { from: old.path };
    Difference { path: new.path, kind, old: Some(old.entry), new: Some(new.entry) }
}

/// Returns the id of a directory that can be renamed as a whole; `None` for an empty one, because all of
/// these are equal.
fn directory_id(entry: &Entry) -> Option<&NodeId> {
    match &entry.node {
        Node::Directory(directory) if directory.entries > 0 => Some(&directory.id),
        _ => None,
    }
}

/// Returns a key that is equal for files with the same content; `None` for an empty file, because all of
/// these are equal.
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

/// Entries in order of path, each of which can be taken once.
struct Roots(Vec<Option<Found>>);

impl Roots {
    fn new(mut found: Vec<Found>) -> Self {
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Self(found.into_iter().map(Some).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_there(&self, at: usize) -> bool {
        self.0[at].is_some()
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &Found)> {
        self.0.iter().enumerate().filter_map(|(at, found)| Some((at, found.as_ref()?)))
    }

    fn rest(self) -> impl DoubleEndedIterator<Item = Found> {
        self.0.into_iter().flatten()
    }
}

/// Candidates for a rename by key, in insertion order.
struct Pool<K> {
    named: HashMap<(K, Vec<u8>), VecDeque<usize>>,
    any: HashMap<K, VecDeque<usize>>,
}

impl<K: Hash + Eq + Copy> Pool<K> {
    fn new<'f>(found: impl Iterator<Item = (usize, &'f Found)>, key: impl Fn(&Entry) -> Option<K>) -> Self {
        let mut pool = Self { named: HashMap::new(), any: HashMap::new() };
        for (at, found) in found {
            if let Some(key) = key(&found.entry) {
                pool.named.entry((key, found.entry.name.clone())).or_default().push_back(at);
                pool.any.entry(key).or_default().push_back(at);
            }
        }
        pool
    }

    /// Takes the first candidate with the same key and name. A candidate that is not `free` is dropped for
    /// good.
    fn take_named(&mut self, key: K, name: &[u8], free: impl Fn(usize) -> bool) -> Option<usize> {
        first(self.named.get_mut(&(key, name.to_vec()))?, free)
    }

    fn take_any(&mut self, key: K, free: impl Fn(usize) -> bool) -> Option<usize> {
        first(self.any.get_mut(&key)?, free)
    }

    fn take(&mut self, key: K, name: &[u8], free: impl Fn(usize) -> bool) -> Option<usize> {
        self.take_named(key, name, &free).or_else(|| self.take_any(key, &free))
    }
}

fn first(queue: &mut VecDeque<usize>, free: impl Fn(usize) -> bool) -> Option<usize> {
    while let Some(at) = queue.pop_front() {
        if free(at) {
            return Some(at);
        }
    }
    None
}

/// Pairs entries with equal keys, those with the same base name first.
fn pair<K: Hash + Eq + Copy>(
    removed: &mut Roots,
    added: &mut Roots,
    key: impl Fn(&Entry) -> Option<K>,
    differences: &mut Vec<Difference>,
) {
    if removed.is_empty() || added.is_empty() {
        return;
    }
    let mut pool = Pool::new(removed.iter(), &key);
    for named in [true, false] {
        for slot in &mut added.0 {
            let Some(new) = slot.as_ref() else { continue };
            let Some(key) = key(&new.entry) else { continue };
            let free = |at| removed.is_there(at);
            let old = match named {
                true => pool.take_named(key, &new.entry.name, free),
                false => pool.take_any(key, free),
            };
            let Some(old) = old.and_then(|at| removed.0[at].take()) else { continue };
            differences.extend(slot.take().map(|new| renamed(old, new)));
        }
    }
}

/// All added entries in depth-first order: parents before children, descendants right after their ancestor.
#[derive(Default)]
struct Forest(Vec<Member>);

struct Member {
    found: Option<Found>,
    parent: Option<usize>,
    depth: usize,
    /// Set if an entry below was renamed away, so that the directory is no longer equal to another one.
    broken: bool,
}

impl Forest {
    fn add(&mut self, found: Found, parent: Option<usize>) -> usize {
        let depth = parent.map_or(0, |parent| self.0[parent].depth + 1);
        self.0.push(Member { found: Some(found), parent, depth, broken: false });
        self.0.len() - 1
    }

    fn break_upwards(&mut self, mut at: Option<usize>) {
        while let Some(member) = at.map(|at| &mut self.0[at]).filter(|member| !member.broken) {
            member.broken = true;
            at = member.parent;
        }
    }

    fn is_whole(&self, at: usize) -> bool {
        self.0[at].found.is_some() && !self.0[at].broken
    }

    /// Takes an entry out, together with everything below it.
    fn take(&mut self, at: usize) -> Option<Found> {
        let depth = self.0[at].depth;
        for below in self.0[at + 1..].iter_mut().take_while(|below| below.depth > depth) {
            below.found = None;
        }
        self.break_upwards(self.0[at].parent);
        self.0[at].found.take()
    }

    fn rest(self) -> Vec<Found> {
        self.0.into_iter().filter_map(|member| member.found).collect()
    }
}

/// Lists all added entries, except below directories that were removed at the top level elsewhere.
fn expand_added(
    store: &Store,
    added: Roots,
    removed: &mut Roots,
    differences: &mut Vec<Difference>,
    usage: &WalkUsage,
) -> Result<Forest> {
    let mut pool = Pool::new(removed.iter(), |entry| directory_id(entry).copied());
    let mut forest = Forest::default();
    let mut open: Vec<_> = added.rest().rev().map(|found| (found, None)).collect();
    let mut below = Vec::new();
    while let Some((new, parent)) = open.pop() {
        let old = directory_id(&new.entry)
            .and_then(|id| pool.take(*id, &new.entry.name, |at| removed.is_there(at)))
            .and_then(|at| removed.0[at].take());
        if let Some(old) = old {
            differences.push(renamed(old, new));
            forest.break_upwards(parent);
            continue;
        }
        list_below(store, &new.path, &new.entry, &mut below, usage)?;
        let at = forest.add(new, parent);
        open.extend(below.drain(..).rev().map(|found| (found, Some(at))));
    }
    Ok(forest)
}

/// Lists all removed entries, except below directories that were added anywhere.
fn expand_removed(
    store: &Store,
    removed: Roots,
    added: &mut Forest,
    differences: &mut Vec<Difference>,
    usage: &WalkUsage,
) -> Result<Vec<Found>> {
    let members = added.0.iter().enumerate().filter_map(|(at, member)| Some((at, member.found.as_ref()?)));
    let mut pool = Pool::new(members, |entry| directory_id(entry).copied());
    let mut listed = Vec::new();
    let mut open: Vec<_> = removed.rest().rev().collect();
    let mut below = Vec::new();
    while let Some(old) = open.pop() {
        let new = directory_id(&old.entry)
            .and_then(|id| pool.take(*id, &old.entry.name, |at| added.is_whole(at)))
            .and_then(|at| added.take(at));
        if let Some(new) = new {
            differences.push(renamed(old, new));
            continue;
        }
        list_below(store, &old.path, &old.entry, &mut below, usage)?;
        listed.push(old);
        open.extend(below.drain(..).rev());
    }
    Ok(listed)
}
