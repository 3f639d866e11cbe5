//! Verification: reads everything reachable from snapshots and checks it against its hashes, and the rows of
//! the index against the log.

mod rows;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rayon::prelude::*;
use serde::Serialize;

use crate::damage::Damage;
use crate::error::{Result, StoreError};
use crate::format;
use crate::id::{ChunkId, NodeId, SnapshotId};
use crate::node::{Extent, FileNode, NodeRef};
use crate::page::{EncodedList, EntryTime};
use crate::progress::Progress;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::tree_path::{self, DEPTH_MAX};

/// Path of the root filesystem of a snapshot in reports. Paths of its workspace do not begin with a slash.
const ROOT_PATH: &[u8] = b"/";

/// Result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Snapshots verified.
    pub snapshots: u64,
    /// Number of directories without damage in them and below; equal directories count once.
    pub directories: u64,
    /// Number of file entries. Files of equal directories count once, except below damaged directories.
    pub files: u64,
    /// Number of undamaged chunks (pieces of file content); equal chunks count once.
    pub chunks: u64,
    /// Bytes of these chunks.
    pub bytes: u64,
    /// Damage found.
    pub damage: Vec<Damage>,
}

impl Store {
    /// Reads everything reachable and checks hashes and references; compares the rows of the index with the
    /// log.
    pub fn verify(&self, progress: &dyn Progress) -> Result<VerifyReport> {
        // Objects that are being verified must not be deleted by garbage collection.
        let _guard = self.guard()?;
        let verify = Verify::new(self, progress);
        verify.verify_format();
        verify.verify_rows(progress)?;
        let snapshots = match self.snapshots() {
            // Undecodable rows are reported by the comparison with the log.
            Err(StoreError::Undecodable { .. }) => self.inner.decodable_snapshots()?,
            other => other?,
        };
        progress.begin_bytes("verifying", None);
        for snapshot in &snapshots {
            crate::pool::run(|| verify.verify_snapshot(snapshot));
        }
        progress.end();
        verify.verify_references(&snapshots)?;
        // Unread data of a cancelled handle is not damage.
        self.cancel_flag().check()?;
        let mut damage = verify.damage.into_inner();
        damage.sort();
        damage.dedup();
        Ok(VerifyReport {
            snapshots: snapshots.len() as u64,
            directories: size(&verify.good_directories),
            files: verify.files.into_inner(),
            chunks: size(&verify.good_chunks),
            bytes: verify.bytes.into_inner(),
            damage,
        })
    }
}

fn size<T>(set: &Mutex<HashSet<T>>) -> u64 {
    set.lock().len() as u64
}

