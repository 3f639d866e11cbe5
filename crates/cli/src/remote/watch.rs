//! Changes of files in a sandbox on a server.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;
use workspace_api::files::WatchEvent;

use super::events::{Parser, TooLong};
use super::{Client, RequestError};
use crate::error::{CommandError, Result};

/// Idle timeout. The server sends a comment every 15 seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Watch of a directory or file.
pub(crate) struct Watch<'a> {
    client: &'a Client,
    body: Incoming,
    parser: Parser,
}

impl<'a> Watch<'a> {
    /// Starts a watch at this route of the API.
    pub(crate) async fn open(client: &'a Client, route: &str) -> Result<Self> {
        let body = client.open(route, &[]).await.map_err(|failure| client.explain(failure))?;
        Ok(Self { client, body, parser: Parser::default() })
    }

    /// Waits for the next event. A watch cannot be resumed, so a lost connection is an error.
    pub(crate) async fn next(&mut self) -> Result<WatchEvent> {
        loop {
            match self.parser.next() {
                Ok(Some(event)) => {
                    return serde_json::from_slice(&event.data)
                        .map_err(|error| self.client.explain(RequestError::Malformed(error.to_string())));
                }
                Ok(None) => {}
                Err(TooLong) => {
                    return Err(CommandError::failed("the server sent an event that is too long"));
                }
            }
            match timeout(IDLE_TIMEOUT, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.parser.push(&bytes);
                    }
                }
                Ok(Some(Err(_)) | None) | Err(_) => {
                    return Err(CommandError::failed(
                        "lost the connection to the server while files were watched",
                    )
                    .hint("list the directory again: changes in between are not repeated"));
                }
            }
        }
    }
}
