//! Adds files from directories of the file system to a virtual tree (a mutable tree in memory over a snapshot).
//!
//! The content is written to a batch (new objects that are not committed yet). A [`Child`] is a changed entry of a
//! directory, a [`File`] a changed file.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::prelude::*;
use rustix::io::Errno;

use crate::batch::Batch;
use crate::directory::{DirectoryReader, ReadError, ReadOutcome, SkipReason, StatFingerprint, read_file};
use crate::error::Result as StoreResult;
use crate::node::{FileNode, NodeKind};
use crate::snapshot::Timestamp;
use crate::walk_limits::file_metadata;

use super::{Child, File, Result, TreeError, UncommittedContent, VirtualTree, display_path};

/// Minimum number of files that are read in parallel.
const PARALLEL_MIN: usize = 4;

/// File to add to a tree.
#[derive(Debug, Clone)]
pub struct FileToAdd {
    /// Name in the directory of the file system.
    pub name: Vec<u8>,
    /// Path in the tree.
    pub path: Vec<u8>,
    /// Link label: equal for all hard links to one file; `None` for a file with one name.
    pub link_label: Option<u64>,
}

/// Outcome of adding a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddOutcome {
    /// The file was added.
    File {
        /// Fingerprint of the file when it was read.
        fingerprint: StatFingerprint,
        /// True if any later change of the file is certain to change the fingerprint.
        reliable: bool,
        /// Memory that the tree uses for the extended attributes and extents of the file, in bytes.
        metadata: usize,
    },
    /// The file no longer exists; the tree is unchanged.
    Vanished,
    /// The file cannot be read; the tree is unchanged.
    Skipped(SkipReason),
}

/// File of a tree, to add it under the other names of a hard-linked file.
#[derive(Clone)]
pub struct LinkedFile(Child);

/// Result of reading a file to add.
enum FileResult {
    File { node: FileNode, fingerprint: StatFingerprint, reliable: bool },
    NotAdded(AddOutcome),
}

impl VirtualTree {
    /// Adds files of one directory. The content of each file existed at one moment, even if other processes write to
    /// it. Files are opened through `reader`, because some callers must do that in another user namespace. Returns the
    /// outcomes in the order of `files`.
    pub fn add_files(
        &mut self,
        directory: BorrowedFd<'_>,
        files: &[FileToAdd],
        reader: &dyn DirectoryReader,
    ) -> Result<Vec<AddOutcome>> {
        let content = self.low_latency_content()?;
        let read = |file: &FileToAdd| read_one(&content.batch, reader, directory, file);
        let results: Vec<FileResult> = if files.len() < PARALLEL_MIN {
            files.iter().map(read).collect::<Result<_>>()?
        } else {
            crate::pool::run(|| files.par_iter().map(read).collect::<Result<_>>())?
        };
        let mut outcomes = Vec::with_capacity(results.len());
        for (file, result) in files.iter().zip(results) {
            outcomes.push(match result {
                FileResult::NotAdded(outcome) => outcome,
                FileResult::File { node, fingerprint, reliable } => {
                    let metadata = file_metadata(&node);
                    self.put(
                        &file.path,
                        Child::File(Arc::new(stored_file(node, fingerprint, file.link_label))),
                    )?;
                    AddOutcome::File { fingerprint, reliable, metadata }
                }
            });
        }
        Ok(outcomes)
    }

    /// Returns the file that was added at `path`; `None` if there is no file, or if the file is an unchanged one of the
    /// base (the snapshot under the tree).
    pub fn added_file(&self, path: impl AsRef<[u8]>) -> Result<Option<LinkedFile>> {
        let lookup = self.find(path.as_ref())?;
        let Some(super::Lookup::Virtual(child)) = lookup else { return Ok(None) };
        Ok((self.kind_of(child)? == NodeKind::File).then(|| LinkedFile(child.clone())))
    }

    /// Adds another name of a file of this tree without reading the file.
    pub fn put_linked_file(&mut self, path: impl AsRef<[u8]>, file: &LinkedFile) -> Result<()> {
        self.put(path.as_ref(), file.0.clone())
    }

    /// Adds the path `new` as a hard link to the file that was added to this tree at the path `existing`. If the file
    /// has no link label, both names get the link label `label`.
    pub(crate) fn link_file(&mut self, existing: &[u8], new: &[u8], label: u64) -> Result<()> {
        let target = match self.find(existing)? {
            Some(super::Lookup::Virtual(Child::File(target))) => Arc::clone(target),
            _ => return Err(TreeError::NotFound { path: display_path(existing) }),
        };
        let linked = match target.link_label {
            Some(_) => target,
            None => {
                let linked = Arc::new(File { link_label: Some(label), ..File::clone(&target) });
                self.put(existing, Child::File(Arc::clone(&linked)))?;
                linked
            }
        };
        self.put(new, Child::File(linked))
    }

    /// Returns the uncommitted content of the tree, like [`VirtualTree::uncommitted_content`]. If there is none,
    /// creates it with a batch that is quick to commit.
    fn low_latency_content(&mut self) -> StoreResult<Arc<UncommittedContent>> {
        if let Some(content) = &self.uncommitted {
            return Ok(Arc::clone(content));
        }
        // The guard of this tree protects stored objects from garbage collection as long as the batch exists.
        let batch = Arc::new(Batch::low_latency(self.store.clone(), Arc::clone(&self.guard)));
        let content = Arc::new(UncommittedContent { batch, commit_lock: Mutex::default() });
        self.uncommitted = Some(Arc::clone(&content));
        Ok(content)
    }
}

/// Returns the file for a node whose content is in the batch.
fn stored_file(node: FileNode, fingerprint: StatFingerprint, link_label: Option<u64>) -> File {
    let FileNode { mode, xattrs, extents } = node;
    let modified = Some(Timestamp(fingerprint.mtime));
    File { mode, xattrs, modified, link_label, stored_extents: extents, unstored_tail: Vec::new() }
}

/// Reads one file into the batch.
fn read_one(
    batch: &Batch,
    reader: &dyn DirectoryReader,
    directory: BorrowedFd<'_>,
    file: &FileToAdd,
) -> Result<FileResult> {
    match read_file(batch, reader, directory, &file.name) {
        Ok(ReadOutcome::File { node, fingerprint, reliable, .. }) => {
            Ok(FileResult::File { node, fingerprint, reliable })
        }
        Ok(ReadOutcome::Vanished) => Ok(FileResult::NotAdded(AddOutcome::Vanished)),
        Ok(ReadOutcome::Changing) => Ok(FileResult::NotAdded(AddOutcome::Skipped(SkipReason::Changing))),
        Err(ReadError::System(Errno::ACCESS | Errno::PERM)) => {
            Ok(FileResult::NotAdded(AddOutcome::Skipped(SkipReason::NoPermission)))
        }
        Err(ReadError::System(error)) => {
            Err(TreeError::Content { path: display_path(&file.path), source: error.into() })
        }
        Err(ReadError::Store(error)) => Err(error.into()),
    }
}
