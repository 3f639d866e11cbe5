//! Changes of files in a sandbox on a server.

use workspace_api::files::WatchEvent;

use super::Client;
use super::event_reader::EventReader;
use crate::error::{CommandError, Result};

/// Watch of a directory or file.
pub(crate) struct Watch<'a> {
    client: &'a Client,
    events: EventReader,
}

impl<'a> Watch<'a> {
    /// Starts a watch at this route of the API.
    pub(crate) async fn open(client: &'a Client, route: &str) -> Result<Self> {
        let body = client.open(route, &[]).await.map_err(|failure| client.explain(failure))?;
        Ok(Self { client, events: EventReader::new(body) })
    }

    /// Waits for the next event. A watch cannot be resumed, so a lost connection is an error.
    pub(crate) async fn next(&mut self) -> Result<WatchEvent> {
        match self.events.next().await? {
            Some(event) => event.decode().map_err(|failure| self.client.explain(failure)),
            None => {
                let message = "lost the connection to the server while files were watched";
                Err(CommandError::failed(message)
                    .hint("list the directory again: changes in between are not repeated"))
            }
        }
    }
}
