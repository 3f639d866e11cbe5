//! Checks that no entry is nested too deeply after a directory of a virtual tree (a mutable tree in memory) is moved,
//! or a directory of another tree is added to it.
//!
//! A [`Lookup`] is the result of a path lookup: the root, an entry that the tree changed (`Virtual`, with a [`Child`]),
//! or an unchanged entry of the store (`Stored`).

use std::collections::HashMap;

use crate::entry::Node;
use crate::error::{Result as StoreResult, StoreError};
use crate::id::NodeId;
use crate::node::NodeRef;
use crate::store::Store;
use crate::tree_path::DEPTH_MAX;
use crate::walk_limits::WalkUsage;

use super::{Child, Directory, Lookup, Result, TreeError, VirtualTree, decode_node_ref, display_path};

impl VirtualTree {
    /// Fails if an entry below the directory at `from` would be nested too deeply after a move to `to`. `depth` is the
    /// number of names in `to`.
    pub(super) fn check_depth_of_move(&self, from: &[u8], to: &[u8], depth: usize) -> Result<()> {
        let mut heights = Heights::new(&self.store);
        let height = match self.must_find(from)? {
            Lookup::Root(directory) => heights.of_virtual(directory)?,
            Lookup::Virtual(Child::Directory(directory)) => heights.of_virtual(directory)?,
            Lookup::Virtual(Child::Stored { node_ref, .. }) => match decode_node_ref(node_ref)? {
                NodeRef::Directory(id) => heights.of_stored(id)?,
                _ => 0,
            },
            Lookup::Stored(entry) => match entry.node {
                Node::Directory(node) => heights.of_stored(node.id)?,
                Node::File(_) | Node::Symlink(_) => 0,
            },
            Lookup::Virtual(Child::File(_) | Child::Symlink { .. }) => 0,
        };
        check_height(height, to, depth)
    }

    /// Fails if an entry below directory `id` of the store would be nested too deeply at `to`. `depth` is the number of
    /// names in `to`.
    pub(super) fn check_depth_of_graft(&self, id: NodeId, to: &[u8], depth: usize) -> Result<()> {
        check_height(Heights::new(&self.store).of_stored(id)?, to, depth)
    }
}

/// Fails if a directory of this height at `path`, with `depth` names, would have an entry that is nested too deeply.
fn check_height(height: usize, path: &[u8], depth: usize) -> Result<()> {
    if depth + height > DEPTH_MAX {
        return Err(TreeError::TooDeep { path: display_path(path) });
    }
    Ok(())
}

/// Computes heights of directories. The height is the number of names in the longest path below a directory; 0 if it is
/// empty.
struct Heights<'s> {
    store: &'s Store,
    /// Known heights of directories of the store. A tree may have the same directory at many paths.
    known: HashMap<NodeId, usize>,
    /// Memory use, counted against the walk limits of the store's handle.
    usage: WalkUsage,
}

/// Directory of the store whose height is being computed.
struct Visit {
    id: NodeId,
    /// Subdirectories whose heights are not included yet.
    remaining: Vec<NodeId>,
    /// Height so far.
    height: usize,
}

impl<'s> Heights<'s> {
    fn new(store: &'s Store) -> Self {
        Self { store, known: HashMap::new(), usage: WalkUsage::new(store.walk_limits()) }
    }

    /// Returns the height of a directory of the virtual tree.
    fn of_virtual(&mut self, directory: &Directory) -> StoreResult<usize> {
        let mut height = 0;
        // A loop instead of recursion, because trees may be too deep for the stack.
        let mut queue = vec![(directory, 0)];
        while let Some((directory, depth)) = queue.pop() {
            let (mut is_empty, mut stored) = (true, Vec::new());
            if let Some((id, _)) = directory.base {
                for_each_entry(self.store, id, &mut |name, subdirectory| {
                    if !directory.edits.contains_key(name) {
                        is_empty = false;
                        stored.extend(subdirectory);
                    }
                })?;
            }
            for child in directory.edits.values().flatten() {
                is_empty = false;
                match child {
                    Child::Directory(subdirectory) => queue.push((&**subdirectory, depth + 1)),
                    Child::Stored { node_ref, .. } => {
                        if let NodeRef::Directory(id) = decode_node_ref(node_ref)? {
                            stored.push(id);
                        }
                    }
                    Child::File(_) | Child::Symlink { .. } => {}
                }
            }
            if !is_empty {
                height = height.max(depth + 1);
            }
            for id in stored {
                height = height.max(depth + 1 + self.of_stored(id)?);
            }
        }
        Ok(height)
    }

    /// Returns the height of a directory of the store. If that is more than a tree may have, returns any value above
    /// the maximum depth.
    fn of_stored(&mut self, id: NodeId) -> StoreResult<usize> {
        if let Some(height) = self.known.get(&id) {
            return Ok(*height);
        }
        let mut height = 0;
        let mut visits = vec![self.visit(id)?];
        while let Some(visit) = visits.last_mut() {
            let Some(subdirectory) = visit.remaining.last().copied() else {
                height = visit.height;
                self.known.insert(visit.id, height);
                visits.pop();
                continue;
            };
            if let Some(below) = self.known.get(&subdirectory) {
                visit.height = visit.height.max(below + 1);
                visit.remaining.pop();
            } else if visits.len() > DEPTH_MAX {
                return Ok(visits.len());
            } else {
                visits.push(self.visit(subdirectory)?);
            }
        }
        Ok(height)
    }

    /// Reads a directory. Its height so far is 0 if it is empty, or else 1.
    fn visit(&self, id: NodeId) -> StoreResult<Visit> {
        self.usage.add(size_of::<Visit>())?;
        let mut visit = Visit { id, remaining: Vec::new(), height: 0 };
        for_each_entry(self.store, id, &mut |_, subdirectory| {
            visit.height = 1;
            visit.remaining.extend(subdirectory);
        })?;
        Ok(visit)
    }
}

/// Calls `visit` with the name of each entry of a directory of the store, and with its id if it is a directory.
fn for_each_entry(
    store: &Store,
    id: NodeId,
    visit: &mut dyn FnMut(&[u8], Option<NodeId>),
) -> StoreResult<()> {
    store.for_each_leaf(id, None, &mut |list, _| {
        for index in 0..list.len() {
            let node_ref = list
                .node_ref(index)
                .map_err(|source| StoreError::Undecodable { what: format!("node {id}"), source })?;
            let subdirectory = if let NodeRef::Directory(id) = node_ref { Some(id) } else { None };
            visit(list.name(index), subdirectory);
        }
        Ok(())
    })
}
