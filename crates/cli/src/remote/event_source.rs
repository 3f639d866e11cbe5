//! Streams of server-sent events that are resumed when their connection breaks.

use hyper::header::{ACCEPT, HeaderName};

use super::backoff::Backoff;
use super::event_reader::EventReader;
use super::sse::SseEvent;
use super::{Client, RequestError};
use crate::error::{CommandError, Result};

/// Reader of a stream, without gaps or repetitions.
pub(super) struct EventSource<'a> {
    client: &'a Client,
    path: String,
    /// Id of the last event that was returned; a new connection resumes after it.
    last_event_id: Option<String>,
    /// Events of the current connection.
    events: Option<EventReader>,
    backoff: Backoff,
}

impl<'a> EventSource<'a> {
    /// Creates a reader of the stream at this path of the API.
    pub(super) fn new(client: &'a Client, path: String) -> Self {
        Self { client, path, last_event_id: None, events: None, backoff: Backoff::default() }
    }

    /// Connects without retries.
    pub(super) async fn connect(&mut self) -> Result<(), RequestError> {
        let mut headers = vec![(ACCEPT, "text/event-stream".to_owned())];
        let last_event_id = self.last_event_id.clone();
        headers.extend(last_event_id.map(|id| (HeaderName::from_static("last-event-id"), id)));
        let body = self.client.open(&self.path, &headers).await?;
        self.events = Some(EventReader::new(body));
        Ok(())
    }

    /// Returns the id of the last event that was returned.
    pub(super) fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Returns the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<SseEvent> {
        loop {
            let Some(events) = &mut self.events else {
                if let Err(failure) = self.connect().await {
                    self.disconnect(failure).await?;
                }
                continue;
            };
            if let Some(event) = events.next().await? {
                if event.id.is_some() {
                    self.last_event_id.clone_from(&event.id);
                }
                return Ok(event);
            }
            if events.has_received() {
                self.backoff.reset();
            }
            // An event that was received in part is dropped with its connection, and sent again as a whole.
            self.disconnect(RequestError::Disconnected("the connection was lost".to_owned())).await?;
        }
    }

    /// Drops the connection and waits for the backoff. Fails if the error is not transient, or retries are used up.
    async fn disconnect(&mut self, failure: RequestError) -> Result<()> {
        self.events = None;
        if failure.is_transient() && self.backoff.wait_for_retry().await {
            Ok(())
        } else {
            Err(self.client.explain(failure))
        }
    }
}

/// Creates the error for an event that this program does not know.
pub(super) fn unknown_event() -> CommandError {
    CommandError::failed("the server sent an unknown event").hint("the server may be newer than this command")
}
