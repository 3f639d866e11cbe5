//! `/api/v1/sandboxes/{id}/watch/{path}`: changes of files as server-sent events.
//!
//! A slow client delays only its own watch: the sandbox keeps a limited number of changes, and reports the loss of
//! others.

use std::pin::pin;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::files::{WatchEvent, WatchEventKind, WatchFilesQuery, WatchServerSentEvent};
use workspace_sandbox::{FileChange, FileChangeKind, FileErrorKind, SandboxError, Watch};
use workspace_state::quote_path;

use super::location::FileLocation;
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::Query;
use crate::server_sent_events::{KEEPALIVE, KEEPALIVE_INTERVAL, response};
use crate::shutdown::Shutdown;
use crate::stream_access::StreamAccess;

/// Maximum number of chunks in the queue to the client.
const QUEUE_MAX: usize = 1;
/// Comment that is sent when the watch has begun.
const BEGIN: &[u8] = b": watching\n\n";
/// Timeout for sending the last event.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Watch a directory or a file.
///
/// The stream starts with a comment when the watch has begun. It ends with `ended` when the watched entry is removed
/// or its sandbox is restored, and when the server stops. After `dropped`, and after a reconnect, list the directory
/// again: changes are not repeated.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/watch/{path}", tag = "files", operation_id = "watch_files",
    params(("id" = String, Path, description = "Id of the sandbox"), ("path" = String, Path, description = "Path in the sandbox without its first slash. Slashes may be encoded as `%2F`, other bytes as `%XX`"), WatchFilesQuery),
    responses(
        (status = 200, description = "Stream of events", body = WatchServerSentEvent, content_type = "text/event-stream"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn watch(
    State(app): State<App>,
    caller: Caller,
    location: FileLocation,
    Query(query): Query<WatchFilesQuery>,
) -> Result<Response, ApiError> {
    let FileLocation { sandbox, path } = &location;
    let watch = app.sandboxes.watch_files(&scope(&caller), sandbox, path, query.recursive).await;
    let watch = watch.map_err(watch_error)?;
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let access = StreamAccess::of_caller(&app, &caller);
    tokio::spawn(send(watch, app.shutdown.clone(), access, sender));
    Ok(response(receiver))
}

fn watch_error(error: SandboxError) -> ApiError {
    match error {
        SandboxError::File(error) if error.kind == FileErrorKind::LimitExceeded => {
            ApiError::new(error_codes::WATCH_LIMIT_EXCEEDED, error.to_string())
                .detail("path", error.path.clone())
        }
        other => other.into(),
    }
}

/// Sends changes until the watch ends or the client leaves.
async fn send(mut watch: Watch, shutdown: Shutdown, access: StreamAccess, sender: mpsc::Sender<Bytes>) {
    let reason = tokio::select! {
        reason = send_changes(&mut watch, &sender) => reason,
        () = sender.closed() => None,
        reason = access.ended() => Some(reason.to_owned()),
        () = shutdown.wait_until_begun() => Some("the server is stopping; connect again".to_owned()),
    };
    if let Some(reason) = reason {
        let event = WatchEvent { reason: Some(reason), ..empty_event(WatchEventKind::Ended) };
        // An error means that the client is disconnected or does not read.
        drop(timeout(END_TIMEOUT, sender.send(encode(&[event]))).await);
    }
}

/// Sends changes. Returns the reason why the watch ended; `None` if the client left.
async fn send_changes(watch: &mut Watch, sender: &mpsc::Sender<Bytes>) -> Option<String> {
    sender.send(Bytes::from_static(BEGIN)).await.ok()?;
    let mut keepalive = interval_at(Instant::now() + KEEPALIVE_INTERVAL, KEEPALIVE_INTERVAL);
    keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A pending call must not be dropped, because it may be granting the worker more changes.
        let mut next = pin!(watch.next());
        let changes = loop {
            tokio::select! {
                changes = &mut next => break changes,
                _ = keepalive.tick() => sender.send(Bytes::from_static(KEEPALIVE)).await.ok()?,
            }
        };
        match changes {
            Ok(Some(changes)) => {
                let events: Vec<WatchEvent> = changes.iter().map(event_of).collect();
                sender.send(encode(&events)).await.ok()?;
            }
            Ok(None) => return Some("the watched entry was removed".to_owned()),
            Err(error) => return Some(ApiError::from(error).message().to_owned()),
        }
    }
}

fn empty_event(kind: WatchEventKind) -> WatchEvent {
    WatchEvent { kind, path: None, from: None, directory: None, reason: None }
}

fn event_of(change: &FileChange) -> WatchEvent {
    let kind = match change.kind {
        FileChangeKind::Created => WatchEventKind::Created,
        FileChangeKind::Modified => WatchEventKind::Modified,
        FileChangeKind::Removed => WatchEventKind::Removed,
        FileChangeKind::Renamed => WatchEventKind::Renamed,
        FileChangeKind::Attributes => WatchEventKind::Attributes,
        FileChangeKind::Dropped => WatchEventKind::Dropped,
    };
    WatchEvent {
        path: Some(quote_path(&change.path).into_owned()),
        from: change.from.as_ref().map(|from| quote_path(from).into_owned()),
        directory: (kind != WatchEventKind::Dropped).then_some(change.is_directory),
        ..empty_event(kind)
    }
}

fn encode(events: &[WatchEvent]) -> Bytes {
    let mut text = Vec::new();
    for event in events {
        text.extend_from_slice(format!("event: {}\ndata: ", event.kind).as_bytes());
        // JSON has no line breaks; writing into memory does not fail.
        let _ = serde_json::to_writer(&mut text, event);
        text.extend_from_slice(b"\n\n");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_their_kind_and_paths() {
        let change = |kind, path: &[u8], from: Option<&[u8]>| FileChange {
            kind,
            path: path.to_vec(),
            from: from.map(<[u8]>::to_vec),
            is_directory: false,
        };
        let changes = [
            change(FileChangeKind::Renamed, b"new\n", Some(b"old")),
            change(FileChangeKind::Dropped, b"", None),
        ];
        let mut events: Vec<WatchEvent> = changes.iter().map(event_of).collect();
        events.push(WatchEvent { reason: Some("why".to_owned()), ..empty_event(WatchEventKind::Ended) });
        let expected = concat!(
            "event: renamed\ndata: {\"type\":\"renamed\",\"path\":\"\\\"new\\\\n\\\"\",\"from\":\"old\",",
            "\"directory\":false}\n\n",
            "event: dropped\ndata: {\"type\":\"dropped\",\"path\":\"\"}\n\n",
            "event: ended\ndata: {\"type\":\"ended\",\"reason\":\"why\"}\n\n",
        );
        assert_eq!(encode(&events), expected);
    }

    #[test]
    fn too_many_directories_have_a_code_of_their_own() {
        let error = workspace_sandbox::FileError {
            kind: FileErrorKind::LimitExceeded,
            path: "/a".to_owned(),
            message: "too many".to_owned(),
        };
        let mapped = watch_error(SandboxError::File(error));
        assert_eq!(mapped.code(), error_codes::WATCH_LIMIT_EXCEEDED);
    }
}
