//! Source text of a JSON, YAML or TOML document: its indentation, line endings and comments.
//!
//! Comments are recognised by their first characters only, so a line of a multi-line string may be taken for a comment.
//! Callers parse the written text again and compare its value.

use super::Syntax;
use crate::json;

/// Maximum number of characters of indentation. Without this limit, the output for a deeply indented input
/// could be much larger than the input.
const INDENT_MAX: usize = 400;

/// Source text of a document.
pub(super) struct SourceText<'d> {
    pub(super) text: &'d str,
    /// Line ending of the first line; LF if there is only one line.
    pub(super) end_of_line: &'static str,
    syntax: Syntax,
    /// Byte offset of each line, computed once. Searching the start of the line from each value would take quadratic
    /// time in a large text of a single line.
    line_starts: Vec<usize>,
}

impl<'d> SourceText<'d> {
    pub(super) fn new(text: &'d str, syntax: Syntax) -> Self {
        let ends = memchr::memchr_iter(b'\n', text.as_bytes());
        let line_starts: Vec<usize> = std::iter::once(0).chain(ends.map(|end| end + 1)).collect();
        let is_crlf = line_starts.get(1).is_some_and(|second| text[..*second].ends_with("\r\n"));
        Self { text, end_of_line: if is_crlf { "\r\n" } else { "\n" }, syntax, line_starts }
    }

    /// Returns the number, from 0, of the line that contains a byte offset.
    fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset) - 1
    }

    /// Returns the indentation of the value at a byte offset. In JSON and TOML, it is the whitespace at the start of
    /// its line. In YAML, it is as long as all text before the value on its line, such as a dash.
    pub(super) fn indent(&self, offset: usize) -> String {
        let line = &self.text.as_bytes()[self.line_starts[self.line(offset)]..offset];
        let is_indentation = |byte: &u8| match self.syntax {
            Syntax::Json | Syntax::Toml => matches!(byte, b' ' | b'\t'),
            Syntax::Yaml => true,
        };
        let indent = line.iter().take(INDENT_MAX).take_while(|byte| is_indentation(byte));
        // In YAML, every byte of other text becomes a space.
        indent.map(|byte| if *byte == b'\t' { '\t' } else { ' ' }).collect()
    }

    /// Returns the offset of the first comma between the offsets `from` and `end`; `None` if there is none, or anything
    /// but whitespace and comments comes before it.
    pub(super) fn comma(&self, from: usize, end: usize) -> Option<usize> {
        let bytes = &self.text.as_bytes()[..end];
        let mut offset = from;
        loop {
            match bytes.get(offset)? {
                b',' => return Some(offset),
                b' ' | b'\t' | b'\n' | b'\r' => offset += 1,
                b'/' if self.syntax == Syntax::Json => offset = json::comment_end(bytes, offset)?,
                b'#' if self.syntax != Syntax::Json => offset += first_line(&self.text[offset..]).len(),
                _ => return None,
            }
        }
    }

    /// Returns the comment that follows a value on its line, with the whitespace before the comment. A comma between
    /// value and comment is skipped. Empty if there is no comment.
    pub(super) fn trailing_comment(&self, value_end: usize) -> &'d str {
        let line_end = value_end + first_line(&self.text[value_end..]).len();
        let start = self.comma(value_end, line_end).map_or(value_end, |comma| comma + 1);
        let trailing = &self.text[start..];
        if !trailing.trim_start_matches([' ', '\t']).starts_with(['/', '#']) {
            return "";
        }
        let trailing = first_line(trailing);
        if self.is_comment(trailing.trim_start()) { trailing } else { "" }
    }

    /// Returns the offset at which the comments on the lines directly above a byte offset start; the given offset if
    /// there are none.
    pub(super) fn comments_above(&self, offset: usize) -> usize {
        let mut start = offset;
        let mut line = self.line(offset);
        while line > 0 && self.text[self.line_starts[line]..start].trim().is_empty() {
            let above = self.text[self.line_starts[line - 1]..self.line_starts[line]].trim_start();
            if !self.is_comment(above) {
                break;
            }
            start = self.line_starts[line] - above.len();
            line -= 1;
        }
        start
    }

    /// Returns true if a line without its indentation looks like a comment.
    fn is_comment(&self, line: &str) -> bool {
        match self.syntax {
            Syntax::Json => {
                line.starts_with("//") || line.starts_with("/*") && line.trim_end().ends_with("*/")
            }
            Syntax::Yaml | Syntax::Toml => line.starts_with('#'),
        }
    }
}

/// Returns the first line without its line ending.
pub(super) fn first_line(text: &str) -> &str {
    let line = &text[..text.find('\n').unwrap_or(text.len())];
    line.strip_suffix('\r').unwrap_or(line)
}

/// Writes text with the indentation `old` replaced by `new` on all lines but the first.
pub(crate) fn push_indented(out: &mut String, text: &str, old: &str, new: &str, end_of_line: &str) {
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push_str(end_of_line);
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        match line.strip_prefix(old) {
            Some(rest) if number > 0 && !rest.trim().is_empty() => {
                out.push_str(new);
                out.push_str(rest);
            }
            _ => out.push_str(line),
        }
    }
}
