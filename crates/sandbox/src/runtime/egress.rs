//! The network of sandboxes that may reach out.

use std::io;

use tokio::task::spawn_blocking;
use workspace_host::network;

use super::{Egress, RuntimeError};
use crate::guest::handover::Handover;

/// What is missing for it where a program of the machine's is the way, to be told beside what else is.
pub(super) fn no_egress() -> Option<String> {
    network::unavailable_reason().map(|reason| format!("no network `egress`: {reason}"))
}

/// Refuses a sandbox that could not have it.
pub(super) fn check_egress() -> Result<(), RuntimeError> {
    match network::unavailable_reason() {
        None => Ok(()),
        Some(reason) => Err(RuntimeError::Network(format!("sandboxes cannot reach out here: {reason}"))),
    }
}

/// Gives a container's agent, which has run nothing yet, its network and then what else it starts with.
pub(super) async fn hand_over(
    handover: Handover,
    given: &[u8],
    egress: Option<Egress>,
) -> Result<(), HandoverError> {
    let guest = handover.guest().await?;
    if let Some(egress) = egress {
        // Who it is, the kernel says: a daemon's numbers may be those of another machine.
        let pid = guest.peer_cred()?.pid().filter(|pid| *pid > 0);
        let pid =
            pid.ok_or_else(|| RuntimeError::Network("the sandbox is not on this machine".to_owned()))?;
        let connected =
            spawn_blocking(move || network::connect(pid, &egress)).await.map_err(io::Error::other)?;
        connected.map_err(|error| RuntimeError::Network(error.to_string()))?;
    }
    Ok(handover.give(guest, given).await?)
}

/// Why an agent was not given what it starts with.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandoverError {
    /// It cannot have its network.
    #[error(transparent)]
    Network(#[from] RuntimeError),
    /// Something else failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}
