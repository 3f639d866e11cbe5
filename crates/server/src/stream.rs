//! Output of a command as a stream of server-sent events.
//!
//! The id of an event is the offset of the byte after it, so that a client can resume a lost stream. A slow client only
//! slows its own stream: unread output stays in the files of the command.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;
use tokio::time::timeout;
use workspace_api::events::{CommandEvent, CommandEventKind};
use workspace_catalog::now;
use workspace_sandbox::{CommandHandle, Output, OutputPiece, Stream};

use crate::commands::{trace_to_api, whole_characters};
use crate::kill_on_drop::KillOnDrop;
use crate::server_sent_events::{KEEPALIVE, KEEPALIVE_INTERVAL, response};
use crate::stream_access::StreamAccess;

/// Maximum number of chunks in the queue to the client.
const QUEUE_MAX: usize = 1;
/// Timeout for sending the event with which a stream ends early.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Size in bytes from which a chunk is sent. A smaller chunk is sent if there is no more output.
const CHUNK_SIZE: usize = 64 << 10;
/// Maximum number of bytes per read. It is small, because one owner may have a thousand unread streams.
const BATCH_SIZE: usize = 128 << 10;
/// Maximum number of bytes of output in one event. JSON needs up to six bytes for one.
const EVENT_SIZE: usize = 16 << 10;

/// Converts a piece of output into an event. Returns it with the offset of the byte after it; `end` is the offset after the
/// previous piece.
fn event<'a>(piece: &'a OutputPiece, id: &'a str, end: u64) -> (CommandEvent<'a>, u64) {
    match piece {
        OutputPiece::Data { stream, time, offset, data } => {
            let kind = match stream {
                Stream::Stderr => CommandEventKind::Stderr,
                _ => CommandEventKind::Stdout,
            };
            let text = std::str::from_utf8(data).ok();
            let event = CommandEvent {
                data: text.map(Cow::Borrowed),
                data_base64: text.is_none().then(|| BASE64_STANDARD.encode(data)),
                offset: Some(*offset),
                ..CommandEvent::new(kind, id, *time)
            };
            (event, offset + data.len() as u64)
        }
        OutputPiece::Gap { from, to } => {
            let event = CommandEvent::new(CommandEventKind::Gap, id, now());
            (CommandEvent { from: Some(*from), to: Some(*to), ..event }, *to)
        }
        OutputPiece::Exit(status) => {
            let kind = if status.failure_reason.is_some() {
                CommandEventKind::Error
            } else {
                CommandEventKind::Exit
            };
            let (snapshot, trace_error) = trace_to_api(&status.trace);
            let event = CommandEvent {
                snapshot,
                trace_error,
                message: status.failure_reason.clone(),
                exit_code: Some(status.exit_code),
                timed_out: Some(status.timed_out),
                ..CommandEvent::new(kind, id, now())
            };
            (event, end)
        }
    }
}

/// Creates a response that streams the output of a command from the offset `from`. `kill_guard` kills the command if
/// the client disconnects before the end, or its access ends.
pub(crate) fn events(
    mut output: Output,
    command: CommandHandle,
    from: u64,
    mut kill_guard: Option<KillOnDrop>,
    access: StreamAccess,
) -> Response {
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE_MAX);
    output.set_batch_size(BATCH_SIZE);
    tokio::spawn(async move {
        // The handle is kept until the end, because the guest agent reports the progress of the command only while it
        // exists.
        let id = &command.id;
        let mut end = from;
        let reason = tokio::select! {
            sent = send_output(&mut output, id, &mut end, &sender) => {
                if let (Ok(()), Some(guard)) = (sent, kill_guard.as_mut()) {
                    guard.disarm();
                }
                return;
            }
            reason = access.ended() => reason,
        };
        let event = CommandEvent {
            message: Some(reason.to_owned()),
            ..CommandEvent::new(CommandEventKind::Ended, id, now())
        };
        let mut text = Vec::new();
        write_event(&mut text, &event, end);
        // An error means that the client is disconnected or does not read.
        drop(timeout(END_TIMEOUT, sender.send(text.into())).await);
    });
    response(receiver)
}

/// Sends output until the command or the server ends. Fails if the client has disconnected. `end` is the offset after
/// the output that was sent.
async fn send_output(
    output: &mut Output,
    id: &str,
    end: &mut u64,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), SendError<Bytes>> {
    // A comment is sent immediately, so that the client knows the id of the command.
    sender.send(Bytes::from(format!(": {id}\n\n"))).await?;
    loop {
        let next = tokio::select! {
            next = timeout(KEEPALIVE_INTERVAL, output.next()) => next,
            () = sender.closed() => return Err(SendError(Bytes::new())),
        };
        let pieces = match next {
            Err(_) => {
                sender.send(Bytes::from_static(KEEPALIVE)).await?;
                continue;
            }
            Ok(Ok(Some(pieces))) => pieces,
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => {
                tracing::error!(command = id, %error, "failed to read the output of a command");
                return Ok(());
            }
        };
        let (mut pieces, mut encoded) = (pieces.into_iter().flat_map(split), *end);
        while let Some(chunk) = encode(&mut pieces, id, &mut encoded) {
            sender.send(chunk).await?;
            *end = encoded;
        }
    }
}

