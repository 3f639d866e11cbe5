//! Whether changes are kept: as was said, or as somebody says now.

use std::io::{IsTerminal as _, Write as _};

use tokio::sync::mpsc;
use workspace_state::Tree;

use super::super::diff::print_patch;
use super::{Ran, Trial};
use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::signals::Signals;
use crate::text::print_stderr;

/// What becomes of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Keep,
    Drop,
}

/// An answer to the question.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Decided(Decision),
    Show,
}

impl Trial<'_> {
    pub(super) async fn decide(&self, ran: &mut Ran, signals: &mut Signals) -> Result<Decision> {
        let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if ran.changes.entries.is_empty() {
            return Ok(Decision::Drop);
        }
        if self.args.drop {
            self.tell_dropped();
            return Ok(Decision::Drop);
        }
        if self.args.keep {
            return Ok(Decision::Keep);
        }
        if self.context.output.json() || !asks {
            if !self.context.output.json() {
                print_stderr("nothing of this was kept; `--keep` keeps it");
            }
            return Ok(Decision::Drop);
        }
        // What was typed for the program is no answer.
        while ran.keys.try_recv().is_ok() {}
        loop {
            let question = format!("keep these changes in {}? [y/N/d(iff)] ", self.directory.display());
            // A stderr that cannot be written leaves nobody to ask.
            let _ = write!(std::io::stderr(), "{}", crate::text::shown_text(&question));
            let line = tokio::select! {
                line = line(&mut ran.keys) => line,
                signal = signals.next() => return Err(CommandError::asked(signal)),
            };
            match answer(&line) {
                Answer::Decided(decision) => {
                    if decision == Decision::Drop {
                        self.tell_dropped();
                    }
                    return Ok(decision);
                }
                Answer::Show => self.show_patch(ran)?,
            }
        }
    }

    fn tell_dropped(&self) {
        if !self.context.output.json() {
            print_stderr(&format!("nothing of this was kept: {} is as it was", self.directory.display()));
        }
    }

    fn show_patch(&self, ran: &Ran) -> Result<()> {
        let from = Tree::of_snapshot(&self.store, &ran.before)?;
        let to = Tree::of_snapshot(&self.store, &ran.after)?;
        let mut output = Output::to_stderr();
        print_patch(&mut output, &from, &to).and_then(|()| output.finish())
    }
}

/// What somebody types until the end of the line; nothing if he is gone.
async fn line(keys: &mut mpsc::Receiver<Vec<u8>>) -> String {
    let mut line = Vec::new();
    while let Some(more) = keys.recv().await {
        line.extend(more);
        if line.contains(&b'\n') {
            break;
        }
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// Only a clear yes keeps anything.
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
}
