//! Lines merged as git merges them.
//!
//! Both sides are compared with the base, and the two lists of changes are laid beside each other. Changes that neither
//! overlap nor touch are taken; equal ones are taken once; all else is a conflict, of which the three ranges of lines
//! are told. The verdict and, in every style, every byte are those of `git merge-file`, but for one case: if both sides of a
//! conflict are the same text, git takes it in the style `merge` and shows it in those with the base; it is no conflict here.

mod changes;
mod eol;
mod lines;
mod refine;
mod render;

use std::ops::Range;

use serde::Serialize;

use self::changes::{Change, Changes, changes};
use self::lines::Lines;

pub use self::changes::Effort;
pub use self::render::{Labels, Style};

/// Part of a merge of lines that is not the same in all three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) kind: ChunkKind,
    pub(crate) base: Range<usize>,
    pub(crate) ours: Range<usize>,
    pub(crate) theirs: Range<usize>,
}

/// Whose lines a chunk takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    Ours,
    Theirs,
    /// Both sides have the same lines, though they were not compared with the base alike: of lines that repeat, one side seems to
    /// have added or removed others than the other side.
    Both,
    Conflict,
}

/// Lines on which both sides disagree; ranges count from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Region {
    /// Where they were in the base.
    pub base: Range<usize>,
    /// Where they are in ours.
    pub ours: Range<usize>,
    /// Where they are in theirs.
    pub theirs: Range<usize>,
}

/// Whose lines are taken where both sides disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favor {
    /// Ours.
    Ours,
    /// Theirs.
    Theirs,
    /// First ours, then theirs.
    Union,
}

/// Three versions of a text laid beside each other.
#[derive(Debug)]
pub struct TextMerge<'a> {
    base: Lines<'a>,
    ours: Lines<'a>,
    theirs: Lines<'a>,
    chunks: Vec<Chunk>,
}

/// The input needs more work than may be spent on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the versions differ too much to be compared line by line")]
pub struct TooHard;

impl<'a> TextMerge<'a> {
    /// Lays three versions beside each other.
    pub fn new(base: &'a [u8], ours: &'a [u8], theirs: &'a [u8], effort: Effort) -> Result<Self, TooHard> {
        let [base, ours, theirs] = [base, ours, theirs].map(Lines::new);
        let [by_ours, by_theirs] = changes(&base, [&ours, &theirs], effort)?;
        let mut text = Self { base, ours, theirs, chunks: Vec::new() };
        text.chunks = text.lay_together(&by_ours, &by_theirs);
        text.settle_equal();
        Ok(text)
    }

