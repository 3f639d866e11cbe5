//! Network of sandboxes with egress.

use std::io;

use tokio::task::spawn_blocking;
use workspace_host::network;

use super::{Egress, RuntimeError};
use crate::guest::handover::Handover;

/// Returns the missing feature, with the reason, if this machine cannot provide egress; `None` if it can.
pub(super) fn missing_egress() -> Option<String> {
    network::unavailable_reason().map(|reason| format!("no network `egress`: {reason}"))
}

/// Fails if this machine cannot provide egress.
pub(super) fn check_egress() -> Result<(), RuntimeError> {
    match network::unavailable_reason() {
        None => Ok(()),
        Some(reason) => Err(RuntimeError::Network(format!("egress is not available here: {reason}"))),
    }
}

/// Gives a container's guest agent, which has run nothing yet, its network and then its start parameters.
pub(super) async fn hand_over(
    handover: Handover,
    parameters: &[u8],
    egress: Option<Egress>,
) -> Result<(), HandoverError> {
    let guest = handover.accept().await?;
    if let Some(egress) = egress {
        // The PID comes from the kernel, because the PID that a daemon reports may be of another machine.
        let pid = guest.peer_cred()?.pid().filter(|pid| *pid > 0);
        let pid =
            pid.ok_or_else(|| RuntimeError::Network("the sandbox is not on this machine".to_owned()))?;
        let connected =
            spawn_blocking(move || network::connect(pid, &egress)).await.map_err(io::Error::other)?;
        connected.map_err(|error| RuntimeError::Network(error.to_string()))?;
    }
    Ok(handover.send(guest, parameters).await?)
}

/// Error of a handover to a guest agent.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandoverError {
    /// The network could not be provided.
    #[error(transparent)]
    Network(#[from] RuntimeError),
    /// Something else failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}
