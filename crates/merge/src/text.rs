//! Merge of lines, compatible with git.
//!
//! Both sides are compared with the base, and the two lists of changes are combined. Changes that neither
//! overlap nor are adjacent are applied, and equal changes are applied once. All other changes are conflicts, each
//! with a range of lines in the base and in both sides.
//!
//! The output is identical to that of `git merge-file` in every conflict style, with one exception: if both sides of
//! a conflict have the same text, git resolves it in the style `merge`, but reports a conflict in the styles `diff3`
//! and `zdiff3`. This module never reports such a conflict.

mod changes;
mod eol;
pub(crate) mod hunk;
mod lines;
mod refine;
mod render;

use std::ops::Range;

use serde::Serialize;

use self::changes::{LineChange, LineChanges, diff_sides};
use self::hunk::{Hunk, HunkKind};
use self::lines::Lines;

pub use self::changes::{DiffLimitExceeded, DiffLimits};
pub use self::render::{ConflictMarkers, Style};

/// Conflicting lines, as ranges of line numbers that start at 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LineConflict {
    /// Lines in the base.
    pub base: Range<usize>,
    /// Lines in our text.
    pub ours: Range<usize>,
    /// Lines in their text.
    pub theirs: Range<usize>,
}

/// Resolution of conflicting lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favor {
    /// Takes our lines.
    Ours,
    /// Takes their lines.
    Theirs,
    /// Takes our lines, followed by their lines.
    Union,
}

/// Line-by-line comparison of three versions of a text, and its result.
#[derive(Debug)]
pub struct TextMerge<'a> {
    base: Lines<'a>,
    ours: Lines<'a>,
    theirs: Lines<'a>,
    /// Changed parts in text order. Lines between them are taken from our side.
    hunks: Vec<Hunk>,
}

impl<'a> TextMerge<'a> {
    /// Compares three versions. Fails if a side and the base together have more lines than `limits` allow.
    pub fn new(
        base: &'a [u8],
        ours: &'a [u8],
        theirs: &'a [u8],
        limits: DiffLimits,
    ) -> Result<Self, DiffLimitExceeded> {
        let [base, ours, theirs] = [base, ours, theirs].map(Lines::new);
        let [our_changes, their_changes] = diff_sides(&base, [&ours, &theirs], limits)?;
        let mut text = Self { base, ours, theirs, hunks: Vec::new() };
        text.hunks = text.combine(&our_changes, &their_changes);
        text.resolve_equal_sides();
        Ok(text)
    }

    /// Resolves conflicts in which both sides have the same lines.
    fn resolve_equal_sides(&mut self) {
        for hunk in self.hunks.iter_mut().filter(|hunk| hunk.kind == HunkKind::Conflict) {
            if self.ours.range_equals(&hunk.ours, &self.theirs, &hunk.theirs) {
                hunk.kind = HunkKind::SameResult;
            }
        }
    }

    /// Compares two versions. Each difference is a conflict.
    pub fn between(ours: &'a [u8], theirs: &'a [u8], limits: DiffLimits) -> Result<Self, DiffLimitExceeded> {
        Self::new(ours, ours, theirs, limits).map(Self::with_all_in_conflict)
    }

    /// Combines the changes of both sides, each relative to the base, into hunks.
    fn combine(&self, ours: &LineChanges, theirs: &LineChanges) -> Vec<Hunk> {
        let mut hunks = Hunks::default();
        let (mut our_changes, mut their_changes) = (ours.iter().peekable(), theirs.iter().peekable());
        loop {
            let (our, their) = (our_changes.peek().copied(), their_changes.peek().copied());
            match (our, their) {
                (None, None) => return hunks.0,
                (Some(our), their) if their.is_none_or(|their| our.base.end < their.base.start) => {
                    let in_theirs = shift_range(&our.base, self.offset(&self.theirs, their));
                    hunks.push(HunkKind::Ours, our.base.clone(), our.side.clone(), in_theirs);
                    our_changes.next();
                }
                (our, Some(their)) if our.is_none_or(|our| their.base.end < our.base.start) => {
                    let in_ours = shift_range(&their.base, self.offset(&self.ours, our));
                    hunks.push(HunkKind::Theirs, their.base.clone(), in_ours, their.side.clone());
                    their_changes.next();
                }
                (Some(our), Some(their)) => {
                    // Equal changes need no hunk: the lines between hunks are taken from our side.
                    if our.base != their.base || !self.ours.range_equals(&our.side, &self.theirs, &their.side)
                    {
                        let base = our.base.start.min(their.base.start)..our.base.end.max(their.base.end);
                        let in_ours = widen_range(&our.side, &our.base, &base);
                        let in_theirs = widen_range(&their.side, &their.base, &base);
                        hunks.push(HunkKind::Conflict, base, in_ours, in_theirs);
                    }
                    if our.base.end >= their.base.end {
                        their_changes.next();
                    }
                    if their.base.end >= our.base.end {
                        our_changes.next();
                    }
                }
                // Unreachable: if only one side has further changes, one of the first two arms matches.
                (None, Some(_)) | (Some(_), None) => return hunks.0,
            }
        }
    }

