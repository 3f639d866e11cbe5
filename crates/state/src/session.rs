//! Sessions: how processes tell a garbage collection what they still rely on.
//!
//! Every use of objects that a commit may build on (a batch, a virtual tree) holds a [`Guard`] with the
//! epoch in which it began. A process writes the oldest epoch it holds into its session file, which it
//! keeps locked. Condemned objects are deleted only when no session holds an epoch older than their
//! condemnation; a file whose lock is free belonged to a process that died.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::error::{IoContext, Result};

/// Nothing held.
const NOTHING: u64 = u64::MAX;

pub(crate) struct Sessions {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<(PathBuf, File)>,
    held: BTreeMap<u64, usize>,
    published: Option<u64>,
}

/// Keeps a garbage collection from deleting what existed when it was taken.
pub(crate) struct Guard {
    sessions: Arc<Sessions>,
    epoch: u64,
}

impl Sessions {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, state: Mutex::new(State::default()) }
    }

    /// Takes a guard. `epoch` reads the present epoch; it is read again after the guard is published,
    /// because a collection may have looked in between.
    pub(crate) fn guard(self: &Arc<Self>, epoch: impl Fn() -> Result<u64>) -> Result<Guard> {
        loop {
            let now = epoch()?;
            // Made first: if the epoch cannot be published, dropping it takes the entry back.
            let guard = Guard { sessions: Arc::clone(self), epoch: now };
            self.change(|held| *held.entry(now).or_insert(0) += 1)?;
            if epoch()? == now {
                return Ok(guard);
            }
        }
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<u64, usize>)) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        edit(&mut state.held);
        let oldest = state.held.keys().next().copied().unwrap_or(NOTHING);
        if state.published == Some(oldest) {
            return Ok(());
        }
        if state.file.is_none() {
            state.file = Some(create(&self.directory)?);
        }
        if let Some((path, file)) = &state.file {
            file.write_all_at(&oldest.to_le_bytes(), 0).at("write", path)?;
        }
        state.published = Some(oldest);
        Ok(())
    }

    /// The oldest epoch that any living process holds; `None` when nothing is held.
    pub(crate) fn oldest(directory: &Path) -> Result<Option<u64>> {
        let mut oldest = NOTHING;
        for entry in fs::read_dir(directory).at("list", directory)? {
            let path = entry.at("list", directory)?.path();
            let file = match File::open(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.at("open", &path)?,
            };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                // Not locked: its process is dead. A file being made is locked before it gets its name.
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error).at("remove", &path);
                    }
                    _ => continue,
                }
            }
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 0).at("read", &path)?;
            oldest = oldest.min(u64::from_le_bytes(bytes));
        }
        Ok((oldest != NOTHING).then_some(oldest))
    }
}

fn create(directory: &Path) -> Result<(PathBuf, File)> {
    let path = directory.join(Uuid::now_v7().to_string());
    let parent = unnamed(directory);
    let hidden = parent.join(Uuid::now_v7().to_string());
    fs::create_dir_all(&parent).at("create", &parent)?;
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(&hidden).at("create", &hidden)?;
    let named = || {
        flock(&file, FlockOperation::NonBlockingLockExclusive).at("lock", &hidden)?;
        file.write_all_at(&NOTHING.to_le_bytes(), 0).at("write", &hidden)?;
        fs::rename(&hidden, &path).at("rename", &hidden)
    };
    if let Err(error) = named() {
        // A full disk, mostly. What stays is taken by a collection.
        drop(fs::remove_file(&hidden));
        return Err(error);
    }
    Ok((path, file))
}

/// Where session files are made, before they are locked.
pub(crate) fn unnamed(sessions: &Path) -> PathBuf {
    sessions.with_extension("new")
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, _)) = state.file.take() {
            // A leftover is harmless: its lock ends with the process.
            drop(fs::remove_file(path));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let epoch = self.epoch;
        // If the file cannot be written the old epoch stays published: collections wait longer than
        // necessary, which is the safe side.
        drop(self.sessions.change(|held| {
            if let Some(count) = held.get_mut(&epoch) {
                *count -= 1;
                if *count == 0 {
                    held.remove(&epoch);
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_oldest_guard_of_a_living_process_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions");
        fs::create_dir(&path).unwrap();
        let sessions = Arc::new(Sessions::new(path.clone()));
        assert_eq!(Sessions::oldest(&path).unwrap(), None);
        let epoch = AtomicU64::new(7);
        let first = sessions.guard(|| Ok(epoch.load(Ordering::SeqCst))).unwrap();
        epoch.store(9, Ordering::SeqCst);
        let second = sessions.guard(|| Ok(epoch.load(Ordering::SeqCst))).unwrap();
        assert_eq!(Sessions::oldest(&path).unwrap(), Some(7));
        drop(first);
        assert_eq!(Sessions::oldest(&path).unwrap(), Some(9));
        drop(second);
        assert_eq!(Sessions::oldest(&path).unwrap(), None);
    }

    #[test]
    fn a_dead_session_holds_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("left-behind"), 3u64.to_le_bytes()).unwrap();
        assert_eq!(Sessions::oldest(&path).unwrap(), None);
        assert!(!path.join("left-behind").exists());
    }
}
