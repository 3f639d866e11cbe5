//! `workspace export`

use workspace_state::{Tree, export_tar};

use crate::args::Export;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::names;
use crate::output::Output;

pub(crate) fn run(context: &mut Context, args: &Export) -> Result<Outcome> {
    if context.output.is_json() {
        return Err(CommandError::usage("an archive is not JSON")
            .hint("omit `--json`, or list the files with `workspace --json ls -R`"));
    }
    if Output::stdout_is_terminal() {
        return Err(CommandError::usage("an archive cannot be printed on a terminal")
            .hint(format!("write it to a file: `workspace export {} > x.tar`", args.snapshot)));
    }
    let store = context.store()?;
    let snapshot = names::snapshot(&store, &args.snapshot)?;
    let tree = Tree::of_snapshot(&store, &snapshot)?;
    export_tar(&tree, context.output.writer(), &context.progress)?;
    Ok(Outcome::Done)
}
