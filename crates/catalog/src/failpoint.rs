//! Failpoints inside transactions, for the crash tests of projects.

use crate::error::Result;

/// Performs the action of the failpoint `name` if the environment selects it. An error that it injects is one of the
/// connection to the database.
pub(crate) fn hit(name: &str) -> Result<()> {
    Ok(workspace_failpoint::hit(name).map_err(sqlx::Error::Io)?)
}
