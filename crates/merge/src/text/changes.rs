//! What a side changed.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use super::TooHard;
use super::lines::Lines;

/// Lines of the base, and what a side has instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) base: Range<usize>,
    pub(crate) side: Range<usize>,
}

/// All changes of a side, in order.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<Change>);

/// How much may be spent on comparing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Lines that two versions may have in all, without those they begin and end with in common.
    pub lines: usize,
    /// With more than these, repeated lines tell less of what belongs together and the quicker algorithm is used.
    pub exact: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { lines: 1_000_000, exact: 400_000 }
    }
}

impl Change {
    /// By how much the lines before it have moved.
    pub(crate) fn offset(&self) -> isize {
        self.side.start.cast_signed() - self.base.start.cast_signed()
    }
}

impl Changes {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Change> {
        self.0.iter()
    }
}

/// Compares a side with the base.
pub(crate) fn changes(base: &Lines<'_>, side: &Lines<'_>, effort: Effort) -> Result<Changes, TooHard> {
    compare(base, 0..base.len(), side, 0..side.len(), effort)
}

/// Compares some lines of two texts; lines are counted in the whole texts.
pub(crate) fn compare(
    base: &Lines<'_>,
    base_range: Range<usize>,
    side: &Lines<'_>,
    side_range: Range<usize>,
    effort: Effort,
) -> Result<Changes, TooHard> {
    let (offset, side_offset) = (base_range.start, side_range.start);
    // What both begin and end with costs next to nothing. All of it is compared nevertheless: a change may be seen earlier
    // or later among lines that repeat, and is to be seen where git sees it.
    let size = base_range.len() + side_range.len();
    let size = size - 2 * if size > effort.exact { base.common(&base_range, side, &side_range) } else { 0 };
    if size > effort.lines {
        return Err(TooHard);
    }
    let mut input = InternedInput::default();
    input.reserve(
        u32::try_from(base_range.len()).map_err(|_| TooHard)?,
        u32::try_from(side_range.len()).map_err(|_| TooHard)?,
    );
    input.update_before(base.iter(base_range));
    input.update_after(side.iter(side_range));
    let algorithm = if size > effort.exact { Algorithm::Histogram } else { Algorithm::Myers };
    let mut diff = Diff::compute(algorithm, &input);
    diff.postprocess_no_heuristic(&input);
    let range = |range: Range<u32>, offset: usize| range.start as usize + offset..range.end as usize + offset;
    let hunks = diff.hunks();
    Ok(Changes(
        hunks
            .map(|hunk| Change { base: range(hunk.before, offset), side: range(hunk.after, side_offset) })
            .collect(),
    ))
}
