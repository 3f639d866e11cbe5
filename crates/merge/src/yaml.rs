//! YAML format for merging by value: a parser for the common subset, mappings and sequences of strings and numbers.
//!
//! `saphyr-parser` reports values and their positions as events. Between values, only colons, dashes, commas, brackets,
//! whitespace and comments are accepted. Files with anchors, aliases, tags, merge keys, directives, several
//! documents, keys that are not plain strings, or other syntax are merged as text. There is no mature crate
//! for editing YAML.

use std::borrow::Cow;
use std::ops::Range;

use bumpalo::Bump;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use crate::layout::{self, Syntax};
use crate::structured::Format;
use crate::value::merge::{Documents, MergedValue};
use crate::value::{Document, MAX_DEPTH, SyntaxNode, Value, has_duplicate_key};

/// YAML format.
pub(crate) struct Yaml;

impl Format for Yaml {
    const NAME: &'static str = "yaml";

    fn parse<'a>(text: &'a str, arena: &'a Bump) -> Option<Document<'a>> {
        parse(text, arena)
    }

    fn write(documents: Documents<'_>, merged: &MergedValue<'_>) -> Option<String> {
        Some(layout::write(documents, merged, Syntax::Yaml))
    }
}

/// Parses YAML; `None` if it is invalid or uses unsupported syntax.
pub(crate) fn parse<'a>(text: &'a str, arena: &'a Bump) -> Option<Document<'a>> {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    if body.starts_with('%') || body.contains("\n%") || body.contains(is_unsupported) {
        return None;
    }
    let offsets = ByteOffsets::new(text, text.len() - body.len());
    let mut reader = Reader {
        text,
        events: Parser::new_from_str(body),
        offsets,
        offset: text.len() - body.len(),
        arena,
        comments: Vec::new(),
    };
    let root = reader.document()?;
    Some(Document { text, root, comments: reader.comments })
}

/// Conversion of character offsets to byte offsets.
struct ByteOffsets {
    /// Length of the byte order mark, which the parser does not count.
    bom_length: usize,
    /// Byte offset of each character and of the end, after the byte order mark; empty if the text is ASCII.
    starts: Vec<usize>,
}

impl ByteOffsets {
    fn new(text: &str, bom_length: usize) -> Self {
        let starts = match text[bom_length..].is_ascii() {
            true => Vec::new(),
            false => text[bom_length..]
                .char_indices()
                .map(|(offset, _)| offset)
                .chain([text.len() - bom_length])
                .collect(),
        };
        Self { bom_length, starts }
    }

    /// Returns the byte offset in the text of a character offset; `None` if it is beyond the end.
    fn byte_offset(&self, character: usize) -> Option<usize> {
        let byte = if self.starts.is_empty() { character } else { *self.starts.get(character)? };
        Some(self.bom_length + byte)
    }

    fn byte_range(&self, span: Span) -> Option<Range<usize>> {
        Some(self.byte_offset(span.start.index())?..self.byte_offset(span.end.index())?)
    }
}

/// Reader of values in source order. Its methods return `None` if the text is invalid or uses unsupported syntax.
struct Reader<'a> {
    text: &'a str,
    /// Parser, which returns a document as a sequence of events.
    events: Parser<'a, StrInput<'a>>,
    /// Conversion of character offsets of the parser to byte offsets.
    offsets: ByteOffsets,
    /// End of the text that was read. Apart from separators, the value of the next event must begin here.
    offset: usize,
    /// Memory of the nodes.
    arena: &'a Bump,
    /// Comments so far.
    comments: Vec<&'a str>,
}

/// Style of a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContainerStyle {
    /// Block style, by indentation.
    Block,
    /// Flow style, in brackets. All nested containers are in flow style as well.
    Flow,
}

impl<'a> Reader<'a> {
    /// Returns the next event with its byte range.
    fn event(&mut self) -> Option<(Event<'a>, Range<usize>)> {
        let (event, span) = self.events.next_event()?.ok()?;
        Some((event, self.offsets.byte_range(span)?))
    }

