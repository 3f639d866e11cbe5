//! `workspace token`

use workspace_api::access::{CreateToken, SandboxToken};

use super::table;
use crate::args::TokenCommand;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{find_sandbox, with_client};
use crate::text;

pub(crate) fn run(context: &mut Context, command: &TokenCommand) -> Result<Outcome> {
    let TokenCommand::Create(args) = command;
    let body = CreateToken {
        rights: args.rights.iter().map(|right| (*right).into()).collect(),
        expires_in_seconds: args.expires.map(|lifetime| lifetime.as_secs()),
    };
    let created = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        client.post::<SandboxToken>(&format!("/api/v1/sandboxes/{id}/token"), &body).await
    })?;
    if context.output.is_json() {
        context.output.record(&created)?;
    } else {
        context.output.line(&created.token)?;
        text::print_stderr(&format!("note: it expires {}", table::time(&created.expires_at)));
    }
    Ok(Outcome::Done)
}
