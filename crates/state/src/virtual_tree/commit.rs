//! Commits a virtual tree (a mutable tree in memory over a snapshot). Only changed files and the directories above them
//! are written, children before parents, into a batch: the new objects of a commit.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::Batch;
use crate::commit_options::NewSnapshot;
use crate::content;
use crate::error::Result as StoreResult;
use crate::format;
use crate::id::{NodeId, SnapshotId, TreeId};
use crate::log_record::Change;
use crate::new_objects::NewObjects;
use crate::new_root::NewRoot;
use crate::node::{FileNode, INLINE_MAX, NodeRef, SymlinkNode};
use crate::page::{EntryTime, ListHeader};
use crate::rewrite::{Edit, EncodedEntry, rewrite_directory};
use crate::snapshot::{Snapshot, SnapshotRoot, Timestamp};
use crate::store::Store;

use super::{Child, Directory, File, Result, VirtualTree};

/// Maximum depth of a tree that is written on the caller's stack.
const CALLER_STACK_DEPTH_MAX: usize = 100;

/// Users of the batch from which a commit takes its objects.
#[derive(Clone, Copy)]
enum BatchUse {
    /// Only this commit.
    Once,
    /// This commit and clones of the tree. The batch keeps the content of added files readable during the commit,
    /// because it exists nowhere else.
    Shared,
}

impl VirtualTree {
    /// Commits the tree as a snapshot, which becomes the base of the tree. Writes only changes. If `new` has no
    /// parents, the former base becomes the parent.
    pub fn commit(&mut self, new: NewSnapshot) -> Result<Snapshot> {
        // The guard protects the objects of the new snapshot. It is taken before the commit, because another process
        // may remove the snapshot right after the commit.
        let guard = Arc::new(self.store.guard()?);
        let parents =
            if new.parents.is_empty() { self.base.into_iter().collect() } else { new.parents.clone() };
        let (snapshot, tree, times) = match &self.uncommitted {
            Some(content) => {
                // Clones share the batch with the content of added files, so they must commit one after another.
                let _lock = content.commit_lock.lock();
                self.commit_batch(&content.batch, BatchUse::Shared, parents, new)?
            }
            None => {
                let batch = Batch::low_latency(self.store.clone(), Arc::clone(&guard));
                self.commit_batch(&batch, BatchUse::Once, parents, new)?
            }
        };
        self.uncommitted = None;
        self.guard = guard;
        self.root = Arc::new(Directory::stored(tree, times));
        self.base = Some(snapshot.id);
        Ok(snapshot)
    }

    /// Commits the tree with the objects of `batch`. Returns the snapshot, and the ids of the tree and of its times.
    fn commit_batch(
        &self,
        batch: &Batch,
        batch_use: BatchUse,
        parents: Vec<SnapshotId>,
        new: NewSnapshot,
    ) -> StoreResult<(Snapshot, NodeId, NodeId)> {
        let (tree, times) = self.write_root(batch)?;
        let objects = match batch_use {
            BatchUse::Shared => batch.start_commit()?,
            BatchUse::Once => batch.finish()?,
        };
        let committed = commit_snapshot(&self.store, objects, tree.into(), times, parents, new);
        match (batch_use, &committed) {
            (BatchUse::Shared, Ok(_)) => batch.finish_commit(),
            (BatchUse::Shared, Err(_)) => batch.abort_commit(),
            (BatchUse::Once, _) => {}
        }
        Ok((committed?, tree, times))
    }

    /// Converts the tree to the root filesystem of a new snapshot ([`NewSnapshot::root`]), which is committed together
    /// with that snapshot. `template` is the name of the template that the root filesystem was made from. Clones of the
    /// tree must not be committed afterwards.
    pub fn into_root(self, template: impl Into<String>) -> Result<NewRoot> {
        let (ids, objects) = match &self.uncommitted {
            Some(content) => {
                let _lock = content.commit_lock.lock();
                (self.write_root(&content.batch)?, content.batch.finish()?)
            }
            None => {
                let batch = Batch::low_latency(self.store.clone(), Arc::clone(&self.guard));
                (self.write_root(&batch)?, batch.finish()?)
            }
        };
        let (tree, times) = (ids.0.into(), ids.1);
        let root = SnapshotRoot { tree, times, template: template.into() };
        Ok(NewRoot { root, objects, _guard: self.guard })
    }

    /// Returns the id that the tree would have if it were committed now. Writes nothing.
    pub fn tree_id(&self) -> Result<TreeId> {
        let batch = Batch::ids_only(self.store.clone(), Arc::clone(&self.guard));
        Ok(self.write_root(&batch)?.0.into())
    }

    /// Writes the changes into the batch. Returns the ids of the tree and of its times. Recurses once per level, so a
    /// deep tree is written on a thread with a larger stack.
    pub(super) fn write_root(&self, batch: &Batch) -> StoreResult<(NodeId, NodeId)> {
        if self.depth > CALLER_STACK_DEPTH_MAX {
            return crate::pool::run(|| self.write_directory(&self.root, batch));
        }
        self.write_directory(&self.root, batch)
    }

