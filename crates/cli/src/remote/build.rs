//! Builds of templates on a server.

use std::io::Read;

use hyper::Method;
use workspace_api::template_builds::BuildEvent;

use super::event_reader::EventReader;
use super::{Client, RequestError};
use crate::error::{CommandError, Result};

/// Events of a build. The server cancels the build when this is dropped.
pub(crate) struct BuildStream<'a> {
    client: &'a Client,
    events: EventReader,
}

impl<'a> BuildStream<'a> {
    /// Sends an archive with a recipe and its files to this route of the API.
    pub(crate) async fn start(
        client: &'a Client,
        route: &str,
        archive: Box<dyn Read + Send>,
    ) -> Result<Self, RequestError> {
        let response = client.upload_and_open(&Method::POST, route, None, archive).await?;
        Ok(Self { client, events: EventReader::new(response.into_body()) })
    }

    /// Waits for the next event. A build cannot be resumed, so a lost connection is an error.
    pub(crate) async fn next(&mut self) -> Result<BuildEvent> {
        match self.events.next().await? {
            Some(event) => event.decode().map_err(|failure| self.client.explain(failure)),
            None => {
                let message = "lost the connection to the server, which cancels the build";
                Err(CommandError::failed(message).hint("finished steps are kept: build again"))
            }
        }
    }
}
