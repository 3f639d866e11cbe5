//! `workspace run` where there is no server: the program runs in a sandbox of this process.

use workspace_sandbox::NewSandbox;

use crate::args::{Run, Trace};
use crate::commands::exec::{report_exit, to_map};
use crate::commands::trial::network;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::local::{self, CommandOptions, LocalService};
use crate::remote::shell_exec_line;
use crate::session::{Attachment, CommandExit, Destination, OnClosedStdout, OnSignal};
use crate::signals::Signals;
use crate::stdin::spawn_stdin_reader;
use crate::text;

/// Hint for starting a server.
const START_SERVER: &str = "start a server with `make up` or `workspace-server`, or specify one with `--server URL` or \
                            WORKSPACE_SERVER";

/// Runs the program in a sandbox that is removed afterwards. `url` is the address at which there is no server.
pub(super) fn run(context: &mut Context, args: &Run, url: &str) -> Result<Outcome> {
    if let Some(option) = server_option(args) {
        let message = format!("{option} needs a server, and there is none at {url}");
        return Err(CommandError::failed(message).hint(START_SERVER));
    }
    if !cfg!(target_os = "linux") {
        let message = format!("there is no server at {url}, and a sandbox without one needs Linux");
        return Err(CommandError::failed(message).hint(START_SERVER));
    }
    let new = NewSandbox {
        template: args.options.template.clone(),
        envs: to_map(&args.options.envs),
        network: network(args.options.network, &args.options.allowed)?,
        ..NewSandbox::default()
    };
    text::print_stderr(&format!(
        "note: no server at {url}: running in a temporary local sandbox; `workspace-server` starts a server"
    ));
    let exit = local::block_on(run_in_local_service(context, args, new))
        .map_err(|error| error.hint(START_SERVER))?;
    Ok(report_exit(&exit))
}

/// Returns an option whose effect other commands see later, or that only a server enforces.
fn server_option(args: &Run) -> Option<&'static str> {
    let options = &args.options;
    let used = [
        ("--keep", args.keep),
        ("--tag", args.tag.is_some()),
        ("--name", options.name.is_some()),
        ("--label", !options.labels.is_empty()),
        ("--project", options.project.is_some()),
        ("--agent", options.agent.is_some()),
        ("--trace", matches!(options.trace, Trace::Command)),
        ("--follow", options.follow.is_some()),
        ("--cpu", options.cpu.is_some()),
        ("--memory", options.memory.is_some()),
        ("--disk", options.disk.is_some()),
    ];
    used.into_iter().find(|(_, is_used)| *is_used).map(|(option, _)| option)
}

async fn run_in_local_service(context: &mut Context, args: &Run, new: NewSandbox) -> Result<CommandExit> {
    // From here on a signal removes the sandbox.
    let mut signals = Signals::new()?;
    let local_service = LocalService::start_empty().await?;
    let exit = run_in_sandbox(context, args, &local_service, new, &mut signals).await;
    let removed = local_service.shut_down().await;
    let exit = exit?;
    removed?;
    Ok(exit)
}

async fn run_in_sandbox(
    context: &mut Context,
    args: &Run,
    local_service: &LocalService,
    new: NewSandbox,
    signals: &mut Signals,
) -> Result<CommandExit> {
    let sandbox = local_service.create(new, signals).await?;
    let options = CommandOptions {
        command_line: shell_exec_line(&args.words),
        timeout: args.timeout,
        ..CommandOptions::default()
    };
    let mut stdin = (args.interactive || args.terminal).then(spawn_stdin_reader);
    if args.terminal
        && let Some(stdin) = &mut stdin
    {
        return local::run_in_terminal(local_service.service(), &sandbox, options, stdin, signals).await;
    }
    let attachment = Attachment {
        stdin: stdin.as_mut(),
        destination: Destination::Streams(&mut context.output, OnClosedStdout::Stop),
        signals,
        on_signal: OnSignal::Return,
        timeout: None,
    };
    local::run(local_service.service(), &sandbox, options, attachment).await
}
