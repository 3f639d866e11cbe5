//! Limits that the process raises at its start.

/// Raises the soft limit of open files to the hard limit: a parallel walk of a directory and the packs of a large store
/// need more than the customary 1024.
pub(crate) fn raise_open_files() {
    // Fails only with unusual security modules; the soft limit is then unchanged, and enough for most work.
    let _ = workspace_host::limits::raise_open_files_limit();
}
