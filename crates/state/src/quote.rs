//! Paths as text that can be parsed back: unchanged if that is safe, otherwise C-quoted.
//!
//! A quoted path is in double quotes with the escapes of git, so that git can read it. Unlike git, this leaves names in
//! non-ASCII scripts unquoted if they are valid UTF-8.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Formats `path` on one line: unchanged, or in double quotes with C escapes if it has control characters,
/// quotes, backslashes or bytes that are not UTF-8.
pub fn quote_path(path: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(path) {
        Ok(text) if !text.chars().any(needs_escape) => Cow::Borrowed(text),
        _ => Cow::Owned(quoted(path)),
    }
}

/// Parses the output of [`quote_path`]; returns `None` if the text has an invalid quoting.
pub fn unquote_path(text: &str) -> Option<Cow<'_, [u8]>> {
    match text.strip_prefix('"') {
        None => Some(Cow::Borrowed(text.as_bytes())),
        Some(rest) => unquoted(rest.strip_suffix('"')?).map(Cow::Owned),
    }
}

/// Formats a path for an error message: completely if it is short, else only its beginning and its end.
pub fn shorten_path(path: &[u8]) -> Cow<'_, str> {
    const UNSHORTENED_MAX: usize = 512;
    const END_LEN: usize = 120;
    if path.len() <= UNSHORTENED_MAX {
        return String::from_utf8_lossy(path);
    }
    let (start, end) = (String::from_utf8_lossy(&path[..END_LEN]), &path[path.len() - END_LEN..]);
    let (start, end) = (start.trim_end_matches('\u{fffd}'), String::from_utf8_lossy(end));
    Cow::Owned(format!("{start}…{}", end.trim_start_matches('\u{fffd}')))
}

/// Returns true for characters that must be escaped. This includes control characters beyond ASCII: U+009B
/// acts like ESC [ in a terminal.
fn needs_escape(character: char) -> bool {
    character.is_control() || matches!(character, '"' | '\\')
}

fn quoted(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len() + 8);
    out.push('"');
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            if needs_escape(character) {
                let mut bytes = [0; 4];
                character.encode_utf8(&mut bytes).bytes().for_each(|byte| escape(&mut out, byte));
            } else {
                out.push(character);
            }
        }
        for byte in chunk.invalid() {
            escape(&mut out, *byte);
        }
    }
    out.push('"');
    out
}

/// Bytes that are escaped as a backslash and one character, each with that character.
const LETTERS: [(u8, char); 9] = [
    (0x07, 'a'),
    (0x08, 'b'),
    (b'\t', 't'),
    (b'\n', 'n'),
    (0x0b, 'v'),
    (0x0c, 'f'),
    (b'\r', 'r'),
    (b'"', '"'),
    (b'\\', '\\'),
];

fn escape(out: &mut String, byte: u8) {
    out.push('\\');
    match LETTERS.iter().find(|(escaped, _)| *escaped == byte) {
        Some((_, letter)) => out.push(*letter),
        None => {
            write!(out, "{byte:03o}").unwrap_or_else(|_| unreachable!("writing to a string does not fail"));
        }
    }
}

fn unquoted(text: &str) -> Option<Vec<u8>> {
    // Quoted text has no unescaped control characters.
    if text.contains(char::is_control) {
        return None;
    }
    let mut text = text.as_bytes();
    let mut out = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        text = rest;
        if *first != b'\\' {
            // Quoted text has no unescaped quotes.
            if *first == b'"' {
                return None;
            }
            out.push(*first);
            continue;
        }
        let [escaped, rest @ ..] = text else { return None };
        if let Some((byte, _)) = LETTERS.iter().find(|(_, letter)| *letter as u8 == *escaped) {
            out.push(*byte);
            text = rest;
        } else {
            let (digits, rest) = text.split_at_checked(3)?;
            out.push(octal(digits)?);
            text = rest;
        }
    }
    Some(out)
}

fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0u8, |value, digit| {
        let digit = char::from(*digit).to_digit(8)?;
        value.checked_mul(8)?.checked_add(digit as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_are_not_quoted() {
        for path in ["src/main.rs", "with space", "über/文.txt", ""] {
            assert_eq!(quote_path(path.as_bytes()), path);
        }
    }

    #[test]
    fn a_long_path_is_shortened_in_the_middle() {
        assert_eq!(shorten_path(b"src/main.rs"), "src/main.rs");
        let long = format!("start/{}end", "文/".repeat(1_000));
        let shown = shorten_path(long.as_bytes());
        assert!(
            shown.starts_with("start/文/") && shown.ends_with("文/end") && shown.contains('…'),
            "{shown}"
        );
        assert!(shown.len() < 300 && !shown.contains('\u{fffd}'), "{shown}");
    }

    #[test]
    fn control_characters_and_invalid_utf8_are_quoted_like_in_git() {
        assert_eq!(quote_path(b"a\nb\t\"c\\"), r#""a\nb\t\"c\\""#);
        assert_eq!(quote_path(b"caf\xe9/\x01\x7f"), r#""caf\351/\001\177""#);
        assert_eq!(quote_path("é\n".as_bytes()), r#""é\n""#);
    }

    #[test]
    fn quoted_paths_have_no_control_characters() {
        assert_eq!(quote_path("\u{9b}31mred\u{a0}".as_bytes()), "\"\\302\\23331mred\u{a0}\"");
        for character in ('\0'..='\u{9f}').filter(|character| character.is_control()) {
            let path = format!("a{character}é");
            let quoted = quote_path(path.as_bytes());
            assert!(!quoted.contains(char::is_control), "{quoted:?}");
            assert_eq!(unquote_path(&quoted).as_deref(), Some(path.as_bytes()));
        }
    }

    #[test]
    fn every_byte_round_trips() {
        let all: Vec<u8> = (1..=255).collect();
        for path in [&all[..], b"\"", b"\\", b"a\xf0\x9f\n", b"\"a\"", "\u{7f}é".as_bytes()] {
            assert_eq!(unquote_path(&quote_path(path)).as_deref(), Some(path));
        }
    }

    #[test]
    fn invalid_quoting_is_refused() {
        for text in [
            "\"",
            "\"a",
            "\"\\",
            "\"\\\"",
            "\"\\4\"",
            "\"\\400\"",
            "\"\\x\"",
            "\"\\+12\"",
            "\"a\"/\"b\"",
            "\"a\nb\"",
            "\"a\u{9b}b\"",
        ] {
            assert_eq!(unquote_path(text), None, "{text}");
        }
    }
}