    /// Returns the line number in a side minus the line number in the base, directly before the change `next`, or at
    /// the end of the text if there is no next change.
    fn offset(&self, side: &Lines<'_>, next: Option<&LineChange>) -> isize {
        next.map_or(side.len().cast_signed() - self.base.len().cast_signed(), LineChange::offset)
    }

    /// Returns the hunks: all changes, except equal changes of both sides.
    pub(crate) fn hunks(&self) -> &[Hunk] {
        &self.hunks
    }

    /// Returns true if there are no conflicts.
    pub fn is_clean(&self) -> bool {
        self.hunks.iter().all(|hunk| hunk.kind != HunkKind::Conflict)
    }

    /// Turns every change into a conflict, so that [`TextMerge::render`] shows all of them. Lines that are equal in
    /// both sides are no conflict.
    #[must_use]
    pub fn with_all_in_conflict(mut self) -> Self {
        for hunk in self.hunks.iter_mut().filter(|hunk| hunk.kind != HunkKind::SameResult) {
            hunk.kind = HunkKind::Conflict;
        }
        self
    }

    /// Returns the conflicting lines.
    pub fn conflicts(&self) -> Vec<LineConflict> {
        let conflicts = self.hunks.iter().filter(|hunk| hunk.kind == HunkKind::Conflict);
        conflicts
            .map(|hunk| LineConflict {
                base: hunk.base.clone(),
                ours: hunk.ours.clone(),
                theirs: hunk.theirs.clone(),
            })
            .collect()
    }

    /// Returns the merged text; `None` if there are conflicts.
    pub fn merged(&self) -> Option<Vec<u8>> {
        self.is_clean().then(|| self.favor(Favor::Ours))
    }

    /// Returns the merged text with conflicts resolved by `favor`.
    pub fn favor(&self, favor: Favor) -> Vec<u8> {
        render::resolve(self, favor)
    }

    /// Returns the merged text with conflict markers, and the number of conflicts. Both depend on the style.
    pub fn render(&self, style: Style, markers: &ConflictMarkers<'_>) -> (Vec<u8>, usize) {
        render::render_with_markers(self, style, markers)
    }
}

/// Returns the range of a side that corresponds to a range of the base which the side did not change.
fn shift_range(base: &Range<usize>, offset: isize) -> Range<usize> {
    let shifted = |line: usize| line.saturating_add_signed(offset);
    shifted(base.start)..shifted(base.end)
}

/// Returns the range `side` of a change, widened by the lines by which the range `to` is larger than the range `base`
/// of that change. If `to` includes an earlier change of the side, the start of the result is wrong. That start is not
/// used: [`Hunks::push`] then merges the hunk into the previous one.
fn widen_range(side: &Range<usize>, base: &Range<usize>, to: &Range<usize>) -> Range<usize> {
    side.start.saturating_sub(base.start - to.start)..side.end + (to.end - base.end)
}

/// Hunks in text order, while they are collected.
#[derive(Default)]
struct Hunks(Vec<Hunk>);

impl Hunks {
    /// Adds a hunk. If the new hunk overlaps the last one or is adjacent to it, extends the last one instead; the last
    /// one becomes a conflict if the kinds differ.
    fn push(&mut self, kind: HunkKind, base: Range<usize>, ours: Range<usize>, theirs: Range<usize>) {
        if let Some(last) = self.0.last_mut()
            && (ours.start <= last.ours.end || theirs.start <= last.theirs.end)
        {
            if last.kind != kind {
                last.kind = HunkKind::Conflict;
            }
            last.base.end = base.end;
            last.ours.end = ours.end;
            last.theirs.end = theirs.end;
            return;
        }
        self.0.push(Hunk { kind, base, ours, theirs });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(lines: Range<usize>) -> String {
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn comparison_over_the_limit_fails() {
        let limits = DiffLimits { lines: 10, myers_lines: 0 };
        let base = numbered(0..100);
        let one_change = base.replace("50\n", "fifty\n");
        let merge = |ours: &str, theirs: &str| {
            let merged = TextMerge::new(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), limits);
            merged.map(|text| text.is_clean())
        };
        assert_eq!(merge(&one_change, &base.replace("70\n", "seventy\n")), Ok(true));
        assert_eq!(merge(&one_change, &format!("{base}100\n")), Ok(true));
        assert_eq!(merge(&one_change, &numbered(100..200)), Err(DiffLimitExceeded));
        assert_eq!(merge(&one_change, &base.replace("0\n", "x\n")), Err(DiffLimitExceeded));
        assert_eq!(merge(&one_change, ""), Err(DiffLimitExceeded));
    }
}
