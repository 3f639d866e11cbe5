//! Detection of requests with two lengths: `Content-Length` and `Transfer-Encoding`.
//!
//! If a request has both `Content-Length` and `Transfer-Encoding`, hyper drops the former, decodes the body by the latter
//! and closes the connection afterwards. The standard allows that, but other programs on the way may use the former, and
//! handlers cannot see that it was there. So the bytes of a connection also pass a [`Framing`], which finds such requests.
//! Nothing else depends on it. If it parsed a request differently from hyper, the only consequence would be that a valid
//! request is refused, or that such a request is not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of bytes of a line that are kept. Names and values of the headers that matter are shorter.
const LINE_KEPT_MAX: usize = 256;

/// Requests of one connection. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Framing(Arc<Mutex<Requests>>);

#[derive(Debug, Default)]
struct Requests {
    parser: Parser,
    /// Number of requests whose head was received.
    received: u64,
    /// Number of requests that were handled.
    handled: u64,
    /// Number of the first request with two lengths, counted from 1. hyper closes the connection after it.
    ambiguous: Option<u64>,
}

impl Framing {
    /// Returns true if the next request has both `Content-Length` and `Transfer-Encoding`. Call it once for each request,
    /// in their order.
    pub(crate) fn is_next_ambiguous(&self) -> bool {
        let mut requests = self.0.lock();
        requests.handled += 1;
        requests.ambiguous == Some(requests.handled)
    }

    fn receive(&self, bytes: &[u8]) {
        let mut requests = self.0.lock();
        let Requests { parser, received, ambiguous, .. } = &mut *requests;
        parser.receive(bytes, |is_ambiguous| {
            *received += 1;
            if is_ambiguous {
                ambiguous.get_or_insert(*received);
            }
        });
    }
}

#[derive(Debug, Default)]
struct Parser {
    state: State,
    /// First bytes of the current line.
    line: Vec<u8>,
    head: Head,
}

/// Part of a request that comes next.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Head,
    /// Body with `Content-Length`, and the number of bytes left.
    Body(u64),
    ChunkSize,
    /// Data of a chunk, and the number of bytes left.
    ChunkData(u64),
    /// Line break after the data of a chunk.
    ChunkEnd,
    Trailers,
    /// Bytes that are not HTTP, or not valid. Nothing after them is parsed.
    Opaque,
}

#[derive(Debug, Clone, Copy, Default)]
struct Head {
    has_request_line: bool,
    has_length: bool,
    has_encoding: bool,
    /// Value of `Content-Length`; `None` if it is missing or not a number.
    length: Option<u64>,
}

impl Parser {
    /// Parses bytes. Calls `on_head` at the end of each head; the argument is true if the request has two lengths.
    fn receive(&mut self, mut bytes: &[u8], mut on_head: impl FnMut(bool)) {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Opaque => return,
                State::Body(left) => {
                    bytes = skip(bytes, left);
                    if *left == 0 {
                        self.state = State::Head;
                    }
                }
                State::ChunkData(left) => {
                    bytes = skip(bytes, left);
                    if *left == 0 {
                        self.state = State::ChunkEnd;
                    }
                }
                State::Head | State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                        return self.keep(bytes);
                    };
                    self.keep(&bytes[..end]);
                    bytes = &bytes[end + 1..];
                    let line = std::mem::take(&mut self.line);
                    if let Some(is_ambiguous) = self.end_line(line.strip_suffix(b"\r").unwrap_or(&line)) {
                        on_head(is_ambiguous);
                    }
                }
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let free = LINE_KEPT_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(free)]);
    }

    /// Handles a line. Returns whether the request has two lengths, if the line is the last of a head.
    fn end_line(&mut self, line: &[u8]) -> Option<bool> {
        match self.state {
            State::Head if !self.head.has_request_line => {
                // Empty lines before a request are ignored.
                self.head.has_request_line = !line.is_empty();
            }
            State::Head if line.is_empty() => return Some(self.end_head()),
            State::Head => self.head.add(line),
            State::ChunkSize => {
                self.state = match chunk_size(line) {
                    Some(0) => State::Trailers,
                    Some(size) => State::ChunkData(size),
                    None => State::Opaque,
                };
            }
            State::ChunkEnd if line.is_empty() => self.state = State::ChunkSize,
            State::ChunkEnd => self.state = State::Opaque,
            State::Trailers if line.is_empty() => self.state = State::Head,
            State::Trailers | State::Body(_) | State::ChunkData(_) | State::Opaque => {}
        }
        None
    }

    fn end_head(&mut self) -> bool {
        let head = std::mem::take(&mut self.head);
        self.state = match head {
            Head { has_length: true, has_encoding: true, .. } => State::Opaque,
            Head { has_encoding: true, .. } => State::ChunkSize,
            Head { length: Some(0), .. } | Head { has_length: false, .. } => State::Head,
            Head { length: Some(length), .. } => State::Body(length),
            Head { length: None, .. } => State::Opaque,
        };
        head.has_length && head.has_encoding
    }
}

