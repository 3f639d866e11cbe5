//! Quoting of JSON strings.

use std::fmt::Write as _;

/// Returns the number of bytes before the first quote, backslash or control character; the length of `bytes` if there
/// is none. These bytes need no escape in a JSON string. Checks eight bytes at a time, since strings make up most of a
/// document.
pub(crate) fn plain_length(bytes: &[u8]) -> usize {
    // Word of bytes 0x01, and word of bytes 0x80.
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    // Returns a word with the high bit of each zero byte set. Bits above the lowest set bit may be wrong.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut offset = 0;
    for eight in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
        let quotes = zeros(word ^ (ONES * u64::from(b'"')));
        let escapes = zeros(word ^ (ONES * u64::from(b'\\')));
        // The high bit of each byte below 0x20 is set, because the subtraction underflows. As with `zeros`, only the
        // lowest set bit is certain.
        let controls = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let matches = quotes | escapes | controls;
        if matches != 0 {
            return offset + matches.trailing_zeros() as usize / 8;
        }
        offset += 8;
    }
    let rest = &bytes[offset..];
    offset + rest.iter().position(|byte| !is_plain(*byte)).unwrap_or(rest.len())
}

/// Returns true if a byte needs no escape in a string.
fn is_plain(byte: u8) -> bool {
    !matches!(byte, b'"' | b'\\' | 0..0x20)
}

/// Set of characters that are written as escapes in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escaping {
    /// Only quotes, backslashes and control characters, which JSON requires.
    Minimal,
    /// Also all characters outside ASCII, as `\u` and four hexadecimal digits for each UTF-16 code unit.
    NonAscii,
}

/// Appends a string as JSON, with quotes and escapes.
pub(crate) fn push_quoted(out: &mut String, text: &str, escaping: Escaping) {
    out.push('"');
    let mut rest = text;
    loop {
        let plain = match escaping {
            Escaping::Minimal => plain_length(rest.as_bytes()),
            Escaping::NonAscii => rest.bytes().take_while(|byte| is_plain(*byte) && byte.is_ascii()).count(),
        };
        out.push_str(&rest[..plain]);
        let mut escaped = rest[plain..].chars();
        let Some(character) = escaped.next() else { break };
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            character => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string never fails.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
        rest = escaped.as_str();
    }
    out.push('"');
}
