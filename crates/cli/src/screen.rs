//! The terminal that this program runs in.

use std::io::IsTerminal as _;

use rustix::termios::{self, OptionalActions, Termios};

use crate::error::{CommandError, Result};

/// Size of a terminal that does not report one.
const USUAL: (u16, u16) = (80, 24);

/// Columns and rows.
pub(crate) fn size() -> (u16, u16) {
    match termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.min(1_000), size.ws_row.min(1_000)),
        _ => USUAL,
    }
}

/// The terminal without a mind of its own: every key comes as it is pressed. As it was again when this is dropped, also
/// when the stack unwinds.
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    pub(crate) fn enter() -> Result<Self> {
        let no_terminal = || {
            CommandError::usage("this needs a terminal for input and output")
                .hint("`workspace exec -i ID -- COMMAND` works without one")
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

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone has no state to restore.
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
