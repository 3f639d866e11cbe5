//! Merged values written with the words of both sides: the text of the side that leads, in which other parts are put.
//!
//! A container is taken apart into its children, each with the space and comments that belong to it, and put together of
//! those that are to be in it:
//!
//! ```text
//! { // head⏎    // about a⏎  "a": 1 , // one⏎  "b": 2⏎}
//! ^[-head-][----- lead -----][item]^ [-tail-]         [rest]
//! ```
//!
//! The result may be wrong where comments stand in odd places. Who writes reads it again.

mod sheet;

use std::borrow::Cow;
use std::ops::Range;

pub(crate) use self::sheet::push_indented;
use self::sheet::{Sheet, line_of};
use crate::file::Side;
use crate::value::merge::{Documents, Merged, Part};
use crate::value::{Node, Value};

/// What is written how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    /// Blocks by indentation, and in brackets as JSON.
    Yaml,
    /// Arrays and inline tables alone.
    Toml,
}

/// The document with what was merged in it.
pub(crate) fn write(documents: Documents<'_>, merged: &Merged<'_>, syntax: Syntax) -> String {
    let layout = Layout::new(documents, syntax);
    let (lead, span) = (documents.of(merged.side()).text, &merged.node().span);
    let mut text = lead[..span.start].to_owned();
    text.push_str(&layout.value(merged));
    text.push_str(&lead[span.end..]);
    text
}

/// Puts parts of both sides together.
pub(crate) struct Layout<'d> {
    ours: Sheet<'d>,
    theirs: Sheet<'d>,
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
    /// A comment behind the opening bracket.
    head: Range<usize>,
    slots: Vec<Slot>,
    /// What is before the closing bracket.
    rest: Range<usize>,
    /// Whether there is a comma behind the last one.
    has_last_comma: bool,
}

impl<'d> Layout<'d> {
    pub(crate) fn new(documents: Documents<'d>, syntax: Syntax) -> Self {
        let sheet = |side: Side| Sheet::new(documents.of(side).text, syntax);
        Self { ours: sheet(Side::Ours), theirs: sheet(Side::Theirs), syntax }
    }

