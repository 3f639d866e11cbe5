//! `workspace status`

use serde_json::{Value, json};

use super::table;
use crate::args::Status;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, Place, block_on};

/// How it is said that a server cannot do its work.
const NOT_READY: u8 = 1;

pub(crate) fn run(context: &mut Context, args: &Status) -> Result<Outcome> {
    let client = Client::new(Place::new(&args.server)?);
    let (health, ready) = block_on(async {
        let look = async |path| client.look(path).await.map_err(|failure| client.explain(failure));
        Ok((look("/health").await?.1, look("/ready").await?.1))
    })?;
    let Some(works) = ready["ready"].as_bool() else {
        return Err(CommandError::failed(format!(
            "what answers at {} is no workspace server",
            client.place.url
        ))
        .hint("check --server or WORKSPACE_SERVER"));
    };
    let checks = ready["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    if context.output.json() {
        let version = &health["version"];
        context.output.record(
            &json!({ "url": client.place.url, "version": version, "ready": works, "checks": checks }),
        )?;
    } else {
        print(context, &client.place.url, &health, works, checks)?;
    }
    Ok(if works { Outcome::Done } else { Outcome::Exit(NOT_READY) })
}

fn print(context: &mut Context, url: &str, health: &Value, works: bool, checks: &[Value]) -> Result<()> {
    let fields = [
        ("server", url.to_owned()),
        ("version", table::text(health, "version")),
        ("ready", if works { "yes" } else { "no" }.to_owned()),
    ];
    table::fields(&mut context.output, &fields)?;
    for check in checks {
        let said = table::text(check, "message");
        let said = if check["ok"] == true { said } else { format!("FAILED: {said}") };
        table::fields(&mut context.output, &[(&table::text(check, "name"), said)])?;
    }
    Ok(())
}
