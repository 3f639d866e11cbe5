//! JSON format for merging by value: a parser that also accepts comments and trailing commas.
//!
//! This crate has its own parser because a merge parses four documents (three versions and the result) and needs only
//! the span (byte range) of each value. A merge of 4 KB documents takes 55 to 70 µs, of which parsing takes two
//! thirds. With heap-allocated strings and children, a merge took 100 to 130 µs. The syntax tree of a lossless parser
//! would need even more allocations.

use bumpalo::Bump;

use crate::layout::{self, Syntax};
use crate::quote::plain_length;
use crate::structured::Format;
use crate::value::merge::{Documents, MergedValue};
use crate::value::{Document, MAX_DEPTH, SyntaxNode, Value, has_duplicate_key};

/// JSON format.
pub(crate) struct Json;

impl Format for Json {
    const NAME: &'static str = "json";

    fn parse<'a>(text: &'a str, arena: &'a Bump) -> Option<Document<'a>> {
        parse(text, arena)
    }

    fn write(documents: Documents<'_>, merged: &MergedValue<'_>) -> Option<String> {
        Some(layout::write(documents, merged, Syntax::Json))
    }
}

/// Parses JSON; `None` if it is invalid, has duplicate keys, or is nested too deep.
pub(crate) fn parse<'a>(text: &'a str, arena: &'a Bump) -> Option<Document<'a>> {
    // A CR without LF is rejected: for some parsers it ends a line comment, for others it does not.
    let is_lone = |(offset, _): (usize, &str)| !text[offset + 1..].starts_with('\n');
    if text.match_indices('\r').any(is_lone) {
        return None;
    }
    let offset = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut parser = Parser {
        text,
        bytes: text.as_bytes(),
        offset,
        arena,
        open: Vec::with_capacity(64),
        comments: Vec::new(),
    };
    parser.skip()?;
    parser.value("", parser.offset, 0)?;
    parser.skip()?;
    let root = parser.open.pop().filter(|_| parser.offset == text.len())?;
    Some(Document { text, root, comments: parser.comments })
}

