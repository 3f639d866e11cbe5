//! The terminal that this program runs in.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use rustix::termios::{self, OptionalActions, Termios};

use crate::error::{CommandError, Result};

/// Columns and rows of a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// Returns the columns and rows of the terminal on stdout, at most 1000 each, or a default if it does not report them.
pub(crate) fn size() -> (u16, u16) {
    match termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.min(1_000), size.ws_row.min(1_000)),
        _ => DEFAULT_SIZE,
    }
}

/// Sets the variable TERM to the type of this terminal, unless it is set.
pub(crate) fn set_term(envs: &mut BTreeMap<String, String>) {
    if let Ok(term) = std::env::var("TERM") {
        envs.entry("TERM".to_owned()).or_insert(term);
    }
}

/// Raw mode of the terminal: every byte of input arrives unchanged and immediately. Dropping it restores the former
/// mode, also when the stack unwinds.
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    pub(crate) fn enter() -> Result<Self> {
        let no_terminal = || {
            CommandError::usage("this needs a terminal for input and output")
                .hint("`workspace exec -i SANDBOX -- COMMAND` works without one")
        };
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            return Err(no_terminal());
        }
        let before = termios::tcgetattr(std::io::stdin()).map_err(|_| no_terminal())?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).map_err(|_| no_terminal())?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A closed terminal has no state to restore.
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
