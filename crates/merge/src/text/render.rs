//! Output of a text merge: merged lines, with conflicts resolved or shown between conflict markers.

use std::borrow::Cow;

use super::eol::{LineEnding, marker_ending};
use super::hunk::{Hunk, HunkKind};
use super::lines::Lines;
use super::{Favor, TextMerge, refine};

/// Conflict style, as in git's `merge.conflictStyle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Shows both sides.
    #[default]
    Merge,
    /// Shows both sides and the base.
    Diff3,
    /// Shows both sides and the base. Common lines at the start and end of both sides are outside the
    /// markers.
    Zdiff3,
}

/// Labels and length of conflict markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConflictMarkers<'a> {
    /// Label of our side.
    pub ours: &'a str,
    /// Label of the base.
    pub base: &'a str,
    /// Label of their side.
    pub theirs: &'a str,
    /// Length of a marker in characters.
    pub marker_size: usize,
}

impl Default for ConflictMarkers<'_> {
    fn default() -> Self {
        Self { ours: "ours", base: "base", theirs: "theirs", marker_size: 7 }
    }
}

/// Returns the merged text with all conflicts resolved by `favor`.
pub(crate) fn resolve(text: &TextMerge<'_>, favor: Favor) -> Vec<u8> {
    let mut out = MergeWriter::new(text);
    // In a union, lines common to both sides of a conflict are written once.
    let hunks =
        if favor == Favor::Union { Cow::Owned(refine::split(text)) } else { Cow::Borrowed(&text.hunks) };
    for hunk in hunks.iter() {
        out.write_before(hunk);
        let (takes_ours, takes_theirs) = match (hunk.kind, favor) {
            (HunkKind::Ours | HunkKind::SameResult, _) | (HunkKind::Conflict, Favor::Ours) => (true, false),
            (HunkKind::Theirs, _) | (HunkKind::Conflict, Favor::Theirs) => (false, true),
            (HunkKind::Conflict, Favor::Union) => (true, true),
        };
        if takes_ours {
            out.write_lines(&text.ours, &hunk.ours, None);
        }
        if takes_ours && takes_theirs {
            out.end_line(marker_ending(&text.base, &text.ours, &text.theirs, hunk));
        }
        if takes_theirs {
            out.write_lines(&text.theirs, &hunk.theirs, None);
        }
    }
    out.finish()
}

/// Returns the merged text with conflict markers, and the number of conflicts shown.
pub(crate) fn render_with_markers(
    text: &TextMerge<'_>,
    style: Style,
    markers: &ConflictMarkers<'_>,
) -> (Vec<u8>, usize) {
    let hunks = match style {
        Style::Merge => refine::split(text),
        Style::Diff3 => text.hunks.clone(),
        Style::Zdiff3 => refine::trim(text),
    };
    let (mut out, mut conflicts) = (MergeWriter::new(text), 0);
    for hunk in &hunks {
        out.write_before(hunk);
        match hunk.kind {
            HunkKind::Ours | HunkKind::SameResult => out.write_lines(&text.ours, &hunk.ours, None),
            HunkKind::Theirs => out.write_lines(&text.theirs, &hunk.theirs, None),
            HunkKind::Conflict => {
                conflicts += 1;
                out.write_conflict(hunk, style, markers);
            }
        }
    }
    (out.finish(), conflicts)
}

/// Writer of merged lines, hunk by hunk.
struct MergeWriter<'a, 'b> {
    text: &'a TextMerge<'b>,
    bytes: Vec<u8>,
    /// Number of lines of our text before the current position.
    our_line: usize,
}

impl<'a, 'b> MergeWriter<'a, 'b> {
    fn new(text: &'a TextMerge<'b>) -> Self {
        let [base, ours, theirs] =
            [&text.base, &text.ours, &text.theirs].map(|lines| lines.bytes(&(0..lines.len())).len());
        // Approximate size of a merge without conflicts.
        let bytes = Vec::with_capacity((ours + theirs).saturating_sub(base));
        Self { text, bytes, our_line: 0 }
    }

    /// Writes our lines between the previous hunk and this one: the merged text has our lines outside hunks.
    fn write_before(&mut self, hunk: &Hunk) {
        let before = self.our_line..hunk.ours.start;
        self.bytes.extend_from_slice(self.text.ours.bytes(&before));
        self.our_line = hunk.ours.end;
    }

    /// Writes our lines after the last hunk, and returns the text.
    fn finish(mut self) -> Vec<u8> {
        let rest = self.our_line..self.text.ours.len();
        self.bytes.extend_from_slice(self.text.ours.bytes(&rest));
        self.bytes
    }

    /// Writes a range of lines. If `ending` is given and the last line has no line ending, adds `ending`.
    fn write_lines(&mut self, lines: &Lines<'_>, range: &std::ops::Range<usize>, ending: Option<LineEnding>) {
        let length_before = self.bytes.len();
        self.bytes.extend_from_slice(lines.bytes(range));
        if let Some(ending) = ending
            && self.bytes.len() > length_before
        {
            self.end_line(ending);
        }
    }

    /// Adds a line ending if the last line has none.
    fn end_line(&mut self, ending: LineEnding) {
        if !self.bytes.is_empty() && !self.bytes.ends_with(b"\n") {
            self.bytes.extend_from_slice(ending.as_bytes());
        }
    }

    fn write_conflict(&mut self, hunk: &Hunk, style: Style, markers: &ConflictMarkers<'_>) {
        let TextMerge { base, ours, theirs, .. } = self.text;
        let ending = marker_ending(base, ours, theirs, hunk);
        self.write_marker(b'<', markers.marker_size, markers.ours, ending);
        self.write_lines(ours, &hunk.ours, Some(ending));
        if style != Style::Merge {
            self.write_marker(b'|', markers.marker_size, markers.base, ending);
            self.write_lines(base, &hunk.base, Some(ending));
        }
        self.write_marker(b'=', markers.marker_size, "", ending);
        self.write_lines(theirs, &hunk.theirs, Some(ending));
        self.write_marker(b'>', markers.marker_size, markers.theirs, ending);
    }

    fn write_marker(&mut self, character: u8, size: usize, label: &str, ending: LineEnding) {
        self.bytes.resize(self.bytes.len() + size, character);
        if !label.is_empty() {
            self.bytes.push(b' ');
            self.bytes.extend_from_slice(label.as_bytes());
        }
        self.bytes.extend_from_slice(ending.as_bytes());
    }
}