/// Parser of JSON. Its methods return `None` if the text is invalid.
struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    offset: usize,
    /// Memory of the nodes.
    arena: &'a Bump,
    /// Stack of parsed values whose container is not complete yet.
    open: Vec<SyntaxNode<'a>>,
    /// Comments so far, in text order.
    comments: Vec<&'a str>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.offset).copied()
    }

    /// Skips a byte; `None` if the next byte is another one.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.offset += 1)
    }

    /// Skips whitespace and comments. The check is inlined, because mostly there are none.
    #[inline(always)]
    fn skip(&mut self) -> Option<()> {
        match self.peek() {
            Some(b'/' | ..=b' ') => self.skip_some(),
            _ => Some(()),
        }
    }

    /// Skips whitespace and comments, without an inlined check.
    fn skip_some(&mut self) -> Option<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.offset += 1,
                Some(b'/') => {
                    let end = comment_end(self.bytes, self.offset)?;
                    self.comments.push(&self.text[self.offset..end]);
                    self.offset = end;
                }
                _ => return Some(()),
            }
        }
    }

    /// Parses a value and pushes it to `open`. `start` is the offset of its key, or of the value itself if it has no
    /// key.
    fn value(&mut self, key: &'a str, start: usize, depth: usize) -> Option<()> {
        let from = self.offset;
        let value = match self.peek()? {
            _ if depth > MAX_DEPTH => return None,
            b'{' => Value::Object(self.members(depth + 1)?),
            b'[' => Value::Array(self.elements(depth + 1)?),
            b'"' => Value::String(self.string()?),
            b'-' | b'0'..=b'9' => Value::Literal(self.number()?),
            _ => Value::Literal(self.word()?),
        };
        self.open.push(SyntaxNode { key, item_start: start, span: from..self.offset, value });
        Some(())
    }

    /// Parses an object; `None` also if a key occurs twice.
    fn members(&mut self, depth: usize) -> Option<&'a [SyntaxNode<'a>]> {
        let first = self.open.len();
        self.offset += 1;
        while self.next_child(b'}', self.open.len() == first)? {
            let start = self.offset;
            let key = self.string()?;
            self.skip()?;
            self.take(b':')?;
            self.skip()?;
            self.value(key, start, depth)?;
        }
        let members = self.close(first);
        (!has_duplicate_key(members)).then_some(members)
    }

    /// Parses an array.
    fn elements(&mut self, depth: usize) -> Option<&'a [SyntaxNode<'a>]> {
        let first = self.open.len();
        self.offset += 1;
        while self.next_child(b']', self.open.len() == first)? {
            self.value("", self.offset, depth)?;
        }
        Some(self.close(first))
    }

    /// Moves the children of a complete container, which are the last values of `open`, to the arena. `first` is the
    /// index of the first child.
    fn close(&mut self, first: usize) -> &'a [SyntaxNode<'a>] {
        self.arena.alloc_slice_fill_iter(self.open.drain(first..))
    }

    /// Advances to the next child of a container. Returns false after the closing bracket.
    fn next_child(&mut self, close: u8, is_first: bool) -> Option<bool> {
        self.skip()?;
        if self.take(close).is_some() {
            return Some(false);
        }
        if !is_first {
            self.take(b',')?;
            self.skip()?;
        }
        Some(self.take(close).is_none())
    }

    /// Parses a string, and returns its content.
    fn string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let from = self.offset;
        self.offset += plain_length(&self.bytes[from..]);
        match self.peek()? {
            b'"' => {
                self.offset += 1;
                Some(&self.text[from..self.offset - 1])
            }
            b'\\' => self.escaped(from).map(|string| &*self.arena.alloc_str(&string)),
            _ => None,
        }
    }

    /// Parses the rest of a string from its first escape. `from` is the offset at which its content starts.
    fn escaped(&mut self, mut from: usize) -> Option<String> {
        let mut string = String::new();
        loop {
            match self.peek()? {
                b'"' => {
                    string.push_str(&self.text[from..self.offset]);
                    self.offset += 1;
                    return Some(string);
                }
                b'\\' => {
                    string.push_str(&self.text[from..self.offset]);
                    self.offset += 1;
                    string.push(self.escape()?);
                    from = self.offset;
                }
                0..0x20 => return None,
                _ => self.offset += 1,
            }
        }
    }

    /// Parses an escape after its backslash.
    fn escape(&mut self) -> Option<char> {
        let byte = self.peek()?;
        self.offset += 1;
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return None,
        })
    }

    /// Parses a `\u` escape after the `u`; for a surrogate pair, also the second escape.
    fn unicode(&mut self) -> Option<char> {
        let high = self.utf16_unit()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high);
        }
        self.take(b'\\')?;
        self.take(b'u')?;
        let low = self.utf16_unit()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)
    }

    /// Parses the four hexadecimal digits of a UTF-16 code unit.
    fn utf16_unit(&mut self) -> Option<u32> {
        let digits = self.bytes.get(self.offset..self.offset + 4)?;
        self.offset += 4;
        digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
    }

    /// Parses a number, and returns its source text.
    fn number(&mut self) -> Option<&'a str> {
        let from = self.offset;
        let _ = self.take(b'-');
        if self.take(b'0').is_none() {
            self.digits()?;
        }
        if !matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return Some(&self.text[from..self.offset]);
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if self.take(b'e').or_else(|| self.take(b'E')).is_some() {
            let _ = self.take(b'+').or_else(|| self.take(b'-'));
            self.digits()?;
        }
        Some(&self.text[from..self.offset])
    }

    /// Skips digits; `None` if there are none.
    fn digits(&mut self) -> Option<()> {
        let count = self.bytes[self.offset..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.offset += count;
        (count > 0).then_some(())
    }

    /// Parses `true`, `false` or `null`.
    fn word(&mut self) -> Option<&'a str> {
        let rest = &self.bytes[self.offset..];
        let word = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word.as_bytes()))?;
        self.offset += word.len();
        Some(word)
    }
}

