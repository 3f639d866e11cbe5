//! What the process asks of the system before it starts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of files that may be open to what is allowed: a parallel walk of a directory and the
/// packs of a large store need more than the customary 1024.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Refused only by unusual security modules; the soft limit then stays, and is enough for most work.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
