//! Builds of templates on a server.

use std::io::Read;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use tokio::time::timeout;
use workspace_api::template_builds::BuildEvent;

use super::events::{Parser, TooLong};
use super::{Client, RequestError};
use crate::error::{CommandError, Result};

/// Idle timeout. The server sends a comment every 15 seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Events of a build. The server cancels the build when this is dropped.
pub(crate) struct BuildStream<'a> {
    client: &'a Client,
    body: Incoming,
    parser: Parser,
}

impl<'a> BuildStream<'a> {
    /// Sends an archive with a recipe and its files to this route of the API.
    pub(crate) async fn start(
        client: &'a Client,
        route: &str,
        archive: Box<dyn Read + Send>,
    ) -> Result<Self, RequestError> {
        let response = client.upload_and_open(&Method::POST, route, None, archive).await?;
        Ok(Self { client, body: response.into_body(), parser: Parser::default() })
    }

    /// Waits for the next event. A build cannot be resumed, so a lost connection is an error.
    pub(crate) async fn next(&mut self) -> Result<BuildEvent> {
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
                    let message = "lost the connection to the server, which cancels the build";
                    return Err(CommandError::failed(message).hint("finished steps are kept: build again"));
                }
            }
        }
    }
}
