//! The event log of a server as a stream: events of sandboxes, snapshots, templates and projects.

use workspace_api::event_log::{Event, EventGap};

use super::Client;
use super::event_source::{EventSource, unknown_event};
use crate::error::Result;

/// Message of the stream.
pub(crate) enum LogMessage {
    Event(Box<Event>),
    /// Events that the server deleted before they were read.
    Gap(EventGap),
}

/// Reader of the events of a server that reconnects when the connection breaks.
pub(crate) struct EventFollower<'a>(EventSource<'a>);

impl<'a> EventFollower<'a> {
    /// Creates a reader; `query` has the position and the filters.
    pub(crate) fn new(client: &'a Client, query: &str) -> Self {
        Self(EventSource::new(client, format!("/api/v1/events{query}")))
    }

    /// Waits for the next message.
    pub(crate) async fn next(&mut self) -> Result<LogMessage> {
        parse(&self.0.next().await?.data).ok_or_else(unknown_event)
    }
}

fn parse(data: &[u8]) -> Option<LogMessage> {
    let event = serde_json::from_slice(data).map(|event| LogMessage::Event(Box::new(event)));
    event.or_else(|_| serde_json::from_slice(data).map(LogMessage::Gap)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_gaps_are_distinguished() {
        let event =
            br#"{"id":3,"type":"a.b","time":"2026-01-31T10:00:00.000Z","data":{"later":1},"more":true}"#;
        assert!(
            matches!(parse(event), Some(LogMessage::Event(event)) if event.id == 3 && event.kind == "a.b")
        );
        let gap = br#"{"from":4,"to":7}"#;
        assert!(matches!(parse(gap), Some(LogMessage::Gap(EventGap { from: 4, to: 7 }))));
        for odd in [&b"{}"[..], b"", b"[]", br#"{"from":1}"#] {
            assert!(parse(odd).is_none());
        }
    }
}
