//! Merged values written with the words of both sides: the text of the side that leads, in which other parts are put.
//!
//! A container is taken apart into its children, each with the space and comments that belong to it, and put together of
//! those that are to be in it:
//!
//! ```text
//! {⏎    // about a⏎  "a": 1 , // one⏎  "b": 2⏎}
//! ^[----- lead -----][item]^ [-tail-]         [rest]
//! ```
//!
//! The result may be wrong where comments stand in odd places. Who writes reads it again.

use std::borrow::Cow;
use std::ops::Range;

use crate::file::Side;
use crate::json;
use crate::value::merge::{Documents, Merged, Part};
use crate::value::{Node, Value};

/// What is written how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    /// Blocks by indentation, and in brackets as JSON.
    Yaml,
}

/// The document with what was merged in it.
pub(crate) fn write(documents: Documents<'_>, merged: &Merged<'_>, syntax: Syntax) -> String {
    let layout = Layout { documents, syntax };
    let lead = documents.of(merged.side());
    let span = &merged.node().span;
    let mut text = lead.text[..span.start].to_owned();
    text.push_str(&layout.value(merged));
    text.push_str(&lead.text[span.end..]);
    text
}

struct Layout<'d> {
    documents: Documents<'d>,
    syntax: Syntax,
}

/// A child of a container with what belongs to it.
struct Slot {
    /// Space and comments before it.
    lead: Range<usize>,
    /// Its place, with its key.
    item: Range<usize>,
    /// Between it and its comma.
    middle: Range<usize>,
    /// Comments behind it on its line.
    tail: Range<usize>,
}

/// A container taken apart.
struct Slots {
    slots: Vec<Slot>,
    /// What is before the closing bracket.
    rest: Range<usize>,
    /// Whether there is a comma behind the last one.
    has_last_comma: bool,
}

