//! Noting that a sandbox is stopped by a program that runs it, and that knows by itself how to let it go on.

use std::fs::{self, File};
use std::io::{self, Write as _};

use crate::sandbox_dir::SandboxDir;

/// What such a note says. What others note is different.
const PAUSED: &str = "paused\n";

/// Notes it, before it is done. A sandbox is frozen once at a time.
pub(super) fn note(dir: &SandboxDir) -> io::Result<()> {
    let mut file = match File::create_new(dir.frozen()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(io::Error::other("the sandbox is frozen already"));
        }
        file => file?,
    };
    file.write_all(PAUSED.as_bytes()).inspect_err(|_| {
        // What was not said in whole is of no use.
        let _ = forget(dir);
    })
}

/// Whether it is noted.
pub(super) fn is_noted(dir: &SandboxDir) -> io::Result<bool> {
    match fs::read(dir.frozen()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        text => Ok(text? == PAUSED.as_bytes()),
    }
}

/// Removes the note, if it is there.
pub(super) fn forget(dir: &SandboxDir) -> io::Result<()> {
    match fs::remove_file(dir.frozen()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
