//! Line diff between the base and a side. It finds the same hunks as git.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use super::lines::Lines;

/// Replacement of a range of base lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineChange {
    /// Replaced lines of the base.
    pub(crate) base: Range<usize>,
    /// Lines of the side that replace them.
    pub(crate) side: Range<usize>,
}

/// All changes of a side, in order.
#[derive(Debug, Default)]
pub(crate) struct LineChanges(Vec<LineChange>);

/// Maximum number of removed lines, and of added lines, of a single replacement that is detected without a diff.
const SINGLE_CHANGE_MAX: usize = 8;

/// Error for texts that together have more lines than [`DiffLimits`] allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the versions have too many lines to be compared line by line")]
pub struct DiffLimitExceeded;

/// Limits of the diff of two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffLimits {
    /// Maximum number of lines of both texts together. If the texts have more than `myers_lines` lines, common lines at
    /// their start and end do not count.
    pub lines: usize,
    /// Maximum number of lines of both texts together for the Myers diff; common lines at their start and end do not
    /// count. Texts with more lines are compared by the histogram diff, which is faster but matches repeated lines less
    /// well.
    pub myers_lines: usize,
}

impl Default for DiffLimits {
    fn default() -> Self {
        Self { lines: 1_000_000, myers_lines: 400_000 }
    }
}

impl LineChange {
    /// Returns the line number in the side minus the line number in the base, directly before this change.
    pub(crate) fn offset(&self) -> isize {
        self.side.start.cast_signed() - self.base.start.cast_signed()
    }
}

impl LineChanges {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, LineChange> {
        self.0.iter()
    }
}

/// Compares both sides with the base.
pub(crate) fn diff_sides(
    base: &Lines<'_>,
    sides: [&Lines<'_>; 2],
    limits: DiffLimits,
) -> Result<[LineChanges; 2], DiffLimitExceeded> {
    let mut comparison = BaseDiff::new(base, 0..base.len(), limits);
    let [ours, theirs] = sides.map(|side| comparison.diff_with(side, 0..side.len()));
    Ok([ours?, theirs?])
}

/// Compares ranges of two texts. Line numbers in the result count from the start of the texts, not of the ranges.
pub(crate) fn diff_ranges(
    base: &Lines<'_>,
    base_range: Range<usize>,
    side: &Lines<'_>,
    side_range: Range<usize>,
    limits: DiffLimits,
) -> Result<LineChanges, DiffLimitExceeded> {
    BaseDiff::new(base, base_range, limits).diff_with(side, side_range)
}

/// Diff of a range of the base against several sides. Most of the time is spent on interning: replacing each line by a
/// number (token) that is equal for equal lines. Therefore base lines are interned once, and lines of a side that equal
/// the start or the end of the base reuse its tokens.
struct BaseDiff<'b, 't> {
    base: &'b Lines<'t>,
    /// Range of the base that is compared.
    range: Range<usize>,
    limits: DiffLimits,
    /// Tokens of the base range, and of the side that was compared last.
    input: InternedInput<&'t [u8]>,
}

impl<'b, 't> BaseDiff<'b, 't> {
    fn new(base: &'b Lines<'t>, range: Range<usize>, limits: DiffLimits) -> Self {
        Self { base, range, limits, input: InternedInput::default() }
    }

    /// Compares the range of the base with a range of a side.
    fn diff_with(&mut self, side: &Lines<'t>, range: Range<usize>) -> Result<LineChanges, DiffLimitExceeded> {
        let (prefix, suffix) = self.base.common(&self.range, side, &range);
        let size = self.range.len() + range.len();
        let is_large = size > self.limits.myers_lines;
        // The common prefix and suffix of large texts do not count towards the limits, since they cost little. But they
        // are compared as well: a change of repeated lines has several possible positions, and git chooses among all
        // of them.
        let size = if is_large { size - 2 * (prefix + suffix) } else { size };
        if size > self.limits.lines {
            return Err(DiffLimitExceeded);
        }
        let removed = self.range.start + prefix..self.range.end - suffix;
        let added = range.start + prefix..range.end - suffix;
        if self.is_single_replacement(&removed, side, &added) {
            return Ok(LineChanges(vec![LineChange { base: removed, side: added }]));
        }
        self.intern(side, &range, prefix, suffix)?;
        let algorithm = if size > self.limits.myers_lines { Algorithm::Histogram } else { Algorithm::Myers };
        let mut diff = Diff::compute(algorithm, &self.input);
        diff.postprocess_no_heuristic(&self.input);
        let shift_range = |lines: Range<u32>, by: usize| lines.start as usize + by..lines.end as usize + by;
        let hunks = diff.hunks().map(|hunk| LineChange {
            base: shift_range(hunk.before, self.range.start),
            side: shift_range(hunk.after, range.start),
        });
        Ok(LineChanges(hunks.collect()))
    }

    /// Returns true if the only change replaces a few lines by others, and no removed line equals an added one. Every
    /// diff algorithm reports such a change as the same single hunk. The hunk has only this position, because a hunk
    /// that both removes and adds lines cannot slide over repeated lines.
    fn is_single_replacement(&self, removed: &Range<usize>, side: &Lines<'t>, added: &Range<usize>) -> bool {
        let are_few = |lines: &Range<usize>| (1..=SINGLE_CHANGE_MAX).contains(&lines.len());
        are_few(removed)
            && are_few(added)
            && self.base.iter(removed.clone()).all(|line| side.iter(added.clone()).all(|other| line != other))
    }

    /// Fills the input of the diff with tokens. `prefix` and `suffix` are the numbers of common lines at the start and
    /// end of the two ranges. Fails if the number of lines does not fit in 32 bits.
    fn intern(
        &mut self,
        side: &Lines<'t>,
        range: &Range<usize>,
        prefix: usize,
        suffix: usize,
    ) -> Result<(), DiffLimitExceeded> {
        let input = &mut self.input;
        let to_u32 = |len: usize| u32::try_from(len).map_err(|_| DiffLimitExceeded);
        if input.before.is_empty() {
            let new_lines = to_u32(range.len() - prefix - suffix)?;
            input.reserve(to_u32(self.range.len())?, new_lines);
            input.update_before(self.base.iter(self.range.clone()));
        }
        input.after.clear();
        to_u32(range.len())?;
        input.after.reserve(range.len());
        input.after.extend_from_slice(&input.before[..prefix]);
        let different = side.iter(range.start + prefix..range.end - suffix);
        input.after.extend(different.map(|line| input.interner.intern(line)));
        input.after.extend_from_slice(&input.before[input.before.len() - suffix..]);
        Ok(())
    }
}
