//! What is noted of a sandbox while it is frozen: a line that says how, and one for each process that is stopped by
//! signal, written before it is. A line without an end was being written when whoever wrote it ended, before it did
//! anything about it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::group::Freezer;
use crate::error::{Doing as _, HostError, Result};
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
                return Err(HostError::Helper("the sandbox is frozen already".to_owned()));
            }
            file => file.doing(format!("make {}", path.display()))?,
        };
        let mut line = serde_json::to_vec(noted).map_err(|error| HostError::Helper(error.to_string()))?;
        line.push(b'\n');
        let written = file.write_all(&line).doing(format!("write {}", path.display()));
        if let Err(error) = written {
            remove(path)?;
            return Err(error);
        }
        Ok(Self(file))
    }

    pub(super) fn add(&mut self, one: One) -> Result<()> {
        let line = format!("{} {}\n", one.pid, one.started);
        self.0.write_all(line.as_bytes()).doing("note what is to be stopped")
    }
}

/// What is noted: how, and whom; none if nothing is.
pub(super) fn read(path: &Path) -> Result<Option<(Noted, Vec<One>)>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.doing(format!("read {}", path.display()))?,
    };
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let Some(first) = lines.next() else {
        // Nothing was stopped before it was noted how.
        remove(path)?;
        return Ok(None);
    };
    let noted = serde_json::from_str(first).map_err(io::Error::from);
    let noted = noted.doing(format!("understand {}", path.display()))?;
    Ok(Some((noted, lines.filter_map(parse).collect())))
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

    #[test]
    fn what_was_being_written_when_its_writer_ended_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frozen");
        let process = Process::of(rustix::process::getpid()).unwrap();
        let noted = Noted::Signals(process);
        let mut note = Note::make(&path, &noted).unwrap();
        let one = One { pid: 5, started: 70 };
        note.add(one).unwrap();
        assert_eq!(read(&path).unwrap(), Some((noted.clone(), vec![one])));
        note.0.write_all(b"6 7").unwrap();
        assert_eq!(read(&path).unwrap(), Some((noted.clone(), vec![one])));
        assert!(Note::make(&path, &noted).is_err_and(|error| error.to_string().contains("already")));
        fs::write(&path, "{\"Sig").unwrap();
        assert_eq!(read(&path).unwrap(), None);
        assert!(!path.exists());
    }
}
