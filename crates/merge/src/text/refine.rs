//! Splits, joins and trims conflicts for display, as git's conflict styles do.

use super::TextMerge;
use super::changes::{DiffLimits, diff_ranges};
use super::hunk::{Hunk, HunkKind};

/// Maximum number of lines between two conflicts that are shown as one.
const JOIN_DISTANCE: usize = 3;

/// Returns the hunks of a merge, with conflicts split at lines that both sides have, as in git's conflict style
/// `merge`. These common lines are then in no hunk: lines between hunks are taken from our side. Each part of a split
/// conflict has the base range of the whole conflict.
pub(crate) fn split(text: &TextMerge<'_>) -> Vec<Hunk> {
    let mut split = Vec::with_capacity(text.hunks.len());
    for hunk in &text.hunks {
        if hunk.kind != HunkKind::Conflict || hunk.ours.is_empty() || hunk.theirs.is_empty() {
            split.push(hunk.clone());
            continue;
        }
        let (ours, theirs) = (hunk.ours.clone(), hunk.theirs.clone());
        // The number of lines needs no further limit: both sides passed the limit when they were compared with the
        // base, so together they have at most twice as many lines. The diff still fails if their number does not fit
        // in 32 bits; then the conflict is not split.
        let limits = DiffLimits { lines: usize::MAX, ..DiffLimits::default() };
        let Ok(parts) = diff_ranges(&text.ours, ours, &text.theirs, theirs, limits) else {
            split.push(hunk.clone());
            continue;
        };
        // The diff has our lines as its base and their lines as its side.
        split.extend(parts.iter().map(|part| Hunk {
            kind: HunkKind::Conflict,
            // Not exact for a part of a conflict. Callers of this function do not show the base.
            base: hunk.base.clone(),
            ours: part.base.clone(),
            theirs: part.side.clone(),
        }));
    }
    join(text, split)
}

/// Joins conflicts with at most [`JOIN_DISTANCE`] lines between them, or with only lines without letters and digits
/// between them, as git does.
fn join(text: &TextMerge<'_>, hunks: Vec<Hunk>) -> Vec<Hunk> {
    let mut joined: Vec<Hunk> = Vec::with_capacity(hunks.len());
    for hunk in hunks {
        if let Some(last) = joined.last_mut()
            && (last.kind, hunk.kind) == (HunkKind::Conflict, HunkKind::Conflict)
            && can_join_over(text, last.ours.end..hunk.ours.start)
        {
            last.ours.end = hunk.ours.end;
            last.theirs.end = hunk.theirs.end;
            continue;
        }
        joined.push(hunk);
    }
    joined
}

/// Returns true if conflicts on both sides of the lines `between` of our text can be joined.
fn can_join_over(text: &TextMerge<'_>, between: std::ops::Range<usize>) -> bool {
    between.len() <= JOIN_DISTANCE || !text.ours.bytes(&between).iter().any(u8::is_ascii_alphanumeric)
}

/// Returns the hunks of a merge, with conflicts shortened by the common lines at their start and end, as in git's
/// conflict style `zdiff3`.
pub(crate) fn trim(text: &TextMerge<'_>) -> Vec<Hunk> {
    let mut hunks = text.hunks.clone();
    for hunk in hunks.iter_mut().filter(|hunk| hunk.kind == HunkKind::Conflict) {
        let (mut ours, mut theirs) = (hunk.ours.clone(), hunk.theirs.clone());
        let same = |ours: usize, theirs: usize| text.ours.get(ours) == text.theirs.get(theirs);
        while !ours.is_empty() && !theirs.is_empty() && same(ours.start, theirs.start) {
            ours.start += 1;
            theirs.start += 1;
        }
        while !ours.is_empty() && !theirs.is_empty() && same(ours.end - 1, theirs.end - 1) {
            ours.end -= 1;
            theirs.end -= 1;
        }
        (hunk.ours, hunk.theirs) = (ours, theirs);
    }
    hunks
}