/// State of a verification.
struct Verify<'a> {
    store: &'a Store,
    progress: &'a dyn Progress,
    /// Directories without damage in them and below, which are not verified again. Damaged directories are verified
    /// again for every snapshot that has them, so that each damaged path is reported.
    good_directories: Mutex<HashSet<NodeId>>,
    /// Nodes with modification times (a tree of their own) without damage in them and below.
    good_times: Mutex<HashSet<NodeId>>,
    good_chunks: Mutex<HashSet<ChunkId>>,
    damage: Mutex<Vec<Damage>>,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl<'a> Verify<'a> {
    fn new(store: &'a Store, progress: &'a dyn Progress) -> Self {
        Self {
            store,
            progress,
            good_directories: Mutex::default(),
            good_times: Mutex::default(),
            good_chunks: Mutex::default(),
            damage: Mutex::default(),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn verify_snapshot(&self, snapshot: &Snapshot) {
        self.verify_directory(snapshot, b"", 0, snapshot.tree.root());
        self.verify_times(snapshot, b"", 0, Some(snapshot.tree.root()), snapshot.times);
        if let Some(root) = &snapshot.root {
            self.verify_directory(snapshot, ROOT_PATH, 0, root.tree.root());
            self.verify_times(snapshot, ROOT_PATH, 0, Some(root.tree.root()), root.times);
        }
    }

    /// Reports references (names of snapshots) to missing snapshots. Episodes (steps of searches) are not checked: they
    /// may refer to snapshots that were removed.
    fn verify_references(&self, snapshots: &[Snapshot]) -> Result<()> {
        let existing: HashSet<SnapshotId> = snapshots.iter().map(|snapshot| snapshot.id).collect();
        for (name, id) in self.store.references()? {
            if existing.contains(&id) {
                continue;
            }
            if let Some(id) = self.missing_target(&name)? {
                self.report(Some(id), None, format!("reference `{name}` names a snapshot that is missing"));
            }
        }
        Ok(())
    }

    /// Returns the target of a reference if this snapshot is missing. Reads both in one transaction, because another
    /// process may have committed the snapshot after the list of snapshots was read, or removed both since.
    fn missing_target(&self, name: &str) -> Result<Option<SnapshotId>> {
        let index = &self.store.inner.index;
        let txn = index.read()?;
        let bytes = index.references.get(&txn, name.as_bytes())?;
        let Some(id) = bytes.and_then(|bytes| bytes.try_into().ok()).map(SnapshotId::from_bytes) else {
            return Ok(None);
        };
        match index.snapshot(&txn, &id) {
            Ok(Some(_)) => Ok(None),
            // An undecodable row is reported by the comparison with the log.
            Ok(None) | Err(StoreError::Undecodable { .. }) => Ok(Some(id)),
            Err(error) => Err(error),
        }
    }

    fn verify_format(&self) {
        for problem in format::problems(self.store.path()) {
            self.report(None, None, problem);
        }
    }

    fn report(&self, snapshot: Option<SnapshotId>, path: Option<&[u8]>, problem: String) {
        let damage = Damage { snapshot, path: path.map(<[u8]>::to_vec), problem };
        self.damage.lock().push(damage);
    }

    /// Reports an error at a path. Always returns false, so that callers can return it as their result for damage.
    fn fail(&self, snapshot: &Snapshot, path: &[u8], error: &StoreError) -> bool {
        self.report(Some(snapshot.id), Some(path), error.to_string());
        false
    }

    /// Verifies a directory and everything below. Returns false if there is damage.
    fn verify_directory(&self, snapshot: &Snapshot, path: &[u8], depth: usize, id: NodeId) -> bool {
        if self.good_directories.lock().contains(&id) {
            return true;
        }
        if depth > DEPTH_MAX {
            self.report(Some(snapshot.id), Some(path), "the tree is nested too deeply".to_owned());
            return false;
        }
        let good = self.verify_list(snapshot, path, depth, id);
        if good {
            self.good_directories.lock().insert(id);
        }
        good
    }

    /// Verifies the entries of a directory node, or of a page (a part of a long directory), and everything below.
    /// Returns false if there is damage.
    fn verify_list(&self, snapshot: &Snapshot, path: &[u8], depth: usize, id: NodeId) -> bool {
        let list = match self.read_list(&id) {
            Ok(list) => list,
            Err(error) => return self.fail(snapshot, path, &error),
        };
        let positions: Vec<usize> = (0..list.len()).collect();
        let good: Vec<bool> = positions
            .par_iter()
            .map(|index| {
                // Above level 0, the items of a list are pages.
                if list.level > 0 {
                    return match list.child(*index) {
                        Ok(child) => self.verify_list(snapshot, path, depth, child.id),
                        Err(error) => self.fail(snapshot, path, &undecodable(&id, error)),
                    };
                }
                self.verify_entry(snapshot, path, depth, &id, &list, *index)
            })
            .collect();
        good.into_iter().all(|good| good)
    }

    fn verify_entry(
        &self,
        snapshot: &Snapshot,
        path: &[u8],
        depth: usize,
        id: &NodeId,
        list: &EncodedList,
        index: usize,
    ) -> bool {
        let entry_path = join(path, list.name(index));
        let reference = match list.node_ref(index) {
            Ok(reference) => reference,
            Err(error) => return self.fail(snapshot, &entry_path, &undecodable(id, error)),
        };
        match reference {
            NodeRef::Directory(id) => self.verify_directory(snapshot, &entry_path, depth + 1, id),
            NodeRef::Symlink(_) | NodeRef::InlineSymlink(_) => {
                match self.store.read_symlink_node(reference) {
                    Ok(_) => true,
                    Err(error) => self.fail(snapshot, &entry_path, &error),
                }
            }
            NodeRef::File(_) | NodeRef::InlineFile(_) => match self.store.read_file_node(reference) {
                Ok(file) => self.verify_file(snapshot, &entry_path, &file),
                Err(error) => self.fail(snapshot, &entry_path, &error),
            },
        }
    }

    fn verify_file(&self, snapshot: &Snapshot, path: &[u8], file: &FileNode) -> bool {
        self.files.fetch_add(1, Ordering::Relaxed);
        let mut good = true;
        for extent in &file.extents {
            if let Extent::Data { chunk, len } = extent
                && let Err(error) = self.verify_chunk(chunk, *len)
            {
                good = self.fail(snapshot, path, &error);
            }
        }
        good
    }

    fn verify_chunk(&self, chunk: &ChunkId, len: u64) -> Result<()> {
        if self.good_chunks.lock().contains(chunk) {
            return Ok(());
        }
        let content = self.store.read_chunk(chunk)?;
        if content.len() as u64 != len {
            return Err(StoreError::Undecodable {
                what: format!("chunk {chunk}"),
                source: crate::codec::DecodeError("its length differs from the one that the file records"),
            });
        }
        self.progress.advance(len);
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.good_chunks.lock().insert(*chunk);
        Ok(())
    }

    /// Reads a list without the cache of the store: the bytes on disk are verified.
    fn read_list(&self, id: &NodeId) -> Result<EncodedList> {
        EncodedList::decode(self.store.read_node(id)?).map_err(|source| undecodable(id, source))
    }

    /// Verifies the node `id` with the times of a directory, and everything below. Times form a tree of their own with
    /// the same shape. `directory` is only read for the names in reports.
    fn verify_times(
        &self,
        snapshot: &Snapshot,
        path: &[u8],
        depth: usize,
        directory: Option<NodeId>,
        id: NodeId,
    ) -> bool {
        if self.good_times.lock().contains(&id) {
            return true;
        }
        if depth > DEPTH_MAX {
            // Already reported for the directory.
            return false;
        }
        let report_error = |error: &StoreError| {
            self.report(Some(snapshot.id), Some(path), format!("times: {error}"));
            false
        };
        let list = match self.read_list(&id) {
            Ok(list) => list,
            Err(error) => return report_error(&error),
        };
        // A damaged directory is already reported by `verify_directory`.
        let names = directory.and_then(|directory| self.store.read_list(&directory).ok());
        let names = names.filter(|names| names.level == list.level && names.len() == list.len());
        let mut good = true;
        for index in 0..list.len() {
            if list.level > 0 {
                let child_names =
                    names.as_ref().and_then(|names| names.child(index).ok()).map(|child| child.id);
                good &= match list.child(index) {
                    Ok(child) => self.verify_times(snapshot, path, depth, child_names, child.id),
                    Err(error) => report_error(&undecodable(&id, error)),
                };
                continue;
            }
            let subdirectory = names.as_ref().and_then(|names| match names.node_ref(index) {
                Ok(NodeRef::Directory(id)) => Some((join(path, names.name(index)), id)),
                _ => None,
            });
            good &= match (list.time(index), subdirectory) {
                (Ok(EntryTime::Directory(times)), Some((path, directory))) => {
                    self.verify_times(snapshot, &path, depth + 1, Some(directory), times)
                }
                (Ok(EntryTime::Directory(times)), None) => {
                    self.verify_times(snapshot, path, depth + 1, None, times)
                }
                (Ok(_), _) => true,
                (Err(error), _) => report_error(&undecodable(&id, error)),
            };
        }
        if good {
            self.good_times.lock().insert(id);
        }
        good
    }
}

/// Joins a path and a name, also below [`ROOT_PATH`].
fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path == ROOT_PATH { [path, name].concat() } else { tree_path::join(path, name) }
}

fn undecodable(id: &NodeId, source: crate::codec::DecodeError) -> StoreError {
    StoreError::Undecodable { what: format!("node {id}"), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit_options::{Durability, Expect, NewSnapshot};
    use crate::progress::NoProgress;

    #[test]
    fn a_reference_to_a_snapshot_that_was_committed_after_the_list_was_read_is_no_damage() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let verify = Verify::new(&store, &NoProgress);
        let listed = store.snapshots().unwrap();
        let committed = store.empty_tree().unwrap().commit(NewSnapshot::default()).unwrap().id;
        store.set_reference("later", Expect::Absent, committed, Durability::Buffered).unwrap();
        verify.verify_references(&listed).unwrap();
        assert_eq!(verify.damage.into_inner(), []);
    }
}