    /// Writes the changes of a directory and everything below it. Returns the ids of the directory and of its times.
    fn write_directory(&self, directory: &Directory, batch: &Batch) -> StoreResult<(NodeId, NodeId)> {
        if let (true, Some(base)) = (directory.is_clean(), directory.base) {
            return Ok(base);
        }
        let mut edits = Vec::with_capacity(directory.edits.len());
        // Hard links to one file share a `File` in memory, so its node is written once.
        let mut linked = HashMap::new();
        for (name, child) in &directory.edits {
            let entry = match child {
                None => None,
                Some(Child::File(file)) if file.link_label.is_some() => {
                    Some(match linked.entry(Arc::as_ptr(file)) {
                        Entry::Occupied(written) => Clone::clone(written.get()),
                        Entry::Vacant(new) => new.insert(self.write_file(file, batch)?).clone(),
                    })
                }
                Some(child) => Some(self.write_child(child, batch)?),
            };
            edits.push(Edit { name, entry });
        }
        let header = directory
            .mode_and_xattrs
            .as_ref()
            .map(|(mode, xattrs)| ListHeader::Directory { mode: *mode, xattrs: xattrs.clone() });
        rewrite_directory(&self.store, batch, directory.base, header, directory.modified, &edits)
    }

    /// Writes an entry of a directory. Returns its encoded node reference and time.
    fn write_child<'c>(&self, child: &'c Child, batch: &Batch) -> StoreResult<EncodedEntry<'c>> {
        let store_node = |node: &[u8]| crate::page::NodeSink::put_node(batch, node);
        Ok(match child {
            Child::Stored { node_ref, time } => (Cow::Borrowed(node_ref), Cow::Borrowed(time)),
            Child::Directory(directory) => {
                let (id, times) = self.write_directory(directory, batch)?;
                (NodeRef::Directory(id).encode().into(), EntryTime::Directory(times).encode().into())
            }
            Child::Symlink { target, modified } => {
                let node = SymlinkNode { target: target.to_vec() }.encode();
                let time = EntryTime::Modified { time: *modified, link_label: None };
                (symlink_node_ref(&node, store_node)?.into(), time.encode().into())
            }
            Child::File(file) => self.write_file(file, batch)?,
        })
    }

    /// Writes the content that is not in the store yet, and the node of a file.
    fn write_file(&self, file: &File, batch: &Batch) -> StoreResult<EncodedEntry<'static>> {
        let extents = content::write_tail(batch, &file.stored_extents, &file.unstored_tail)?;
        let node = FileNode { mode: file.mode, xattrs: file.xattrs.clone(), extents }.encode();
        let time = file
            .modified
            .map_or(EntryTime::Unknown, |time| EntryTime::Modified { time, link_label: file.link_label });
        let store_node = |node: &[u8]| crate::page::NodeSink::put_node(batch, node);
        Ok((file_node_ref(&node, store_node)?.into(), time.encode().into()))
    }
}

/// Commits a snapshot with its new objects, and with its root filesystem if it has one.
pub(crate) fn commit_snapshot(
    store: &Store,
    mut objects: NewObjects,
    tree: TreeId,
    times: NodeId,
    parents: Vec<SnapshotId>,
    mut new: NewSnapshot,
) -> StoreResult<Snapshot> {
    let Some(root) = new.root.take() else {
        return commit_record(store, objects, (tree, times, None), parents, new);
    };
    // The version of the format is raised before the commit, so that older programs refuse the store. They could not
    // decode the record.
    store.inner.raise_format(format::WITH_ROOT_FILESYSTEMS)?;
    objects.append(root.objects);
    commit_record(store, objects, (tree, times, Some(Box::new(root.root))), parents, new)
}

/// Commits the record of a snapshot together with its objects, references and pin.
fn commit_record(
    store: &Store,
    objects: NewObjects,
    (tree, times, root): (TreeId, NodeId, Option<Box<SnapshotRoot>>),
    parents: Vec<SnapshotId>,
    new: NewSnapshot,
) -> StoreResult<Snapshot> {
    let snapshot = Snapshot {
        id: SnapshotId::generate(),
        tree,
        times,
        parents,
        author: new.author,
        message: new.message,
        time: new.time.unwrap_or_else(Timestamp::now),
        labels: new.labels,
        root,
    };
    let mut changes = vec![Change::PutSnapshot(snapshot.clone())];
    for (name, expect) in new.references {
        changes.push(Change::SetReference { name, expect, to: snapshot.id });
    }
    // The pin marks the snapshot as pending: abandoned if this process ends before it has recorded it elsewhere.
    if new.pending {
        changes.push(store.pending_pin(&snapshot)?);
    }
    store.inner.reserve.check_free_space()?;
    let bytes = objects.bytes();
    store.inner.commit(objects, changes, new.durability)?;
    if let Some(stored_bytes) = new.stored_bytes {
        stored_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    Ok(snapshot)
}

/// Encodes the reference of a directory entry to a file node. The reference contains a small node itself. For any other
/// node, it has the id that `store` returns after it has stored the node.
pub(crate) fn file_node_ref(
    node: &[u8],
    store: impl FnOnce(&[u8]) -> StoreResult<NodeId>,
) -> StoreResult<Vec<u8>> {
    Ok(if node.len() <= INLINE_MAX {
        NodeRef::InlineFile(node).encode()
    } else {
        NodeRef::File(store(node)?).encode()
    })
}

/// Encodes the reference of a directory entry to a symlink node. The reference contains a small node itself. For any
/// other node, it has the id that `store` returns after it has stored the node.
pub(crate) fn symlink_node_ref(
    node: &[u8],
    store: impl FnOnce(&[u8]) -> StoreResult<NodeId>,
) -> StoreResult<Vec<u8>> {
    Ok(if node.len() <= INLINE_MAX {
        NodeRef::InlineSymlink(node).encode()
    } else {
        NodeRef::Symlink(store(node)?).encode()
    })
}
