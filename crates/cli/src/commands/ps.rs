//! `workspace ps`

use hyper::Method;
use serde_json::Value;

use super::table;
use crate::args::Ps;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, Place, block_on, find, list};
use crate::text;

/// As many as the server tells of.
const COMMANDS: u32 = 1_000;

pub(crate) fn run(context: &mut Context, args: &Ps) -> Result<Outcome> {
    let client = Client::new(Place::new(&args.server)?);
    block_on(async {
        match &args.sandbox {
            Some(sandbox) => commands(context, &client, sandbox, args.quiet).await,
            None => sandboxes(context, &list(&client, "").await?, args.quiet),
        }
    })
}

/// Lists sandboxes.
pub(super) fn sandboxes(context: &mut Context, sandboxes: &[Value], quiet: bool) -> Result<Outcome> {
    if context.output.json() {
        sandboxes.iter().try_for_each(|sandbox| context.output.record(sandbox))?;
    } else if quiet {
        sandboxes.iter().try_for_each(|sandbox| context.output.line(table::text(sandbox, "id")))?;
    } else {
        let row = |sandbox: &Value| {
            let mut row =
                ["id", "name", "state", "template"].map(|field| table::text(sandbox, field)).to_vec();
            row.push(table::time(sandbox, "expiresAt"));
            row
        };
        let rows: Vec<_> = sandboxes.iter().map(row).collect();
        table::print(&mut context.output, &["ID", "NAME", "STATE", "TEMPLATE", "EXPIRES"], &rows)?;
    }
    Ok(Outcome::Done)
}

async fn commands(context: &mut Context, client: &Client, sandbox: &str, quiet: bool) -> Result<Outcome> {
    let sandbox = find(client, sandbox).await?;
    let path = format!("/api/v1/sandboxes/{sandbox}/process?limit={COMMANDS}");
    let answer = client.call(Method::GET, &path, None).await?;
    let commands = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if context.output.json() {
        commands.iter().try_for_each(|command| context.output.record(command))?;
    } else if quiet {
        commands.iter().try_for_each(|command| context.output.line(table::text(command, "commandId")))?;
    } else {
        let rows: Vec<_> = commands.iter().map(row).collect();
        table::print(&mut context.output, &["ID", "STATE", "EXIT", "STARTED", "COMMAND"], &rows)?;
    }
    Ok(Outcome::Done)
}

fn row(command: &Value) -> Vec<String> {
    vec![
        table::text(command, "commandId"),
        table::text(command, "state"),
        table::text(command, "exitCode"),
        table::time(command, "startedAt"),
        text::first_line(&table::text(command, "command")).into_owned(),
    ]
}
