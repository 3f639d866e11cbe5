//! Files of real directories that become part of a virtual tree.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use rustix::io::Errno;

use crate::batch::Batch;
use crate::directory::{Looks, Read, ReadError, Reading, SkipReason, read_file};
use crate::error::Result as StoreResult;
use crate::node::{FileNode, NodeKind};
use crate::snapshot::Timestamp;
use crate::walk_limits::file_metadata;

use super::{Child, File, Result, Staging, TreeError, VirtualTree, shown};

/// Number of files from which on they are read in parallel.
const MANY: usize = 4;

/// A file to add to the tree.
#[derive(Debug, Clone)]
pub struct FileAt {
    /// Name in the directory.
    pub name: Vec<u8>,
    /// Path in the tree.
    pub path: Vec<u8>,
    /// Link label: equal for all hard links to one file.
    pub link: Option<u64>,
}

/// Outcome of adding a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The file was added.
    File {
        /// Fingerprint of the file when it was read.
        looks: Looks,
        /// True if a later change is certain to change the fingerprint.
        settled: bool,
        /// Bytes of attributes and extents that the tree holds of it.
        metadata: usize,
    },
    /// The file no longer exists; the tree is unchanged.
    Vanished,
    /// The file cannot be read; the tree is unchanged.
    Skipped(SkipReason),
}

/// A file of a tree, to be added under its other names. They share its content and attributes.
#[derive(Clone)]
pub struct SameFile(Child);

enum Found {
    File(FileNode, Looks, bool),
    Not(Taken),
}

impl VirtualTree {
    /// Adds files of one directory, each with a consistent state.
    pub fn take_files(
        &mut self,
        directory: BorrowedFd<'_>,
        files: &[FileAt],
        reading: &dyn Reading,
    ) -> Result<Vec<Taken>> {
        let staging = self.quick_staging()?;
        let read = |file: &FileAt| read_one(&staging.batch, reading, directory, file);
        let found: Vec<Found> = if files.len() < MANY {
            files.iter().map(read).collect::<Result<_>>()?
        } else {
            crate::pool::run(|| files.par_iter().map(read).collect::<Result<_>>())?
        };
        let mut taken = Vec::with_capacity(found.len());
        for (file, found) in files.iter().zip(found) {
            taken.push(match found {
                Found::Not(taken) => taken,
                Found::File(node, looks, settled) => {
                    let metadata = file_metadata(&node);
                    self.put(&file.path, Child::File(Arc::new(stored(node, looks, file.link))))?;
                    Taken::File { looks, settled, metadata }
                }
            });
        }
        Ok(taken)
    }

    /// Returns the file that was added at `path`; `None` if there is another kind of entry, or only the base
    /// has it.
    pub fn file_at(&self, path: impl AsRef<[u8]>) -> Result<Option<SameFile>> {
        let found = self.find(path.as_ref())?;
        let Some(super::Found::Virtual(child)) = found else { return Ok(None) };
        Ok((self.kind_of(child)? == NodeKind::File).then(|| SameFile(child.clone())))
    }

    /// Adds another name of a file of this tree, without reading it.
    pub fn put_same(&mut self, path: impl AsRef<[u8]>, file: &SameFile) -> Result<()> {
        self.put(path.as_ref(), file.0.clone())
    }

    /// Adds another name of a file that was added to this tree, without reading it. Both get the link label
    /// `label`, unless the file has one.
    pub(crate) fn link_file(&mut self, file: &[u8], name: &[u8], label: u64) -> Result<()> {
        let found = match self.find(file)? {
            Some(super::Found::Virtual(Child::File(found))) => Arc::clone(found),
            _ => return Err(TreeError::NotFound { path: shown(file) }),
        };
        let linked = match found.link {
            Some(_) => found,
            None => {
                let linked = Arc::new(File { link: Some(label), ..File::clone(&found) });
                self.put(file, Child::File(Arc::clone(&linked)))?;
                linked
            }
        };
        self.put(name, Child::File(linked))
    }

    /// Returns the staging area, like [`VirtualTree::staging`], optimised for content that is read again
    /// soon.
    fn quick_staging(&mut self) -> StoreResult<Arc<Staging>> {
        if let Some(staging) = &self.staging {
            return Ok(Arc::clone(staging));
        }
        let batch = Arc::new(Batch::interactive(self.store.clone(), Arc::clone(&self.guard)));
        let staging = Arc::new(Staging { batch, turn: Mutex::default() });
        self.staging = Some(Arc::clone(&staging));
        Ok(staging)
    }
}

fn stored(node: FileNode, looks: Looks, link: Option<u64>) -> File {
    let FileNode { mode, xattrs, extents } = node;
    let modified = Some(Timestamp(looks.mtime));
    File { mode, xattrs, modified, link, kept: extents, tail: Vec::new() }
}

fn read_one(batch: &Batch, reading: &dyn Reading, directory: BorrowedFd<'_>, file: &FileAt) -> Result<Found> {
    match read_file(batch, reading, directory, &file.name) {
        Ok(Read::File { node, looks, settled, .. }) => Ok(Found::File(node, looks, settled)),
        Ok(Read::Vanished) => Ok(Found::Not(Taken::Vanished)),
        Ok(Read::Changing) => Ok(Found::Not(Taken::Skipped(SkipReason::Changing))),
        Err(ReadError::System(Errno::ACCESS | Errno::PERM)) => {
            Ok(Found::Not(Taken::Skipped(SkipReason::NoPermission)))
        }
        Err(ReadError::System(error)) => {
            Err(TreeError::Content { path: shown(&file.path), source: error.into() })
        }
        Err(ReadError::Store(error)) => Err(error.into()),
    }
}
