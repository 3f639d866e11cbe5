//! `workspace ps`

use workspace_api::processes::{Command, CommandList, Process, ProcessList};
use workspace_api::sandboxes::Sandbox;

use super::table;
use crate::args::Ps;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, NO_FILTER, ServerUrl, block_on, find_sandbox, list_sandboxes, percent_encode};
use crate::text;

/// Maximum number of commands in a response: the newest. The API has no further pages, so older ones are not listed.
const COMMANDS_MAX: u32 = 1_000;

/// Columns of the list of commands.
const COLUMNS: [&str; 7] = ["ID", "STATE", "EXIT", "PID", "STARTED", "TAG", "COMMAND"];

/// Columns of the list of processes. `LEFT` marks those whose command has exited.
const PROCESS_COLUMNS: [&str; 5] = ["PID", "PARENT", "COMMAND", "LEFT", "ARGUMENTS"];

/// Form of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListForm {
    Table,
    /// Only ids, one per line.
    Ids,
}

pub(crate) fn run(context: &mut Context, args: &Ps) -> Result<Outcome> {
    let form = if args.quiet { ListForm::Ids } else { ListForm::Table };
    let client = Client::new(ServerUrl::new(&args.server)?);
    block_on(async {
        match &args.sandbox {
            Some(sandbox) if args.processes => print_processes(context, &client, sandbox, form).await,
            Some(sandbox) => print_commands(context, &client, (sandbox, args.tag.as_deref()), form).await,
            None => print_sandboxes(context, &list_sandboxes(&client, NO_FILTER).await?, form),
        }
    })
}

/// Prints a list of sandboxes.
pub(super) fn print_sandboxes(
    context: &mut Context,
    sandboxes: &[Sandbox],
    form: ListForm,
) -> Result<Outcome> {
    if context.output.is_json() {
        sandboxes.iter().try_for_each(|sandbox| context.output.record(sandbox))?;
    } else if form == ListForm::Ids {
        sandboxes.iter().try_for_each(|sandbox| context.output.line(&sandbox.id))?;
    } else {
        let row = |sandbox: &Sandbox| {
            vec![
                sandbox.id.clone(),
                sandbox.name.clone().unwrap_or_default(),
                sandbox.state.clone(),
                sandbox.template.clone(),
                table::time(&sandbox.expires_at),
            ]
        };
        let rows: Vec<_> = sandboxes.iter().map(row).collect();
        table::print(&mut context.output, &["ID", "NAME", "STATE", "TEMPLATE", "EXPIRES"], &rows)?;
    }
    Ok(Outcome::Done)
}

async fn print_commands(
    context: &mut Context,
    client: &Client,
    (sandbox, tag): (&str, Option<&str>),
    form: ListForm,
) -> Result<Outcome> {
    let sandbox = find_sandbox(client, sandbox).await?;
    let mut path = format!("/api/v1/sandboxes/{sandbox}/process?limit={COMMANDS_MAX}");
    if let Some(tag) = tag {
        path.push_str(&format!("&tag={}", percent_encode(tag.as_bytes())));
    }
    let commands = client.get::<CommandList>(&path).await?.items;
    if context.output.is_json() {
        commands.iter().try_for_each(|command| context.output.record(command))?;
    } else if form == ListForm::Ids {
        commands.iter().try_for_each(|command| context.output.line(&command.command_id))?;
    } else {
        let rows: Vec<_> = commands.iter().map(row).collect();
        table::print(&mut context.output, &COLUMNS, &rows)?;
    }
    Ok(Outcome::Done)
}

/// Prints the processes of a sandbox.
async fn print_processes(
    context: &mut Context,
    client: &Client,
    sandbox: &str,
    form: ListForm,
) -> Result<Outcome> {
    let sandbox = find_sandbox(client, sandbox).await?;
    let list: ProcessList = client.get(&format!("/api/v1/sandboxes/{sandbox}/processes")).await?;
    if context.output.is_json() {
        list.items.iter().try_for_each(|process| context.output.record(process))?;
    } else if form == ListForm::Ids {
        list.items.iter().try_for_each(|process| context.output.line(process.pid))?;
    } else {
        let rows: Vec<_> = list.items.iter().map(process_row).collect();
        table::print(&mut context.output, &PROCESS_COLUMNS, &rows)?;
    }
    Ok(Outcome::Done)
}

fn process_row(process: &Process) -> Vec<String> {
    vec![
        process.pid.to_string(),
        process.parent.to_string(),
        process.command_id.clone(),
        if process.left { "left" } else { "" }.to_owned(),
        text::first_line(&process.arguments).into_owned(),
    ]
}

fn row(command: &Command) -> Vec<String> {
    vec![
        command.command_id.clone(),
        command.state.clone(),
        command.exit_code.map(|code| code.to_string()).unwrap_or_default(),
        command.pid.map(|pid| pid.to_string()).unwrap_or_default(),
        table::time(&command.started_at),
        command.tag.clone().unwrap_or_default(),
        text::first_line(&command.command).into_owned(),
    ]
}
