//! Failpoints between the steps of a change: named points where a crash test can kill the process or inject an error.

use workspace_state::StoreError;

use super::error::Result;

/// Performs the action of the failpoint `name` if the environment selects it. An injected error counts as a temporary
/// error of the store.
pub(super) fn hit(name: &'static str) -> Result<()> {
    let injected = |source| StoreError::Io { action: "reach", path: name.into(), source };
    Ok(workspace_failpoint::hit(name).map_err(injected)?)
}
