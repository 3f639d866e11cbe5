//! Paths as text, which round-trips for every sequence of bytes.
//!
//! `\` becomes `\\`, and a NUL or a byte that is not part of valid UTF-8 becomes `\xNN`. All else is unchanged. The
//! encoding of `a/b` is that of `a`, then `/`, then that of `b`, so a query can compare prefixes. The quoted form of
//! the API does not allow that: whether a path begins with a quote depends on all of its components.

use std::fmt::Write as _;

use crate::error::{CatalogError, Result};

/// Encodes a path.
pub(crate) fn encode(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\0' => text.push_str("\\x00"),
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Decodes the output of [`encode`].
pub(crate) fn decode(text: &str) -> Result<Vec<u8>> {
    let invalid = || CatalogError::UnknownValue { what: "path", value: text.to_owned() };
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => {
                path.push(b'\\');
                after
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let (high, low) = (digit(*high), digit(*low));
                path.push(high.zip(low).map(|(high, low)| high << 4 | low).ok_or_else(invalid)?);
                after
            }
            (b'\\', _) => return Err(invalid()),
            _ => {
                path.push(byte);
                after
            }
        };
    }
    Ok(path)
}

/// Returns the value of a lowercase hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        for path in [&all[..], b"", b"\\", b"\\x41", b"a\xf0\x9f\n", "über/文 \"x\"".as_bytes(), b"\xff/\xfe"]
        {
            let text = encode(path);
            assert_eq!(decode(&text).unwrap(), path, "{text}");
            assert!(!text.contains('\0'), "{text}");
        }
    }

    #[test]
    fn ordinary_paths_are_readable() {
        assert_eq!(encode("src/über 文.rs".as_bytes()), "src/über 文.rs");
        assert_eq!(encode(b"caf\xe9\\"), "caf\\xe9\\\\");
    }

    #[test]
    fn paths_are_encoded_component_by_component() {
        let names: [&[u8]; 5] = [b"a", b"\xf0\x9f", b"\\", "é".as_bytes(), b"\x98\x80"];
        for (parent, name) in names.iter().flat_map(|parent| names.map(|name| (*parent, name))) {
            let joined = [parent, b"/", name].concat();
            assert_eq!(encode(&joined), format!("{}/{}", encode(parent), encode(name)));
        }
    }

    #[test]
    fn damaged_text_is_an_error() {
        for text in ["\\", "a\\b", "\\x", "\\x4", "\\xGG", "\\xFF", "\\x+1"] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
