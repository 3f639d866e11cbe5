//! Writer for merged documents (JSON, YAML, and arrays and inline tables of TOML), which combines the source text of
//! both sides.
//!
//! For each container (object or array), one side is the template: the side whose text and order are kept. Its text is
//! split into children, each with the whitespace and comments that belong to it, and reassembled from the merged
//! children. The parts of such a text ([`ContainerText`], [`ChildText`]) are marked here for the first child. `m` is
//! `middle`, `r` is `rest`, and `⏎` is a line ending:
//!
//! ```text
//! { // head⏎    // about a⏎  "a": 1 , // one⏎  "b": 2⏎}
//!  [-head-][----- lead -----][item]m [tail-]         r
//! ```
//!
//! If comments are in unusual positions, the written text may have a wrong value or lose comments. Therefore callers
//! parse the text again and compare.

mod source_text;

use std::borrow::Cow;
use std::ops::Range;

pub(crate) use self::source_text::push_indented;
use self::source_text::{SourceText, first_line};
use crate::file::Side;
use crate::value::merge::{Documents, MergedValue, Part};
use crate::value::{SyntaxNode, Value};

/// Syntax of the text that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    /// Block style by indentation, and flow style like JSON.
    Yaml,
    /// Arrays and inline tables only; `toml_edit` writes the rest.
    Toml,
}

/// Returns the text of the template document with the merged value in place of its root.
pub(crate) fn write(documents: Documents<'_>, merged: &MergedValue<'_>, syntax: Syntax) -> String {
    let layout = Layout::new(documents, syntax);
    let (template, span) = (documents.of(merged.side()).text, &merged.node().span);
    let mut text = template[..span.start].to_owned();
    text.push_str(&layout.value(merged));
    text.push_str(&template[span.end..]);
    text
}

/// Writer that combines source text of both sides.
pub(crate) struct Layout<'d> {
    ours: SourceText<'d>,
    theirs: SourceText<'d>,
    syntax: Syntax,
}

/// Child of a container with its surrounding text.
struct ChildText {
    /// Whitespace and comments before the child.
    lead: Range<usize>,
    /// Child with its key.
    item: Range<usize>,
    /// Text between the child and its comma; empty if there is no comma.
    middle: Range<usize>,
    /// Comments after the child and its comma, on the same line.
    tail: Range<usize>,
}

/// Container split into its children.
struct ContainerText {
    /// Comment after the opening bracket, on the same line.
    head: Range<usize>,
    /// Children in text order.
    children: Vec<ChildText>,
    /// Text between the last child and the closing bracket.
    rest: Range<usize>,
    /// Set if there is a trailing comma.
    has_last_comma: bool,
}

impl<'d> Layout<'d> {
    pub(crate) fn new(documents: Documents<'d>, syntax: Syntax) -> Self {
        let source = |side: Side| SourceText::new(documents.of(side).text, syntax);
        Self { ours: source(Side::Ours), theirs: source(Side::Theirs), syntax }
    }

