//! Decision whether to keep changes: by an option, or by asking the user.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use tokio::sync::mpsc;
use workspace_state::{Tree, diff, unified_diff};

use crate::args::Try;
use crate::error::{CommandError, Result};
use crate::signals::Signals;
use crate::text::{escape_controls, print_stderr};

/// Number of context lines in a patch.
const CONTEXT_LINES: usize = 3;

/// Decision about changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Keep,
    Drop,
}

/// An answer to the question.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Decided(Decision),
    /// Show the patch, then ask again.
    Show,
}

/// Question whether to keep changes, and the options that answer it.
pub(super) struct Question<'a> {
    pub(super) args: &'a Try,
    /// True for `--json`: nothing is asked, and stderr has no messages for the user.
    pub(super) json: bool,
    pub(super) directory: &'a Path,
    /// True if there are changes. Otherwise nothing is asked.
    pub(super) changed: bool,
}

impl Question<'_> {
    /// Decides by the options, or by the answers of the user. Without a terminal, changes are dropped.
    pub(super) async fn decide(
        &self,
        stdin: &mut mpsc::Receiver<Vec<u8>>,
        signals: &mut Signals,
        show_patch: &dyn Fn() -> Result<()>,
    ) -> Result<Decision> {
        let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if !self.changed {
            return Ok(Decision::Drop);
        }
        if self.args.drop {
            self.print_dropped();
            return Ok(Decision::Drop);
        }
        if self.args.keep {
            return Ok(Decision::Keep);
        }
        if self.json || !can_ask {
            if !self.json {
                print_stderr("nothing of this was kept; `--keep` keeps it");
            }
            return Ok(Decision::Drop);
        }
        // Input that the program did not read is no answer.
        while stdin.try_recv().is_ok() {}
        loop {
            let question = format!("keep these changes in {}? [y/N/d(iff)] ", self.directory.display());
            // A failure to write to stderr cannot be reported.
            let _ = write!(std::io::stderr(), "{}", escape_controls(&question));
            let line = tokio::select! {
                line = read_line(stdin) => line,
                signal = signals.next() => return Err(CommandError::interrupted(signal)),
            };
            match answer(&line) {
                Answer::Decided(decision) => {
                    if decision == Decision::Drop {
                        self.print_dropped();
                    }
                    return Ok(decision);
                }
                Answer::Show => {
                    if let Err(error) = show_patch() {
                        print_stderr(&format!("error: {}", error.message));
                    }
                }
            }
        }
    }

    fn print_dropped(&self) {
        if !self.json {
            print_stderr(&format!("nothing of this was kept: {} is as it was", self.directory.display()));
        }
    }
}

/// Prints a patch on stderr, with control characters escaped on a terminal.
pub(super) fn print_patch_safely(from: &Tree, to: &Tree) -> Result<()> {
    let is_terminal = std::io::stderr().is_terminal();
    for difference in diff(from, to)? {
        let patch = unified_diff(from, to, &difference, CONTEXT_LINES)?.to_bytes();
        let written = if is_terminal {
            std::io::stderr().write_all(escape_patch(&String::from_utf8_lossy(&patch)).as_bytes())
        } else {
            std::io::stderr().write_all(&patch)
        };
        written.map_err(|error| CommandError::output_failed(&error))?;
    }
    Ok(())
}

/// Escapes control characters other than tabs and line ends.
fn escape_patch(text: &str) -> String {
    text.split('\t').map(escape_controls).collect::<Vec<_>>().join("\t")
}

/// Reads a line of input, with all input that arrived together with it. Returns an empty string at the end of stdin.
async fn read_line(stdin: &mut mpsc::Receiver<Vec<u8>>) -> String {
    let mut line = Vec::new();
    while let Some(more) = stdin.recv().await {
        line.extend(more);
        if line.contains(&b'\n') {
            break;
        }
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// Parses an answer. Only `y` and `yes` keep the changes.
fn answer(line: &str) -> Answer {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Answer::Decided(Decision::Keep),
        "d" | "diff" => Answer::Show,
        _ => Answer::Decided(Decision::Drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_keeps() {
        for line in ["y\n", " Yes \r\n"] {
            assert_eq!(answer(line), Answer::Decided(Decision::Keep), "{line:?}");
        }
        for line in ["", "\n", "n\n", "yep\n", "y y\n"] {
            assert_eq!(answer(line), Answer::Decided(Decision::Drop), "{line:?}");
        }
        assert_eq!(answer("d\n"), Answer::Show);
    }

    #[test]
    fn control_characters_in_patches_are_escaped() {
        let shown = escape_patch("+\tfn\u{1b}[2J\r\n");
        assert!(shown.starts_with("+\tfn") && shown.ends_with('\n'), "{shown:?}");
        assert!(!shown.contains('\u{1b}') && !shown.contains('\r'), "{shown:?}");
    }
}
