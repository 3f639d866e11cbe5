//! `workspace completions`

use clap::CommandFactory;

use crate::args::{Args, Completions};
use crate::context::Context;
use crate::error::{Outcome, Result};

pub(crate) fn run(context: &mut Context, args: &Completions) -> Result<Outcome> {
    // The generator cannot report a failed write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "workspace", &mut script);
    context.output.bytes(&script)?;
    Ok(Outcome::Done)
}
