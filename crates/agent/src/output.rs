//! Destination of a command's output: files that the server reads, or the connection to the server.
//!
//! An agent that shares no files with the server keeps output in memory until the server has stored it, up to
//! [`UNSTORED_MAX`] per command. A running command that prints more blocks, so that none of its output is lost while
//! the server is unavailable. After its exit, or while it is terminated, it cannot block: what exceeds the limit by
//! [`FINAL_OUTPUT_MAX`] is dropped, and leaves a gap.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use workspace_agent_protocol::output::{ExitStatus, Frame, Stream, Writer};

/// Maximum size of unstored output in bytes, above which the command blocks.
const UNSTORED_MAX: usize = 1 << 20;
/// Additional bytes that are queued after the command has exited or its termination was requested, for what is still
/// in its pipes: it is then read without blocking.
const FINAL_OUTPUT_MAX: usize = 256 << 10;
/// Maximum size of the data of a frame in bytes.
const FRAME_MAX: usize = 64 << 10;
/// Estimated memory of a frame in addition to its data.
const FRAME_OVERHEAD: usize = 64;

/// Destination of the output of one command.
#[derive(Debug)]
pub(crate) enum OutputSink {
    /// Files that the server reads.
    Files(Writer),
    /// Connection to the server.
    Streamed(UnstoredOutput),
}

impl OutputSink {
    /// Returns the offset of the next byte, which is the number of bytes of output so far, including those in gaps.
    pub(crate) fn end_offset(&self) -> u64 {
        match self {
            Self::Files(writer) => writer.end_offset(),
            Self::Streamed(unstored) => unstored.lock().offset,
        }
    }

    /// Writes bytes of a stream, which were read at `time`, in milliseconds since 1970. Bytes that cannot be written
    /// leave a gap.
    pub(crate) fn write(&mut self, stream: Stream, time: i64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Files(writer) => writer.write(stream, time, data),
            Self::Streamed(unstored) => {
                unstored.write(stream, time, data);
                Ok(())
            }
        }
    }

    /// Records the exit status and its time, in milliseconds since 1970.
    pub(crate) fn write_exit(&mut self, time: i64, status: ExitStatus) -> io::Result<()> {
        match self {
            Self::Files(writer) => writer.write_exit(time, status),
            Self::Streamed(unstored) => {
                unstored.lock().exit = Some((time, status));
                Ok(())
            }
        }
    }

    /// Returns true if the command has to block until some output is stored.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Streamed(unstored) if unstored.lock().size >= UNSTORED_MAX)
    }
}

/// Output that the server has not stored yet. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnstoredOutput(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    /// Unstored frames, oldest first.
    frames: VecDeque<Frame>,
    /// Number of frames that were sent on the current connection.
    sent: usize,
    /// Memory of the frames, in bytes.
    size: usize,
    /// Offset of the next byte.
    offset: u64,
    /// Time of the exit in milliseconds since 1970, and its status.
    exit: Option<(i64, ExitStatus)>,
    /// True if the exit status was sent on the current connection.
    exit_sent: bool,
}

/// Output or exit status to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputEvent {
    Data(Frame),
    /// Time of the exit in milliseconds since 1970, and its status.
    Exit(i64, ExitStatus),
}

