//! A text as lines, each with what ends it: a last line without an end differs from the same one with an end.

use std::ops::Range;

/// The lines of a text.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    text: &'a [u8],
    /// Where each line begins, and where the last one ends.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let mut starts = Vec::with_capacity(text.len() / 24 + 2);
        starts.push(0);
        starts.extend(memchr::memchr_iter(b'\n', text).map(|at| at + 1));
        if starts.last() != Some(&text.len()) {
            starts.push(text.len());
        }
        Self { text, starts }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn get(&self, line: usize) -> &'a [u8] {
        &self.text[self.starts[line]..self.starts[line + 1]]
    }

    /// The text of some lines.
    pub(crate) fn bytes(&self, lines: &Range<usize>) -> &'a [u8] {
        &self.text[self.starts[lines.start]..self.starts[lines.end]]
    }

    pub(crate) fn iter(&self, lines: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        lines.map(|line| self.get(line))
    }

    /// How many lines two parts begin with in common, and how many of the others they end with.
    pub(crate) fn common(
        &self,
        lines: &Range<usize>,
        other: &Lines<'_>,
        of_other: &Range<usize>,
    ) -> (usize, usize) {
        let most = lines.len().min(of_other.len());
        let same = |&at: &usize| self.get(lines.start + at) == other.get(of_other.start + at);
        let first = (0..most).take_while(same).count();
        let same = |&at: &usize| self.get(lines.end - 1 - at) == other.get(of_other.end - 1 - at);
        (first, (0..most - first).take_while(same).count())
    }

    /// Whether some lines are the same as some of another text.
    pub(crate) fn are(&self, lines: &Range<usize>, other: &Lines<'_>, of_other: &Range<usize>) -> bool {
        lines.len() == of_other.len() && self.bytes(lines) == other.bytes(of_other)
    }
}
