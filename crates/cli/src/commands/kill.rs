//! `workspace kill`

use hyper::Method;
use workspace_api::processes::KillCommand;

use crate::args::Kill;
use crate::error::{Outcome, Result};
use crate::remote::{check_id, find_sandbox, with_client};

pub(crate) fn run(args: &Kill) -> Result<Outcome> {
    let command = check_id("command", &args.command)?;
    let body = KillCommand { signal: Some(args.signal) };
    with_client(&args.server, async |client| {
        let sandbox = find_sandbox(client, &args.sandbox).await?;
        let path = format!("/api/v1/sandboxes/{sandbox}/process/{command}/kill");
        let sent = client.request_with_timeout(Method::POST, &path, Some(&body)).await;
        sent.map_err(|failure| client.explain(failure))
    })?;
    Ok(Outcome::Done)
}