impl UnstoredOutput {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock()
    }

    fn write(&self, stream: Stream, time: i64, data: &[u8]) {
        let mut queue = self.lock();
        for part in data.chunks(FRAME_MAX) {
            // A command that has exited or is being terminated does not block any more. Its output beyond the limit,
            // and that of its background processes, is dropped.
            if queue.size < UNSTORED_MAX + FINAL_OUTPUT_MAX {
                queue.push(stream, time, part);
            }
            queue.offset += part.len() as u64;
        }
    }

    /// Returns the output and exit status that were not sent on the current connection, and marks them as
    /// sent.
    pub(crate) fn take_unsent(&self) -> Vec<OutputEvent> {
        let mut queue = self.lock();
        let unsent = queue.frames.iter().skip(queue.sent).cloned().map(OutputEvent::Data).collect::<Vec<_>>();
        queue.sent = queue.frames.len();
        let exit =
            queue.exit.filter(|_| !queue.exit_sent).map(|(time, status)| OutputEvent::Exit(time, status));
        queue.exit_sent |= exit.is_some();
        unsent.into_iter().chain(exit).collect()
    }

    /// Drops frames before an offset, which the server has stored.
    pub(crate) fn drop_stored(&self, offset: u64) {
        let mut queue = self.lock();
        while queue.frames.front().is_some_and(|frame| frame.offset + frame.data.len() as u64 <= offset) {
            if let Some(frame) = queue.frames.pop_front() {
                queue.size -= frame.data.len() + FRAME_OVERHEAD;
                queue.sent = queue.sent.saturating_sub(1);
            }
        }
    }

    /// Starts over on a new connection to a server that has stored everything before an offset.
    pub(crate) fn resume(&self, stored: u64) {
        self.drop_stored(stored);
        let mut queue = self.lock();
        (queue.sent, queue.exit_sent) = (0, false);
    }
}

impl Queue {
    /// Appends data, to the last frame if that is small and not sent yet.
    fn push(&mut self, stream: Stream, time: i64, data: &[u8]) {
        self.size += data.len();
        let is_unsent = self.sent < self.frames.len();
        if let Some(last) = self.frames.back_mut().filter(|_| is_unsent) {
            // False if output was dropped in between.
            let follows = last.offset + last.data.len() as u64 == self.offset;
            if last.stream == stream && follows && last.data.len() + data.len() <= FRAME_MAX {
                last.data.extend_from_slice(data);
                return;
            }
        }
        self.size += FRAME_OVERHEAD;
        self.frames.push_back(Frame { stream, time, offset: self.offset, data: data.to_vec() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns offset and content of each piece of output.
    fn data_of(events: &[OutputEvent]) -> Vec<(u64, &[u8])> {
        let data = events.iter().filter_map(|event| match event {
            OutputEvent::Data(frame) => Some((frame.offset, frame.data.as_slice())),
            OutputEvent::Exit(..) => None,
        });
        data.collect()
    }

    #[test]
    fn unstored_output_is_resent_after_reconnect() {
        let unstored = UnstoredOutput::default();
        unstored.write(Stream::Stdout, 1, b"ab");
        unstored.write(Stream::Stdout, 2, b"cd");
        assert_eq!(data_of(&unstored.take_unsent()), [(0, &b"abcd"[..])], "small writes share a frame");
        unstored.write(Stream::Stderr, 3, b"ef");
        unstored.write(Stream::Stdout, 3, b"gh");
        assert_eq!(data_of(&unstored.take_unsent()), [(4, &b"ef"[..]), (6, b"gh")]);
        assert_eq!(unstored.take_unsent(), []);
        unstored.drop_stored(6);
        unstored.resume(6);
        assert_eq!(data_of(&unstored.take_unsent()), [(6, &b"gh"[..])]);
        unstored.resume(7);
        assert_eq!(data_of(&unstored.take_unsent()), [(6, &b"gh"[..])], "a partly stored frame is resent");
        unstored.resume(8);
        assert_eq!((unstored.take_unsent(), unstored.lock().size), (Vec::new(), 0));
    }

    #[test]
    fn full_queue_blocks_and_memory_is_bounded() {
        let mut output = OutputSink::Streamed(UnstoredOutput::default());
        while !output.is_full() {
            output.write(Stream::Stdout, 0, &[0; 10_000]).unwrap();
        }
        for _ in 0..1_000 {
            output.write(Stream::Stdout, 0, &[0; 10_000]).unwrap();
        }
        let OutputSink::Streamed(unstored) = &output else { panic!() };
        assert!(unstored.lock().size <= UNSTORED_MAX + FINAL_OUTPUT_MAX + FRAME_MAX + FRAME_OVERHEAD);
        assert!(output.end_offset() > 10_000_000);
        unstored.drop_stored(u64::MAX);
        assert!(!output.is_full());
    }
}
