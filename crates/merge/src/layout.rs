//! Writer for merged documents: combines the source text of both sides.
//!
//! One side is the template of a container: its text is split into children, each with the whitespace and
//! comments that belong to it, and reassembled from the merged children:
//!
//! ```text
//! { // head⏎    // about a⏎  "a": 1 , // one⏎  "b": 2⏎}
//! ^[-head-][----- lead -----][item]^ [-tail-]         [rest]
//! ```
//!
//! The result may be wrong if comments are in unusual positions, so callers parse it again.

mod source_text;

use std::borrow::Cow;
use std::ops::Range;

pub(crate) use self::source_text::push_indented;
use self::source_text::{SourceText, first_line};
use crate::file::Side;
use crate::value::merge::{Documents, Merged, Part};
use crate::value::{Node, Value};

/// Syntax of the text that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    /// Block style by indentation, and flow style like JSON.
    Yaml,
    /// Arrays and inline tables only; `toml_edit` writes the rest.
    Toml,
}

/// Returns the text of the template with the merged value in it.
pub(crate) fn write(documents: Documents<'_>, merged: &Merged<'_>, syntax: Syntax) -> String {
    let layout = Layout::new(documents, syntax);
    let (lead, span) = (documents.of(merged.side()).text, &merged.node().span);
    let mut text = lead[..span.start].to_owned();
    text.push_str(&layout.value(merged));
    text.push_str(&lead[span.end..]);
    text
}

/// Writer that combines source text of both sides.
pub(crate) struct Layout<'d> {
    ours: SourceText<'d>,
    theirs: SourceText<'d>,
    syntax: Syntax,
}

/// Child of a container with its surrounding text.
struct Slot {
    /// Whitespace and comments before the child.
    lead: Range<usize>,
    /// Child with its key.
    item: Range<usize>,
    /// Text between the child and its comma.
    middle: Range<usize>,
    /// Comments after the child on the same line.
    tail: Range<usize>,
}

/// Container split into its children.
struct Slots {
    /// Comment after the opening bracket.
    head: Range<usize>,
    slots: Vec<Slot>,
    /// Text before the closing bracket.
    rest: Range<usize>,
    /// Set if there is a trailing comma.
    has_last_comma: bool,
}

impl<'d> Layout<'d> {
    pub(crate) fn new(documents: Documents<'d>, syntax: Syntax) -> Self {
        let source = |side: Side| SourceText::new(documents.of(side).text, syntax);
        Self { ours: source(Side::Ours), theirs: source(Side::Theirs), syntax }
    }

