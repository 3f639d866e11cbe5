//! Read buffer for the output of a command.
//!
//! A read may end in the middle of a character. The incomplete character is held back until the rest of it
//! arrives, so that each frame (a piece of output with its offset) of text is valid UTF-8. It is flushed after a
//! timeout, since the rest may never arrive.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use crate::stream::NonBlockingFd;

/// Size of a read from a pipe, in bytes.
const READ_SIZE: usize = 64 << 10;
/// Maximum time for which an incomplete character is held back.
const HOLD_TIMEOUT: Duration = Duration::from_millis(500);

/// Buffer of one stream of a command.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Number of bytes at the front that are held back.
    held: usize,
    /// Deadline for writing the bytes that are held back.
    deadline: Option<Instant>,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; READ_SIZE], held: 0, deadline: None }
    }

    /// Reads into the buffer after the bytes that are held back. Returns the number of bytes read; 0 at the
    /// end of the stream.
    pub(crate) async fn read(&mut self, stream: &NonBlockingFd) -> io::Result<usize> {
        stream.read(&mut self.bytes[self.held..]).await
    }

    /// Processes `read` new bytes: passes everything before an incomplete character to `write`.
    pub(crate) fn advance(&mut self, read: usize, write: impl FnOnce(&[u8])) {
        let len = self.held + read;
        let rest = incomplete_len(&self.bytes[..len]);
        write(&self.bytes[..len - rest]);
        self.bytes.copy_within(len - rest..len, 0);
        self.held = rest;
        self.deadline = (rest > 0).then(|| Instant::now() + HOLD_TIMEOUT);
    }

    /// Returns the deadline for writing the bytes that are held back.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Passes the bytes that are held back to `write`, if there are any.
    pub(crate) fn flush(&mut self, write: impl FnOnce(&[u8])) {
        if self.held > 0 {
            write(&self.bytes[..self.held]);
            (self.held, self.deadline) = (0, None);
        }
    }
}

/// Returns the length of an incomplete UTF-8 character at the end; 0 if the bytes are not UTF-8.
fn incomplete_len(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => 0,
        // No error length: the input ends in the middle of a character.
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(buffer: &mut Buffer, reads: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut written = Vec::new();
        for read in reads {
            buffer.bytes[buffer.held..buffer.held + read.len()].copy_from_slice(read);
            buffer.advance(read.len(), |bytes| written.push(bytes.to_vec()));
        }
        written
    }

    #[tokio::test]
    async fn split_characters_are_rejoined() {
        let text = "aä€😀".as_bytes();
        for cut in 0..text.len() {
            let mut buffer = Buffer::new();
            let written = pieces(&mut buffer, &[&text[..cut], &text[cut..]]);
            assert!(written.iter().all(|piece| std::str::from_utf8(piece).is_ok()), "{cut}: {written:?}");
            assert_eq!((written.concat(), buffer.deadline()), (text.to_vec(), None), "{cut}");
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
        assert!(buffer.deadline().is_some());
        let mut written = Vec::new();
        buffer.flush(|bytes| written.extend_from_slice(bytes));
        assert_eq!((written, buffer.deadline()), (b"\xe2".to_vec(), None));
        assert_eq!(pieces(&mut buffer, &[b"\x82b"]), [b"\x82b".to_vec()]);
    }
}
