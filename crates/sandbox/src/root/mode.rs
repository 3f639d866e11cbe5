//! Treatment of changes to the root filesystem of a sandbox.

use serde::{Deserialize, Serialize};

/// Treatment of changes to the root filesystem of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RootMode {
    /// The root is read-only, and directories such as `/home/sandbox` are in memory.
    #[default]
    Discarded,
    /// Everything but `/tmp`, `/run` and `/dev` is kept by commits, forks and restores.
    Kept,
}

impl RootMode {
    pub(crate) fn is_discarded(&self) -> bool {
        *self == Self::Discarded
    }
}