    fn of(&self, side: Side) -> &SourceText<'d> {
        match side {
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        }
    }

    /// Returns the source of a value, indented as in the text of its side.
    pub(crate) fn value(&self, merged: &Merged<'d>) -> Cow<'d, str> {
        match merged {
            Merged::Whole(side, node) => Cow::Borrowed(&self.of(*side).text[node.span.clone()]),
            Merged::Parts(side, node, parts) => Cow::Owned(self.container(*side, node, parts)),
        }
    }

    fn container(&self, side: Side, node: &'d Node<'d>, parts: &[Part<'d>]) -> String {
        let source = self.of(side);
        let text = source.text;
        let is_block = self.is_block(text, node);
        if !is_in_one_piece(text, node, is_block) {
            // It cannot be written here. The caller parses the result and finds out.
            return String::new();
        }
        if is_block && parts.is_empty() {
            return if matches!(node.value, Value::Array(_)) { "[]" } else { "{}" }.to_owned();
        }
        let apart = take_apart(source, node, is_block);
        let mut out = String::with_capacity(node.span.len() * 2);
        if !is_block {
            out.push_str(&text[node.span.start..=node.span.start]);
        }
        // Comment after the opening bracket, or after the previous child.
        let mut behind = &text[apart.head.clone()];
        out.push_str(behind);
        for (number, part) in parts.iter().enumerate() {
            let is_first = number == 0;
            let needs_comma = !is_block && (number + 1 < parts.len() || apart.has_last_comma);
            let comma = if needs_comma { "," } else { "" };
            if let Some(at) = part.slot {
                let slot = &apart.slots[at];
                let lead = self.lead(source, &apart, at, is_first, is_block);
                self.push_lead(&mut out, source, &lead, behind, slot.item.start);
                self.item(&mut out, side, &node.children()[at], &part.value);
                out.push_str(&text[slot.middle.clone()]);
                out.push_str(comma);
                behind = &text[slot.tail.clone()];
            } else {
                let lead = self.new_lead(source, &apart, is_first, is_block);
                let like = apart.slots.first().map_or(node.span.start, |slot| slot.item.start);
                self.push_lead(&mut out, source, &lead, behind, like);
                self.insert(&mut out, source, &part.value, like);
                out.push_str(comma);
                behind = self.of(part.value.side()).trailing_comment(part.value.node().span.end);
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

    /// Writes the text before a child, on a new line if the previous line ends in a comment.
    fn push_lead(&self, out: &mut String, source: &SourceText<'d>, lead: &str, behind: &str, like: usize) {
        let sign = if self.syntax == Syntax::Json { "//" } else { "#" };
        if behind.contains(sign) && !lead.contains('\n') {
            out.push_str(source.end_of_line);
            out.push_str(&source.indent(like));
            out.push_str(lead.trim_start());
        } else {
            out.push_str(lead);
        }
    }

    /// Returns the text before a child of the template: unchanged, unless the child became the first one or
    /// no longer is.
    fn lead(
        &self,
        source: &SourceText<'d>,
        apart: &Slots,
        at: usize,
        is_first: bool,
        is_block: bool,
    ) -> Cow<'d, str> {
        let lead = &source.text[apart.slots[at].lead.clone()];
        if is_first == (at == 0) {
            Cow::Borrowed(lead)
        } else if is_block && is_first {
            Cow::Borrowed(lead.trim_start())
        } else if lead.trim().is_empty() {
            self.new_lead(source, apart, is_first, is_block)
        } else {
            Cow::Borrowed(lead)
        }
    }

    /// Returns the text before an inserted child.
    fn new_lead(
        &self,
        source: &SourceText<'d>,
        apart: &Slots,
        is_first: bool,
        is_block: bool,
    ) -> Cow<'d, str> {
        let Some(first) = apart.slots.first() else { return Cow::Borrowed("") };
        let example = if is_first { first } else { apart.slots.get(1).unwrap_or(first) };
        let lead = &source.text[example.lead.clone()];
        if is_block && is_first {
            Cow::Borrowed("")
        } else if is_block || lead.contains('\n') {
            Cow::Owned(format!("{}{}", source.end_of_line, source.indent(example.item.start)))
        } else if (is_first || apart.slots.len() > 1) && lead.trim().is_empty() {
            Cow::Borrowed(lead)
        } else {
            let item = &source.text[first.item.clone()];
            Cow::Borrowed(if item.contains("\":") && !item.contains("\": ") { "" } else { " " })
        }
    }

    /// Writes a child of the template with its merged value.
    fn item(&self, out: &mut String, side: Side, node: &Node<'d>, merged: &Merged<'d>) {
        let (source, other, from) = (self.of(side), self.of(merged.side()), merged.node());
        if merged.side() == side {
            out.push_str(&source.text[node.start..node.span.start]);
            out.push_str(&self.value(merged));
        } else if self.is_inline(source.text, node) && self.is_inline(other.text, from) {
            out.push_str(&source.text[node.start..node.span.start]);
            paste(out, &self.value(merged), (other, from.start), (source, node.start));
        } else {
            let item = format!("{}{}", &other.text[from.start..from.span.start], self.value(merged));
            paste(out, &item, (other, from.start), (source, node.start));
        }
    }

    /// Writes a child of the other side and the comments above it, formatted like the child at offset `like`.
    fn insert(&self, out: &mut String, source: &SourceText<'d>, merged: &Merged<'d>, like: usize) {
        let (other, node) = (self.of(merged.side()), merged.node());
        let above = other.comments_above(node.start);
        let item =
            format!("{}{}", other.text.get(above..node.span.start).unwrap_or_default(), self.value(merged));
        paste(out, &item, (other, node.start), (source, like));
    }

    /// Returns whether a container is in block style, without brackets.
    fn is_block(&self, text: &str, node: &Node<'_>) -> bool {
        self.syntax == Syntax::Yaml && !text[node.span.start..].starts_with(['{', '['])
    }

    /// Returns whether a value can replace another one on the same line.
    fn is_inline(&self, text: &str, node: &Node<'_>) -> bool {
        let written = &text[node.span.clone()];
        let is_block = || match node.value {
            Value::Array(_) | Value::Object(_) => self.is_block(text, node),
            Value::String(_) | Value::Literal(_) => written.is_empty() || written.starts_with(['|', '>']),
        };
        self.syntax != Syntax::Yaml || !is_block()
    }
}

/// Returns whether a container is contiguous, with its children in order. TOML tables may not be, even if
/// they begin and end with a bracket.
fn is_in_one_piece(text: &str, node: &Node<'_>, is_block: bool) -> bool {
    let written = text.get(node.span.clone()).unwrap_or_default();
    let is_within = |open: char, close: char| written.starts_with(open) && written.ends_with(close);
    if !is_block && !is_within('{', '}') && !is_within('[', ']') {
        return false;
    }
    let inside = inside(node, is_block);
    let mut at = inside.start;
    let mut follows = |child: &Node<'_>| {
        let is_next =
            at <= child.start && child.start <= child.span.start && child.span.start <= child.span.end;
        at = child.span.end;
        is_next
    };
    node.children().iter().all(&mut follows) && at <= inside.end
}

/// Returns the range of a container without its brackets.
fn inside(node: &Node<'_>, is_block: bool) -> Range<usize> {
    if is_block { node.span.clone() } else { node.span.start + 1..node.span.end - 1 }
}

fn take_apart(source: &SourceText<'_>, node: &Node<'_>, is_block: bool) -> Slots {
    let Range { start: mut at, end } = inside(node, is_block);
    let (mut slots, mut has_last_comma) = (Vec::new(), false);
    let children = node.children();
    let first = children.first().map_or(at, |first| first.start);
    let head = at..at + tail_length(&source.text[at..first], false);
    at = head.end;
    for (number, child) in children.iter().enumerate() {
        let item = child.item();
        let next = children.get(number + 1).map_or(end, |next| next.start);
        let comma = if is_block { None } else { source.comma(item.end, next) };
        let middle = item.end..comma.unwrap_or(item.end);
        let behind = comma.map_or(item.end, |comma| comma + 1);
        let tail = behind..behind + tail_length(&source.text[behind..next], is_block && next == end);
        slots.push(Slot { lead: at..item.start, item, middle, tail: tail.clone() });
        (at, has_last_comma) = (tail.end, comma.is_some());
    }
    Slots { head, slots, rest: at..end, has_last_comma }
}

/// Returns the length of the text after a child that belongs to it: comments on the same line, or everything
/// if `is_all` is set.
fn tail_length(behind: &str, is_all: bool) -> usize {
    if is_all {
        return behind.len();
    }
    let line = first_line(behind);
    if line.len() < behind.len() && !line.trim().is_empty() { line.len() } else { 0 }
}

/// Writes source text of another document, with the indentation of its new position.
fn paste(out: &mut String, piece: &str, from: (&SourceText<'_>, usize), to: (&SourceText<'_>, usize)) {
    if !piece.contains('\n') {
        out.push_str(piece);
        return;
    }
    push_indented(out, piece, &from.0.indent(from.1), &to.0.indent(to.1), to.0.end_of_line);
}
