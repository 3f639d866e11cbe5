//! Quotes command lines for `/bin/sh`.

/// Returns a command line with which the shell replaces itself by the program `words`, so that signals to the shell
/// reach the program.
pub(crate) fn shell_exec_line(words: &[String]) -> String {
    format!("exec {}", quote(words.iter().map(String::as_str)))
}

/// Reserved words of the shell, which are names of programs only if quoted. Reserved words with special characters,
/// such as `{`, are quoted anyway.
const RESERVED: [&str; 18] = [
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "esac",
    "fi",
    "for",
    "function",
    "if",
    "in",
    "select",
    "then",
    "time",
    "until",
    "while",
    "namespace",
];

/// Quotes words so that `/bin/sh` parses exactly these words again.
///
/// Words with special characters are put into single quotes, where only the quote itself is special.
pub(crate) fn quote<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(word).collect();
    words.join(" ")
}

fn word(word: &str) -> String {
    // Only ASCII: other letters depend on the shell. `=` is quoted, because `a=b` would be an assignment.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) && !RESERVED.contains(&word) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Returns the words as `/bin/sh` parses them, each followed by NUL.
    fn parsed_by_shell(words: &[&str]) -> Vec<u8> {
        let line = format!("printf '%s\\0' {}", quote(words.iter().copied()));
        Command::new("/bin/sh").args(["-c", &line]).output().unwrap().stdout
    }

    /// Returns the words, each followed by NUL.
    fn joined(words: &[&str]) -> Vec<u8> {
        words.iter().flat_map(|word| word.bytes().chain([0])).collect()
    }

    #[test]
    fn every_character_is_parsed_unchanged_by_the_shell() {
        for number in 1..0x180_u32 {
            let Some(character) = char::from_u32(number) else { continue };
            let words = [character.to_string(), format!("a{character}b"), format!("{character}{character}'")];
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(parsed_by_shell(&words), joined(&words), "{number:#x}");
        }
    }

    #[test]
    fn special_words_are_parsed_unchanged_by_the_shell() {
        let words = [
            "",
            " ",
            "''",
            "a'b'c",
            "-n",
            "--",
            "~",
            "~root",
            "*",
            "?",
            "[a-z]",
            "{a,b}",
            "$HOME",
            "${x}",
            "$(id)",
            "`id`",
            "a=b",
            "\\",
            "\\n",
            "\n",
            "\r\n",
            "\t",
            "!",
            "!!",
            "#",
            "# x",
            "&",
            "&&",
            "|",
            ";",
            "<",
            ">",
            "(",
            ")",
            "\"",
            "if",
            "漢字",
            "é",
            "👩‍👩‍👧",
            "\u{1b}[0m",
            "\u{7f}",
            "x\ny z",
            "'",
            "'''",
            "\\'",
        ];
        assert_eq!(parsed_by_shell(&words), joined(&words));
        for word in words {
            assert_eq!(parsed_by_shell(&[word]), joined(&[word]), "{word:?}");
        }
    }

    #[test]
    fn the_first_word_is_a_program_whatever_it_looks_like() {
        for word in ["a=b", "if", "for", "{", "nonexistent program", "#"] {
            let status = Command::new("/bin/sh")
                .args(["-c", &quote([word])])
                .stderr(std::process::Stdio::null())
                .status();
            assert_eq!(status.unwrap().code(), Some(127), "{word}");
        }
    }
}
