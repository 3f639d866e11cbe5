//! Error reporting: prints each distinct error once, to the standard error of the serving process.

use std::collections::HashSet;

use fuser::Errno;
use parking_lot::Mutex;
use workspace_state::StoreError;

/// Maximum number of distinct errors that are printed.
const REPORTED_MAX: usize = 1000;

/// Converts store errors to errnos, and prints each distinct error once.
#[derive(Default)]
pub(crate) struct Reporter {
    reported: Mutex<HashSet<String>>,
}

impl Reporter {
    /// Prints an error, unless it was printed before, and returns the errno for the kernel.
    pub(crate) fn log_and_convert(&self, error: &StoreError) -> Errno {
        let message = error.to_string();
        let mut reported = self.reported.lock();
        if reported.len() < REPORTED_MAX && reported.insert(message.clone()) {
            drop(reported);
            eprintln!("lazy mount [{}]: {message}", std::process::id());
        }
        Errno::EIO
    }
}
