//! Locks and records of temporary directories, by which the directories of killed processes are found.
//!
//! The directories of trials (`workspace try`) and of [`LocalService`](super::LocalService) have one parent directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use workspace_state::SnapshotId;

/// File in a temporary directory that its process locks.
pub(crate) const LOCK_FILE: &str = "lock";
const RECORD_FILE: &str = "note";

/// Lock of a temporary directory, held while its process runs. The kernel releases it when the process is killed.
pub(crate) struct DirLock(#[allow(dead_code, reason = "dropping the file releases the lock")] File);

impl DirLock {
    /// Locks a directory, in which the lock file is created. `None` if another process holds the lock.
    pub(crate) fn new(directory: &Path) -> io::Result<Option<Self>> {
        Self::try_lock(File::create(directory.join(LOCK_FILE))?)
    }

    fn try_lock(file: File) -> io::Result<Option<Self>> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Record of a `LocalService` in its temporary directory. If the process is killed, another one reads it to remove the
/// directory and the snapshot.
#[derive(Serialize, Deserialize)]
pub(super) struct ServiceRecord {
    /// Path of the store from which the sandbox gets its files.
    pub(super) store: PathBuf,
    /// Snapshot of the store that is removed with the directory; `None` if the store itself is in the directory.
    pub(super) snapshot: Option<SnapshotId>,
}

impl ServiceRecord {
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join(RECORD_FILE), serde_json::to_vec(self)?)
    }

    /// Reads the record. `None` if it is missing or incomplete.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(RECORD_FILE)).ok()?).ok()
    }
}

/// Finds the directories in `parent` whose processes have ended, and locks each, so that no other process removes it.
pub(crate) fn find_and_lock(parent: &Path) -> Vec<(PathBuf, DirLock)> {
    let all = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter_map(|path| {
        let lock = File::open(path.join(LOCK_FILE)).ok()?;
        Some((path, DirLock::try_lock(lock).ok().flatten()?))
    })
    .collect()
}