    /// Reads the only document of a stream.
    fn document(&mut self) -> Option<SyntaxNode<'a>> {
        matches!(self.event()?.0, Event::StreamStart).then_some(())?;
        let Event::DocumentStart(is_explicit) = self.event()?.0 else { return None };
        self.skip_trivia();
        if is_explicit {
            self.consume("---")?;
            self.skip_trivia();
        }
        let (event, span) = self.event()?;
        let root = self.value("", self.offset, event, span, ContainerStyle::Block, 0)?;
        matches!(self.event()?.0, Event::DocumentEnd).then_some(())?;
        matches!(self.event()?.0, Event::StreamEnd).then_some(())?;
        self.skip_trivia();
        let _ = self.consume("...");
        self.skip_trivia();
        (self.offset == self.text.len()).then_some(root)
    }

    /// Returns the text that was not read yet.
    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    /// Skips a token; `None` if the rest of the text starts with other text.
    fn consume(&mut self, token: &str) -> Option<()> {
        self.rest().starts_with(token).then(|| self.offset += token.len())
    }

    /// Skips whitespace and comments.
    fn skip_trivia(&mut self) {
        loop {
            let rest = self.rest();
            let space = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            self.offset += space;
            if !self.rest().starts_with('#') {
                return;
            }
            self.comment();
        }
    }

    /// Reads the comment at the current offset.
    fn comment(&mut self) {
        let rest = self.rest();
        let comment = rest[..rest.find('\n').unwrap_or(rest.len())].trim_end_matches('\r');
        self.comments.push(comment);
        self.offset += comment.len();
    }

    /// Reads a comment on the line on which the last value of a block ends, since the span of the block includes it.
    fn trailing_comment(&mut self) {
        let rest = self.rest();
        let space = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        if space > 0 && rest[space..].starts_with('#') {
            self.offset += space;
            self.comment();
        }
    }

    /// Records the comment after the indicator (`|` or `>`) of a block scalar, without advancing.
    fn header_comment(&mut self) {
        let start = self.offset;
        let line = self.rest().lines().next().unwrap_or_default();
        if let Some(comment) = line.find('#') {
            self.offset += comment;
            self.comment();
        }
        self.offset = start;
    }

    /// Reads the value that begins with `event`. `start` is the offset of its key or dash; `style` is the style of its
    /// container.
    fn value(
        &mut self,
        key: &'a str,
        start: usize,
        event: Event<'a>,
        span: Range<usize>,
        style: ContainerStyle,
        depth: usize,
    ) -> Option<SyntaxNode<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (span, value) = match event {
            Event::Scalar(text, scalar, 0, None) => self.scalar(text, scalar, span)?,
            Event::MappingStart(0, None) => self.container(span, style, |reader, style| {
                let members = reader.members(style, depth + 1)?;
                (!has_duplicate_key(members)).then_some(Value::Object(members))
            })?,
            Event::SequenceStart(0, None) => self.container(span, style, |reader, style| {
                Some(Value::Array(reader.elements(style, depth + 1)?))
            })?,
            _ => return None,
        };
        Some(SyntaxNode { key, item_start: start, span, value })
    }

    /// Reads a scalar. Returns its byte range and value.
    fn scalar(
        &mut self,
        text: Cow<'a, str>,
        style: ScalarStyle,
        span: Range<usize>,
    ) -> Option<(Range<usize>, Value<'a>)> {
        let source = self.text.get(span.clone())?;
        if style == ScalarStyle::Plain && source.is_empty() {
            // The parser reports an empty scalar at an arbitrary position.
            return Some((self.offset..self.offset, Value::Literal("")));
        }
        self.skip_trivia();
        let start = self.offset;
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        // For a block scalar, the parser reports the position of its first line.
        (if is_block { self.rest().starts_with(['|', '>']) } else { start == span.start }).then_some(())?;
        let end = match style {
            ScalarStyle::Plain => span.end,
            // For a quoted scalar, the parser reports the end of the text after it, including comments.
            ScalarStyle::SingleQuoted => start + single_quoted_length(self.rest())?,
            ScalarStyle::DoubleQuoted => start + double_quoted_length(self.rest())?,
            ScalarStyle::Literal | ScalarStyle::Folded => {
                self.header_comment();
                span.start + source.trim_end_matches([' ', '\t', '\r', '\n']).len()
            }
        };
        self.offset = end.max(start);
        let value = match style {
            ScalarStyle::Plain if is_literal(source) && !source.contains('\n') => Value::Literal(source),
            _ => Value::String(self.allocate(text)),
        };
        Some((start..self.offset, value))
    }

    /// Reads a mapping or sequence. Returns its byte range and value. `read_children` reads the children and the end.
    fn container(
        &mut self,
        span: Range<usize>,
        outer_style: ContainerStyle,
        read_children: impl FnOnce(&mut Self, ContainerStyle) -> Option<Value<'a>>,
    ) -> Option<(Range<usize>, Value<'a>)> {
        self.skip_trivia();
        let start = self.offset;
        let style = if span.is_empty() { ContainerStyle::Block } else { ContainerStyle::Flow };
        // For a sequence without indentation, the parser reports the position of its first element.
        let is_expected =
            start == span.start || style == ContainerStyle::Block && self.rest().starts_with('-');
        if !is_expected || outer_style == ContainerStyle::Flow && style == ContainerStyle::Block {
            return None;
        }
        if style == ContainerStyle::Flow {
            self.offset += 1;
        }
        let value = read_children(self, style)?;
        if style == ContainerStyle::Block {
            self.trailing_comment();
        }
        Some((start..self.offset, value))
    }

    /// Reads the members of a mapping, up to its end.
    fn members(&mut self, style: ContainerStyle, depth: usize) -> Option<&'a [SyntaxNode<'a>]> {
        let mut members: Vec<SyntaxNode<'a>> = Vec::new();
        loop {
            let (event, span) = self.event()?;
            if event == Event::MappingEnd {
                self.close(style, "}", !members.is_empty())?;
                return Some(self.arena.alloc_slice_fill_iter(members));
            }
            self.advance_to_child(style, members.is_empty())?;
            let start = self.offset;
            let key = self.key(event, span)?;
            let (event, span) = self.event()?;
            members.push(self.value(key, start, event, span, style, depth)?);
        }
    }

    /// Reads a key and its colon.
    fn key(&mut self, event: Event<'a>, span: Range<usize>) -> Option<&'a str> {
        let Event::Scalar(key, style, 0, None) = event else { return None };
        let is_supported = match style {
            ScalarStyle::Plain => key != "<<" && !span.is_empty(),
            // For some parsers a quoted literal such as "1" equals the unquoted key 1, for others it does not.
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => !is_literal(&key),
            ScalarStyle::Literal | ScalarStyle::Folded => false,
        };
        (is_supported && self.offset == span.start).then_some(())?;
        self.offset = span.end;
        let rest = self.rest();
        self.offset += rest.len() - rest.trim_start_matches(' ').len();
        self.consume(":")?;
        Some(self.allocate(key))
    }

    /// Moves a string to the arena if it is not a slice of the text.
    fn allocate(&self, text: Cow<'a, str>) -> &'a str {
        match text {
            Cow::Borrowed(text) => text,
            Cow::Owned(text) => self.arena.alloc_str(&text),
        }
    }

    /// Reads the elements of a sequence, up to its end.
    fn elements(&mut self, style: ContainerStyle, depth: usize) -> Option<&'a [SyntaxNode<'a>]> {
        let mut elements = Vec::new();
        loop {
            let (event, span) = self.event()?;
            if event == Event::SequenceEnd {
                self.close(style, "]", !elements.is_empty())?;
                return Some(self.arena.alloc_slice_fill_iter(elements));
            }
            self.advance_to_child(style, elements.is_empty())?;
            let start = self.offset;
            if style == ContainerStyle::Block {
                self.consume("-")?;
            }
            elements.push(self.value("", start, event, span, style, depth)?);
        }
    }

    /// Advances to the next child, over a comma in flow style.
    fn advance_to_child(&mut self, style: ContainerStyle, is_first: bool) -> Option<()> {
        self.skip_trivia();
        if style == ContainerStyle::Flow && !is_first {
            self.consume(",")?;
            self.skip_trivia();
        }
        Some(())
    }

    /// Reads the closing bracket `token` of a container in flow style, after an optional comma.
    fn close(&mut self, style: ContainerStyle, token: &str, may_have_comma: bool) -> Option<()> {
        if style == ContainerStyle::Block {
            return Some(());
        }
        self.skip_trivia();
        if may_have_comma && self.consume(",").is_some() {
            self.skip_trivia();
        }
        self.consume(token)
    }
}

