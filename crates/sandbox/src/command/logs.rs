//! What the commands of a sandbox printed, all together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;

use workspace_agent_protocol::output::{Frame, Item, Reader, Segment, Stream, all_segments};
use workspace_state::{Cancel, Cancelled};

use crate::command::output::PIECE_OVERHEAD;
use crate::error::{Context as _, Result, SandboxError};
use crate::scope::Scope;
use crate::service::Service;

/// Of so many commands.
const COMMANDS: u32 = 200;
/// Memory for what was printed; the oldest goes first.
const BYTES: usize = 8 << 20;
/// Bytes of files that are read for one answer, the newest of each command: what is not wanted is read, too.
const READ_MAX: u64 = 64 << 20;

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
        if ids.is_empty() {
            // Nor may there be a place for what they print yet.
            return Ok(Logs::default());
        }
        let dir = self.dir(id);
        let wanted = since.unwrap_or(i64::MIN)..=until.unwrap_or(i64::MAX);
        let cancel = self.0.cancel.child();
        let stop = cancel.on_drop();
        let read = move || {
            let files = File::open(dir.output())?;
            Ok(read(&files, &ids, Newest::new(wanted, BYTES, READ_MAX), &cancel)?.lines(tail))
        };
        let read = tokio::task::spawn_blocking(read).await;
        stop.disarm();
        match read.map_err(io::Error::other).flatten() {
            Err(error) if Cancelled::is_cause_of(&error) => Err(SandboxError::Cancelled),
            read => read.context(|| "read what commands printed".to_owned()),
        }
    }
}

/// Reads what commands printed, given newest first.
fn read(files: impl AsFd, ids: &[String], mut newest: Newest, cancel: &Cancel) -> io::Result<Newest> {
    let segments = all_segments(&files)?;
    newest.truncated = ids.len() >= COMMANDS as usize;
    for id in ids {
        // When there is enough, older ones need not be read.
        if newest.is_full() {
            newest.truncated = true;
            break;
        }
        let Some((start, mut left)) = newest.reserve(&segments, id) else { continue };
        let mut reader = Reader::open(&files, id, start)?;
        while left > 0
            && let Some(item) = reader.next_item()?
        {
            cancel.check()?;
            if let Item::Frame(frame) = &item {
                // What comes while it is read is left for the next time.
                left = left.saturating_sub(frame.data.len() as u64 + 1);
            }
            newest.take(item);
        }
    }
    Ok(newest)
}

/// The newest of what commands printed, in bounded memory.
struct Newest {
    /// When it was printed, in milliseconds since 1970.
    wanted: RangeInclusive<i64>,
    /// Most memory for the pieces.
    most: usize,
    /// Bytes that may yet be read.
    left: u64,
    /// By time, and of the same time in the order in which they were read.
    pieces: BTreeMap<(i64, u64), Vec<u8>>,
    taken: u64,
    size: usize,
    truncated: bool,
}

impl Newest {
    fn new(wanted: RangeInclusive<i64>, most: usize, left: u64) -> Self {
        Self { wanted, most, left, pieces: BTreeMap::new(), taken: 0, size: 0, truncated: false }
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.size >= self.most
    }

    /// Where to begin to read a command, so that its last bytes are read, and how many bytes of files that is.
    fn reserve(&mut self, segments: &[Segment], id: &str) -> Option<(u64, u64)> {
        let first = segments.partition_point(|segment| segment.command.as_str() < id);
        let own = &segments[first..];
        let own = &own[..own.partition_point(|segment| segment.command == id)];
        let mut reserved = None;
        for segment in own.iter().rev() {
            let bytes = reserved.map_or(0, |(_, bytes)| bytes) + segment.bytes;
            if bytes > self.left {
                self.left = 0;
                self.truncated = true;
                break;
            }
            reserved = Some((segment.offset, bytes));
        }
        let (start, bytes) = reserved?;
        self.left = self.left.saturating_sub(bytes);
        // What is before it was read by nobody, or is not kept any more.
        self.truncated |= start > 0;
        // A segment that has nothing yet may get something.
        Some((start, bytes.max(1)))
    }

    fn take(&mut self, item: Item) {
        let frame = match item {
            Item::Frame(frame) => frame,
            Item::Gap { .. } => {
                self.truncated = true;
                return;
            }
        };
        if frame.stream != Stream::End && self.wanted.contains(&frame.time) {
            self.keep(frame);
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
    use workspace_agent_protocol::output::Writer;

    fn frame(time: i64, data: &[u8]) -> Item {
        Item::Frame(Frame { stream: Stream::Stdout, time, offset: 0, data: data.to_vec() })
    }

    #[test]
    fn memory_is_bounded_however_small_the_pieces_are_and_the_newest_stay() {
        let mut newest = Newest::new(i64::MIN..=i64::MAX, 10 * (PIECE_OVERHEAD + 2), READ_MAX);
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
    fn of_much_output_the_last_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let files = || File::open(directory.path()).unwrap();
        let mut writer = Writer::create(files().into(), "daemon", 16 << 20).unwrap();
        for line in 0..60_000 {
            writer.write(Stream::Stdout, line, format!("line {line}\n").as_bytes()).unwrap();
        }
        let mut writer = Writer::create(files().into(), "older", 16 << 20).unwrap();
        writer.write(Stream::Stdout, 0, b"older\n").unwrap();
        let read = |budget| {
            let newest = Newest::new(i64::MIN..=i64::MAX, BYTES, budget);
            let ids = ["daemon".to_owned(), "older".to_owned()];
            read(files(), &ids, newest, &Cancel::default()).unwrap().lines(2)
        };
        let last = "line 59998\nline 59999\n".to_owned();
        assert_eq!(read(READ_MAX), Logs { text: last.clone(), truncated: true });
        // The files have about two million bytes: not all of them are read now, nor is the older command.
        assert_eq!(read(1 << 20), Logs { text: last, truncated: true });
        assert_eq!(read(1 << 10), Logs { text: String::new(), truncated: true });
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
