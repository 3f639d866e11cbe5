//! `workspace status`

use serde::Serialize;
use workspace_api::error_codes;
use workspace_api::system::{Health, ReadinessCheck, ReadinessReport};

use super::table;
use crate::args::Status;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, ServerUrl, block_on};

/// Exit status for a server that is not ready. One that rejects the key is an error, with the same status.
const EXIT_NOT_READY: u8 = 1;

pub(crate) fn run(context: &mut Context, args: &Status) -> Result<Outcome> {
    let client = Client::new(ServerUrl::new(&args.server)?);
    let responses = block_on(async {
        // Parsed whatever the status, since `/ready` answers 503 if the server is not ready. `None` for JSON of another
        // program.
        let health: Option<Health> = client.probe("/health").await.map_err(|error| client.explain(error))?;
        let ready: Option<ReadinessReport> =
            client.probe("/ready").await.map_err(|error| client.explain(error))?;
        let Some(responses) = health.zip(ready) else { return Ok(None) };
        Ok(Some((responses, client.check_key().await)))
    })?;
    let Some(((health, ready), key_check)) = responses else {
        return Err(CommandError::failed(format!(
            "the program at {} is not a workspace server",
            client.server.url
        ))
        .hint(client.server.path_hint().unwrap_or_else(|| "check --server or WORKSPACE_SERVER".to_owned())));
    };
    let is_ready = ready.ready;
    let authorized = match &key_check {
        Ok(()) => Some(true),
        Err(error) if error.is(error_codes::UNAUTHORIZED) => Some(false),
        Err(_) => None,
    };
    let fields = Fields {
        url: &client.server.url,
        version: &health.version,
        ready: is_ready,
        authorized,
        checks: &ready.checks,
    };
    if context.output.is_json() {
        context.output.record(&fields)?;
    } else {
        print(context, &fields)?;
    }
    match key_check {
        Err(error) if authorized == Some(false) => {
            context.output.flush()?;
            Err(client.explain(error))
        }
        _ => Ok(if is_ready { Outcome::Done } else { Outcome::Exit(EXIT_NOT_READY) }),
    }
}

#[derive(Serialize)]
struct Fields<'a> {
    url: &'a str,
    version: &'a str,
    ready: bool,
    /// True if the server accepts the key; `None` if it could not check that.
    authorized: Option<bool>,
    checks: &'a [ReadinessCheck],
}

fn print(context: &mut Context, fields: &Fields<'_>) -> Result<()> {
    let key = match fields.authorized {
        Some(true) => "accepted",
        Some(false) => "REJECTED",
        None => "not checked",
    };
    let lines = [
        ("server", fields.url.to_owned()),
        ("version", fields.version.to_owned()),
        ("ready", if fields.ready { "yes" } else { "no" }.to_owned()),
        ("key", key.to_owned()),
    ];
    table::print_fields(&mut context.output, &lines)?;
    for check in fields.checks {
        let message = if check.ok { check.message.clone() } else { format!("FAILED: {}", check.message) };
        table::print_fields(&mut context.output, &[(&check.name, message)])?;
    }
    Ok(())
}
