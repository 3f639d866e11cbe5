//! Record of a frozen sandbox: a line with the method, and one for each process that is stopped by signal,
//! written before the process is stopped. If the last line is incomplete, the freezing process was
//! killed while it wrote the line, before it stopped that process.
//!
//! Freezing and thawing exclude each other by a lock on the file. A freeze takes the lock for every step that
//! stops something, and stops nothing once the file is unlinked. A thaw holds the lock until all processes
//! run again and the record is removed. So no process is ever stopped without a record, whichever thread or
//! process thaws.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::freezer::Freezer;
use crate::error::{Context as _, HostError, Result};
use crate::helper::error::HostErrorKind;
use crate::process::Process;

/// First line of a record: the method by which the sandbox is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RecordedMethod {
    /// Freezer of this cgroup.
    Group(Freezer),
    /// Signals to the descendants of this process.
    Signals(Process),
}

/// Process that was stopped, by PID and start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StoppedProcess {
    pub(super) pid: i32,
    /// Start time in clock ticks since boot.
    pub(super) start_time: u64,
}

/// Record that is being written.
pub(super) struct RecordWriter(File);

impl RecordWriter {
    /// Creates the record. Fails if there is one: two concurrent freezes would thaw each other's processes.
    pub(super) fn create(path: &Path, method: &RecordedMethod) -> Result<Self> {
        let mut file = match File::options().append(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(HostError::of_kind(HostErrorKind::Conflict, "the sandbox is already frozen"));
            }
            file => file.context(format!("create {}", path.display()))?,
        };
        let mut line = serde_json::to_vec(method).map_err(|error| HostError::other(error.to_string()))?;
        line.push(b'\n');
        let written = file.write_all(&line).context(format!("write {}", path.display()));
        if let Err(error) = written {
            remove(path)?;
            return Err(error);
        }
        Ok(Self(file))
    }

    /// Runs a step that stops processes. Fails with [`HostError::Thawed`] if the sandbox was thawed since the
    /// last step.
    pub(super) fn step<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let _lock = Lock::of(&self.0)?;
        if !is_linked(&self.0)? {
            return Err(HostError::Thawed);
        }
        step(self)
    }

    /// Records a process that is stopped next.
    pub(super) fn add(&mut self, process: StoppedProcess) -> Result<()> {
        let line = format!("{} {}\n", process.pid, process.start_time);
        self.0.write_all(line.as_bytes()).context("record a process to be stopped")
    }
}

/// Locked record, for thawing. While it is locked, the freeze cannot take a step.
pub(super) struct LockedRecord {
    path: PathBuf,
    /// Locked until it is closed.
    file: File,
}

impl LockedRecord {
    /// Locks the record at a path, after waiting for a step in progress. Returns `None` if there is none.
    pub(super) fn lock(path: &Path) -> Result<Option<Self>> {
        loop {
            let file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file.context(format!("read {}", path.display()))?,
            };
            flock(&file, FlockOperation::LockExclusive).context("lock the freeze record")?;
            // The previous owner of the lock may have removed this record, and another freeze may have created a new
            // one.
            if is_linked(&file)? {
                return Ok(Some(Self { path: path.to_owned(), file }));
            }
        }
    }

    /// Returns the method and the stopped processes. `None` if the line with the method is incomplete: then
    /// nothing was stopped.
    pub(super) fn read(&mut self) -> Result<Option<(RecordedMethod, Vec<StoppedProcess>)>> {
        let mut text = String::new();
        self.file.read_to_string(&mut text).context(format!("read {}", self.path.display()))?;
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let Some(first) = lines.next() else { return Ok(None) };
        let method = serde_json::from_str(first).map_err(io::Error::from);
        let method = method.context(format!("parse {}", self.path.display()))?;
        Ok(Some((method, lines.filter_map(parse).collect())))
    }

    /// Removes the record, after all processes were resumed.
    pub(super) fn remove(self) -> Result<()> {
        remove(&self.path)
    }
}

/// Lock on a file, until this is dropped.
struct Lock(File);

impl Lock {
    fn of(file: &File) -> Result<Self> {
        let action = "lock the freeze record";
        // The lock belongs to the open file description, which the copy shares.
        let file = file.try_clone().context(action)?;
        flock(&file, FlockOperation::LockExclusive).context(action)?;
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
    file.metadata().map(|found| found.nlink() > 0).context("read the freeze record")
}

fn parse(line: &str) -> Option<StoppedProcess> {
    let (pid, start_time) = line.split_once(' ')?;
    Some(StoppedProcess { pid: pid.parse().ok()?, start_time: start_time.parse().ok()? })
}

/// Removes a record, if there is one.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Option<(RecordedMethod, Vec<StoppedProcess>)> {
        LockedRecord::lock(path).unwrap()?.read().unwrap()
    }

    #[test]
    fn an_incomplete_line_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frozen");
        let process = Process::of(rustix::process::getpid()).unwrap();
        let record = RecordedMethod::Signals(process);
        let mut writer = RecordWriter::create(&path, &record).unwrap();
        let one = StoppedProcess { pid: 5, start_time: 70 };
        writer.add(one).unwrap();
        assert_eq!(read(&path), Some((record.clone(), vec![one])));
        writer.0.write_all(b"6 7").unwrap();
        assert_eq!(read(&path), Some((record.clone(), vec![one])));
        assert!(
            RecordWriter::create(&path, &record).is_err_and(|error| error.to_string().contains("already"))
        );
        fs::write(&path, "{\"Sig").unwrap();
        assert_eq!(read(&path), None);
    }

    #[test]
    fn a_freeze_takes_no_step_after_its_record_was_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frozen");
        let record = RecordedMethod::Signals(Process::of(rustix::process::getpid()).unwrap());
        let mut writer = RecordWriter::create(&path, &record).unwrap();
        writer.step(|_| Ok(())).unwrap();
        LockedRecord::lock(&path).unwrap().unwrap().remove().unwrap();
        assert!(matches!(writer.step(|_| Ok(())), Err(HostError::Thawed)));
        assert!(LockedRecord::lock(&path).unwrap().is_none());
    }

    #[test]
    fn a_thaw_waits_for_a_step_in_progress() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frozen");
        let record = RecordedMethod::Signals(Process::of(rustix::process::getpid()).unwrap());
        let mut writer = RecordWriter::create(&path, &record).unwrap();
        let (began, has_begun) = std::sync::mpsc::channel();
        let (thawed, is_thawed) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            let at = &path;
            threads.spawn(move || {
                has_begun.recv().unwrap();
                LockedRecord::lock(at).unwrap().unwrap().remove().unwrap();
                thawed.send(()).unwrap();
            });
            writer
                .step(|_| {
                    began.send(()).unwrap();
                    let early = is_thawed.recv_timeout(std::time::Duration::from_millis(50));
                    assert!(early.is_err(), "it was thawed during the step");
                    Ok(())
                })
                .unwrap();
            is_thawed.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        });
        assert!(matches!(writer.step(|_| Ok(())), Err(HostError::Thawed)));
    }
}
