//! Freeze record of a sandbox that its container program (Docker, `runc`) paused and has to resume.

use std::fs::{self, File};
use std::io::{self, Write as _};

use crate::sandbox_dir::SandboxDir;

/// Content of the record. Other methods of freezing write other records to the same file.
const PAUSED: &str = "paused\n";

/// Writes the record, before the pause. Fails if the sandbox is already frozen.
pub(super) fn write(dir: &SandboxDir) -> io::Result<()> {
    let mut file = match File::create_new(dir.freeze_record()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(io::Error::other("the sandbox is already frozen"));
        }
        file => file?,
    };
    file.write_all(PAUSED.as_bytes()).inspect_err(|_| {
        // An incomplete record would not be recognized.
        let _ = remove(dir);
    })
}

/// Returns true if the record exists.
pub(super) fn exists(dir: &SandboxDir) -> io::Result<bool> {
    match fs::read(dir.freeze_record()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        text => Ok(text? == PAUSED.as_bytes()),
    }
}

/// Removes the record, if it exists.
pub(super) fn remove(dir: &SandboxDir) -> io::Result<()> {
    match fs::remove_file(dir.freeze_record()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
