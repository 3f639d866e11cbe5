//! Where the output of a command goes: to files that the server reads, or over the connection to it.
//!
//! A guest that shares no files with the server keeps output in memory until the server says that it is stored. As much as
//! [`UNSTORED_MAX`] is kept for each command; a command that prints more waits, so nothing is lost while the server is
//! away.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use workspace_agent_protocol::output::{End, Frame, Stream, Writer};

/// How much output of a command waits to be stored before the command waits.
const UNSTORED_MAX: usize = 1 << 20;
/// How much more is kept of a command that has ended: what its pipes held.
const LAST: usize = 256 << 10;
/// A piece is at most this long.
const PIECE: usize = 64 << 10;
/// What a piece takes up beside its bytes.
const OVERHEAD: usize = 64;

/// The output of one command.
#[derive(Debug)]
pub(crate) enum Output {
    Files(Writer),
    Sent(Unstored),
}

impl Output {
    /// Bytes so far.
    pub(crate) fn written(&self) -> u64 {
        match self {
            Self::Files(writer) => writer.written(),
            Self::Sent(unstored) => unstored.lock().offset,
        }
    }

    /// Keeps what came from a stream. What cannot be written leaves a gap.
    pub(crate) fn write(&mut self, stream: Stream, time: i64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Files(writer) => writer.write(stream, time, data),
            Self::Sent(unstored) => {
                unstored.write(stream, time, data);
                Ok(())
            }
        }
    }

    /// Says how the command ended.
    pub(crate) fn end(&mut self, time: i64, end: End) -> io::Result<()> {
        match self {
            Self::Files(writer) => writer.end(time, end),
            Self::Sent(unstored) => {
                unstored.lock().end = Some((time, end));
                Ok(())
            }
        }
    }

    /// Reports whether the command is to wait until some of it is stored.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Sent(unstored) if unstored.lock().size >= UNSTORED_MAX)
    }
}

/// Output that the server has not stored yet. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unstored(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// What is not stored, oldest first.
    frames: VecDeque<Frame>,
    /// How many of these were sent on this connection.
    sent: usize,
    /// Bytes that they take up.
    size: usize,
    /// Of the next byte.
    offset: u64,
    /// How the command ended and when, and whether that was sent on this connection.
    end: Option<(i64, End)>,
    end_sent: bool,
}

/// Something to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(Frame),
    End(i64, End),
}

impl Unstored {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, stream: Stream, time: i64, data: &[u8]) {
        let mut kept = self.lock();
        for part in data.chunks(PIECE) {
            // Nobody reads what a command that has ended leaves behind and what does not fit any more.
            if kept.size < UNSTORED_MAX + LAST {
                kept.keep(stream, time, part);
            }
            kept.offset += part.len() as u64;
        }
    }

    /// What was not sent on this connection.
    pub(crate) fn unsent(&self) -> Vec<Piece> {
        let mut kept = self.lock();
        let unsent = kept.frames.iter().skip(kept.sent).cloned().map(Piece::Data).collect::<Vec<_>>();
        kept.sent = kept.frames.len();
        let end = kept.end.filter(|_| !kept.end_sent).map(|(time, end)| Piece::End(time, end));
        kept.end_sent |= end.is_some();
        unsent.into_iter().chain(end).collect()
    }

    /// The server has stored everything before this offset.
    pub(crate) fn stored(&self, offset: u64) {
        let mut kept = self.lock();
        while kept.frames.front().is_some_and(|frame| frame.offset + frame.data.len() as u64 <= offset) {
            if let Some(frame) = kept.frames.pop_front() {
                kept.size -= frame.data.len() + OVERHEAD;
                kept.sent = kept.sent.saturating_sub(1);
            }
        }
    }

    /// A server connected that has stored everything before this offset. The rest is to be sent to it.
    pub(crate) fn resume(&self, stored: u64) {
        self.stored(stored);
        let mut kept = self.lock();
        (kept.sent, kept.end_sent) = (0, false);
    }
}

impl Kept {
    /// Small pieces are put together while they wait.
    fn keep(&mut self, stream: Stream, time: i64, data: &[u8]) {
        self.size += data.len();
        let is_unsent = self.sent < self.frames.len();
        if let Some(last) = self.frames.back_mut().filter(|_| is_unsent) {
            let follows = last.offset + last.data.len() as u64 == self.offset;
            if last.stream == stream && follows && last.data.len() + data.len() <= PIECE {
                last.data.extend_from_slice(data);
                return;
            }
        }
        self.size += OVERHEAD;
        self.frames.push_back(Frame { stream, time, offset: self.offset, data: data.to_vec() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pieces: &[Piece]) -> Vec<(u64, &[u8])> {
        let data = pieces.iter().filter_map(|piece| match piece {
            Piece::Data(frame) => Some((frame.offset, frame.data.as_slice())),
            Piece::End(..) => None,
        });
        data.collect()
    }

    #[test]
    fn what_is_not_stored_is_sent_again_on_the_next_connection() {
        let unstored = Unstored::default();
        unstored.write(Stream::Stdout, 1, b"ab");
        unstored.write(Stream::Stdout, 2, b"cd");
        assert_eq!(sent(&unstored.unsent()), [(0, &b"abcd"[..])], "small pieces go together");
        unstored.write(Stream::Stderr, 3, b"ef");
        unstored.write(Stream::Stdout, 3, b"gh");
        assert_eq!(sent(&unstored.unsent()), [(4, &b"ef"[..]), (6, b"gh")]);
        assert_eq!(unstored.unsent(), []);
        unstored.stored(6);
        unstored.resume(6);
        assert_eq!(sent(&unstored.unsent()), [(6, &b"gh"[..])]);
        unstored.resume(7);
        assert_eq!(sent(&unstored.unsent()), [(6, &b"gh"[..])], "a piece of which a part is stored");
        unstored.resume(8);
        assert_eq!((unstored.unsent(), unstored.lock().size), (Vec::new(), 0));
    }

    #[test]
    fn a_command_waits_when_much_is_not_stored_and_memory_is_bounded() {
        let mut output = Output::Sent(Unstored::default());
        while !output.is_full() {
            output.write(Stream::Stdout, 0, &[0; 10_000]).unwrap();
        }
        for _ in 0..1_000 {
            output.write(Stream::Stdout, 0, &[0; 10_000]).unwrap();
        }
        let Output::Sent(unstored) = &output else { panic!() };
        assert!(unstored.lock().size <= UNSTORED_MAX + LAST + PIECE + OVERHEAD);
        assert!(output.written() > 10_000_000);
        unstored.stored(u64::MAX);
        assert!(!output.is_full());
    }
}