    /// Returns the source text of a side.
    fn of(&self, side: Side) -> &SourceText<'d> {
        match side {
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        }
    }

    /// Returns the source text of a value, indented as in the text of its side.
    pub(crate) fn value(&self, merged: &MergedValue<'d>) -> Cow<'d, str> {
        match merged {
            MergedValue::Whole(side, node) => Cow::Borrowed(&self.of(*side).text[node.span.clone()]),
            MergedValue::Parts(side, node, parts) => Cow::Owned(self.container_text(*side, node, parts)),
        }
    }

    /// Returns the text of a merged container. `side` and `node` are the template; `parts` are the merged children.
    fn container_text(&self, side: Side, node: &'d SyntaxNode<'d>, parts: &[Part<'d>]) -> String {
        let source = self.of(side);
        let text = source.text;
        let is_block = self.is_block(text, node);
        if !is_contiguous(text, node, is_block) {
            // This container cannot be written. The caller notices that when it parses the text again.
            return String::new();
        }
        if is_block && parts.is_empty() {
            return if matches!(node.value, Value::Array(_)) { "[]" } else { "{}" }.to_owned();
        }
        let container = split_container(source, node, is_block);
        let mut out = String::with_capacity(node.span.len() * 2);
        if !is_block {
            out.push_str(&text[node.span.start..=node.span.start]);
        }
        // Comment on the current line: after the opening bracket, or after the previous child.
        let mut trailing = &text[container.head.clone()];
        out.push_str(trailing);
        for (number, part) in parts.iter().enumerate() {
            let is_first = number == 0;
            let needs_comma = !is_block && (number + 1 < parts.len() || container.has_last_comma);
            let comma = if needs_comma { "," } else { "" };
            if let Some(index) = part.template_index {
                let child = &container.children[index];
                let lead = self.lead(source, &container, index, is_first, is_block);
                self.push_lead(&mut out, source, &lead, trailing, child.item.start);
                self.push_item(&mut out, side, &node.children()[index], &part.value);
                out.push_str(&text[child.middle.clone()]);
                out.push_str(comma);
                trailing = &text[child.tail.clone()];
            } else {
                let lead = self.new_lead(source, &container, is_first, is_block);
                let example_start =
                    container.children.first().map_or(node.span.start, |child| child.item.start);
                self.push_lead(&mut out, source, &lead, trailing, example_start);
                self.push_inserted(&mut out, source, &part.value, example_start);
                out.push_str(comma);
                trailing = self.of(part.value.side()).trailing_comment(part.value.node().span.end);
            }
            out.push_str(trailing);
        }
        if !is_block {
            let rest = &text[container.rest.clone()];
            if !parts.is_empty() || !rest.trim().is_empty() {
                out.push_str(rest);
            }
            out.push_str(&text[node.span.end - 1..node.span.end]);
        }
        out
    }

    /// Writes `lead`, the text before a child. `trailing` is the text before `lead`. If `trailing` ends in a comment,
    /// and `lead` has no line ending, writes one first, and indents like the child at the offset `example_start`.
    fn push_lead(
        &self,
        out: &mut String,
        source: &SourceText<'d>,
        lead: &str,
        trailing: &str,
        example_start: usize,
    ) {
        let prefix = if self.syntax == Syntax::Json { "//" } else { "#" };
        if trailing.contains(prefix) && !lead.contains('\n') {
            out.push_str(source.end_of_line);
            out.push_str(&source.indent(example_start));
            out.push_str(lead.trim_start());
        } else {
            out.push_str(lead);
        }
    }

    /// Returns the text to write before the child of the template at an index. It differs from the text in the template
    /// only if the child became the first one, or is no longer the first one.
    fn lead(
        &self,
        source: &SourceText<'d>,
        container: &ContainerText,
        index: usize,
        is_first: bool,
        is_block: bool,
    ) -> Cow<'d, str> {
        let lead = &source.text[container.children[index].lead.clone()];
        if is_first == (index == 0) {
            Cow::Borrowed(lead)
        } else if is_block && is_first {
            Cow::Borrowed(lead.trim_start())
        } else if lead.trim().is_empty() {
            self.new_lead(source, container, is_first, is_block)
        } else {
            Cow::Borrowed(lead)
        }
    }

    /// Returns the text to write before an inserted child: whitespace as before other children.
    fn new_lead(
        &self,
        source: &SourceText<'d>,
        container: &ContainerText,
        is_first: bool,
        is_block: bool,
    ) -> Cow<'d, str> {
        let Some(first) = container.children.first() else { return Cow::Borrowed("") };
        let example = if is_first { first } else { container.children.get(1).unwrap_or(first) };
        let lead = &source.text[example.lead.clone()];
        if is_block && is_first {
            Cow::Borrowed("")
        } else if is_block || lead.contains('\n') {
            Cow::Owned(format!("{}{}", source.end_of_line, source.indent(example.item.start)))
        } else if (is_first || container.children.len() > 1) && lead.trim().is_empty() {
            Cow::Borrowed(lead)
        } else {
            // Compact JSON has no space after colons and commas.
            let item = &source.text[first.item.clone()];
            Cow::Borrowed(if item.contains("\":") && !item.contains("\": ") { "" } else { " " })
        }
    }

    /// Writes a child of the template with its key and merged value. `side` is the template, and `node` its child.
    fn push_item(&self, out: &mut String, side: Side, node: &SyntaxNode<'d>, merged: &MergedValue<'d>) {
        let (source, other, new_node) = (self.of(side), self.of(merged.side()), merged.node());
        if merged.side() == side {
            out.push_str(&source.text[node.item_start..node.span.start]);
            out.push_str(&self.value(merged));
        } else if self.is_inline(source.text, node) && self.is_inline(other.text, new_node) {
            out.push_str(&source.text[node.item_start..node.span.start]);
            paste(out, &self.value(merged), (other, new_node.item_start), (source, node.item_start));
        } else {
            let item =
                format!("{}{}", &other.text[new_node.item_start..new_node.span.start], self.value(merged));
            paste(out, &item, (other, new_node.item_start), (source, node.item_start));
        }
    }

    /// Writes a child of the other side and the comments above it, indented like the child at the offset
    /// `example_start`.
    fn push_inserted(
        &self,
        out: &mut String,
        source: &SourceText<'d>,
        merged: &MergedValue<'d>,
        example_start: usize,
    ) {
        let (other, node) = (self.of(merged.side()), merged.node());
        let above = other.comments_above(node.item_start);
        let item =
            format!("{}{}", other.text.get(above..node.span.start).unwrap_or_default(), self.value(merged));
        paste(out, &item, (other, node.item_start), (source, example_start));
    }

    /// Returns true if a container is in the block style of YAML, without brackets.
    fn is_block(&self, text: &str, node: &SyntaxNode<'_>) -> bool {
        self.syntax == Syntax::Yaml && !text[node.span.start..].starts_with(['{', '['])
    }

    /// Returns true if a value can be written on the line of its key: unlike a YAML block or an empty YAML value.
    fn is_inline(&self, text: &str, node: &SyntaxNode<'_>) -> bool {
        let value_text = &text[node.span.clone()];
        let is_block = || match node.value {
            Value::Array(_) | Value::Object(_) => self.is_block(text, node),
            Value::String(_) | Value::Literal(_) => {
                value_text.is_empty() || value_text.starts_with(['|', '>'])
            }
        };
        self.syntax != Syntax::Yaml || !is_block()
    }
}

