//! The reserve: room on the disk that only removals and collections use.
//!
//! A file of the store that holds nothing. Where the disk is full, whoever is about to make room gives it up for the
//! little that this takes: a commit record, pages of the index, a checkpoint. It is set aside again when there is
//! plenty of room.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{IoContext as _, Result};
use crate::platform;
use crate::store::Store;

/// Size besides that of the index, of which a collection may write every page again.
const BASE: u64 = 1 << 20;
/// The reserve is set aside only where so many times its size is free.
const PLENTY: u64 = 4;

/// The file in one store.
pub(crate) struct Reserve {
    path: PathBuf,
    index: PathBuf,
}

impl Reserve {
    pub(crate) fn new(store: &Path) -> Self {
        Self { path: store.join("reserve"), index: store.join("index/data.mdb") }
    }

    /// Gives the room to whoever writes next. False if there was none set aside.
    pub(crate) fn release(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }

    /// Refuses a new snapshot where nothing is set aside and little is free: once the reserve was given up, what is left of it
    /// is for removals alone.
    pub(crate) fn leave_room(&self) -> Result<()> {
        if self.path.exists() || free_bytes(&self.path) >= BASE {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::StorageFull))
            .at("commit to", self.path.parent().unwrap_or(&self.path))
    }

    /// Sets room aside where there is plenty. That there is none now is no reason for an operation to fail.
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

impl Store {
    /// Does something that makes room. Where it finds none for itself, it is done again without the reserve.
    pub(crate) fn with_reserve<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let inner = &self.inner;
        match work() {
            // After a failed sync nothing is written by this process any more.
            Err(error) if error.is_full() && !inner.log.has_failed() && inner.reserve.release() => work(),
            other => other,
        }
    }
}
