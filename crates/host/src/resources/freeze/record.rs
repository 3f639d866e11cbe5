//! What is noted of a sandbox while it is frozen: a line that says how, and one for each process that is stopped by
//! signal, written before it is. A line without an end was being written when whoever wrote it ended, before it did
//! anything about it.
//!
//! Freezing and thawing exclude each other by a lock on the file. Whoever freezes takes the lock for every step that
//! stops something, and stops nothing once the note has lost its name; whoever thaws holds the lock until everything
//! goes on and the note is removed. So nothing can be stopped that no note tells of, whichever thread or process thaws.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::freezer::Freezer;
use crate::error::{Doing as _, HostError, Result};
use crate::helper::error::HostErrorKind;
use crate::process::Process;

/// How a sandbox is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Noted {
    /// By this group.
    Group(Freezer),
    /// By signals to what is below this process.
    Signals(Process),
}

/// A process that was stopped, by its number and when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct One {
    pub(super) pid: i32,
    pub(super) started: u64,
}

/// A note that is being written.
pub(super) struct Note(File);

impl Note {
    /// A new one. Two who freeze at once would let each other's go on.
    pub(super) fn make(path: &Path, noted: &Noted) -> Result<Self> {
        let mut file = match File::options().append(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(HostError::of_kind(HostErrorKind::Conflict, "the sandbox is frozen already"));
            }
            file => file.doing(format!("make {}", path.display()))?,
        };
        let mut line = serde_json::to_vec(noted).map_err(|error| HostError::other(error.to_string()))?;
        line.push(b'\n');
        let written = file.write_all(&line).doing(format!("write {}", path.display()));
        if let Err(error) = written {
            remove(path)?;
            return Err(error);
        }
        Ok(Self(file))
    }

    /// Does a step that stops something, unless somebody has let everything go on meanwhile.
    pub(super) fn step<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let _lock = Lock::of(&self.0)?;
        if !is_linked(&self.0)? {
            return Err(HostError::Thawed);
        }
        step(self)
    }

    pub(super) fn add(&mut self, one: One) -> Result<()> {
        let line = format!("{} {}\n", one.pid, one.started);
        self.0.write_all(line.as_bytes()).doing("note what is to be stopped")
    }
}

/// A note whose freeze can take no further step, for whoever thaws.
pub(super) struct Held {
    path: PathBuf,
    /// Locked until it is closed.
    file: File,
}

impl Held {
    /// Locks the note at a path; none if there is none. Waits for a step that is under way.
    pub(super) fn take(path: &Path) -> Result<Option<Self>> {
        loop {
            let file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file.doing(format!("read {}", path.display()))?,
            };
            flock(&file, FlockOperation::LockExclusive).doing("lock the note of a freeze")?;
            // Whoever held the lock before may have removed it, and somebody else may have made another.
            if is_linked(&file)? {
                return Ok(Some(Self { path: path.to_owned(), file }));
            }
        }
    }

    /// The method and the processes that are noted; none if nothing was stopped before the method was noted.
    pub(super) fn read(&mut self) -> Result<Option<(Noted, Vec<One>)>> {
        let mut text = String::new();
        self.file.read_to_string(&mut text).doing(format!("read {}", self.path.display()))?;
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let Some(first) = lines.next() else { return Ok(None) };
        let noted = serde_json::from_str(first).map_err(io::Error::from);
        let noted = noted.doing(format!("understand {}", self.path.display()))?;
        Ok(Some((noted, lines.filter_map(parse).collect())))
    }

    /// Removes the note: everything goes on.
    pub(super) fn remove(self) -> Result<()> {
        remove(&self.path)
    }
}

/// A lock on a file, until this is dropped.
struct Lock(File);

impl Lock {
    fn of(file: &File) -> Result<Self> {
        let action = "lock the note of a freeze";
        // The lock belongs to the open file, which the copy shares.
        let file = file.try_clone().doing(action)?;
        flock(&file, FlockOperation::LockExclusive).doing(action)?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Unlocking a file that is locked does not fail.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn is_linked(file: &File) -> Result<bool> {
    file.metadata().map(|found| found.nlink() > 0).doing("look at the note of a freeze")
}

fn parse(line: &str) -> Option<One> {
    let (pid, started) = line.split_once(' ')?;
    Some(One { pid: pid.parse().ok()?, started: started.parse().ok()? })
}

/// Removes a note, if it is there.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Option<(Noted, Vec<One>)> {
        Held::take(path).unwrap()?.read().unwrap()
    }

    #[test]
    fn what_was_being_written_when_its_writer_ended_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frozen");
        let process = Process::of(rustix::process::getpid()).unwrap();
        let noted = Noted::Signals(process);
        let mut note = Note::make(&path, &noted).unwrap();
        let one = One { pid: 5, started: 70 };
        note.add(one).unwrap();
        assert_eq!(read(&path), Some((noted.clone(), vec![one])));
        note.0.write_all(b"6 7").unwrap();
        assert_eq!(read(&path), Some((noted.clone(), vec![one])));
        assert!(Note::make(&path, &noted).is_err_and(|error| error.to_string().contains("already")));
        fs::write(&path, "{\"Sig").unwrap();
        assert_eq!(read(&path), None);
    }

    #[test]
    fn a_freeze_takes_no_step_after_its_note_was_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frozen");
        let noted = Noted::Signals(Process::of(rustix::process::getpid()).unwrap());
        let mut note = Note::make(&path, &noted).unwrap();
        note.step(|_| Ok(())).unwrap();
        Held::take(&path).unwrap().unwrap().remove().unwrap();
        assert!(matches!(note.step(|_| Ok(())), Err(HostError::Thawed)));
        assert!(Held::take(&path).unwrap().is_none());
    }

    #[test]
    fn whoever_thaws_waits_for_a_step_that_is_under_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frozen");
        let noted = Noted::Signals(Process::of(rustix::process::getpid()).unwrap());
        let mut note = Note::make(&path, &noted).unwrap();
        let (began, has_begun) = std::sync::mpsc::channel();
        let (thawed, is_thawed) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            let at = &path;
            threads.spawn(move || {
                has_begun.recv().unwrap();
                Held::take(at).unwrap().unwrap().remove().unwrap();
                thawed.send(()).unwrap();
            });
            note.step(|_| {
                began.send(()).unwrap();
                let early = is_thawed.recv_timeout(std::time::Duration::from_millis(50));
                assert!(early.is_err(), "it was thawed during the step");
                Ok(())
            })
            .unwrap();
            is_thawed.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        });
        assert!(matches!(note.step(|_| Ok(())), Err(HostError::Thawed)));
    }
}
