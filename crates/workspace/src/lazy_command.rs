//! Command that serves the lazy mount.

use std::ffi::OsString;
use std::path::PathBuf;

/// Command that serves the lazy mount: a program, and the arguments that lead it to
/// [`workspace_mount::daemon_main`].
#[derive(Debug, Clone)]
pub struct LazyCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// First arguments; those of the mount follow.
    pub args: Vec<OsString>,
}
