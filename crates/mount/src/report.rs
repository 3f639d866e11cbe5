//! Damage is told once, to whoever reads the standard error of the serving process.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use fuser::Errno;
use workspace_state::StoreError;

/// More kinds of trouble than this are no longer told apart.
const TOLD_MAX: usize = 1000;

/// Turns errors of the store into answers for the kernel, and says each of them once.
#[derive(Default)]
pub(crate) struct Reporter {
    told: Mutex<HashSet<String>>,
}

impl Reporter {
    /// The answer for a failed operation: never content, always an error.
    pub(crate) fn failed(&self, error: &StoreError) -> Errno {
        let message = error.to_string();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX && told.insert(message.clone()) {
            drop(told);
            eprintln!("lazy view [{}]: {message}", std::process::id());
        }
        Errno::EIO
    }
}
