//! Stream of events.
//!
//! A stream reads events from the catalog only when the client has taken the previous ones, so a slow client costs no
//! memory. The id of a message is the sequence number of its event, so that a client can resume a lost stream.

use axum::body::Bytes;
use axum::response::Response;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use workspace_api::error_codes;
use workspace_api::event_log::GAP;
use workspace_catalog::{CatalogError, EventFilter};

use super::conversion::event_to_api;
use super::reader::{EventReader, ShownEvents};
use crate::app::App;
use crate::error::ApiError;
use crate::server_sent_events::{KEEPALIVE, KEEPALIVE_INTERVAL, response};

/// Maximum number of chunks in the queue to the client.
const QUEUE_MAX: usize = 1;
/// Maximum number of events in a chunk.
const CHUNK_MAX: u32 = 100;
/// Comment that is sent at once, so that the client knows that the stream is open.
const OPENED: &[u8] = b": events\n\n";

/// Parameters of a stream.
pub(super) struct StreamRequest {
    /// Id of the caller's key. The stream ends when the key is revoked.
    pub(super) key_id: String,
    pub(super) filter: EventFilter,
    /// Sequence number of the last event that the client has; `None` for all stored events.
    pub(super) after: Option<i64>,
    /// Events that the client sees.
    pub(super) reader: EventReader,
    /// Permit that is held while the stream is open.
    pub(super) permit: OwnedSemaphorePermit,
}

/// Creates a response that streams events until the client disconnects, the key is revoked, or the server stops.
pub(super) fn stream(app: &App, request: StreamRequest) -> Response {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let stream = EventStream {
        signal: app.event_feed.subscribe(request.filter.owner.as_deref()),
        app: app.clone(),
        key_id: request.key_id,
        filter: request.filter,
        reader: request.reader,
        sent: request.after.unwrap_or(0),
        read: request.after.unwrap_or(0),
        reported: request.after,
        sender,
        _permit: request.permit,
    };
    tokio::spawn(stream.run());
    response(receiver)
}

struct EventStream {
    _permit: OwnedSemaphorePermit,
    app: App,
    key_id: String,
    filter: EventFilter,
    reader: EventReader,
    /// Sequence number of the last event that the client has.
    sent: i64,
    /// Sequence number up to which all events were read, including events that the filter excludes. It is not sent to
    /// the client, because it would reveal how many events other owners have.
    read: i64,
    /// Sequence number up to which deleted events were reported; `None` before the first read of a stream that begins
    /// with the first stored event and misses nothing.
    reported: Option<i64>,
    /// Changes after new events.
    signal: watch::Receiver<()>,
    sender: mpsc::Sender<Bytes>,
}

/// End of a stream.
enum End {
    /// The client disconnected, or its key was revoked.
    Closed,
    Failed(ApiError),
}

impl From<ApiError> for End {
    fn from(error: ApiError) -> Self {
        // An agent that follows a project sees it no more when it is deleted.
        match error.code() == error_codes::PROJECT_NOT_FOUND {
            true => Self::Closed,
            false => Self::Failed(error),
        }
    }
}

impl From<CatalogError> for End {
    fn from(error: CatalogError) -> Self {
        Self::Failed(error.into())
    }
}

impl EventStream {
    async fn run(mut self) {
        let (shutdown, sender) = (self.app.shutdown.clone(), self.sender.clone());
        tokio::select! {
            end = self.send_all() => {
                if let Err(End::Failed(error)) = end {
                    tracing::error!(cause = error.cause(), "failed to read events for a stream");
                }
            }
            () = sender.closed() => {}
            () = shutdown.wait_until_begun() => {}
        }
    }

    async fn send_all(&mut self) -> Result<(), End> {
        self.send(Bytes::from_static(OPENED)).await?;
        let mut ticks = interval_at(Instant::now() + KEEPALIVE_INTERVAL, KEEPALIVE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The signal is reset before the catalog is read, so that an event that is inserted meanwhile is not
            // missed.
            self.signal.mark_unchanged();
            self.send_new().await?;
            tokio::select! {
                changed = self.signal.changed() => changed.map_err(|_| End::Closed)?,
                _ = ticks.tick() => {
                    self.check_key().await?;
                    self.send(Bytes::from_static(KEEPALIVE)).await?;
                }
            }
        }
    }

    /// Sends all events that were not sent yet.
    async fn send_new(&mut self) -> Result<(), End> {
        loop {
            let shown = self.reader.read(&self.app, &self.filter, self.read, CHUNK_MAX).await?;
            let is_last = !shown.has_more;
            let chunk = self.encode(shown)?;
            if !chunk.is_empty() {
                // A revoked key gets no further event.
                self.check_key().await?;
                self.send(chunk.into()).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Encodes events. A message about deleted events that the client does not have comes before them.
    fn encode(&mut self, shown: ShownEvents) -> Result<Vec<u8>, ApiError> {
        let mut text = Vec::new();
        let reported = self.reported.unwrap_or(shown.last_deleted);
        if shown.last_deleted > reported.max(self.read)
            && let Some(gap) = self.reader.gap(self.sent, shown.last_deleted)
        {
            write_message(&mut text, GAP, self.reader.id(self.sent), &gap)?;
        }
        self.reported = Some(reported.max(shown.last_deleted));
        for event in shown.events {
            self.sent = event.number;
            let event = event_to_api(event, self.reader.id(self.sent))?;
            write_message(&mut text, &event.kind, event.id, &event)?;
        }
        self.read = shown.read.max(self.sent);
        Ok(text)
    }

    /// Fails if the key of the stream was revoked.
    async fn check_key(&self) -> Result<(), End> {
        let found = self.app.catalog.api_keys().find_by_id(&self.key_id).await?;
        found.map(drop).ok_or(End::Closed)
    }

    async fn send(&self, chunk: Bytes) -> Result<(), End> {
        self.sender.send(chunk).await.map_err(|_| End::Closed)
    }
}

fn write_message(text: &mut Vec<u8>, kind: &str, id: u64, data: &impl Serialize) -> Result<(), ApiError> {
    text.extend_from_slice(format!("event: {kind}\nid: {id}\ndata: ").as_bytes());
    // JSON has no line breaks.
    serde_json::to_writer(&mut *text, data).map_err(ApiError::internal)?;
    text.extend_from_slice(b"\n\n");
    Ok(())
}
