//! `workspace terminal`

use hyper::Method;
use serde::Serialize;
use workspace_api::terminals::{CreateTicket, OpenTerminal, Terminal, TerminalTicket as Ticket};

use super::{exec, table};
use crate::args::{TerminalCommand, TerminalCreate, TerminalTicket};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{check_id, find_sandbox, with_client};
use crate::text;

/// A ticket, as `--json` prints it.
#[derive(Serialize)]
struct TicketFields<'a> {
    #[serde(flatten)]
    ticket: &'a Ticket,
    /// URL of the WebSocket, with the ticket.
    url: &'a str,
}

pub(crate) fn run(context: &mut Context, command: &TerminalCommand) -> Result<Outcome> {
    match command {
        TerminalCommand::Create(args) => create(context, args)?,
        TerminalCommand::Ticket(args) => create_ticket(context, args)?,
        TerminalCommand::Rm { sandbox, terminal, server } => {
            let terminal = check_id("terminal", terminal)?;
            with_client(server, async |client| {
                let id = find_sandbox(client, sandbox).await?;
                let path = format!("/api/v1/sandboxes/{id}/pty/{terminal}");
                let closed = client.request_with_timeout(Method::DELETE, &path, None).await;
                closed.map_err(|failure| client.explain(failure))
            })?;
        }
    }
    Ok(Outcome::Done)
}

fn create(context: &mut Context, args: &TerminalCreate) -> Result<()> {
    let body = OpenTerminal {
        cols: args.cols,
        rows: args.rows,
        shell: args.shell.clone(),
        command: None,
        cwd: args.cwd.clone(),
        envs: exec::to_map(&args.envs),
        user: args.user.clone(),
    };
    let terminal = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        client.post::<Terminal>(&format!("/api/v1/sandboxes/{id}/pty"), &body).await
    })?;
    if context.output.is_json() {
        context.output.record(&terminal)
    } else {
        context.output.line(&terminal.id)
    }
}

fn create_ticket(context: &mut Context, args: &TerminalTicket) -> Result<()> {
    let terminal = check_id("terminal", &args.terminal)?;
    let body = CreateTicket { read_only: args.read_only };
    let (ticket, url) = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        let path = format!("/api/v1/sandboxes/{id}/pty/{terminal}");
        let ticket: Ticket = client.post(&format!("{path}/ticket"), &body).await?;
        let url = client.server.websocket_url(&format!("{path}/ws?ticket={}", ticket.ticket));
        Ok((ticket, url))
    })?;
    if context.output.is_json() {
        return context.output.record(&TicketFields { ticket: &ticket, url: &url });
    }
    context.output.line(&url)?;
    text::print_stderr(&format!("note: it expires {}", table::time(&ticket.expires_at)));
    Ok(())
}
