//! Command that serves the lazy mount.

use std::ffi::OsString;
use std::path::PathBuf;

/// Command that serves the lazy mount: a program, and the arguments with which it calls
/// [`workspace_mount::daemon_main`].
#[derive(Debug, Clone)]
pub struct LazyCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// First arguments. The arguments of the mount are appended.
    pub args: Vec<OsString>,
}
