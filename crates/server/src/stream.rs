//! Streams the output of a command as server-sent events.
//!
//! Each event has the offset of the byte behind it as its id, so whoever lost the connection goes on from there. A
//! client that reads slowly slows its own stream: what it has not taken stays in the command's files.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use workspace_api::events::{CommandEvent, CommandEventKind};
use workspace_sandbox::{Output, Piece, Stream};

use crate::process::whole_characters;

/// Chunks that wait for the client.
const QUEUE: usize = 1;
/// A chunk is sent when it has so many bytes, or when nothing more is there.
const CHUNK: usize = 64 << 10;
/// Bytes that are read at once. One owner may have a thousand streams that are not read.
const BATCH: usize = 128 << 10;
/// Bytes of output in one event. JSON may need six for one.
const EVENT: usize = 16 << 10;
/// Interval of keepalive comments. Proxies close idle connections.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Returns a piece of output as an event, and the offset of the byte behind it.
fn event<'a>(piece: &'a Piece, id: &'a str, behind: u64) -> (CommandEvent<'a>, u64) {
    match piece {
        Piece::Data { stream, time, offset, data } => {
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
        Piece::Gap { from, to } => {
            let event = CommandEvent::new(CommandEventKind::Gap, id, now());
            (CommandEvent { from: Some(*from), to: Some(*to), ..event }, *to)
        }
        Piece::End(end) => {
            let kind = if end.failed.is_some() { CommandEventKind::Error } else { CommandEventKind::Exit };
            let event = CommandEvent {
                message: end.failed.clone(),
                exit_code: Some(end.exit_code),
                timed_out: Some(end.timed_out),
                ..CommandEvent::new(kind, id, now())
            };
            (event, behind)
        }
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Streams what a command prints. `gone` is done when the client is gone before the end.
pub(crate) fn events(
    mut output: Output,
    id: String,
    from: u64,
    gone: impl Future<Output = ()> + Send + 'static,
) -> Response {
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE);
    output.set_batch_size(BATCH);
    tokio::spawn(async move {
        // The first line is there at once, so that the client knows the command's id.
        let mut behind = from;
        let hello = Bytes::from(format!(": {id}\n\n"));
        if sender.send(hello).await.is_err() {
            return gone.await;
        }
        loop {
            let next = tokio::select! {
                next = timeout(KEEPALIVE_INTERVAL, output.next()) => next,
                () = sender.closed() => return gone.await,
            };
            let pieces = match next {
                Err(_) => {
                    if sender.send(Bytes::from_static(b": waiting\n\n")).await.is_err() {
                        return gone.await;
                    }
                    continue;
                }
                Ok(Ok(Some(pieces))) => pieces,
                Ok(Ok(None)) => return,
                Ok(Err(error)) => {
                    tracing::error!(command = id, %error, "failed to read the output of a command");
                    return;
                }
            };
            let mut pieces = pieces.into_iter().flat_map(parts);
            while let Some(chunk) = encode(&mut pieces, &id, &mut behind) {
                if sender.send(chunk).await.is_err() {
                    return gone.await;
                }
            }
        }
    });
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that gather answers would hold it up.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

/// Splits a piece into small events, between characters.
fn parts(piece: Piece) -> impl Iterator<Item = Piece> {
    let mut rest = Some(piece);
    std::iter::from_fn(move || match rest.take()? {
        Piece::Data { stream, time, offset, mut data } => {
            let taken = match whole_characters(&data, EVENT) {
                // One that is longer than characters are.
                0 => data.len().min(EVENT),
                taken => taken,
            };
            let behind = data.split_off(taken);
            if !behind.is_empty() {
                rest = Some(Piece::Data { stream, time, offset: offset + taken as u64, data: behind });
            }
            Some(Piece::Data { stream, time, offset, data })
        }
        other => Some(other),
    })
}

/// Encodes the next chunk of events; `None` if no pieces are left.
fn encode(pieces: &mut impl Iterator<Item = Piece>, id: &str, behind: &mut u64) -> Option<Bytes> {
    let mut text = Vec::new();
    while text.len() < CHUNK
        && let Some(piece) = pieces.next()
    {
        let (event, next) = event(&piece, id, *behind);
        *behind = next;
        text.extend_from_slice(format!("event: {}\nid: {next}\ndata: ", event.kind).as_bytes());
        // JSON in one line; writing into memory does not fail.
        let _ = serde_json::to_writer(&mut text, &event);
        text.extend_from_slice(b"\n\n");
    }
    // It may wait for long.
    text.shrink_to_fit();
    (!text.is_empty()).then(|| Bytes::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use workspace_sandbox::End;

    #[test]
    fn events_carry_what_was_printed_and_where_to_go_on() {
        let data = |offset, data: &[u8]| Piece::Data {
            stream: Stream::Stdout,
            time: 5,
            offset,
            data: data.to_vec(),
        };
        let end = End { exit_code: 3, timed_out: false, failed: None };
        let pieces = [data(10, b"a\nb"), Piece::Gap { from: 13, to: 20 }, data(20, &[0xff]), Piece::End(end)];
        let mut behind = 10;
        let text = encode(&mut pieces.into_iter(), "cmd-1", &mut behind).unwrap();
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
        let data = |index: usize| Piece::Data {
            stream: Stream::Stdout,
            time: 5,
            offset: (index * size) as u64,
            data: vec![0; size],
        };
        let (mut left, mut behind) = ((0..10).map(data).flat_map(parts), 0);
        let chunks: Vec<Bytes> = std::iter::from_fn(|| encode(&mut left, "cmd-1", &mut behind)).collect();
        assert!(chunks.iter().all(|chunk| chunk.len() < CHUNK + 6 * EVENT + 1024));
        assert_eq!(behind, 10 * size as u64);
        let events = chunks.iter().map(|chunk| String::from_utf8_lossy(chunk).matches("event: ").count());
        assert_eq!(events.sum::<usize>(), 10 * size / EVENT);
    }

    #[test]
    fn parts_are_cut_between_characters_and_bytes_anywhere() {
        let piece = |data: Vec<u8>| Piece::Data { stream: Stream::Stderr, time: 5, offset: 7, data };
        let text = "€".repeat(EVENT).into_bytes();
        for data in [text.clone(), vec![0x80; 3 * EVENT], vec![0xe2; EVENT + 1], Vec::new()] {
            let (mut all, mut next) = (Vec::new(), 7);
            for part in parts(piece(data.clone())) {
                let Piece::Data { stream: Stream::Stderr, time: 5, offset, data: part } = part else {
                    panic!("a part is of the same stream and time");
                };
                assert_eq!(offset, next);
                assert!(part.len() <= EVENT && (data != text || std::str::from_utf8(&part).is_ok()));
                next += part.len() as u64;
                all.extend(part);
            }
            assert_eq!(all, data);
        }
    }
}
