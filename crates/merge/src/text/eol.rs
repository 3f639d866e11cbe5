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

/// Returns the line ending of the markers of one conflict: CR LF if the first line of the base ends in CR LF, and the
/// line before the conflict does not end in LF alone on either side.
pub(crate) fn marker_ending(
    base: &Lines<'_>,
    ours: &Lines<'_>,
    theirs: &Lines<'_>,
    hunk: &Hunk,
) -> LineEnding {
    let is_crlf_before = |lines: &Lines<'_>, start: usize| ends_in_crlf(lines, start.saturating_sub(1));
    // A side without line endings (`None`) does not prevent CR LF.
    let is_crlf = is_crlf_before(ours, hunk.ours.start) != Some(false)
        && is_crlf_before(theirs, hunk.theirs.start) != Some(false)
        && ends_in_crlf(base, 0) == Some(true);
    if is_crlf { LineEnding::CrLf } else { LineEnding::Lf }
}

/// Returns true if a line ends in CR LF. For a last line without an ending, the line before it is checked. `None` if
/// the line to check does not exist.
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
