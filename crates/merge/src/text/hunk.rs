//! Hunks: the changed parts of a text merge.

use std::ops::Range;

/// Part of a text merge in which a side differs from the base, as ranges of line numbers that start at 0. Equal
/// changes of both sides have no hunk, unless their diffs against the base differ. Lines between hunks are taken from
/// our side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk {
    pub(crate) kind: HunkKind,
    pub(crate) base: Range<usize>,
    pub(crate) ours: Range<usize>,
    pub(crate) theirs: Range<usize>,
}

/// Source of the merged lines of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HunkKind {
    /// Only our side changed the lines: they are taken from it.
    Ours,
    /// Only their side changed the lines: they are taken from it.
    Theirs,
    /// Both sides have the same lines, but their diffs against the base differ: repeated lines can be matched
    /// with the base in several ways. They are taken from our side.
    SameResult,
    /// Both sides changed the lines differently, or every change counts as a conflict
    /// ([`TextMerge::with_all_in_conflict`](super::TextMerge::with_all_in_conflict)).
    Conflict,
}
