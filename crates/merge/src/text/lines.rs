//! Lines of a text. A line includes its line ending, so a last line without an ending differs from the same line with
//! an ending. Line numbers start at 0.

use std::ops::Range;

/// Text split into lines.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    text: &'a [u8],
    /// Byte offset of each line, and of the end of the text.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        // Capacity for lines of 24 bytes, an estimate of the average length.
        let mut starts = Vec::with_capacity(text.len() / 24 + 2);
        starts.push(0);
        starts.extend(memchr::memchr_iter(b'\n', text).map(|newline| newline + 1));
        if starts.last() != Some(&text.len()) {
            starts.push(text.len());
        }
        Self { text, starts }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns a line with its line ending.
    pub(crate) fn get(&self, line: usize) -> &'a [u8] {
        &self.text[self.starts[line]..self.starts[line + 1]]
    }

    /// Returns the bytes of a range of lines.
    pub(crate) fn bytes(&self, lines: &Range<usize>) -> &'a [u8] {
        &self.text[self.starts[lines.start]..self.starts[lines.end]]
    }

    pub(crate) fn iter(&self, lines: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        lines.map(|line| self.get(line))
    }

    /// Returns the lengths of the common prefix and the common suffix of two ranges, in lines. The
    /// prefix and the suffix do not overlap.
    pub(crate) fn common(
        &self,
        lines: &Range<usize>,
        other: &Lines<'_>,
        other_lines: &Range<usize>,
    ) -> (usize, usize) {
        let shorter = lines.len().min(other_lines.len());
        let same_from_start =
            |&offset: &usize| self.get(lines.start + offset) == other.get(other_lines.start + offset);
        let prefix = (0..shorter).take_while(same_from_start).count();
        let same_from_end =
            |&offset: &usize| self.get(lines.end - 1 - offset) == other.get(other_lines.end - 1 - offset);
        (prefix, (0..shorter - prefix).take_while(same_from_end).count())
    }

    /// Returns true if two ranges of lines are equal.
    pub(crate) fn range_equals(
        &self,
        lines: &Range<usize>,
        other: &Lines<'_>,
        other_lines: &Range<usize>,
    ) -> bool {
        lines.len() == other_lines.len() && self.bytes(lines) == other.bytes(other_lines)
    }
}
