//! Line endings of conflict markers.

use super::chunk::Chunk;
use super::lines::Lines;

/// Returns whether conflict markers end in CR LF, as the surrounding lines do.
pub(crate) fn needs_cr(base: &Lines<'_>, ours: &Lines<'_>, theirs: &Lines<'_>, chunk: &Chunk) -> bool {
    let before = |lines: &Lines<'_>, start: usize| ends_in_crlf(lines, start.saturating_sub(1));
    // Sides without line endings leave the decision to the base.
    before(ours, chunk.ours.start) != Some(false)
        && before(theirs, chunk.theirs.start) != Some(false)
        && ends_in_crlf(base, 0) == Some(true)
}

/// Returns whether a line ends in CR LF; `None` if neither it nor the line before has an ending.
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