/// Returns the length of the single-quoted scalar at the start of a text. Two quotes are an escaped quote.
fn single_quoted_length(text: &str) -> Option<usize> {
    let mut offset = 1;
    loop {
        offset += text.get(offset..)?.find('\'')? + 1;
        if !text[offset..].starts_with('\'') {
            return Some(offset);
        }
        offset += 1;
    }
}

/// Returns the length of the double-quoted scalar at the start of a text.
fn double_quoted_length(text: &str) -> Option<usize> {
    let mut offset = 1;
    loop {
        offset += text.get(offset..)?.find(['"', '\\'])?;
        if text[offset..].starts_with('"') {
            return Some(offset + 1);
        }
        offset += 1 + text[offset + 1..].chars().next()?.len_utf8();
    }
}

/// Returns true if a version of YAML may parse an unquoted scalar as something other than a string.
fn is_literal(text: &str) -> bool {
    const WORDS: [&str; 11] = ["~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "="];
    text.is_empty()
        || text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
        || WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Returns true for control characters, and for characters that end a line only in some versions of YAML.
fn is_unsupported(character: char) -> bool {
    matches!(character, '\u{feff}' | '\u{2028}' | '\u{2029}')
        || character.is_control() && !matches!(character, '\t' | '\n' | '\r')
}
