//! A text with its lines: how they are indented and end, and where comments are.

use super::Syntax;
use crate::json;

/// Nobody indents deeper; an input that does could make the output much larger than itself.
const DEEPEST: usize = 400;

/// A text to write from.
pub(super) struct Sheet<'d> {
    pub(super) text: &'d str,
    pub(super) end_of_line: &'static str,
    syntax: Syntax,
    /// Where lines begin. Looking for that each time would take forever where a large text is one line.
    starts: Vec<usize>,
}

impl<'d> Sheet<'d> {
    pub(super) fn new(text: &'d str, syntax: Syntax) -> Self {
        let ends = memchr::memchr_iter(b'\n', text.as_bytes());
        let starts: Vec<usize> = std::iter::once(0).chain(ends.map(|end| end + 1)).collect();
        let is_crlf = starts.get(1).is_some_and(|second| text[..*second].ends_with("\r\n"));
        Self { text, end_of_line: if is_crlf { "\r\n" } else { "\n" }, syntax, starts }
    }

    /// The number of the line that has this in it.
    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// What lines are indented with that belong to what begins here.
    pub(super) fn indent(&self, at: usize) -> String {
        let line = &self.text.as_bytes()[self.starts[self.line(at)]..at];
        let is_part = |byte: &u8| match self.syntax {
            Syntax::Json | Syntax::Toml => matches!(byte, b' ' | b'\t'),
            Syntax::Yaml => true,
        };
        let indent = line.iter().take(DEEPEST).take_while(|byte| is_part(byte));
        // What stands before it on its line counts as space: a dash, mostly.
        indent.map(|byte| if *byte == b'\t' { '\t' } else { ' ' }).collect()
    }

    /// Where the comma is that follows after space and comments.
    pub(super) fn comma(&self, from: usize, end: usize) -> Option<usize> {
        let bytes = &self.text.as_bytes()[..end];
        let mut at = from;
        loop {
            match bytes.get(at)? {
                b',' => return Some(at),
                b' ' | b'\t' | b'\n' | b'\r' => at += 1,
                b'/' if self.syntax == Syntax::Json => at = json::comment_end(bytes, at)?,
                b'#' if self.syntax != Syntax::Json => at += line_of(&self.text[at..]).len(),
                _ => return None,
            }
        }
    }

    /// The comment that follows on the same line, perhaps behind a comma; empty if none does.
    pub(super) fn comment_behind(&self, end: usize) -> &'d str {
        let end = self.comma(end, self.text.len()).map_or(end, |comma| comma + 1);
        let behind = &self.text[end..];
        if !behind.trim_start_matches([' ', '\t']).starts_with(['/', '#']) {
            return "";
        }
        let behind = line_of(behind);
        if self.is_comment(behind.trim_start()) { behind } else { "" }
    }

    /// Where the comments begin that stand on lines of their own above what begins here.
    pub(super) fn comments_above(&self, at: usize) -> usize {
        let mut begin = at;
        let mut line = self.line(at);
        while line > 0 && self.text[self.starts[line]..begin].trim().is_empty() {
            let above = self.text[self.starts[line - 1]..self.starts[line]].trim_start();
            if !self.is_comment(above) {
                break;
            }
            begin = self.starts[line] - above.len();
            line -= 1;
        }
        begin
    }

    fn is_comment(&self, line: &str) -> bool {
        match self.syntax {
            Syntax::Json => {
                line.starts_with("//") || line.starts_with("/*") && line.trim_end().ends_with("*/")
            }
            Syntax::Yaml | Syntax::Toml => line.starts_with('#'),
        }
    }
}

/// The first line, without what ends it.
pub(super) fn line_of(text: &str) -> &str {
    let line = &text[..text.find('\n').unwrap_or(text.len())];
    line.strip_suffix('\r').unwrap_or(line)
}

/// Lines that were indented in one way, in another.
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
