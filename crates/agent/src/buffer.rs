//! Output that was read from a command and is not kept yet.
//!
//! A read may end in the middle of a character. Such an end is held back until the rest of the character comes, so
//! that every piece of text that is kept is text by itself; but not for long, because the rest may never come.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use crate::stream::Stream;

/// Bytes that are read at once from a pipe.
const PIECE: usize = 64 << 10;
/// Longest time for which the beginning of a character is held back.
const HELD_MAX: Duration = Duration::from_millis(500);

/// The buffer of one stream of a command.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Bytes at the front that are held back, and until when.
    held: usize,
    until: Option<Instant>,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; PIECE], held: 0, until: None }
    }

    /// Reads behind what is held back; how much came. None at the end.
    pub(crate) async fn read(&mut self, stream: &Stream) -> io::Result<usize> {
        stream.read(&mut self.bytes[self.held..]).await
    }

    /// Takes in what was read, and gives what is to be kept now to `keep`.
    pub(crate) fn took(&mut self, read: usize, keep: impl FnOnce(&[u8])) {
        let whole = self.held + read;
        let rest = incomplete(&self.bytes[..whole]);
        keep(&self.bytes[..whole - rest]);
        self.bytes.copy_within(whole - rest..whole, 0);
        self.held = rest;
        self.until = (rest > 0).then(|| Instant::now() + HELD_MAX);
    }

    /// When what is held back is to be kept.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Gives what is held back to `keep`, if there is something.
    pub(crate) fn flush(&mut self, keep: impl FnOnce(&[u8])) {
        if self.held > 0 {
            keep(&self.bytes[..self.held]);
            (self.held, self.until) = (0, None);
        }
    }
}

/// Bytes at the end of a text that begin a character of UTF-8 without completing it. None in what is no text.
fn incomplete(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => 0,
        // Without a length, the end is what is unexpected.
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
            buffer.took(read.len(), |bytes| kept.push(bytes.to_vec()));
        }
        kept
    }

    #[tokio::test]
    async fn a_character_in_two_reads_is_kept_in_one_piece() {
        let text = "aä€😀".as_bytes();
        for cut in 0..text.len() {
            let mut buffer = Buffer::new();
            let kept = pieces(&mut buffer, &[&text[..cut], &text[cut..]]);
            assert!(kept.iter().all(|piece| std::str::from_utf8(piece).is_ok()), "{cut}: {kept:?}");
            assert_eq!((kept.concat(), buffer.until()), (text.to_vec(), None), "{cut}");
        }
    }

    #[tokio::test]
    async fn what_is_no_text_is_not_held_back() {
        let mut buffer = Buffer::new();
        assert_eq!(pieces(&mut buffer, &[b"\xff\xe2", b"\x82"]), [b"\xff\xe2".to_vec(), b"\x82".to_vec()]);
    }

    #[tokio::test]
    async fn the_beginning_of_a_character_whose_rest_does_not_come_is_kept_too() {
        let mut buffer = Buffer::new();
        assert_eq!(pieces(&mut buffer, &[b"a\xe2"]), [b"a".to_vec()]);
        assert!(buffer.until().is_some());
        let mut kept = Vec::new();
        buffer.flush(|bytes| kept.extend_from_slice(bytes));
        assert_eq!((kept, buffer.until()), (b"\xe2".to_vec(), None));
        assert_eq!(pieces(&mut buffer, &[b"\x82b"]), [b"\x82b".to_vec()]);
    }
}
