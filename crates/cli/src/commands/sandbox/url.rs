//! `workspace sandbox url`

use workspace_api::previews::{CreatePreview, Preview};

use super::super::table;
use crate::args::SandboxUrl;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{find_sandbox, with_client};
use crate::text;

/// Creates a preview of a port, and prints its URL.
pub(super) fn run(context: &mut Context, args: &SandboxUrl) -> Result<Outcome> {
    let body = CreatePreview {
        expires_in_seconds: args.expires.map(|lifetime| lifetime.as_secs()),
        host_header: args.host_header.into(),
    };
    let preview = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        client.post::<Preview>(&format!("/api/v1/sandboxes/{id}/ports/{}", args.port), &body).await
    })?;
    if context.output.is_json() {
        context.output.record(&preview)?;
    } else {
        context.output.line(if args.path { &preview.path_url } else { &preview.url })?;
        text::print_stderr(&format!("note: it expires {}", table::time(&preview.expires_at)));
    }
    Ok(Outcome::Done)
}
