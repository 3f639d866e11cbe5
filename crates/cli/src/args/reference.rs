//! The names of references that a command makes or moves.

use workspace_state::check_reference_name;

/// A name that a reference may have. Names that are only looked up are not checked: no reference has a bad one.
pub(super) fn name(text: &str) -> Result<String, String> {
    match check_reference_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; for instance `main`, `release-1.2` or `runs/42`")),
    }
}
