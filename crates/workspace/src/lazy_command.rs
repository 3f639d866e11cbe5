//! What serves lazy views, where there are any.

use std::ffi::OsString;
use std::path::PathBuf;

/// The command that serves a view: a program, and the words that lead it to [`workspace_mount::daemon_main`].
#[derive(Debug, Clone)]
pub struct LazyCommand {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub words: Vec<OsString>,
}