/// Returns true if a container has its children between its brackets (or is a YAML block), in text order. A TOML table
/// may be scattered over the document, even if its span begins and ends with a bracket.
fn is_contiguous(text: &str, node: &SyntaxNode<'_>, is_block: bool) -> bool {
    let container_text = text.get(node.span.clone()).unwrap_or_default();
    let is_within =
        |open: char, close: char| container_text.starts_with(open) && container_text.ends_with(close);
    if !is_block && !is_within('{', '}') && !is_within('[', ']') {
        return false;
    }
    let inside = inside(node, is_block);
    let mut offset = inside.start;
    let mut is_after_previous = |child: &SyntaxNode<'_>| {
        let is_next = offset <= child.item_start
            && child.item_start <= child.span.start
            && child.span.start <= child.span.end;
        offset = child.span.end;
        is_next
    };
    node.children().iter().all(&mut is_after_previous) && offset <= inside.end
}

/// Returns the range of a container without its brackets.
fn inside(node: &SyntaxNode<'_>, is_block: bool) -> Range<usize> {
    if is_block { node.span.clone() } else { node.span.start + 1..node.span.end - 1 }
}

/// Splits the text of a container, which must be contiguous, into its children.
fn split_container(source: &SourceText<'_>, node: &SyntaxNode<'_>, is_block: bool) -> ContainerText {
    let Range { start: mut offset, end } = inside(node, is_block);
    let (mut texts, mut has_last_comma) = (Vec::new(), false);
    let children = node.children();
    let first = children.first().map_or(offset, |first| first.item_start);
    let head = offset..offset + tail_length(&source.text[offset..first]);
    offset = head.end;
    for (number, child) in children.iter().enumerate() {
        let item = child.item();
        let next = children.get(number + 1).map_or(end, |next| next.item_start);
        let comma = if is_block { None } else { source.comma(item.end, next) };
        let middle = item.end..comma.unwrap_or(item.end);
        let tail_start = comma.map_or(item.end, |comma| comma + 1);
        // In a block, all text after the last child belongs to that child.
        let tail_length = if is_block && next == end {
            next - tail_start
        } else {
            tail_length(&source.text[tail_start..next])
        };
        let tail = tail_start..tail_start + tail_length;
        texts.push(ChildText { lead: offset..item.start, item, middle, tail: tail.clone() });
        (offset, has_last_comma) = (tail.end, comma.is_some());
    }
    ContainerText { head, children: texts, rest: offset..end, has_last_comma }
}

/// Returns the length of the first line of a text, which follows a child or an opening bracket: the comments on that
/// line. 0 if the line is blank, or the text has no other lines.
fn tail_length(trailing: &str) -> usize {
    let line = first_line(trailing);
    if line.len() < trailing.len() && !line.trim().is_empty() { line.len() } else { 0 }
}

/// Writes a piece of the source text of another document, with its indentation changed for the new position. `from` and
/// `to` are the documents and byte offsets of the old and the new position.
fn paste(out: &mut String, piece: &str, from: (&SourceText<'_>, usize), to: (&SourceText<'_>, usize)) {
    if !piece.contains('\n') {
        out.push_str(piece);
        return;
    }
    push_indented(out, piece, &from.0.indent(from.1), &to.0.indent(to.1), to.0.end_of_line);
}
