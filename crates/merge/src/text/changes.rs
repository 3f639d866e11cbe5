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

/// So many lines are compared with each other.
const FEW: usize = 8;

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

/// Compares both sides with the base.
pub(crate) fn changes(
    base: &Lines<'_>,
    sides: [&Lines<'_>; 2],
    effort: Effort,
) -> Result<[Changes; 2], TooHard> {
    let mut comparison = Comparison::new(base, 0..base.len(), effort);
    let [ours, theirs] = sides.map(|side| comparison.with(side, 0..side.len()));
    Ok([ours?, theirs?])
}

/// Compares some lines of two texts; lines are counted in the whole texts.
pub(crate) fn compare(
    base: &Lines<'_>,
    base_range: Range<usize>,
    side: &Lines<'_>,
    side_range: Range<usize>,
    effort: Effort,
) -> Result<Changes, TooHard> {
    Comparison::new(base, base_range, effort).with(side, side_range)
}

/// Some lines of a text, which others are compared with. Most of the work is finding out which lines are equal: it is done
/// once for the lines of the base, and not for what a side begins and ends with in common.
struct Comparison<'b, 't> {
    base: &'b Lines<'t>,
    range: Range<usize>,
    effort: Effort,
    input: InternedInput<&'t [u8]>,
}

impl<'b, 't> Comparison<'b, 't> {
    fn new(base: &'b Lines<'t>, range: Range<usize>, effort: Effort) -> Self {
        Self { base, range, effort, input: InternedInput::default() }
    }

    fn with(&mut self, side: &Lines<'t>, range: Range<usize>) -> Result<Changes, TooHard> {
        let (first, last) = self.base.common(&self.range, side, &range);
        let size = self.range.len() + range.len();
        let is_large = size > self.effort.exact;
        // What both begin and end with costs next to nothing. All of it is compared nevertheless: a change may be seen
        // earlier or later among lines that repeat, and is to be seen where git sees it.
        let size = if is_large { size - 2 * (first + last) } else { size };
        if size > self.effort.lines {
            return Err(TooHard);
        }
        let gone = self.range.start + first..self.range.end - last;
        let new = range.start + first..range.end - last;
        if self.is_one_change(&gone, side, &new) {
            return Ok(Changes(vec![Change { base: gone, side: new }]));
        }
        self.take(side, &range, first, last)?;
        let algorithm = if size > self.effort.exact { Algorithm::Histogram } else { Algorithm::Myers };
        let mut diff = Diff::compute(algorithm, &self.input);
        diff.postprocess_no_heuristic(&self.input);
        let moved = |lines: Range<u32>, by: usize| lines.start as usize + by..lines.end as usize + by;
        let hunks = diff.hunks().map(|hunk| Change {
            base: moved(hunk.before, self.range.start),
            side: moved(hunk.after, range.start),
        });
        Ok(Changes(hunks.collect()))
    }

    /// Whether a few lines became others and nothing else changed. No algorithm finds anything else then, and there is
    /// no other place where the change could be seen, since lines are there on both sides.
    fn is_one_change(&self, gone: &Range<usize>, side: &Lines<'t>, new: &Range<usize>) -> bool {
        let are_few = |lines: &Range<usize>| (1..=FEW).contains(&lines.len());
        are_few(gone)
            && are_few(new)
            && self.base.iter(gone.clone()).all(|line| side.iter(new.clone()).all(|other| line != other))
    }

    /// Gives equal lines equal numbers.
    fn take(
        &mut self,
        side: &Lines<'t>,
        range: &Range<usize>,
        first: usize,
        last: usize,
    ) -> Result<(), TooHard> {
        let input = &mut self.input;
        let count = |len: usize| u32::try_from(len).map_err(|_| TooHard);
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
