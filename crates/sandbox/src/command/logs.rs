//! Logs of a sandbox: the output of its commands in the order of time.

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

/// Maximum number of commands in the logs.
const COMMANDS_MAX: u32 = 200;
/// Memory for the output of one request, in bytes; the oldest output is dropped first.
const MEMORY_MAX: usize = 8 << 20;
/// Maximum number of bytes that one request reads from files, in whole segments, newest commands first and of
/// each command its end. Output of other times than requested counts too, because it has to be read.
const READ_MAX: u64 = 64 << 20;

/// Lines of logs in the order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logs {
    /// Lines. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// True if there may be more output: older, no longer kept, or not read because of a limit.
    pub truncated: bool,
}

impl Service {
    /// Returns the last lines of output, not before `since` and not after `until`, in milliseconds since
    /// 1970. Reading stops when the future is dropped.
    pub async fn logs(
        &self,
        scope: &Scope,
        id: &str,
        tail: usize,
        since: Option<i64>,
        until: Option<i64>,
    ) -> Result<Logs> {
        self.find(scope, id).await?;
        let ids = self.0.catalog.commands().newest_ids(id, COMMANDS_MAX).await?;
        if ids.is_empty() {
            // Before the first command, the directory of the output may not exist.
            return Ok(Logs::default());
        }
        let dir = self.dir(id);
        let times = since.unwrap_or(i64::MIN)..=until.unwrap_or(i64::MAX);
        let cancel = self.0.cancel.child();
        let cancel_guard = cancel.drop_guard();
        let work = move || {
            let directory = File::open(dir.output())?;
            let newest = NewestOutput::new(times, MEMORY_MAX, READ_MAX);
            Ok(read_newest(&directory, &ids, newest, &cancel)?.lines(tail))
        };
        let logs = tokio::task::spawn_blocking(work).await;
        cancel_guard.disarm();
        match logs.map_err(io::Error::other).flatten() {
            Err(error) if Cancelled::is_cause_of(&error) => Err(SandboxError::Cancelled),
            logs => logs.context(|| "read the output of commands".to_owned()),
        }
    }
}

/// Reads the output of commands from the output directory of their sandbox. `ids` are newest first.
fn read_newest(
    directory: impl AsFd,
    ids: &[String],
    mut newest: NewestOutput,
    cancel: &Cancel,
) -> io::Result<NewestOutput> {
    let segments = all_segments(&directory)?;
    newest.truncated = ids.len() >= COMMANDS_MAX as usize;
    for id in ids {
        // With enough output, older commands need not be read.
        if newest.is_done() {
            newest.truncated = true;
            break;
        }
        if let Some((start, bytes)) = newest.take_budget(&segments, id) {
            read_command(Reader::open(&directory, id, start)?, bytes, &mut newest, cancel)?;
        }
    }
    Ok(newest)
}

/// Reads `bytes` bytes of files, so that a command that keeps writing does not hold the reader.
fn read_command(
    mut reader: Reader,
    bytes: u64,
    newest: &mut NewestOutput,
    cancel: &Cancel,
) -> io::Result<()> {
    let mut remaining = bytes;
    while remaining > 0
        && let Some(item) = reader.next_item()?
    {
        cancel.check()?;
        if let Item::Frame(frame) = &item {
            remaining = remaining.saturating_sub(frame.encoded_len());
        }
        newest.add(item);
    }
    Ok(())
}

/// The newest output, in bounded memory.
struct NewestOutput {
    /// Times that are requested, in milliseconds since 1970.
    times: RangeInclusive<i64>,
    /// Memory for the pieces, in bytes. They exceed it by less than the oldest piece.
    memory_max: usize,
    /// Bytes of files that may still be read.
    read_budget: u64,
    /// Pieces by time, and those of the same time in the order in which they were read.
    pieces: BTreeMap<(i64, u64), Vec<u8>>,
    /// Number of pieces that were ever added.
    added: u64,
    /// Memory of the pieces, in bytes.
    size: usize,
    /// True if there may be more output than the pieces.
    truncated: bool,
}

impl NewestOutput {
    fn new(times: RangeInclusive<i64>, memory_max: usize, read_budget: u64) -> Self {
        Self { times, memory_max, read_budget, pieces: BTreeMap::new(), added: 0, size: 0, truncated: false }
    }

    /// Returns true if no more commands are to be read: the memory is full, or the budget used up.
    fn is_done(&self) -> bool {
        self.read_budget == 0 || self.size >= self.memory_max
    }

    /// Takes as many segments of a command, newest first, as the read budget allows, and subtracts their size. Returns
    /// the offset at which they begin, and their size in bytes; `None` if the command has no output, or the budget is
    /// too small for its newest segment. A segment that the budget is too small for uses up the rest of it, so that no
    /// older command is read. `segments` are sorted by command and offset, as [`all_segments`] returns them.
    fn take_budget(&mut self, segments: &[Segment], id: &str) -> Option<(u64, u64)> {
        let first = segments.partition_point(|segment| segment.command.as_str() < id);
        let from_first = &segments[first..];
        let of_command = &from_first[..from_first.partition_point(|segment| segment.command == id)];
        let mut taken = None;
        for segment in of_command.iter().rev() {
            let bytes = taken.map_or(0, |(_, bytes)| bytes) + segment.bytes;
            if bytes > self.read_budget {
                self.read_budget = 0;
                self.truncated = true;
                break;
            }
            taken = Some((segment.offset, bytes));
        }
        let (start, bytes) = taken?;
        self.read_budget = self.read_budget.saturating_sub(bytes);
        // Output before it is not read, or no longer kept.
        self.truncated |= start > 0;
        // At least 1: a segment that was empty when it was listed may have been written to since.
        Some((start, bytes.max(1)))
    }

