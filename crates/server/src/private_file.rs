//! Files that only the user of the server may access.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

/// Error of accessing a private file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PrivateFileError {
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} can be read by others (mode {mode:03o})\nhint: chmod 600 '{path}'")]
    TooOpen { path: PathBuf, mode: u32 },
    #[error("another server uses {path}\nhint: stop it, or set another DATA_DIR for this one")]
    InUse { path: PathBuf },
}

impl PrivateFileError {
    /// Returns a function that adds the failed action and the path to an error, for `map_err`.
    pub(crate) fn failed_to(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

/// Creates a directory and its parents with mode 0700. An existing directory is not changed.
pub(crate) fn create_directory(path: &Path) -> Result<(), PrivateFileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(PrivateFileError::failed_to("create", path))
}

/// Opens a file for appending, or creates it with mode 0600. Does not follow a symlink.
pub(crate) fn open_append(path: &Path) -> Result<File, PrivateFileError> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags);
    options.open(path).map_err(PrivateFileError::failed_to("open", path))
}

/// Reads a file; `None` if it does not exist. Fails if others may access it.
pub(crate) fn read(path: &Path) -> Result<Option<String>, PrivateFileError> {
    let failed = || PrivateFileError::failed_to("read", path);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed()(error)),
    };
    let mode = file.metadata().map_err(failed())?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(PrivateFileError::TooOpen { path: path.to_owned(), mode });
    }
    io::read_to_string(file).map(Some).map_err(failed())
}

/// Creates a file with that text and mode 0600, atomically. Fails if it exists.
pub(crate) fn create(path: &Path, text: &str) -> Result<(), PrivateFileError> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let created = write_new(&temporary, text).and_then(|()| {
        // Unlike a rename, a link never replaces a file that another process created meanwhile.
        std::fs::hard_link(&temporary, path).map_err(PrivateFileError::failed_to("create", path))
    });
    let removed = std::fs::remove_file(&temporary).map_err(PrivateFileError::failed_to("remove", &temporary));
    created.and(removed)
}

fn write_new(path: &Path, text: &str) -> Result<(), PrivateFileError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(PrivateFileError::failed_to("create", path))?;
    io::Write::write_all(&mut file, text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(PrivateFileError::failed_to("write", path))
}

/// Locks a directory for this process, because two servers on the same data would undo each other's work. The lock is
/// released when the file is closed, even if the process is killed.
pub(crate) fn lock(directory: &Path) -> Result<File, PrivateFileError> {
    let path = directory.join("lock");
    let file = open_append(&path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(PrivateFileError::InUse { path: directory.to_owned() }),
        Err(error) => Err(PrivateFileError::failed_to("lock", &path)(error.into())),
    }
}