    /// Takes what both sides have alike.
    fn settle_equal(&mut self) {
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.kind == ChunkKind::Conflict) {
            if self.ours.are(&chunk.ours, &self.theirs, &chunk.theirs) {
                chunk.kind = ChunkKind::Both;
            }
        }
    }

    /// Lays two versions beside each other: whatever differs is in conflict.
    pub fn between(ours: &'a [u8], theirs: &'a [u8], effort: Effort) -> Result<Self, TooHard> {
        Self::new(ours, ours, theirs, effort).map(Self::in_conflict)
    }

    /// Which chunks two lists of changes of one base make.
    fn lay_together(&self, ours: &Changes, theirs: &Changes) -> Vec<Chunk> {
        let mut chunks = Chunks::default();
        let (mut left, mut right) = (ours.iter().peekable(), theirs.iter().peekable());
        loop {
            let (a, b) = (left.peek().copied(), right.peek().copied());
            match (a, b) {
                (None, None) => return chunks.0,
                (Some(a), b) if b.is_none_or(|b| a.base.end < b.base.start) => {
                    let there = moved(&a.base, self.offset(&self.theirs, b));
                    chunks.push(ChunkKind::Ours, a.base.clone(), a.side.clone(), there);
                    left.next();
                }
                (a, Some(b)) if a.is_none_or(|a| b.base.end < a.base.start) => {
                    let here = moved(&b.base, self.offset(&self.ours, a));
                    chunks.push(ChunkKind::Theirs, b.base.clone(), here, b.side.clone());
                    right.next();
                }
                (Some(a), Some(b)) => {
                    if a.base != b.base || !self.ours.are(&a.side, &self.theirs, &b.side) {
                        let base = a.base.start.min(b.base.start)..a.base.end.max(b.base.end);
                        let here = widened(&a.side, &a.base, &base);
                        let there = widened(&b.side, &b.base, &base);
                        chunks.push(ChunkKind::Conflict, base, here, there);
                    }
                    if a.base.end >= b.base.end {
                        right.next();
                    }
                    if b.base.end >= a.base.end {
                        left.next();
                    }
                }
                // One of them alone is before the other.
                (None, Some(_)) | (Some(_), None) => return chunks.0,
            }
        }
    }

    /// By how much lines before a change of a side have moved there; the last ones, where there is no further change.
    fn offset(&self, side: &Lines<'_>, next: Option<&Change>) -> isize {
        next.map_or(side.len().cast_signed() - self.base.len().cast_signed(), Change::offset)
    }

    /// What is not the same in all three.
    pub(crate) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Whether nothing is in conflict.
    pub fn is_clean(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.kind != ChunkKind::Conflict)
    }

    /// The same with every change in conflict, for whoever has to look at all of them.
    #[must_use]
    pub fn in_conflict(mut self) -> Self {
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.kind != ChunkKind::Both) {
            chunk.kind = ChunkKind::Conflict;
        }
        self
    }

    /// Where both sides disagree.
    pub fn conflicts(&self) -> Vec<Region> {
        let conflicts = self.chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Conflict);
        conflicts
            .map(|chunk| Region {
                base: chunk.base.clone(),
                ours: chunk.ours.clone(),
                theirs: chunk.theirs.clone(),
            })
            .collect()
    }

    /// The merged text; none if there are conflicts.
    pub fn merged(&self) -> Option<Vec<u8>> {
        self.is_clean().then(|| self.favor(Favor::Ours))
    }

    /// The merged text, in which conflicts are settled in favour of one side.
    pub fn favor(&self, favor: Favor) -> Vec<u8> {
        render::settled(self, favor)
    }

    /// The merged text with markers around conflicts, and how many there are in this style.
    pub fn render(&self, style: Style, labels: &Labels<'_>) -> (Vec<u8>, usize) {
        render::with_markers(self, style, labels)
    }
}

/// Lines of the base as a side has them that did not change them.
fn moved(base: &Range<usize>, offset: isize) -> Range<usize> {
    let at = |line: usize| line.saturating_add_signed(offset);
    at(base.start)..at(base.end)
}

/// The lines of a side that stand for a larger part of the base than the change itself. Where an earlier change of the
/// side is in that part, the chunk that has it is made larger and only the end counts.
fn widened(side: &Range<usize>, base: &Range<usize>, to: &Range<usize>) -> Range<usize> {
    side.start.saturating_sub(base.start - to.start)..side.end + (to.end - base.end)
}

#[derive(Default)]
struct Chunks(Vec<Chunk>);

impl Chunks {
    /// Adds one; what touches the last one belongs to it.
    fn push(&mut self, kind: ChunkKind, base: Range<usize>, ours: Range<usize>, theirs: Range<usize>) {
        if let Some(last) = self.0.last_mut()
            && (ours.start <= last.ours.end || theirs.start <= last.theirs.end)
        {
            if last.kind != kind {
                last.kind = ChunkKind::Conflict;
            }
            last.base.end = base.end;
            last.ours.end = ours.end;
            last.theirs.end = theirs.end;
            return;
        }
        self.0.push(Chunk { kind, base, ours, theirs });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(lines: Range<usize>) -> String {
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn what_differs_too_much_is_not_compared() {
        let effort = Effort { lines: 10, exact: 0 };
        let base = numbered(0..100);
        let one = base.replace("50\n", "fifty\n");
        let merge = |ours: &str, theirs: &str| {
            let merged = TextMerge::new(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), effort);
            merged.map(|text| text.is_clean())
        };
        assert_eq!(merge(&one, &base.replace("70\n", "seventy\n")), Ok(true));
        assert_eq!(merge(&one, &format!("{base}100\n")), Ok(true));
        assert_eq!(merge(&one, &numbered(100..200)), Err(TooHard));
        assert_eq!(merge(&one, &base.replace("0\n", "x\n")), Err(TooHard));
        assert_eq!(merge(&one, ""), Err(TooHard));
    }
}
