//! `workspace refs`

use serde::Serialize;
use workspace_state::SnapshotId;

use crate::context::Context;
use crate::error::{Outcome, Result};

#[derive(Serialize)]
struct Reference<'a> {
    name: &'a str,
    snapshot: SnapshotId,
}

pub(crate) fn run(context: &mut Context) -> Result<Outcome> {
    for (name, snapshot) in context.store()?.references()? {
        if context.output.json() {
            context.output.record(&Reference { name: &name, snapshot })?;
        } else {
            context.output.line(format_args!("{snapshot}  {name}"))?;
        }
    }
    Ok(Outcome::Done)
}
