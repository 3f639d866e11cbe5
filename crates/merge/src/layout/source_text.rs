//! Source text with its indentation, line endings and comments.
//!
//! Comments are recognised by their look only, so a line of a multi-line string may be taken for one. Callers parse
//! the written text again and compare its value.

use super::Syntax;
use crate::json;

/// Maximum number of characters of indentation. Without this limit, the output for a deeply indented input
/// could be much larger than the input.
const INDENT_MAX: usize = 400;

/// Source text of a document.
pub(super) struct SourceText<'d> {
    pub(super) text: &'d str,
    pub(super) end_of_line: &'static str,
    syntax: Syntax,
    /// Byte offset of each line, computed once: if a large text is a single line, a search from each value would take
    /// quadratic time.
    line_starts: Vec<usize>,
}

impl<'d> SourceText<'d> {
    pub(super) fn new(text: &'d str, syntax: Syntax) -> Self {
        let ends = memchr::memchr_iter(b'\n', text.as_bytes());
        let line_starts: Vec<usize> = std::iter::once(0).chain(ends.map(|end| end + 1)).collect();
        let is_crlf = line_starts.get(1).is_some_and(|second| text[..*second].ends_with("\r\n"));
        Self { text, end_of_line: if is_crlf { "\r\n" } else { "\n" }, syntax, line_starts }
    }

    /// Returns the number of the line with a byte offset.
    fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset) - 1
    }

    /// Returns the indentation of a line that begins like the value at a byte offset: the text before the value on its
    /// line, as whitespace.
    pub(super) fn indent(&self, offset: usize) -> String {
        let line = &self.text.as_bytes()[self.line_starts[self.line(offset)]..offset];
        let is_indentation = |byte: &u8| match self.syntax {
            Syntax::Json | Syntax::Toml => matches!(byte, b' ' | b'\t'),
            Syntax::Yaml => true,
        };
        let indent = line.iter().take(INDENT_MAX).take_while(|byte| is_indentation(byte));
        // Other text before the value, mostly a YAML dash, counts as spaces.
        indent.map(|byte| if *byte == b'\t' { '\t' } else { ' ' }).collect()
    }

    /// Returns the offset of the first comma between the offsets `from` and `end`; `None` if other text than
    /// whitespace and comments comes before it.
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

    /// Returns the comment that follows a value, and its comma if that is on the same line, up to the end of the line;
    /// with the whitespace before it. Empty if there is no comment.
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

    /// Returns the offset of the comments on separate lines above a byte offset; the offset itself if there
    /// are none.
    pub(super) fn comments_above(&self, offset: usize) -> usize {
        let mut begin = offset;
        let mut line = self.line(offset);
        while line > 0 && self.text[self.line_starts[line]..begin].trim().is_empty() {
            let above = self.text[self.line_starts[line - 1]..self.line_starts[line]].trim_start();
            if !self.is_comment(above) {
                break;
            }
            begin = self.line_starts[line] - above.len();
            line -= 1;
        }
        begin
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
