//! `workspace sandbox pause` and `workspace sandbox resume`

use workspace_api::pauses::{PauseMode, PauseSandbox, ResumeSandbox};
use workspace_api::sandboxes::Sandbox;

use super::super::table;
use super::show::show;
use crate::args::{SandboxPause, SandboxResume};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{find_sandbox, with_client};

pub(super) fn pause(context: &mut Context, args: &SandboxPause) -> Result<Outcome> {
    let body = PauseSandbox { keep: if args.memory { PauseMode::Memory } else { PauseMode::Disk } };
    let paused: Sandbox = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        client.post(&format!("/api/v1/sandboxes/{id}/pause"), &body).await
    })?;
    show(context, &paused, |sandbox| {
        vec![format!("paused; deleted at {} unless resumed", table::time(&sandbox.expires_at))]
    })
}

pub(super) fn resume(context: &mut Context, args: &SandboxResume) -> Result<Outcome> {
    let body = ResumeSandbox { timeout_seconds: args.timeout.map(|timeout| timeout.as_secs()) };
    let resumed: Sandbox = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        client.post(&format!("/api/v1/sandboxes/{id}/resume"), &body).await
    })?;
    show(context, &resumed, |sandbox| vec![format!("expires {}", table::time(&sandbox.expires_at))])
}
