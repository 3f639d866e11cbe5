//! What is said on systems other than Linux: there is no lazy view.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::error::MountError;
use crate::options::ViewOptions;
use crate::requests::Requests;

/// A mounted view, of which there are none.
pub enum View {}

impl View {
    /// Says that there are none.
    pub fn mount(
        _store: impl AsRef<Path>,
        _mountpoint: impl AsRef<Path>,
        _options: &ViewOptions,
    ) -> Result<Self, MountError> {
        Err(MountError::NeedsLinux)
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        match *self {}
    }

    /// Counts what the kernel asks.
    pub fn requests(&self) -> Requests {
        match *self {}
    }

    /// Answers until the view is unmounted.
    pub fn serve(self) -> Result<(), MountError> {
        match self {}
    }

    /// The same, and unmounts when the process is asked to end.
    pub fn serve_until_stopped(self) -> Result<(), MountError> {
        match self {}
    }
}

/// Says that there are no views.
pub fn spawn_daemon(
    _command: Command,
    _store: &Path,
    _mountpoint: &Path,
    _options: &ViewOptions,
) -> Result<(), MountError> {
    Err(MountError::NeedsLinux)
}

/// Says that there are no views.
pub fn daemon_main(_words: impl IntoIterator<Item = OsString>) -> Result<(), MountError> {
    Err(MountError::NeedsLinux)
}

/// Says that there are no views.
pub fn unmount(_mountpoint: &Path) -> Result<(), MountError> {
    Err(MountError::NeedsLinux)
}

/// Says that there are no views.
pub fn detach(_mountpoint: &Path) -> Result<(), MountError> {
    Err(MountError::NeedsLinux)
}
