//! Connecting to the server.

use std::io;

use hyper_util::rt::TokioIo;
use tonic::Status;
use tonic::transport::Channel;

use crate::transport::Transport;

/// Transport to the server, and the credentials of this process.
pub(crate) struct ConnectionParameters {
    pub(crate) transport: Transport,
    /// Id of the sandbox.
    pub(crate) sandbox: String,
    /// Token of the agent, or ticket of the I/O worker.
    pub(crate) token: Vec<u8>,
}

/// Reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("cannot connect: {}", innermost(.0))]
    Connect(#[from] tonic::transport::Error),
    #[error("{0}")]
    Status(#[from] Status),
    #[error("the server rejected this guest: {0}")]
    Rejected(String),
    #[error("the server closed the connection")]
    Closed,
}

/// Returns the innermost cause of an error.
fn innermost(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map_or_else(String::new, ToString::to_string)
}

/// Connects to the server.
pub(crate) async fn connect(parameters: &ConnectionParameters) -> Result<Channel, ConnectionError> {
    let transport = parameters.transport.clone();
    let connector = tower::service_fn(move |_| {
        let transport = transport.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(transport.connect().await?)) }
    });
    Ok(parameters.transport.endpoint().connect_with_connector(connector).await?)
}