/// Splits a piece into pieces of at most [`EVENT_SIZE`] bytes, between characters.
fn split(piece: OutputPiece) -> impl Iterator<Item = OutputPiece> {
    let mut rest = Some(piece);
    std::iter::from_fn(move || match rest.take()? {
        OutputPiece::Data { stream, time, offset, mut data } => {
            let taken = match whole_characters(&data, EVENT_SIZE) {
                // The data is not UTF-8.
                0 => data.len().min(EVENT_SIZE),
                taken => taken,
            };
            let tail = data.split_off(taken);
            if !tail.is_empty() {
                rest = Some(OutputPiece::Data { stream, time, offset: offset + taken as u64, data: tail });
            }
            Some(OutputPiece::Data { stream, time, offset, data })
        }
        other => Some(other),
    })
}

/// Encodes the next chunk of events; `None` if no pieces are left.
fn encode(pieces: &mut impl Iterator<Item = OutputPiece>, id: &str, end: &mut u64) -> Option<Bytes> {
    let mut text = Vec::new();
    while text.len() < CHUNK_SIZE
        && let Some(piece) = pieces.next()
    {
        let (event, next) = event(&piece, id, *end);
        *end = next;
        write_event(&mut text, &event, next);
    }
    // The chunk may be queued for a long time, so unused capacity is freed.
    text.shrink_to_fit();
    (!text.is_empty()).then(|| Bytes::from(text))
}

/// Appends an event with the offset after it.
fn write_event(text: &mut Vec<u8>, event: &CommandEvent<'_>, id: u64) {
    text.extend_from_slice(format!("event: {}\nid: {id}\ndata: ", event.kind).as_bytes());
    // JSON has no line breaks; writing into memory does not fail.
    let _ = serde_json::to_writer(&mut *text, event);
    text.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use workspace_sandbox::CommandExit;

    #[test]
    fn events_have_output_and_resume_offsets() {
        let data = |offset, data: &[u8]| OutputPiece::Data {
            stream: Stream::Stdout,
            time: 5,
            offset,
            data: data.to_vec(),
        };
        let end = CommandExit { exit_code: 3, ..CommandExit::default() };
        let pieces = [
            data(10, b"a\nb"),
            OutputPiece::Gap { from: 13, to: 20 },
            data(20, &[0xff]),
            OutputPiece::Exit(end),
        ];
        let mut end = 10;
        let text = encode(&mut pieces.into_iter(), "cmd-1", &mut end).unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        let events: Vec<&str> = text.trim_end().split("\n\n").collect();
        assert_eq!(
            events[0],
            "event: stdout\nid: 13\ndata: {\"type\":\"stdout\",\"commandId\":\"cmd-1\",\"data\":\"a\\nb\",\"offset\":10,\"timestamp\":5}"
        );
        assert!(events[1].starts_with("event: gap\nid: 20\n") && events[1].contains("\"from\":13,\"to\":20"));
        assert!(events[2].contains("\"dataBase64\":\"/w==\"") && events[2].contains("id: 21\n"));
        assert!(events[3].starts_with("event: exit\nid: 21\n") && events[3].contains("\"exitCode\":3"));
    }

    #[test]
    fn bytes_queued_for_a_slow_client_are_bounded() {
        let size = 65_536;
        let data = |index: usize| OutputPiece::Data {
            stream: Stream::Stdout,
            time: 5,
            offset: (index * size) as u64,
            data: vec![0; size],
        };
        let (mut left, mut end) = ((0..10).map(data).flat_map(split), 0);
        let chunks: Vec<Bytes> = std::iter::from_fn(|| encode(&mut left, "cmd-1", &mut end)).collect();
        assert!(chunks.iter().all(|chunk| chunk.len() < CHUNK_SIZE + 6 * EVENT_SIZE + 1024));
        assert_eq!(end, 10 * size as u64);
        let events = chunks.iter().map(|chunk| String::from_utf8_lossy(chunk).matches("event: ").count());
        assert_eq!(events.sum::<usize>(), 10 * size / EVENT_SIZE);
    }

    #[test]
    fn parts_are_cut_between_characters_and_bytes_anywhere() {
        let piece = |data: Vec<u8>| OutputPiece::Data { stream: Stream::Stderr, time: 5, offset: 7, data };
        let text = "€".repeat(EVENT_SIZE).into_bytes();
        for data in [text.clone(), vec![0x80; 3 * EVENT_SIZE], vec![0xe2; EVENT_SIZE + 1], Vec::new()] {
            let (mut all, mut next) = (Vec::new(), 7);
            for part in split(piece(data.clone())) {
                let OutputPiece::Data { stream: Stream::Stderr, time: 5, offset, data: part } = part else {
                    panic!("a part is of the same stream and time");
                };
                assert_eq!(offset, next);
                assert!(part.len() <= EVENT_SIZE && (data != text || std::str::from_utf8(&part).is_ok()));
                next += part.len() as u64;
                all.extend(part);
            }
            assert_eq!(all, data);
        }
    }
}