    fn of(&self, side: Side) -> &Sheet<'d> {
        match side {
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        }
    }

    /// A value, indented as in the text of the side that leads.
    pub(crate) fn value(&self, merged: &Merged<'d>) -> Cow<'d, str> {
        match merged {
            Merged::Whole(side, node) => Cow::Borrowed(&self.of(*side).text[node.span.clone()]),
            Merged::Parts(side, node, parts) => Cow::Owned(self.container(*side, node, parts)),
        }
    }

    fn container(&self, side: Side, node: &'d Node<'d>, parts: &[Part<'d>]) -> String {
        let sheet = self.of(side);
        let text = sheet.text;
        let is_block = self.is_block(text, node);
        if !is_in_one_piece(text, node, is_block) {
            // Nothing that could be written here: who reads it again will see.
            return String::new();
        }
        if is_block && parts.is_empty() {
            return if matches!(node.value, Value::Array(_)) { "[]" } else { "{}" }.to_owned();
        }
        let apart = take_apart(sheet, node, is_block);
        let mut out = String::with_capacity(node.span.len() * 2);
        if !is_block {
            out.push_str(&text[node.span.start..=node.span.start]);
        }
        // The comment behind the bracket, or behind the child before.
        let mut behind = &text[apart.head.clone()];
        out.push_str(behind);
        for (number, part) in parts.iter().enumerate() {
            let is_first = number == 0;
            let needs_comma = !is_block && (number + 1 < parts.len() || apart.has_last_comma);
            let comma = if needs_comma { "," } else { "" };
            if let Some(at) = part.slot {
                let slot = &apart.slots[at];
                let lead = self.lead(sheet, &apart, at, is_first, is_block);
                self.push_lead(&mut out, sheet, &lead, behind, slot.item.start);
                self.item(&mut out, side, &node.children()[at], &part.value);
                out.push_str(&text[slot.middle.clone()]);
                out.push_str(comma);
                behind = &text[slot.tail.clone()];
            } else {
                let lead = self.new_lead(sheet, &apart, is_first, is_block);
                let like = apart.slots.first().map_or(node.span.start, |slot| slot.item.start);
                self.push_lead(&mut out, sheet, &lead, behind, like);
                self.put_in(&mut out, sheet, &part.value, like);
                out.push_str(comma);
                behind = self.of(part.value.side()).comment_behind(part.value.node().span.end);
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
    fn push_lead(&self, out: &mut String, sheet: &Sheet<'d>, lead: &str, behind: &str, like: usize) {
        let sign = if self.syntax == Syntax::Json { "//" } else { "#" };
        if behind.contains(sign) && !lead.contains('\n') {
            out.push_str(sheet.end_of_line);
            out.push_str(&sheet.indent(like));
            out.push_str(lead.trim_start());
        } else {
            out.push_str(lead);
        }
    }

    /// What comes before a child that the side that leads has: as it is, unless it is first now and was not, or the other
    /// way round.
    fn lead(
        &self,
        sheet: &Sheet<'d>,
        apart: &Slots,
        at: usize,
        is_first: bool,
        is_block: bool,
    ) -> Cow<'d, str> {
        let lead = &sheet.text[apart.slots[at].lead.clone()];
        if is_first == (at == 0) {
            Cow::Borrowed(lead)
        } else if is_block && is_first {
            Cow::Borrowed(lead.trim_start())
        } else if lead.trim().is_empty() {
            self.new_lead(sheet, apart, is_first, is_block)
        } else {
            Cow::Borrowed(lead)
        }
    }

    /// What comes before a child that is put in.
    fn new_lead(&self, sheet: &Sheet<'d>, apart: &Slots, is_first: bool, is_block: bool) -> Cow<'d, str> {
        let Some(first) = apart.slots.first() else { return Cow::Borrowed("") };
        let example = if is_first { first } else { apart.slots.get(1).unwrap_or(first) };
        let lead = &sheet.text[example.lead.clone()];
        if is_block && is_first {
            Cow::Borrowed("")
        } else if is_block || lead.contains('\n') {
            Cow::Owned(format!("{}{}", sheet.end_of_line, sheet.indent(example.item.start)))
        } else if (is_first || apart.slots.len() > 1) && lead.trim().is_empty() {
            Cow::Borrowed(lead)
        } else {
            let item = &sheet.text[first.item.clone()];
            Cow::Borrowed(if item.contains("\":") && !item.contains("\": ") { "" } else { " " })
        }
    }

    /// A child in its place, with the value that was merged.
    fn item(&self, out: &mut String, side: Side, node: &Node<'d>, merged: &Merged<'d>) {
        let (sheet, other, from) = (self.of(side), self.of(merged.side()), merged.node());
        if merged.side() == side {
            out.push_str(&sheet.text[node.start..node.span.start]);
            out.push_str(&self.value(merged));
        } else if self.is_inline(sheet.text, node) && self.is_inline(other.text, from) {
            out.push_str(&sheet.text[node.start..node.span.start]);
            paste(out, &self.value(merged), (other, from.start), (sheet, node.start));
        } else {
            let item = format!("{}{}", &other.text[from.start..from.span.start], self.value(merged));
            paste(out, &item, (other, from.start), (sheet, node.start));
        }
    }

    /// A child of the other side, with the comments above it, written like the one that begins at `like`.
    fn put_in(&self, out: &mut String, sheet: &Sheet<'d>, merged: &Merged<'d>, like: usize) {
        let (other, node) = (self.of(merged.side()), merged.node());
        let above = other.comments_above(node.start);
        let item =
            format!("{}{}", other.text.get(above..node.span.start).unwrap_or_default(), self.value(merged));
        paste(out, &item, (other, node.start), (sheet, like));
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
        self.syntax != Syntax::Yaml || !is_block()
    }
}

/// Whether a container is written in one place, its children in order within it: tables of TOML need not be, even if they
/// begin and end with a bracket.
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

/// A container without its brackets.
fn inside(node: &Node<'_>, is_block: bool) -> Range<usize> {
    if is_block { node.span.clone() } else { node.span.start + 1..node.span.end - 1 }
}

fn take_apart(sheet: &Sheet<'_>, node: &Node<'_>, is_block: bool) -> Slots {
    let Range { start: mut at, end } = inside(node, is_block);
    let (mut slots, mut has_last_comma) = (Vec::new(), false);
    let children = node.children();
    let first = children.first().map_or(at, |first| first.start);
    let head = at..at + tail_length(&sheet.text[at..first], false);
    at = head.end;
    for (number, child) in children.iter().enumerate() {
        let item = child.item();
        let next = children.get(number + 1).map_or(end, |next| next.start);
        let comma = if is_block { None } else { sheet.comma(item.end, next) };
        let middle = item.end..comma.unwrap_or(item.end);
        let behind = comma.map_or(item.end, |comma| comma + 1);
        let tail = behind..behind + tail_length(&sheet.text[behind..next], is_block && next == end);
        slots.push(Slot { lead: at..item.start, item, middle, tail: tail.clone() });
        (at, has_last_comma) = (tail.end, comma.is_some());
    }
    Slots { head, slots, rest: at..end, has_last_comma }
}

/// How much of what is behind a child belongs to it: comments on its line, or everything.
fn tail_length(behind: &str, is_all: bool) -> usize {
    if is_all {
        return behind.len();
    }
    let line = line_of(behind);
    if line.len() < behind.len() && !line.trim().is_empty() { line.len() } else { 0 }
}

/// Puts in a piece of another sheet that begins there, as if it began here.
fn paste(out: &mut String, piece: &str, from: (&Sheet<'_>, usize), to: (&Sheet<'_>, usize)) {
    if !piece.contains('\n') {
        out.push_str(piece);
        return;
    }
    push_indented(out, piece, &from.0.indent(from.1), &to.0.indent(to.1), to.0.end_of_line);
}
