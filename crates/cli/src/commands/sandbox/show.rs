//! Output of a command whose result is one record.

use serde::Serialize;

use crate::context::Context;
use crate::error::{Outcome, Result};

/// Prints a record as JSON, or as the lines that `lines` returns.
pub(super) fn show<T: Serialize>(
    context: &mut Context,
    record: &T,
    lines: impl Fn(&T) -> Vec<String>,
) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(record)?;
    } else {
        lines(record).iter().try_for_each(|line| context.output.line(crate::text::escape_controls(line)))?;
    }
    Ok(Outcome::Done)
}
