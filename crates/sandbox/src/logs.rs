//! What the commands of a sandbox printed, all together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;

use workspace_agent_protocol::output::{Frame, Item, Reader, Stream};
use workspace_state::{Cancel, Cancelled};

use crate::error::{Doing as _, Result, SandboxError};
use crate::place::Place;
use crate::service::{Scope, Service};

/// Of so many commands.
const COMMANDS: u32 = 200;
/// Memory for what was printed; the oldest goes first.
const BYTES: usize = 8 << 20;
/// What a piece takes beside its bytes, about. Guests may write pieces of one byte.
const PIECE_OVERHEAD: usize = 128;
/// Bytes of files that are read for one answer: what is not wanted is read, too.
const READ_MAX: usize = 64 << 20;

/// Lines in the order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logs {
    /// The lines. What is not UTF-8 is replaced.
    pub text: String,
    /// Whether there were more.
    pub truncated: bool,
}

impl Service {
    /// The last lines that commands printed, not before `since` and not after `until`. Reading ends when the future is dropped.
    pub async fn logs(
        &self,
        scope: &Scope,
        id: &str,
        tail: usize,
        since: Option<i64>,
        until: Option<i64>,
    ) -> Result<Logs> {
        self.find(scope, id).await?;
        let ids = self.0.catalog.commands().newest(id, COMMANDS).await?;
        let place = self.place(id);
        let wanted = since.unwrap_or(i64::MIN)..=until.unwrap_or(i64::MAX);
        let cancel = self.0.cancel.child();
        let stop = cancel.on_drop();
        let read = tokio::task::spawn_blocking(move || read(&place, &ids, wanted, tail, &cancel)).await;
        stop.disarm();
        match read.map_err(io::Error::other).flatten() {
            Err(error) if Cancelled::is_cause_of(&error) => Err(SandboxError::Cancelled),
            read => read.doing(|| "read what commands printed".to_owned()),
        }
    }
}

fn read(
    place: &Place,
    ids: &[String],
    wanted: RangeInclusive<i64>,
    tail: usize,
    cancel: &Cancel,
) -> io::Result<Logs> {
    let mut newest = Newest { wanted, left: READ_MAX, ..Newest::new(BYTES) };
    newest.truncated = ids.len() >= COMMANDS as usize;
    // Newest first: when there is enough, older ones need not be read.
    for id in ids {
        if newest.is_full() {
            newest.truncated = true;
            break;
        }
        let mut reader = Reader::open(File::open(place.output())?, id, 0)?;
        while newest.left > 0
            && let Some(item) = reader.next_item()?
        {
            cancel.check()?;
            newest.take(item);
        }
    }
    Ok(newest.lines(tail))
}

/// The newest of what commands printed, in bounded memory.
struct Newest {
    /// When it was printed, in milliseconds since 1970.
    wanted: RangeInclusive<i64>,
    /// Most memory for the pieces.
    most: usize,
    /// Bytes that may yet be read.
    left: usize,
    /// By time, and of the same time in the order in which they were read.
    pieces: BTreeMap<(i64, u64), Vec<u8>>,
    taken: u64,
    size: usize,
    truncated: bool,
}

impl Newest {
    fn new(most: usize) -> Self {
        Self {
            wanted: i64::MIN..=i64::MAX,
            most,
            left: usize::MAX,
            pieces: BTreeMap::new(),
            taken: 0,
            size: 0,
            truncated: false,
        }
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.size >= self.most
    }

    fn take(&mut self, item: Item) {
        let frame = match item {
            Item::Frame(frame) => frame,
            Item::Gap { .. } => {
                self.truncated = true;
                return;
            }
        };
        self.left = self.left.saturating_sub(frame.data.len() + PIECE_OVERHEAD);
        if frame.stream != Stream::End && self.wanted.contains(&frame.time) {
            self.keep(frame);
        }
        if self.left == 0 {
            self.truncated = true;
        }
    }

    fn keep(&mut self, frame: Frame) {
        self.size += frame.data.len() + PIECE_OVERHEAD;
        self.taken += 1;
        self.pieces.insert((frame.time, self.taken), frame.data);
        // What is left fills the memory still.
        while let Some(oldest) = self.pieces.first_entry()
            && self.size - (oldest.get().len() + PIECE_OVERHEAD) >= self.most
        {
            self.size -= oldest.remove().len() + PIECE_OVERHEAD;
            self.truncated = true;
        }
    }

    /// The last lines, at most `tail`.
    fn lines(self, tail: usize) -> Logs {
        let bytes: Vec<u8> = self.pieces.into_values().collect::<Vec<_>>().concat();
        let start = start_of_last_lines(&bytes, tail);
        let text = String::from_utf8_lossy(&bytes[start..]).into_owned();
        Logs { text, truncated: self.truncated || start > 0 }
    }
}

/// Where the last `tail` lines begin. What follows the last newline is a line, too.
fn start_of_last_lines(bytes: &[u8], tail: usize) -> usize {
    let last = bytes.len().saturating_sub(1);
    let ends = bytes[..last].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match tail.checked_sub(1) {
        Some(before) => ends.map(|(at, _)| at + 1).nth(before).unwrap_or(0),
        None => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(time: i64, data: &[u8]) -> Item {
        Item::Frame(Frame { stream: Stream::Stdout, time, offset: 0, data: data.to_vec() })
    }

    #[test]
    fn memory_is_bounded_however_small_the_pieces_are_and_the_newest_stay() {
        let mut newest = Newest::new(10 * (PIECE_OVERHEAD + 2));
        // The newest command first, as they are read: its pieces are later than those of the other.
        for time in (100..105).chain(0..100) {
            newest.take(frame(time, format!("{}\n", time % 10).as_bytes()));
            assert!(newest.size <= 11 * (PIECE_OVERHEAD + 2) && newest.pieces.len() <= 11, "{time}");
        }
        assert!(newest.is_full());
        let logs = newest.lines(8);
        assert_eq!((logs.text.as_str(), logs.truncated), ("7\n8\n9\n0\n1\n2\n3\n4\n", true));
    }

    #[test]
    fn what_is_not_wanted_is_not_read_without_end() {
        let mut newest = Newest { wanted: 5..=5, left: 1_000_000, ..Newest::new(BYTES) };
        newest.take(frame(5, b"in time\n"));
        for _ in 0..100 {
            newest.take(frame(6, &[b'\n'; 50_000]));
        }
        assert_eq!((newest.left, newest.is_full(), newest.pieces.len()), (0, true, 1));
        assert_eq!(newest.lines(10), Logs { text: "in time\n".to_owned(), truncated: true });
    }

    #[test]
    fn last_lines_are_counted_from_the_end() {
        let lines = |text: &'static str, tail| &text[start_of_last_lines(text.as_bytes(), tail)..];
        for (text, tail, expected) in [
            ("", 3, ""),
            ("a", 1, "a"),
            ("a\n", 1, "a\n"),
            ("a\nb", 1, "b"),
            ("a\nb\n", 1, "b\n"),
            ("a\nb\n", 2, "a\nb\n"),
            ("a\nb\n", 9, "a\nb\n"),
            ("\n\n\n", 2, "\n\n"),
            ("a\n", 0, ""),
        ] {
            assert_eq!(lines(text, tail), expected, "{text:?} {tail}");
        }
    }
}
