//! Read buffer for the output of a command.
//!
//! A read may end in the middle of a character. Such an end is held back until the rest of the character
//! arrives, so that each written frame of text is valid UTF-8; but not for long, since the rest may never
//! come.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use crate::stream::Stream;

/// Size of a read from a pipe, in bytes.
const READ_SIZE: usize = 64 << 10;
/// Longest time for which an incomplete character is held back.
const HOLD_TIMEOUT: Duration = Duration::from_millis(500);

/// Buffer of one stream of a command.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Number of bytes at the front that are held back, and the deadline to write them.
    held: usize,
    until: Option<Instant>,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; READ_SIZE], held: 0, until: None }
    }

    /// Reads behind the bytes that are held back. Returns the number of bytes read; 0 at the end.
    pub(crate) async fn read(&mut self, stream: &Stream) -> io::Result<usize> {
        stream.read(&mut self.bytes[self.held..]).await
    }

    /// Accepts bytes that were read, and passes those that are complete to `keep`.
    pub(crate) fn advance(&mut self, read: usize, keep: impl FnOnce(&[u8])) {
        let whole = self.held + read;
        let rest = incomplete(&self.bytes[..whole]);
        keep(&self.bytes[..whole - rest]);
        self.bytes.copy_within(whole - rest..whole, 0);
        self.held = rest;
        self.until = (rest > 0).then(|| Instant::now() + HOLD_TIMEOUT);
    }

    /// Returns the deadline for writing the bytes that are held back.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Passes the bytes that are held back to `keep`, if there are any.
    pub(crate) fn flush(&mut self, keep: impl FnOnce(&[u8])) {
        if self.held > 0 {
            keep(&self.bytes[..self.held]);
            (self.held, self.until) = (0, None);
        }
    }
}

/// Returns the length of an incomplete UTF-8 character at the end; 0 if the bytes are not UTF-8.
fn incomplete(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => 0,
        // Without an error length, the input ended unexpectedly.
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(buffer: &mut Buffer, reads: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut kept = Vec::new();
        for read in reads {
            buffer.bytes[buffer.held..buffer.held + read.len()].copy_from_slice(read);
            buffer.advance(read.len(), |bytes| kept.push(bytes.to_vec()));
        }
        kept
    }

    #[tokio::test]
    async fn split_characters_are_rejoined() {
        let text = "aä€😀".as_bytes();
        for cut in 0..text.len() {
            let mut buffer = Buffer::new();
            let kept = pieces(&mut buffer, &[&text[..cut], &text[cut..]]);
            assert!(kept.iter().all(|piece| std::str::from_utf8(piece).is_ok()), "{cut}: {kept:?}");
            assert_eq!((kept.concat(), buffer.until()), (text.to_vec(), None), "{cut}");
        }
    }

    #[tokio::test]
    async fn binary_data_is_not_held_back() {
        let mut buffer = Buffer::new();
        assert_eq!(pieces(&mut buffer, &[b"\xff\xe2", b"\x82"]), [b"\xff\xe2".to_vec(), b"\x82".to_vec()]);
    }

    #[tokio::test]
    async fn incomplete_character_is_flushed() {
        let mut buffer = Buffer::new();
        assert_eq!(pieces(&mut buffer, &[b"a\xe2"]), [b"a".to_vec()]);
        assert!(buffer.until().is_some());
        let mut kept = Vec::new();
        buffer.flush(|bytes| kept.extend_from_slice(bytes));
        assert_eq!((kept, buffer.until()), (b"\xe2".to_vec(), None));
        assert_eq!(pieces(&mut buffer, &[b"\x82b"]), [b"\x82b".to_vec()]);
    }
}
