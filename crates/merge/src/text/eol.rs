//! Line endings of conflict markers, chosen as in git.

use super::hunk::Hunk;
use super::lines::Lines;

/// Line ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnding {
    Lf,
    CrLf,
}

impl LineEnding {
    pub(crate) fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::CrLf => b"\r\n",
        }
    }
}

/// Returns the line ending of conflict markers: CR LF if the first line of the base ends in CR LF, and on
/// neither side the line before the conflict ends in LF alone.
pub(crate) fn marker_ending(
    base: &Lines<'_>,
    ours: &Lines<'_>,
    theirs: &Lines<'_>,
    hunk: &Hunk,
) -> LineEnding {
    let is_crlf_before = |lines: &Lines<'_>, start: usize| ends_in_crlf(lines, start.saturating_sub(1));
    // `None`, a side without line endings, leaves the decision to the others.
    let is_crlf = is_crlf_before(ours, hunk.ours.start) != Some(false)
        && is_crlf_before(theirs, hunk.theirs.start) != Some(false)
        && ends_in_crlf(base, 0) == Some(true);
    if is_crlf { LineEnding::CrLf } else { LineEnding::Lf }
}

/// Returns true if a line ends in CR LF. A last line without an ending counts as the line before it; `None` if
/// there is no such line.
fn ends_in_crlf(lines: &Lines<'_>, line: usize) -> Option<bool> {
    let crlf = |line: usize| lines.get(line).ends_with(b"\r\n");
    if line >= lines.len() {
        return None;
    }
    if lines.get(line).ends_with(b"\n") {
        return Some(crlf(line));
    }
    line.checked_sub(1).map(crlf)
}
