//! `workspace shell`

use crate::args::ShellArgs;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, ServerUrl, block_on, find_sandbox, terminal};

pub(crate) fn run(context: &Context, args: &ShellArgs) -> Result<Outcome> {
    super::exec::reject_json(context, "a terminal")?;
    let client = Client::new(ServerUrl::new(&args.server).map_err(CommandError::with_own_failure_status)?);
    let envs = super::exec::to_map(&args.envs);
    let options = terminal::TerminalOptions {
        shell: args.shell.clone(),
        command_line: None,
        cwd: args.cwd.clone(),
        envs,
        user: args.user.clone(),
    };
    let connected = async {
        let sandbox = find_sandbox(&client, &args.sandbox).await?;
        Ok(super::exec::report_exit(&terminal::run(&client, &sandbox, options).await?))
    };
    block_on(connected).map_err(CommandError::with_own_failure_status)
}
