//! The reserve: disk space that only removals and garbage collections use.
//!
//! It is a preallocated file in the store. On a full disk, an operation that frees space deletes this file first. It
//! needs the space for a commit record, pages of the index (an LMDB database) and maybe a checkpoint (a copy of all
//! records in the log, `checkpoint.rs`). The file is allocated again when there is enough free space.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{IoContext as _, Result};
use crate::platform;

/// Size of the reserve in bytes for an empty index. The size of the index is added, because garbage collection may
/// rewrite every page of the index.
const SIZE_MIN: u64 = 1 << 20;
/// Multiple of the size of the reserve that must be free on the disk before the reserve is allocated.
const FREE_SPACE_FACTOR: u64 = 4;

/// The reserve file of one store.
pub(crate) struct Reserve {
    path: PathBuf,
    index_file: PathBuf,
}

impl Reserve {
    pub(crate) fn new(store: &Path) -> Self {
        Self { path: store.join("reserve"), index_file: store.join("index/data.mdb") }
    }

    /// Deletes the reserve to free its space. Returns false if there was none.
    pub(crate) fn release(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }

    /// Fails if there is no reserve and less than [`SIZE_MIN`] of free space: after the reserve was released, its space
    /// is only for operations that free space.
    pub(crate) fn check_free_space(&self) -> Result<()> {
        if self.path.exists() || free_bytes(&self.path) >= SIZE_MIN {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::StorageFull))
            .context("commit to", self.path.parent().unwrap_or(&self.path))
    }

    /// Allocates the reserve if it is missing or too small for the index, and there is enough free space. Ignores
    /// errors.
    pub(crate) fn try_allocate(&self) {
        let index_len = length(&self.index_file);
        let size = SIZE_MIN + index_len;
        if length(&self.path) >= SIZE_MIN + index_len / 2 || free_bytes(&self.path) < size * FREE_SPACE_FACTOR
        {
            return;
        }
        let new = self.path.with_extension("new");
        let allocated = allocate(&new, size).and_then(|()| fs::rename(&new, &self.path));
        if allocated.is_err() {
            drop(fs::remove_file(&new));
        }
    }
}

/// Returns the length of a file in bytes; 0 if it does not exist.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

fn free_bytes(path: &Path) -> u64 {
    let directory = path.parent().unwrap_or(path);
    rustix::fs::statvfs(directory).map_or(0, |stat| stat.f_bavail * stat.f_frsize)
}

/// Creates a file of `len` bytes whose blocks are allocated on the disk.
fn allocate(path: &Path, len: u64) -> io::Result<()> {
    const WRITE_SIZE: usize = 1 << 20;
    let file = File::create(path)?;
    match platform::preallocate(&file, 0, len) {
        Err(Errno::OPNOTSUPP) => {}
        other => return Ok(other?),
    }
    let zeros = vec![0; WRITE_SIZE];
    for start in (0..len).step_by(WRITE_SIZE) {
        file.write_all_at(&zeros[..WRITE_SIZE.min((len - start) as usize)], start)?;
    }
    Ok(())
}
