//! `workspace status`

use serde::Serialize;
use workspace_api::system::{Health, ReadinessCheck, ReadinessReport};

use super::table;
use crate::args::Status;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, ServerUrl, block_on};

/// Exit status for a server that is not ready.
const EXIT_NOT_READY: u8 = 1;

pub(crate) fn run(context: &mut Context, args: &Status) -> Result<Outcome> {
    let client = Client::new(ServerUrl::new(&args.server)?);
    let responses = block_on(async {
        let health: Option<Health> = client.probe("/health").await.map_err(|error| client.explain(error))?;
        let ready: Option<ReadinessReport> =
            client.probe("/ready").await.map_err(|error| client.explain(error))?;
        Ok(health.zip(ready))
    })?;
    let Some((health, ready)) = responses else {
        return Err(CommandError::failed(format!(
            "the program at {} is not a workspace server",
            client.server.url
        ))
        .hint("check --server or WORKSPACE_SERVER"));
    };
    let is_ready = ready.ready;
    let fields =
        Fields { url: &client.server.url, version: &health.version, ready: is_ready, checks: &ready.checks };
    if context.output.is_json() {
        context.output.record(&fields)?;
    } else {
        print(context, &fields)?;
    }
    Ok(if is_ready { Outcome::Done } else { Outcome::Exit(EXIT_NOT_READY) })
}

#[derive(Serialize)]
struct Fields<'a> {
    url: &'a str,
    version: &'a str,
    ready: bool,
    checks: &'a [ReadinessCheck],
}

fn print(context: &mut Context, fields: &Fields<'_>) -> Result<()> {
    let lines = [
        ("server", fields.url.to_owned()),
        ("version", fields.version.to_owned()),
        ("ready", if fields.ready { "yes" } else { "no" }.to_owned()),
    ];
    table::print_fields(&mut context.output, &lines)?;
    for check in fields.checks {
        let message = if check.ok { check.message.clone() } else { format!("FAILED: {}", check.message) };
        table::print_fields(&mut context.output, &[(&check.name, message)])?;
    }
    Ok(())
}
