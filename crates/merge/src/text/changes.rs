//! Line diff between the base and a side.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use super::lines::Lines;

/// Replacement of a range of base lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) base: Range<usize>,
    pub(crate) side: Range<usize>,
}

/// All changes of a side, in order.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<Change>);

/// Limit for lines on each side of a single replacement that is detected without a diff.
const SINGLE_CHANGE_MAX: usize = 8;

/// Error of a comparison that would exceed its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the versions differ too much to be compared line by line")]
pub struct DiffLimitExceeded;

/// Limits for the comparison of two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffLimits {
    /// Limit for lines of both texts together, without their common start and end.
    pub lines: usize,
    /// Limit for lines of both texts up to which the exact algorithm is used. Larger texts get the faster
    /// histogram diff, which matches repeated lines less well.
    pub exact: usize,
}

impl Default for DiffLimits {
    fn default() -> Self {
        Self { lines: 1_000_000, exact: 400_000 }
    }
}

impl Change {
    /// Returns the shift of the lines before this change.
    pub(crate) fn offset(&self) -> isize {
        self.side.start.cast_signed() - self.base.start.cast_signed()
    }
}

impl Changes {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Change> {
        self.0.iter()
    }
}

/// Compares both sides with the base.
pub(crate) fn changes(
    base: &Lines<'_>,
    sides: [&Lines<'_>; 2],
    limits: DiffLimits,
) -> Result<[Changes; 2], DiffLimitExceeded> {
    let mut comparison = Comparison::new(base, 0..base.len(), limits);
    let [ours, theirs] = sides.map(|side| comparison.with(side, 0..side.len()));
    Ok([ours?, theirs?])
}

/// Compares ranges of two texts. Line numbers of the result refer to the whole texts.
pub(crate) fn compare(
    base: &Lines<'_>,
    base_range: Range<usize>,
    side: &Lines<'_>,
    side_range: Range<usize>,
    limits: DiffLimits,
) -> Result<Changes, DiffLimitExceeded> {
    Comparison::new(base, base_range, limits).with(side, side_range)
}

/// Comparison of a base range with several sides. Interning lines is most of the work: base lines are
/// interned once, and common lines at the start and end of a side are not interned again.
struct Comparison<'b, 't> {
    base: &'b Lines<'t>,
    range: Range<usize>,
    limits: DiffLimits,
    input: InternedInput<&'t [u8]>,
}

impl<'b, 't> Comparison<'b, 't> {
    fn new(base: &'b Lines<'t>, range: Range<usize>, limits: DiffLimits) -> Self {
        Self { base, range, limits, input: InternedInput::default() }
    }

    fn with(&mut self, side: &Lines<'t>, range: Range<usize>) -> Result<Changes, DiffLimitExceeded> {
        let (first, last) = self.base.common(&self.range, side, &range);
        let size = self.range.len() + range.len();
        let is_large = size > self.limits.exact;
        // The common start and end cost next to nothing. They are compared nevertheless: among repeated lines
        // a change has several possible positions, and it has to be the one that git finds.
        let size = if is_large { size - 2 * (first + last) } else { size };
        if size > self.limits.lines {
            return Err(DiffLimitExceeded);
        }
        let gone = self.range.start + first..self.range.end - last;
        let new = range.start + first..range.end - last;
        if self.is_one_change(&gone, side, &new) {
            return Ok(Changes(vec![Change { base: gone, side: new }]));
        }
        self.intern(side, &range, first, last)?;
        let algorithm = if size > self.limits.exact { Algorithm::Histogram } else { Algorithm::Myers };
        let mut diff = Diff::compute(algorithm, &self.input);
        diff.postprocess_no_heuristic(&self.input);
        let moved = |lines: Range<u32>, by: usize| lines.start as usize + by..lines.end as usize + by;
        let hunks = diff.hunks().map(|hunk| Change {
            base: moved(hunk.before, self.range.start),
            side: moved(hunk.after, range.start),
        });
        Ok(Changes(hunks.collect()))
    }

    /// Returns whether a few lines were replaced by others and nothing else changed. Any algorithm finds just
    /// that change, and its position is unique, since both sides have lines there.
    fn is_one_change(&self, gone: &Range<usize>, side: &Lines<'t>, new: &Range<usize>) -> bool {
        let are_few = |lines: &Range<usize>| (1..=SINGLE_CHANGE_MAX).contains(&lines.len());
        are_few(gone)
            && are_few(new)
            && self.base.iter(gone.clone()).all(|line| side.iter(new.clone()).all(|other| line != other))
    }

    /// Interns the lines of a side: equal lines get equal tokens.
    fn intern(
        &mut self,
        side: &Lines<'t>,
        range: &Range<usize>,
        first: usize,
        last: usize,
    ) -> Result<(), DiffLimitExceeded> {
        let input = &mut self.input;
        let count = |len: usize| u32::try_from(len).map_err(|_| DiffLimitExceeded);
        if input.before.is_empty() {
            let others = count(range.len() - first - last)?;
            input.reserve(count(self.range.len())?, others);
            input.update_before(self.base.iter(self.range.clone()));
        }
        input.after.clear();
        count(range.len())?;
        input.after.reserve(range.len());
        input.after.extend_from_slice(&input.before[..first]);
        let between = side.iter(range.start + first..range.end - last);
        input.after.extend(between.map(|line| input.interner.intern(line)));
        input.after.extend_from_slice(&input.before[input.before.len() - last..]);
        Ok(())
    }
}
