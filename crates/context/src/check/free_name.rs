//! Other names for added entries, if the project has an entry of the same name by now.

use crate::paths::{child, split};

/// Maximum length of the name of an entry in bytes.
const NAME_MAX: usize = 255;

/// Returns the path with a number before the extension: `notes~2.md` for `notes.md`.
pub(super) fn numbered(path: &[u8], number: usize) -> Vec<u8> {
    let (parent, name) = split(path);
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0).unwrap_or(name.len());
    let suffix = format!("~{number}");
    // An extension that is too long to keep counts as part of the stem.
    let dot = if name.len() - dot + suffix.len() >= NAME_MAX { name.len() } else { dot };
    let (stem, extension) = name.split_at(dot);
    let stem = truncate(stem, NAME_MAX - suffix.len() - extension.len());
    child(parent, &[stem, suffix.as_bytes(), extension].concat())
}

/// Returns the longest prefix of at most `max` bytes that does not end inside a UTF-8 character.
fn truncate(name: &[u8], max: usize) -> &[u8] {
    if name.len() <= max {
        return name;
    }
    // A character has at most four bytes.
    let is_boundary = |end: &usize| name[*end] & 0b1100_0000 != 0b1000_0000;
    let end = (max.saturating_sub(3)..=max).rev().find(is_boundary).unwrap_or(max);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_before_the_extension() {
        for (path, expected) in [
            ("notes.md", "notes~2.md"),
            ("a/b.tar.gz", "a/b.tar~2.gz"),
            ("a.b/Makefile", "a.b/Makefile~2"),
            (".env", ".env~2"),
        ] {
            assert_eq!(numbered(path.as_bytes(), 2), expected.as_bytes());
        }
    }

    #[test]
    fn long_names_are_shortened_between_characters() {
        let long = format!("{}.md", "é".repeat(126));
        let shortened = numbered(long.as_bytes(), 10);
        assert!(shortened.len() <= 255 && std::str::from_utf8(&shortened).is_ok());
        assert!(shortened.ends_with(b"~10.md"));
        for name in [vec![b'a'; 255], vec![0x80; 255], [b"a.".to_vec(), vec![b'x'; 253]].concat()] {
            let shortened = numbered(&name, 12_345);
            assert!(shortened.len() <= 255 && shortened != name);
        }
    }
}
