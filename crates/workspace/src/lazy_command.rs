//! Command that serves the lazy mount: a FUSE mount of all snapshots of the store, whose files are loaded on first
//! read.

use std::ffi::OsString;
use std::path::PathBuf;

/// Command that serves the lazy mount. The program, called with `args`, must call [`workspace_mount::daemon_main`] with
/// the arguments that follow them.
#[derive(Debug, Clone)]
pub struct LazyCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// First arguments. The arguments for `daemon_main` are appended.
    pub args: Vec<OsString>,
}