impl<'d> Layout<'d> {
    fn text(&self, side: Side) -> &'d str {
        self.documents.of(side).text
    }

    /// A value, indented as in the text of the side that leads.
    fn value(&self, merged: &Merged<'d>) -> Cow<'d, str> {
        match merged {
            Merged::Whole(side, node) => Cow::Borrowed(self.documents.of(*side).written(&node.span)),
            Merged::Parts(side, node, parts) => Cow::Owned(self.container(*side, node, parts)),
        }
    }

    fn container(&self, side: Side, node: &'d Node<'d>, parts: &[Part<'d>]) -> String {
        let text = self.text(side);
        let is_block = self.is_block(text, node);
        if is_block && parts.is_empty() {
            return if matches!(node.value, Value::Array(_)) { "[]" } else { "{}" }.to_owned();
        }
        let apart = self.take_apart(text, node, is_block);
        let mut out = String::with_capacity(node.span.len() * 2);
        if !is_block {
            out.push_str(&text[node.span.start..=node.span.start]);
        }
        // The comment behind the child before.
        let mut behind = "";
        for (number, part) in parts.iter().enumerate() {
            let is_first = number == 0;
            let needs_comma = !is_block && (number + 1 < parts.len() || apart.has_last_comma);
            let comma = if needs_comma { "," } else { "" };
            if let Some(at) = part.slot {
                let slot = &apart.slots[at];
                let lead = self.lead(text, &apart, at, is_first, is_block);
                self.push_lead(&mut out, text, &lead, behind, slot.item.start);
                self.item(&mut out, side, &node.children()[at], &part.value);
                out.push_str(&text[slot.middle.clone()]);
                out.push_str(comma);
                behind = &text[slot.tail.clone()];
            } else {
                let lead = self.new_lead(text, &apart, is_first, is_block);
                let like = apart.slots.first().map_or(node.span.start, |slot| slot.item.start);
                self.push_lead(&mut out, text, &lead, behind, like);
                self.put_in(&mut out, text, &part.value, &self.indent(text, like));
                out.push_str(comma);
                behind = self.comment_behind(&part.value);
            }
            out.push_str(behind);
        }
        if !is_block {
            let rest = &text[apart.rest.clone()];
            if !parts.is_empty() || !rest.trim().is_empty() {
                out.push_str(rest);
            }
            out.push_str(&text[node.span.end - 1..node.span.end]);
        }
        out
    }

    /// What comes before a child, on a line of its own if a comment goes to the end of the line before.
    fn push_lead(&self, out: &mut String, text: &str, lead: &str, behind: &str, like: usize) {
        let sign = if self.syntax == Syntax::Json { "//" } else { "#" };
        if behind.contains(sign) && !lead.contains('\n') {
            out.push_str(end_of_line(text));
            out.push_str(&self.indent(text, like));
            out.push_str(lead.trim_start());
        } else {
            out.push_str(lead);
        }
    }

    /// What comes before a child that the side that leads has: as it is, unless it is first now and was not, or the other
    /// way round.
    fn lead(&self, text: &'d str, apart: &Slots, at: usize, is_first: bool, is_block: bool) -> Cow<'d, str> {
        let lead = &text[apart.slots[at].lead.clone()];
        if is_first == (at == 0) {
            Cow::Borrowed(lead)
        } else if is_block && is_first {
            Cow::Borrowed(lead.trim_start())
        } else if lead.trim().is_empty() {
            self.new_lead(text, apart, is_first, is_block)
        } else {
            Cow::Borrowed(lead)
        }
    }

    /// What comes before a child that is put in.
    fn new_lead(&self, text: &'d str, apart: &Slots, is_first: bool, is_block: bool) -> Cow<'d, str> {
        let Some(first) = apart.slots.first() else { return Cow::Borrowed("") };
        let example = if is_first { first } else { apart.slots.get(1).unwrap_or(first) };
        let lead = &text[example.lead.clone()];
        if is_block && is_first {
            Cow::Borrowed("")
        } else if is_block || lead.contains('\n') {
            Cow::Owned(format!("{}{}", end_of_line(text), self.indent(text, example.item.start)))
        } else if (is_first || apart.slots.len() > 1) && lead.trim().is_empty() {
            Cow::Borrowed(lead)
        } else {
            let item = &text[first.item.clone()];
            Cow::Borrowed(if item.contains("\":") && !item.contains("\": ") { "" } else { " " })
        }
    }

    /// A child in its place, with the value that was merged.
    fn item(&self, out: &mut String, side: Side, node: &Node<'d>, merged: &Merged<'d>) {
        let (text, other, from) = (self.text(side), self.text(merged.side()), merged.node());
        if merged.side() == side {
            out.push_str(&text[node.start..node.span.start]);
            out.push_str(&self.value(merged));
            return;
        }
        let (old, new) = (self.indent(other, from.start), self.indent(text, node.start));
        if self.is_inline(text, node) && self.is_inline(other, from) {
            out.push_str(&text[node.start..node.span.start]);
            push_indented(out, &self.value(merged), &old, &new, end_of_line(text));
        } else {
            let item = format!("{}{}", &other[from.start..from.span.start], self.value(merged));
            push_indented(out, &item, &old, &new, end_of_line(text));
        }
    }

    /// A child of the other side, with the comments above it.
    fn put_in(&self, out: &mut String, text: &str, merged: &Merged<'d>, indent: &str) {
        let (other, node) = (self.text(merged.side()), merged.node());
        let above = self.comments_above(other, node.start);
        let item = format!("{}{}", &other[above..node.span.start], self.value(merged));
        push_indented(out, &item, &self.indent(other, node.start), indent, end_of_line(text));
    }

    /// The comment behind a child of the other side, on its line.
    fn comment_behind(&self, merged: &Merged<'d>) -> &'d str {
        let (text, end) = (self.text(merged.side()), merged.node().span.end);
        let end = self.comma(text, end, text.len()).map_or(end, |comma| comma + 1);
        let behind = line_of(text, end);
        if self.is_comment(behind.trim_start()) { behind } else { "" }
    }

    /// Whether it is a container without brackets.
    fn is_block(&self, text: &str, node: &Node<'_>) -> bool {
        self.syntax == Syntax::Yaml && !text[node.span.start..].starts_with(['{', '['])
    }

    /// Whether its value can stand wherever another one stood.
    fn is_inline(&self, text: &str, node: &Node<'_>) -> bool {
        let written = &text[node.span.clone()];
        let is_block = || match node.value {
            Value::Array(_) | Value::Object(_) => self.is_block(text, node),
            Value::String(_) | Value::Literal(_) => written.is_empty() || written.starts_with(['|', '>']),
        };
        self.syntax == Syntax::Json || !is_block()
    }

    fn take_apart(&self, text: &str, node: &Node<'_>, is_block: bool) -> Slots {
        let (mut at, end) = if is_block {
            (node.span.start, node.span.end)
        } else {
            (node.span.start + 1, node.span.end - 1)
        };
        let (mut slots, mut has_last_comma) = (Vec::new(), false);
        let children = node.children();
        for (number, child) in children.iter().enumerate() {
            let item = child.item();
            let next = children.get(number + 1).map_or(end, |next| next.start);
            let comma = if is_block { None } else { self.comma(text, item.end, next) };
            let middle = item.end..comma.unwrap_or(item.end);
            let behind = comma.map_or(item.end, |comma| comma + 1);
            let tail = behind..behind + tail_length(&text[behind..next], is_block && next == end);
            slots.push(Slot { lead: at..item.start, item, middle, tail: tail.clone() });
            (at, has_last_comma) = (tail.end, comma.is_some());
        }
        Slots { slots, rest: at..end, has_last_comma }
    }

    /// Where the comma is that follows after space and comments.
    fn comma(&self, text: &str, from: usize, end: usize) -> Option<usize> {
        let bytes = &text.as_bytes()[..end];
        let mut at = from;
        loop {
            match bytes.get(at)? {
                b',' => return Some(at),
                b' ' | b'\t' | b'\n' | b'\r' => at += 1,
                b'/' if self.syntax == Syntax::Json => at = json::comment_end(bytes, at)?,
                b'#' if self.syntax == Syntax::Yaml => at += line_of(text, at).len(),
                _ => return None,
            }
        }
    }

    /// What lines are indented with that belong to what begins here.
    fn indent(&self, text: &str, at: usize) -> String {
        let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        match self.syntax {
            Syntax::Json => line[..line.len() - line.trim_start().len()].to_owned(),
            Syntax::Yaml => " ".repeat(line.chars().count()),
        }
    }

    fn is_comment(&self, line: &str) -> bool {
        match self.syntax {
            Syntax::Json => {
                line.starts_with("//") || line.starts_with("/*") && line.trim_end().ends_with("*/")
            }
            Syntax::Yaml => line.starts_with('#'),
        }
    }

    /// Where the comments begin that stand on lines of their own above what begins here.
    fn comments_above(&self, text: &str, at: usize) -> usize {
        let mut begin = at;
        loop {
            let line = text[..begin].rfind('\n').map_or(0, |end| end + 1);
            if line == 0 || !text[line..begin].trim().is_empty() {
                return begin;
            }
            let above = text[..line - 1].rfind('\n').map_or(0, |end| end + 1);
            let comment = text[above..line].trim_start();
            if !self.is_comment(comment) {
                return begin;
            }
            begin = line - comment.len();
        }
    }
}

/// How much of what is behind a child belongs to it: comments on its line, or everything.
fn tail_length(behind: &str, is_all: bool) -> usize {
    if is_all {
        return behind.len();
    }
    let line = line_of(behind, 0);
    if line.len() < behind.len() && !line.trim().is_empty() { line.len() } else { 0 }
}

/// The rest of a line, without what ends it.
fn line_of(text: &str, at: usize) -> &str {
    let rest = &text[at..];
    let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
    line.strip_suffix('\r').unwrap_or(line)
}

fn end_of_line(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Lines that were indented in one way, in another.
fn push_indented(out: &mut String, text: &str, old: &str, new: &str, end_of_line: &str) {
    for (number, line) in text.split('\n').enumerate() {
        if number == 0 {
            out.push_str(line.strip_suffix('\r').unwrap_or(line));
            continue;
        }
        out.push_str(end_of_line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        match line.strip_prefix(old) {
            _ if line.trim().is_empty() => out.push_str(line),
            Some(rest) => {
                out.push_str(new);
                out.push_str(rest);
            }
            None => out.push_str(line),
        }
    }
}