    /// Adds output of the requested times. A gap in the output counts as truncated.
    fn add(&mut self, item: Item) {
        let frame = match item {
            Item::Frame(frame) => frame,
            Item::Gap { .. } => {
                self.truncated = true;
                return;
            }
        };
        if frame.stream != Stream::Exit && self.times.contains(&frame.time) {
            self.keep(frame);
        }
    }

    fn keep(&mut self, frame: Frame) {
        self.size += frame.data.len() + PIECE_OVERHEAD;
        self.added += 1;
        self.pieces.insert((frame.time, self.added), frame.data);
        // Drops the oldest piece if the remaining ones still fill the memory.
        while let Some(oldest) = self.pieces.first_entry()
            && self.size - (oldest.get().len() + PIECE_OVERHEAD) >= self.memory_max
        {
            self.size -= oldest.remove().len() + PIECE_OVERHEAD;
            self.truncated = true;
        }
    }

    /// Returns the last lines, at most `tail`.
    fn lines(self, tail: usize) -> Logs {
        let bytes: Vec<u8> = self.pieces.into_values().collect::<Vec<_>>().concat();
        let start = start_of_last_lines(&bytes, tail);
        let text = String::from_utf8_lossy(&bytes[start..]).into_owned();
        Logs { text, truncated: self.truncated || start > 0 }
    }
}

/// Returns the offset at which the last `tail` lines begin. Bytes after the last newline are a line, too.
fn start_of_last_lines(bytes: &[u8], tail: usize) -> usize {
    // A newline at the very end ends the last line, and begins no other.
    let before_last_byte = &bytes[..bytes.len().saturating_sub(1)];
    let ends = before_last_byte.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match tail.checked_sub(1) {
        Some(before) => ends.map(|(index, _)| index + 1).nth(before).unwrap_or(0),
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
    fn memory_is_bounded_and_the_newest_pieces_stay() {
        let mut newest = NewestOutput::new(i64::MIN..=i64::MAX, 10 * (PIECE_OVERHEAD + 2), READ_MAX);
        // The newest command first, as they are read: its pieces are later than those of the other.
        for time in (100..105).chain(0..100) {
            newest.add(frame(time, format!("{}\n", time % 10).as_bytes()));
            assert!(newest.size <= 11 * (PIECE_OVERHEAD + 2) && newest.pieces.len() <= 11, "{time}");
        }
        assert!(newest.is_done());
        let logs = newest.lines(8);
        assert_eq!((logs.text.as_str(), logs.truncated), ("7\n8\n9\n0\n1\n2\n3\n4\n", true));
    }

    #[test]
    fn the_end_of_large_output_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let output = || File::open(directory.path()).unwrap();
        let mut writer = Writer::create(output().into(), "daemon", 16 << 20).unwrap();
        for line in 0..60_000 {
            writer.write(Stream::Stdout, line, format!("line {line}\n").as_bytes()).unwrap();
        }
        let mut writer = Writer::create(output().into(), "older", 16 << 20).unwrap();
        writer.write(Stream::Stdout, 0, b"older\n").unwrap();
        let read = |budget| {
            let newest = NewestOutput::new(i64::MIN..=i64::MAX, MEMORY_MAX, budget);
            let ids = ["daemon".to_owned(), "older".to_owned()];
            read_newest(output(), &ids, newest, &Cancel::default()).unwrap().lines(2)
        };
        let last = "line 59998\nline 59999\n".to_owned();
        assert_eq!(read(READ_MAX), Logs { text: last.clone(), truncated: true });
        // The files have about two million bytes: not all of them are read now, nor is the older command.
        assert_eq!(read(1 << 20), Logs { text: last, truncated: true });
        assert_eq!(read(1 << 10), Logs { text: String::new(), truncated: true });
    }

    #[test]
    fn a_read_ends_although_the_command_keeps_writing() {
        let directory = tempfile::tempdir().unwrap();
        let output = || File::open(directory.path()).unwrap();
        let mut writer = Writer::create(output().into(), "daemon", 16 << 20).unwrap();
        for time in 0..100 {
            writer.write(Stream::Stdout, time, b"a").unwrap();
        }
        let mut newest = NewestOutput::new(i64::MIN..=i64::MAX, MEMORY_MAX, READ_MAX);
        let (start, bytes) = newest.take_budget(&all_segments(output()).unwrap(), "daemon").unwrap();
        for time in 100..1_100 {
            writer.write(Stream::Stdout, time, b"b").unwrap();
        }
        let reader = Reader::open(output(), "daemon", start).unwrap();
        read_command(reader, bytes, &mut newest, &Cancel::default()).unwrap();
        // The size of files is counted in blocks, so some of the new output may fit.
        let text = newest.lines(1).text;
        assert!(text.starts_with(&"a".repeat(100)) && text.len() < 1_100, "{}", text.len());
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
