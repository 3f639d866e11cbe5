//! What a process and its helpers say to each other.

use serde::Serialize;

use crate::error::{HostError, Result};

/// The first argument of such a start.
pub(crate) const WORD: &str = "internal-host";
/// A task's name is shorter.
pub(super) const NAME: usize = 32;
/// So many descriptors go with a task, its answer's among them.
pub(super) const DESCRIPTORS: usize = 5;

/// What follows is the answer.
pub(super) const DONE: u8 = 1;
/// What follows is why there is none.
pub(super) const FAILED: u8 = 2;

pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| HostError::Helper(error.to_string()))
}
