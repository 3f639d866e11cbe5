//! Line diff between the base and a side, with the hunks that git finds.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use super::lines::Lines;

/// Replacement of a range of base lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineChange {
    pub(crate) base: Range<usize>,
    pub(crate) side: Range<usize>,
}

/// All changes of a side, in order.
#[derive(Debug, Default)]
pub(crate) struct LineChanges(Vec<LineChange>);

/// Maximum number of lines on each side of a single replacement that is detected without a diff.
const SINGLE_CHANGE_MAX: usize = 8;

/// Error for texts that together have more lines than [`DiffLimits`] allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the versions have too many lines to be compared line by line")]
pub struct DiffLimitExceeded;

/// Limits of the diff of two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffLimits {
    /// Maximum number of lines of both texts together. If they have more than `myers_lines` lines, their common
    /// start and end do not count.
    pub lines: usize,
    /// Maximum number of lines of both texts together for the Myers diff. If they have more even without
    /// their common start and end, they get the faster histogram diff, which matches repeated lines less
    /// well.
    pub myers_lines: usize,
}

impl Default for DiffLimits {
    fn default() -> Self {
        Self { lines: 1_000_000, myers_lines: 400_000 }
    }
}

impl LineChange {
    /// Returns the difference between line numbers of the side and of the base directly before this change.
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

/// Compares ranges of two texts. Line numbers in the result count from the start of the texts.
pub(crate) fn diff_ranges(
    base: &Lines<'_>,
    base_range: Range<usize>,
    side: &Lines<'_>,
    side_range: Range<usize>,
    limits: DiffLimits,
) -> Result<LineChanges, DiffLimitExceeded> {
    BaseDiff::new(base, base_range, limits).diff_with(side, side_range)
}

/// Diff of a range of the base against several sides. Interning lines takes most of the time. Therefore base
/// lines are interned once, and common lines at the start and end of a side are not interned again.
struct BaseDiff<'b, 't> {
    base: &'b Lines<'t>,
    range: Range<usize>,
    limits: DiffLimits,
    input: InternedInput<&'t [u8]>,
}

impl<'b, 't> BaseDiff<'b, 't> {
    fn new(base: &'b Lines<'t>, range: Range<usize>, limits: DiffLimits) -> Self {
        Self { base, range, limits, input: InternedInput::default() }
    }

    fn diff_with(&mut self, side: &Lines<'t>, range: Range<usize>) -> Result<LineChanges, DiffLimitExceeded> {
        let (prefix, suffix) = self.base.common(&self.range, side, &range);
        let size = self.range.len() + range.len();
        let is_large = size > self.limits.myers_lines;
        // The common prefix and suffix of large texts do not count, since they cost little. They stay part of
        // the diff: a change of repeated lines has several possible positions, and git chooses among all of
        // them.
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

    /// Returns true if the only change replaced a few lines by others. No removed line equals an added one,
    /// so every algorithm reports the same single hunk. A hunk that both removes and adds lines cannot slide
    /// over repeated lines.
    fn is_single_replacement(&self, removed: &Range<usize>, side: &Lines<'t>, added: &Range<usize>) -> bool {
        let are_few = |lines: &Range<usize>| (1..=SINGLE_CHANGE_MAX).contains(&lines.len());
        are_few(removed)
            && are_few(added)
            && self.base.iter(removed.clone()).all(|line| side.iter(added.clone()).all(|other| line != other))
    }

    /// Fills the input of the diff. Equal lines get equal tokens. `prefix` and `suffix` are the numbers of
    /// common lines at the start and end. Fails if the number of lines does not fit in 32 bits.
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
        let between = side.iter(range.start + prefix..range.end - suffix);
        input.after.extend(between.map(|line| input.interner.intern(line)));
        input.after.extend_from_slice(&input.before[input.before.len() - suffix..]);
        Ok(())
    }
}