/// Returns the end of the comment at a byte offset; `None` if there is no comment, or it is not closed.
pub(crate) fn comment_end(bytes: &[u8], offset: usize) -> Option<usize> {
    let rest = &bytes[offset..];
    if rest.starts_with(b"//") {
        let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        return Some(offset + end);
    }
    let inner = rest.strip_prefix(b"/*")?;
    memchr::memmem::find(inner, b"*/").map(|end| offset + 2 + end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quote::{Escaping, push_quoted};

    /// Parses JSON and formats its values compactly, without quotes around keys; `None` if it is rejected.
    fn shown(text: &str) -> Option<String> {
        parse(text, &Bump::new()).map(|document| show(&document.root))
    }

    fn show(node: &SyntaxNode<'_>) -> String {
        let children = || node.children().iter().map(show).collect::<Vec<_>>().join(",");
        let key = if node.key.is_empty() { String::new() } else { format!("{}:", node.key) };
        match &node.value {
            Value::Literal(text) => format!("{key}{text}"),
            Value::String(text) => format!("{key}{text:?}"),
            Value::Array(_) => format!("{key}[{}]", children()),
            Value::Object(_) => format!("{key}{{{}}}", children()),
        }
    }

    #[test]
    fn json_with_comments_and_trailing_commas_parses() {
        let text = "\u{feff}// one\r\n{ /* two */ \"a\": [1, -2.50e+7, true,], // three\n \
                    \"b\\u0041\": \"\\ud83d\\ude00\\n\" }\n";
        assert_eq!(shown(text).unwrap(), "{a:[1,-2.50e+7,true],bA:\"😀\\n\"}");
        assert_eq!(parse(text, &Bump::new()).unwrap().comments, ["// one", "/* two */", "// three"]);
    }

    #[test]
    fn invalid_json_is_rejected() {
        for text in [
            "",
            " ",
            "{",
            "[1",
            "[1 2]",
            "[,]",
            "{,}",
            "[1,,]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "01",
            "1.",
            ".1",
            "-",
            "1e",
            "+1",
            "nul",
            "NaN",
            "'a'",
            "\"a",
            "\"\n\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\u12g4\"",
            "1 1",
            "/* a",
            "/",
            "1 /",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1,\"\\u0061\":2}",
            "\0",
            "[1]\0",
        ] {
            assert!(parse(text, &Bump::new()).is_none(), "{text:?}");
        }
    }

    #[test]
    fn quoted_strings_round_trip() {
        let text = "a\"b\\c/\n\r\t\u{0}\u{1f} é€😀\u{7f}\u{2028}";
        for (escaping, is_ascii) in [(Escaping::Minimal, false), (Escaping::NonAscii, true)] {
            let mut quoted = String::new();
            push_quoted(&mut quoted, text, escaping);
            assert_eq!(quoted.is_ascii(), is_ascii, "{quoted}");
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
            let arena = Bump::new();
            let document = parse(&quoted, &arena).unwrap();
            assert!(matches!(document.root.value, Value::String(read) if read == text), "{quoted}");
        }
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(&nested(MAX_DEPTH), &Bump::new()).is_some());
        assert!(parse(&nested(10_000), &Bump::new()).is_none());
        assert!(parse(&"{\"a\":".repeat(100_000), &Bump::new()).is_none());
    }

    fn value(node: &SyntaxNode<'_>) -> serde_json::Value {
        match &node.value {
            Value::Literal(text) => serde_json::from_str(text).unwrap(),
            Value::String(text) => serde_json::Value::String(text.to_string()),
            Value::Array(elements) => elements.iter().map(value).collect(),
            Value::Object(members) => {
                members.iter().map(|member| (member.key.to_string(), value(member))).collect()
            }
        }
    }

    /// Returns a pseudo-random number below `end`; the sequence is the same on each run.
    fn random(state: &mut u64, end: usize) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*state >> 33).unwrap() % end
    }

    #[test]
    fn parser_agrees_with_serde_json() {
        const CHARACTERS: &[u8] = b"{}[]:,\"\\0129.eE+-tn au\n\t/u\x01";
        let sample = concat!(
            r#"{"one": [1, -2.5e3, "x\u0041\n", null], "#,
            r#""three": {"seventeen": true, "nine": {}}, "empty": []}"#
        );
        let (mut state, mut accepted) = (7, 0);
        for _ in 0..20_000 {
            let mut text = sample.as_bytes().to_vec();
            for _ in 0..1 + random(&mut state, 2) {
                let index = random(&mut state, text.len());
                match random(&mut state, 3) {
                    0 => drop(text.remove(index)),
                    1 => text[index] = CHARACTERS[random(&mut state, CHARACTERS.len())],
                    _ => text.insert(index, CHARACTERS[random(&mut state, CHARACTERS.len())]),
                }
            }
            let text = String::from_utf8(text).unwrap();
            let arena = Bump::new();
            let (ours, theirs) = (parse(&text, &arena), serde_json::from_str::<serde_json::Value>(&text));
            match (ours, theirs) {
                (Some(ours), Ok(theirs)) => {
                    assert_eq!(value(&ours.root), theirs, "{text}");
                    accepted += 1;
                }
                (None, Err(_)) => {}
                (None, Ok(_)) => panic!("rejected: {text}"),
                (Some(_), Err(error)) => {
                    // This parser also accepts trailing commas, comments and numbers of any size.
                    let error = error.to_string();
                    let is_extension = error.contains("trailing comma")
                        || text.contains("//")
                        || error.contains("number out of range");
                    assert!(is_extension, "{error}: {text}");
                }
            }
        }
        assert!(accepted > 1_000, "{accepted}");
    }
}
