//! Failpoints between the steps of a change, for the crash tests.

use workspace_state::StoreError;

use super::error::Result;

/// Performs the action of the failpoint `name` if the environment selects it. An error that it injects is one of the
/// machine.
pub(super) fn hit(name: &'static str) -> Result<()> {
    let injected = |source| StoreError::Io { action: "reach", path: name.into(), source };
    Ok(workspace_failpoint::hit(name).map_err(injected)?)
}
