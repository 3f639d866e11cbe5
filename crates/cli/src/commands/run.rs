//! `workspace run`

mod without_server;

use std::time::Duration;

use workspace_api::sandboxes::{CreateSandbox, DeleteSandboxResult, Resources, Sandbox};

use crate::args::{Run, SandboxOptions};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, CommandOptions, PROBE_TIMEOUT, ServerUrl, block_on, shell_exec_line, terminal};
use crate::session::OnSignal;
use crate::signals::Signals;
use crate::text;

/// Time that a sandbox outlives its command, so that the command's timeout expires first.
const LIFETIME_MARGIN: Duration = Duration::from_secs(60);
/// Default lifetime of sandboxes on a server.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(3_600);

pub(crate) fn run(context: &mut Context, args: &Run) -> Result<Outcome> {
    super::exec::reject_json(context, "the output of a program")?;
    run_on_server_or_locally(context, args).map_err(CommandError::with_own_failure_status)
}

/// Runs the program in a sandbox on the server; in a local sandbox if no server was configured and none is at the
/// default address.
fn run_on_server_or_locally(context: &mut Context, args: &Run) -> Result<Outcome> {
    let client = Client::new(ServerUrl::new(&args.server)?);
    let on_server = block_on(async {
        if client.server.is_configured || client.is_workspace_server(PROBE_TIMEOUT).await {
            return run_in_sandbox(context, &client, args).await.map(Some);
        }
        Ok(None)
    });
    match on_server? {
        Some(outcome) => Ok(outcome),
        None => without_server::run(context, args, &client.server.url),
    }
}

/// Creates a sandbox on the server, runs the program in it, and removes it, unless `--keep` was given.
async fn run_in_sandbox(context: &mut Context, client: &Client, args: &Run) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    // The default of the server may be shorter than the timeout. A sandbox that is kept lives at least as long as
    // others.
    let lifetime = args.timeout.map(|timeout| timeout + LIFETIME_MARGIN);
    let lifetime = lifetime.filter(|lifetime| !args.keep || *lifetime > DEFAULT_LIFETIME);
    let request = create_request(&args.options, lifetime);
    let creation = create(client, &request);
    tokio::pin!(creation);
    let (sandbox, interrupted) = tokio::select! {
        created = &mut creation => (created?, None),
        // Until the server responds it is unknown whether the sandbox was created.
        signal = signals.next() => (creation.await?, Some(signal)),
    };
    let id = sandbox.id.as_str();
    let outcome = match interrupted {
        Some(signal) => Err(CommandError::interrupted(signal)),
        None => run_command(context, client, id, args, &mut signals).await,
    };
    if args.keep {
        text::print_stderr(&format!(
            "note: sandbox {id} keeps running; `workspace sandbox rm {id}` removes it"
        ));
        return outcome;
    }
    let removed = client.delete::<Option<DeleteSandboxResult>>(&format!("/api/v1/sandboxes/{id}")).await;
    let hint = || format!("the sandbox still exists; `workspace sandbox rm {id}` removes it");
    match removed {
        Ok(_) => outcome,
        Err(error) => Err(outcome.err().unwrap_or(error).hint(hint())),
    }
}

async fn run_command(
    context: &mut Context,
    client: &Client,
    sandbox: &str,
    args: &Run,
    signals: &mut Signals,
) -> Result<Outcome> {
    let command_line = shell_exec_line(&args.words);
    let exit = if args.terminal {
        let command_line = Some(command_line);
        let options = terminal::TerminalOptions { command_line, ..terminal::TerminalOptions::default() };
        terminal::run(client, sandbox, options).await?
    } else {
        let options = CommandOptions {
            command_line,
            tag: args.tag.clone(),
            timeout: super::exec::milliseconds(args.timeout),
            stdin: args.interactive,
            ..CommandOptions::default()
        };
        super::exec::run_attached(context, client, sandbox, options, (signals, OnSignal::Return)).await?
    };
    Ok(super::exec::report_exit(&exit))
}

/// Returns the request for a sandbox with these options.
pub(super) fn create_request(options: &SandboxOptions, lifetime: Option<Duration>) -> CreateSandbox {
    CreateSandbox {
        template: options.template.clone(),
        name: options.name.clone(),
        unique_name: options.name.is_some() && !options.allow_duplicate_name,
        envs: super::exec::to_map(&options.envs),
        timeout_seconds: lifetime.map(|lifetime| lifetime.as_secs()),
        resources: Resources {
            cpu: options.cpu.clone(),
            memory: options.memory.clone(),
            disk: options.disk.clone(),
            processes: None,
        },
        network: options.network.into(),
        egress_allow: (!options.allowed.is_empty()).then(|| options.allowed.clone()),
        labels: super::exec::to_map(&options.labels),
        project: options.project.clone(),
        agent: options.agent.clone(),
        trace: options.trace.into(),
        follow: options.follow.map(Into::into),
        base_snapshot: options.at.as_deref().map(Into::into),
        on_end: options.on_end.map(Into::into),
        ..CreateSandbox::default()
    }
}

/// Creates a sandbox and warns of limits that could not be applied.
pub(super) async fn create(client: &Client, request: &CreateSandbox) -> Result<Sandbox> {
    let sandbox: Sandbox = client.post("/api/v1/sandboxes", request).await?;
    for limit in &sandbox.not_applied {
        text::print_stderr(&format!("warning: {limit}"));
    }
    Ok(sandbox)
}
