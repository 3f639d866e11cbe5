//! The reserve: disk space that only removals and garbage collections use.
//!
//! It is a file of the store without content. On a full disk, an operation that frees space deletes this file
//! first to get the little space it needs: for a commit record, pages of the index, a checkpoint. The file is
//! allocated again when there is plenty of free space.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{IoContext as _, Result};
use crate::platform;

/// Size in bytes, to which the size of the index is added: garbage collection may rewrite every page of it.
const BASE: u64 = 1 << 20;
/// The reserve is allocated only if this many times its size is free.
const PLENTY: u64 = 4;

/// The reserve file of one store.
pub(crate) struct Reserve {
    path: PathBuf,
    index: PathBuf,
}

impl Reserve {
    pub(crate) fn new(store: &Path) -> Self {
        Self { path: store.join("reserve"), index: store.join("index/data.mdb") }
    }

    /// Deletes the reserve to free its space. Returns false if there was none.
    pub(crate) fn release(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }

    /// Fails if there is no reserve and little free space: once the reserve is released, the remaining space
    /// is only for removals.
    pub(crate) fn leave_room(&self) -> Result<()> {
        if self.path.exists() || free_bytes(&self.path) >= BASE {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::StorageFull))
            .context("commit to", self.path.parent().unwrap_or(&self.path))
    }

    /// Allocates the reserve if there is plenty of free space. Failing to do so is not an error of the
    /// calling operation.
    pub(crate) fn fill(&self) {
        let index = length(&self.index);
        let wanted = BASE + index;
        if length(&self.path) >= BASE + index / 2 || free_bytes(&self.path) < wanted * PLENTY {
            return;
        }
        let new = self.path.with_extension("new");
        let made = allocate(&new, wanted).and_then(|()| fs::rename(&new, &self.path));
        if made.is_err() {
            drop(fs::remove_file(&new));
        }
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

fn free_bytes(path: &Path) -> u64 {
    let directory = path.parent().unwrap_or(path);
    rustix::fs::statvfs(directory).map_or(0, |stat| stat.f_bavail * stat.f_frsize)
}

fn allocate(path: &Path, len: u64) -> io::Result<()> {
    const PART: usize = 1 << 20;
    let file = File::create(path)?;
    match platform::reserve(&file, 0, len) {
        Err(Errno::OPNOTSUPP) => {}
        other => return Ok(other?),
    }
    let zeros = vec![0; PART];
    for start in (0..len).step_by(PART) {
        file.write_all_at(&zeros[..PART.min((len - start) as usize)], start)?;
    }
    Ok(())
}
