//! Server-sent events of one response.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::RequestError;
use super::sse::{EVENT_MAX, SseEvent, SseParser, TooLong};
use crate::error::{CommandError, Result};

/// Idle timeout. The server sends a comment every 15 seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Reader of the events of a response.
pub(super) struct EventReader {
    body: Incoming,
    parser: SseParser,
    has_received: bool,
}

impl EventReader {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, parser: SseParser::default(), has_received: false }
    }

    /// Returns true if anything was received.
    pub(super) fn has_received(&self) -> bool {
        self.has_received
    }

    /// Returns the next event; `None` if the connection was lost. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<SseEvent>> {
        loop {
            match self.parser.next() {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(TooLong) => {
                    let limit = EVENT_MAX >> 20;
                    return Err(CommandError::failed(format!(
                        "the server sent an event of more than {limit} MiB"
                    )));
                }
            }
            let Ok(Some(Ok(frame))) = timeout(IDLE_TIMEOUT, self.body.frame()).await else {
                return Ok(None);
            };
            if let Ok(bytes) = frame.into_data() {
                self.parser.push(&bytes);
                self.has_received = true;
            }
        }
    }
}

impl SseEvent {
    /// Decodes the data of the event.
    pub(super) fn decode<T: DeserializeOwned>(&self) -> Result<T, RequestError> {
        serde_json::from_slice(&self.data).map_err(|error| RequestError::Malformed(error.to_string()))
    }
}
