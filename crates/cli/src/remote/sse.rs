//! Parser of server-sent events (SSE).

/// Server-sent event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SseEvent {
    pub(super) id: Option<String>,
    pub(super) data: Vec<u8>,
}

/// Maximum size in bytes of a line, and of the data of an event. The server sends output in pieces of 64 KiB, as text
/// or in base64.
pub(super) const EVENT_MAX: usize = 8 << 20;

/// Error for a line or event of more than [`EVENT_MAX`] bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Incremental parser: [`Self::push`] adds received bytes, [`Self::next`] returns events.
#[derive(Default)]
pub(super) struct SseParser {
    /// Received bytes; those before `consumed` were parsed.
    bytes: Vec<u8>,
    consumed: usize,
    /// Offset up to which the bytes after `consumed` have no newline.
    scanned: usize,
    /// Fields of the event that is not complete yet.
    id: Option<String>,
    data: Option<Vec<u8>>,
}

impl SseParser {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.consumed);
        self.scanned -= self.consumed;
        self.consumed = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete event; `None` if more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<SseEvent>, TooLong> {
        while let Some(length) = self.bytes[self.scanned..].iter().position(|byte| *byte == b'\n') {
            let end = self.scanned + length;
            let line = self.consumed..end;
            (self.consumed, self.scanned) = (end + 1, end + 1);
            let line = &self.bytes[line];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                let id = self.id.take();
                if let Some(data) = self.data.take() {
                    return Ok(Some(SseEvent { id, data }));
                }
                continue;
            }
            let value =
                |field: &[u8]| line.strip_prefix(field).map(|rest| rest.strip_prefix(b" ").unwrap_or(rest));
            if let Some(value) = value(b"data:") {
                // Lines of one event are joined by newlines.
                if let Some(data) = &mut self.data {
                    data.push(b'\n');
                }
                let data = self.data.get_or_insert_default();
                if data.len() + value.len() > EVENT_MAX {
                    return Err(TooLong);
                }
                data.extend_from_slice(value);
            } else if let Some(value) = value(b"id:") {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            // `event:` lines are ignored, because the data repeats the type of the event. All other lines are comments.
        }
        self.scanned = self.bytes.len();
        if self.scanned - self.consumed > EVENT_MAX { Err(TooLong) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_do_not_depend_on_the_size_of_received_pieces() {
        let text = b": cmd-1\n\nevent: stdout\nid: 3\ndata: {\"a\":1}\n\n: waiting\n\nid: 4\ndata: x\n\nid: 5\ndata: half";
        let event = |id: &str, data: &[u8]| SseEvent { id: Some(id.to_owned()), data: data.to_vec() };
        let expected = [event("3", b"{\"a\":1}"), event("4", b"x")];
        for size in 1..=text.len() {
            let mut parser = SseParser::default();
            let mut events = Vec::new();
            for piece in text.chunks(size) {
                parser.push(piece);
                events.extend(std::iter::from_fn(|| parser.next().unwrap()));
            }
            assert_eq!(events, expected, "{size}");
        }
        // Some proxies end lines with CRLF.
        let text = String::from_utf8(text.to_vec()).unwrap().replace('\n', "\r\n");
        let mut parser = SseParser::default();
        parser.push(text.as_bytes());
        assert_eq!(std::iter::from_fn(|| parser.next().unwrap()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn data_lines_of_one_event_are_joined_by_newlines() {
        let mut parser = SseParser::default();
        parser.push(b"data: {\ndata:  \"a\": 1\ndata:\ndata: }\n\ndata: x\n\n");
        let data = std::iter::from_fn(|| parser.next().unwrap()).map(|event| event.data);
        assert_eq!(data.collect::<Vec<_>>(), [b"{\n \"a\": 1\n\n}".to_vec(), b"x".to_vec()]);
    }

    #[test]
    fn lines_and_events_over_the_size_limit_are_rejected() {
        for line in ["data: half a line", "data: a line\n", ": a comment without an end"] {
            let mut parser = SseParser::default();
            let mut pushed = 0;
            let refused = loop {
                parser.push(line.as_bytes());
                pushed += line.len();
                match parser.next() {
                    Ok(None) => {}
                    other => break other,
                }
                assert!(pushed <= 4 * EVENT_MAX, "{line:?}");
            };
            assert_eq!(refused, Err(TooLong), "{line:?}");
        }
        // Comments of any number are forgotten.
        let mut parser = SseParser::default();
        for _ in 0..EVENT_MAX / 1_000 {
            parser.push(&[b": waiting".as_slice(), &[b' '; 2_000], b"\n\n"].concat());
            assert_eq!(parser.next(), Ok(None));
        }
    }
}
