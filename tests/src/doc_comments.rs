//! Wording of doc comments.
//!
//! A doc comment starts with a noun or a verb, not with a question word: "Size in bytes", not "How large it
//! is". The check is statistical, because a few such sentences are fine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Words that should not start a doc comment.
const QUESTION_WORDS: [&str; 9] =
    ["What", "Who", "Whoever", "Whether", "How", "Where", "Whose", "Which", "Whatever"];

/// Largest share of doc comments of a crate that may start with a question word, in percent.
pub const LIMIT: usize = 5;

/// Doc comments of a crate.
#[derive(Debug, Default)]
pub struct DocComments {
    /// Number of doc comments: blocks of adjacent `///` or `//!` lines.
    pub total: usize,
    /// Doc comments that start with a question word.
    pub questions: Vec<Question>,
}

/// Doc comment that starts with a question word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {text}", path.display())]
pub struct Question {
    path: PathBuf,
    line: usize,
    text: String,
}

impl DocComments {
    /// Reads all Rust files below a directory, except those in `target`.
    pub fn of_directory(directory: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        found.add_directory(directory)?;
        Ok(found)
    }

    /// Returns whether the share of questions is above a limit in percent.
    pub fn exceeds(&self, limit: usize) -> bool {
        self.questions.len() * 100 > self.total * limit
    }

    fn add_directory(&mut self, directory: &Path) -> io::Result<()> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        paths.sort();
        for path in paths {
            if path.is_dir() && !path.ends_with("target") {
                self.add_directory(&path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                self.add_file(&path, &fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, text: &str) {
        let mut is_inside = false;
        for (number, line) in text.lines().enumerate() {
            let comment = doc_text(line);
            if let Some(text) = comment.filter(|_| !is_inside) {
                self.total += 1;
                if starts_with_question(text) {
                    let (path, text) = (path.to_owned(), text.to_owned());
                    self.questions.push(Question { path, line: number + 1, text });
                }
            }
            is_inside = comment.is_some();
        }
    }
}

/// Returns the text of a doc comment line; `None` for any other line.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

fn starts_with_question(text: &str) -> bool {
    let first = text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    QUESTION_WORDS.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> DocComments {
        let mut found = DocComments::default();
        found.add_file(Path::new("a.rs"), text);
        found
    }

    #[test]
    fn only_the_first_line_of_a_block_counts() {
        let found = of(
            "//! How it works.\n//! What else.\n\n/// Size in bytes.\n/// Who knows.\nlet a;\n    /// Whose it is.\n",
        );
        assert_eq!(found.total, 3);
        let questions: Vec<_> = found.questions.iter().map(ToString::to_string).collect();
        assert_eq!(questions, ["a.rs:1: How it works.", "a.rs:7: Whose it is."]);
    }

    #[test]
    fn ordinary_comments_and_longer_words_do_not_count() {
        let found =
            of("// What is this?\nlet a = 1; // Who knows\n/// However, fine.\n/// Which are fine too.\n");
        assert_eq!((found.total, found.questions.len()), (1, 0));
    }

    #[test]
    fn share_is_compared_with_the_limit() {
        let mut text = "/// What it is.\nlet a;\n".to_owned();
        text.push_str(&"/// Noun.\nlet a;\n".repeat(19));
        assert!(!of(&text).exceeds(5) && of(&text).exceeds(4));
        assert!(!of("").exceeds(0));
    }
}
