//! Line differences of text files. Files above [`LINE_DIFF_MAX`] are not compared, so the work is bounded.

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};

use crate::entry::{Entry, Node};
use crate::error::Result;
use crate::tree::Tree;

/// Largest file in bytes that is compared line by line.
pub const LINE_DIFF_MAX: u64 = 8 << 20;
/// Number of leading bytes that determine if a file is text; the same as in git.
const SNIFF_LEN: usize = 8000;

/// Content of an entry for a line diff.
pub(crate) enum Content {
    /// There is no entry, or it is not a file.
    None,
    /// Whole content of a text file.
    Text(Vec<u8>),
    Binary,
    /// Text file above [`LINE_DIFF_MAX`], which is not read.
    TooLarge,
}

impl Content {
    /// Reads the whole content of a file of up to [`LINE_DIFF_MAX`] bytes. Of a larger file, reads only the first
    /// bytes, which determine if it is text.
    pub(crate) fn of_file(tree: &Tree, entry: Option<&Entry>) -> Result<Self> {
        let Some(Node::File(file)) = entry.map(|entry| &entry.node) else { return Ok(Self::None) };
        if file.size() <= LINE_DIFF_MAX {
            let content = tree.read(file)?;
            return Ok(if is_binary(&content) { Self::Binary } else { Self::Text(content) });
        }
        Ok(if is_text(tree, entry)? { Self::TooLarge } else { Self::Binary })
    }

    /// Returns true for a text that is not empty, even if it is too large to compare.
    pub(crate) fn is_nonempty_text(&self) -> bool {
        match self {
            Self::None | Self::Binary => false,
            Self::Text(text) => !text.is_empty(),
            Self::TooLarge => true,
        }
    }

    /// Returns the text to compare. It is empty if there is no file, and `None` if the content is binary or too large.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self {
            Self::None => Some(b""),
            Self::Text(text) => Some(text),
            Self::Binary | Self::TooLarge => None,
        }
    }
}

/// Returns true if an entry is a file and its first bytes are text.
pub(crate) fn is_text(tree: &Tree, entry: Option<&Entry>) -> Result<bool> {
    match entry.map(|entry| &entry.node) {
        Some(Node::File(file)) => Ok(!is_binary(&tree.read_range(file, 0, SNIFF_LEN as u64)?)),
        _ => Ok(false),
    }
}

/// Returns true if content that begins with `start` is binary: if it has a NUL in its first [`SNIFF_LEN`] bytes.
fn is_binary(start: &[u8]) -> bool {
    start.iter().take(SNIFF_LEN).any(|byte| *byte == 0)
}

/// Line diff of two texts. A line includes its newline, so that a missing newline at the end is a difference.
pub(crate) struct LineDiff<'t> {
    input: InternedInput<&'t [u8]>,
    diff: Diff,
}

impl<'t> LineDiff<'t> {
    /// Compares two texts.
    pub(crate) fn new(old: &'t [u8], new: &'t [u8]) -> Self {
        // `InternedInput::new` would estimate the number of lines from the first lines. For a file whose first lines
        // are short, it could reserve gigabytes.
        let mut input = InternedInput::default();
        input.update_before(lines(old));
        input.update_after(lines(new));
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        Self { input, diff }
    }

    /// Returns the number of lines that only the new text has.
    pub(crate) fn added(&self) -> u64 {
        self.diff.count_additions().into()
    }

    /// Returns the number of lines that only the old text has.
    pub(crate) fn removed(&self) -> u64 {
        self.diff.count_removals().into()
    }

    /// Returns the number of lines of the old text.
    pub(crate) fn old_lines(&self) -> usize {
        self.input.before.len()
    }

    /// Returns the ranges of lines that differ, in order.
    pub(crate) fn hunks(&self) -> impl Iterator<Item = Hunk> {
        self.diff.hunks()
    }

    /// Returns a line of the old text, counted from 0.
    pub(crate) fn old_line(&self, line: u32) -> &'t [u8] {
        self.input.interner[self.input.before[line as usize]]
    }

    /// Returns a line of the new text, counted from 0.
    pub(crate) fn new_line(&self, line: u32) -> &'t [u8] {
        self.input.interner[self.input.after[line as usize]]
    }

    /// Returns the lines that only the new text has, with their numbers, counted from 1.
    pub(crate) fn added_lines(&self) -> impl Iterator<Item = (u64, &'t [u8])> {
        self.diff.hunks().flat_map(|hunk| hunk.after).map(|line| (u64::from(line) + 1, self.new_line(line)))
    }
}

/// Splits a text into lines with their newlines.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(old: &str, new: &str) -> (u64, u64) {
        let diff = LineDiff::new(old.as_bytes(), new.as_bytes());
        (diff.added(), diff.removed())
    }

    #[test]
    fn line_ends_are_part_of_a_line() {
        assert_eq!(counts("", ""), (0, 0));
        assert_eq!(counts("", "a\nb"), (2, 0));
        assert_eq!(counts("a\nb\n", "a\nb"), (1, 1));
        assert_eq!(counts("a\n", "a\r\n"), (1, 1));
        assert_eq!(counts("a\nb\nc\n", "a\nc\n"), (0, 1));
    }

    #[test]
    fn added_lines_have_the_numbers_of_the_new_text() {
        let diff = LineDiff::new(b"a\nb\n", b"x\na\ny\nb\nz");
        let added: Vec<_> = diff.added_lines().collect();
        assert_eq!(added, [(1, &b"x\n"[..]), (3, b"y\n"), (5, b"z")]);
    }

    #[test]
    fn only_the_first_bytes_determine_if_a_file_is_text() {
        assert!(is_binary(b"a\0b") && !is_binary(b"") && !is_binary(b"\xff\xfe"));
        let mut content = vec![b'a'; SNIFF_LEN];
        content.push(0);
        assert!(!is_binary(&content));
        content[SNIFF_LEN - 1] = 0;
        assert!(is_binary(&content));
    }

    #[test]
    fn short_first_lines_do_not_reserve_memory_for_the_rest() {
        let mut text = b"\n".repeat(20);
        text.resize(LINE_DIFF_MAX as usize, b'x');
        let diff = LineDiff::new(b"", &text);
        assert_eq!(diff.added(), 21);
        assert!(diff.input.after.capacity() < 1000);
    }
}
