//! Server-sent events, taken apart.

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) id: Option<String>,
    pub(super) data: Vec<u8>,
}

/// Makes events of bytes as they come.
#[derive(Default)]
pub(super) struct Parser {
    /// What came; everything before `from` is done with.
    bytes: Vec<u8>,
    from: usize,
    /// Up to where there is no end of a line.
    looked: usize,
    id: Option<String>,
    data: Option<Vec<u8>>,
}

impl Parser {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.from);
        self.looked -= self.from;
        self.from = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next event that is whole.
    pub(super) fn next(&mut self) -> Option<Event> {
        while let Some(length) = self.bytes[self.looked..].iter().position(|byte| *byte == b'\n') {
            let end = self.looked + length;
            let line = self.from..end;
            (self.from, self.looked) = (end + 1, end + 1);
            if line.is_empty() {
                let id = self.id.take();
                if let Some(data) = self.data.take() {
                    return Some(Event { id, data });
                }
            } else {
                self.take_line(line);
            }
        }
        self.looked = self.bytes.len();
        None
    }

    fn take_line(&mut self, line: std::ops::Range<usize>) {
        let line = &self.bytes[line];
        let value =
            |field: &[u8]| line.strip_prefix(field).map(|rest| rest.strip_prefix(b" ").unwrap_or(rest));
        if let Some(value) = value(b"data:") {
            self.data.get_or_insert_default().extend_from_slice(value);
        } else if let Some(value) = value(b"id:") {
            self.id = Some(String::from_utf8_lossy(value).into_owned());
        }
        // The event's name is in its data, too; the rest are comments.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_their_bytes_come() {
        let text = b": cmd-1\n\nevent: stdout\nid: 3\ndata: {\"a\":1}\n\n: waiting\n\nid: 4\ndata: x\n\nid: 5\ndata: half";
        let event = |id: &str, data: &[u8]| Event { id: Some(id.to_owned()), data: data.to_vec() };
        let expected = [event("3", b"{\"a\":1}"), event("4", b"x")];
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for piece in text.chunks(size) {
                parser.push(piece);
                events.extend(std::iter::from_fn(|| parser.next()));
            }
            assert_eq!(events, expected, "{size}");
        }
    }
}
