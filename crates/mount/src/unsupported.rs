//! Stubs for systems other than Linux, where there is no lazy mount.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::error::MountError;
use crate::options::MountOptions;
use crate::requests::RequestCounter;

/// A lazy mount, which cannot be created on this platform.
pub enum LazyMount {}

impl LazyMount {
    /// Always fails.
    pub fn mount(
        _store: impl AsRef<Path>,
        _mountpoint: impl AsRef<Path>,
        _options: &MountOptions,
    ) -> Result<Self, MountError> {
        Err(MountError::NeedsLinux)
    }

    /// Returns the mountpoint.
    pub fn mountpoint(&self) -> &Path {
        match *self {}
    }

    /// Returns the counter of requests.
    pub fn requests(&self) -> RequestCounter {
        match *self {}
    }

    /// Serves until the file system is unmounted.
    pub fn serve(self) -> Result<(), MountError> {
        match self {}
    }

    /// Serves like [`LazyMount::serve`], and unmounts on SIGTERM and SIGINT.
    pub fn serve_until_stopped(self) -> Result<(), MountError> {
        match self {}
    }
}

/// Always fails.
pub fn spawn_daemon(
    _command: Command,
    _store: &Path,
    _mountpoint: &Path,
    _options: &MountOptions,
) -> Result<(), MountError> {
    Err(MountError::NeedsLinux)
}

/// Always fails.
pub fn daemon_main(_arguments: impl IntoIterator<Item = OsString>) -> Result<(), MountError> {
    Err(MountError::NeedsLinux)
}

/// Always fails.
pub fn unmount(_mountpoint: &Path) -> Result<(), MountError> {
    Err(MountError::NeedsLinux)
}

/// Always fails.
pub fn detach(_mountpoint: &Path) -> Result<(), MountError> {
    Err(MountError::NeedsLinux)
}
