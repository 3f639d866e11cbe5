//! `workspace refs`

use std::fmt;

use serde::Serialize;
use workspace_state::SnapshotId;

use crate::context::Context;
use crate::error::{Outcome, Result};

/// A reference and the snapshot that it points to.
#[derive(Serialize)]
pub(super) struct Reference<'a> {
    pub(super) name: &'a str,
    pub(super) snapshot: SnapshotId,
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.snapshot, self.name)
    }
}

pub(crate) fn run(context: &mut Context) -> Result<Outcome> {
    list(context, |_| true)
}

/// Lists the references that a filter accepts.
pub(super) fn list(context: &mut Context, is_listed: impl Fn(&str) -> bool) -> Result<Outcome> {
    for (name, snapshot) in context.store()?.references()? {
        if !is_listed(&name) {
            continue;
        }
        let reference = Reference { name: &name, snapshot };
        if context.output.is_json() {
            context.output.record(&reference)?;
        } else {
            context.output.line(reference)?;
        }
    }
    Ok(Outcome::Done)
}
