//! Failpoints between the steps of an operation on a sandbox of a project, for the crash tests.

use crate::error::{Context as _, Result};

/// Performs the action of the failpoint `name` if the environment selects it.
pub(crate) fn hit(name: &'static str) -> Result<()> {
    workspace_failpoint::hit(name).context(|| format!("reach {name}"))
}