impl Head {
    fn add(&mut self, line: &[u8]) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if name.eq_ignore_ascii_case(b"content-length") {
            self.has_length = true;
            self.length = std::str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.has_encoding = true;
        }
    }
}

/// Skips at most `left` bytes, and subtracts them from it.
fn skip<'a>(bytes: &'a [u8], left: &mut u64) -> &'a [u8] {
    let skipped = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= skipped as u64;
    &bytes[skipped..]
}

/// Parses the line before a chunk; `None` if it is not valid.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?.trim_end(), 16).ok()
}

/// Stream whose received bytes pass a [`Framing`].
#[derive(Debug)]
pub(crate) struct FramedStream<S> {
    stream: S,
    framing: Framing,
}

impl<S> FramedStream<S> {
    pub(crate) fn new(stream: S, framing: Framing) -> Self {
        Self { stream, framing }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FramedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.framing.receive(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FramedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for each request in these bytes, which are received in pieces of every size.
    fn ambiguous(bytes: &[u8]) -> Vec<bool> {
        let parse = |size: usize| {
            let (mut parser, mut found) = (Parser::default(), Vec::new());
            for piece in bytes.chunks(size) {
                parser.receive(piece, |is_ambiguous| found.push(is_ambiguous));
            }
            found
        };
        let whole = parse(bytes.len());
        for size in 1..bytes.len() {
            assert_eq!(parse(size), whole, "in pieces of {size} bytes");
        }
        whole
    }

    #[test]
    fn requests_with_two_lengths_are_found_in_any_order_and_spelling() {
        for headers in [
            "content-length: 3\r\ntransfer-encoding: chunked\r\n",
            "Transfer-Encoding:chunked\r\nX: y\r\nCONTENT-LENGTH: 3\r\n",
            "content-length: 3\ntransfer-encoding: chunked\n",
            "transfer-encoding: gzip\r\ncontent-length: x\r\n",
        ] {
            let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{headers}\r\n0\r\n\r\n");
            assert_eq!(ambiguous(request.as_bytes()), [true], "{headers}");
        }
    }

    #[test]
    fn bodies_are_not_mistaken_for_requests() {
        let decoy = "content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
        let length = decoy.len();
        let sized = format!("POST /a HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{decoy}");
        let chunked = format!(
            "POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{length:x};a=b\r\n{decoy}\r\n0\r\ntrailer: x\r\n\r\n"
        );
        let empty = "\r\nGET /c HTTP/1.1\r\nhost: a\r\n\r\n";
        let both = format!("POST /d HTTP/1.1\r\n{decoy}");
        let all = [sized, chunked, empty.to_owned(), both].concat();
        assert_eq!(ambiguous(all.as_bytes()), [false, false, false, true]);
    }

    #[test]
    fn bytes_that_are_not_http_end_the_search() {
        let upgraded = b"GET / HTTP/1.1\r\ncontent-length: 4x\r\n\r\n\0\x01content-length: 1\r\n\r\n\r\n\r\n";
        assert_eq!(ambiguous(upgraded), [false]);
        let chunked = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nGET / HTTP/1.1\r\n\r\n";
        assert_eq!(ambiguous(chunked), [false]);
        let mut parser = Parser::default();
        parser.receive(&vec![b'x'; 1 << 20], |_| {});
        assert!(parser.line.len() <= LINE_KEPT_MAX);
    }

    #[tokio::test]
    async fn only_the_request_with_two_lengths_is_reported() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
        let framing = Framing::default();
        let (near, mut far) = duplex(1 << 10);
        let mut near = FramedStream::new(near, framing.clone());
        let plain = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let both = "POST / HTTP/1.1\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        far.write_all([plain, both].concat().as_bytes()).await.unwrap();
        drop(far);
        let mut read = String::new();
        near.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, [plain, both].concat());
        assert_eq!([(); 3].map(|()| framing.is_next_ambiguous()), [false, true, false]);
    }
}
