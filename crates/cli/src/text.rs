//! Text that is safe to print on a terminal.
//!
//! Names and messages of snapshots are not trusted: they may contain control sequences. Paths are escaped by
//! `quote_path` of the engine, all other text by this module.

use std::borrow::Cow;
use std::io::{self, Write as _};

/// Escapes control characters other than newlines and tabs.
pub(crate) fn escape_controls(text: &str) -> Cow<'_, str> {
    let is_unsafe = |character: char| character.is_control() && character != '\n' && character != '\t';
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_unsafe(character) { out.extend(character.escape_default()) } else { out.push(character) }
    }
    Cow::Owned(out)
}

/// Returns the first line of a message, with control characters escaped.
pub(crate) fn first_line(message: &str) -> Cow<'_, str> {
    escape_controls(message.lines().next().unwrap_or_default())
}

/// Quotes a word for a shell, if it has special characters.
pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+=:,@%".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

/// Writes a line to stderr.
pub(crate) fn print_stderr(line: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = writeln!(io::stderr().lock(), "{}", escape_controls(line));
}

/// Formats a number of bytes with a binary unit.
pub(crate) fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats a number with a noun in singular or plural.
pub(crate) fn pluralize(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Formats a file type (`-`, `d` or `l`) and permission bits like `ls -l`.
pub(crate) fn format_mode(file_type: char, mode: u16) -> String {
    let mut out = String::from(file_type);
    for (shift, special, lower, upper) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => lower,
            (true, false) => upper,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_escaped() {
        assert_eq!(escape_controls("one\n\ttwo"), "one\n\ttwo");
        assert_eq!(escape_controls("\u{1b}]0;x\u{7}"), "\\u{1b}]0;x\\u{7}");
    }

    #[test]
    fn shell_words_are_quoted() {
        assert_eq!(shell_word("src/main.rs"), "src/main.rs");
        assert_eq!(shell_word("it's here"), r"'it'\''s here'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn modes_are_formatted_like_ls() {
        assert_eq!(format_mode('-', 0o644), "-rw-r--r--");
        assert_eq!(format_mode('d', 0o1777), "drwxrwxrwt");
        assert_eq!(format_mode('-', 0o6750), "-rwsr-s---");
        assert_eq!(format_mode('-', 0o4644), "-rwSr--r--");
    }

    #[test]
    fn bytes_are_formatted_with_the_largest_unit() {
        assert_eq!(format_bytes(1023), "1023 B");
        assert_eq!(format_bytes(1536), "1.5 KiB");
        assert_eq!(format_bytes(u64::MAX), "16.0 EiB");
    }
}
