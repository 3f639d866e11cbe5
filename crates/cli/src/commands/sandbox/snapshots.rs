//! `workspace sandbox commit`, `restore` and `fork`

use hyper::Method;
use serde_json::{Value, json};

use super::super::exec::pairs;
use super::super::table;
use super::{show, with};
use crate::args::{SandboxCommit, SandboxFork, SandboxRestore};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, find};
use crate::text::print_stderr;

/// Asks for something to be done with a sandbox.
async fn order(client: &Client, sandbox: &str, what: &str, body: &Value) -> Result<Value> {
    let id = find(client, sandbox).await?;
    client.call(Method::POST, &format!("/api/v1/sandboxes/{id}/{what}"), Some(body)).await
}

pub(super) fn commit(context: &mut Context, args: &SandboxCommit) -> Result<Outcome> {
    let body = json!({
        "message": args.message.as_deref().unwrap_or_default(),
        "labels": pairs(&args.labels),
        "durability": if args.buffered { "buffered" } else { "synced" },
    });
    let made = with(&args.server, async |client| order(client, &args.sandbox, "commit", &body).await)?;
    warn(&made);
    show(context, &made, |made| vec![table::text(&made["snapshot"], "id")])
}

/// Names what the server left out.
pub(super) fn warn(answer: &Value) {
    for left in answer["skipped"].as_array().into_iter().flatten() {
        let (path, reason) = (table::text(left, "path"), table::text(left, "reason"));
        print_stderr(&format!("warning: skipped {path}: {reason}"));
    }
}

pub(super) fn restore(context: &mut Context, args: &SandboxRestore) -> Result<Outcome> {
    let body = json!({ "snapshot": args.snapshot, "force": !args.no_force });
    let restored = with(&args.server, async |client| order(client, &args.sandbox, "restore", &body).await)?;
    for process in restored["ended"].as_array().into_iter().flatten() {
        let field = |name| table::text(process, name);
        print_stderr(&format!("note: ended {} {} ({})", field("pid"), field("command"), field("why")));
    }
    show(context, &restored, |_| Vec::new())
}

pub(super) fn fork(context: &mut Context, args: &SandboxFork) -> Result<Outcome> {
    let mut body = json!({
        "count": args.count,
        "labels": pairs(&args.labels),
        "message": args.message.as_deref().unwrap_or_default(),
    });
    if let Some(life) = args.timeout {
        body["timeout_seconds"] = json!(life.as_secs());
    }
    let forked = with(&args.server, async |client| order(client, &args.sandbox, "fork", &body).await)?;
    show(context, &forked, |forked| {
        let sandboxes = forked["sandboxes"].as_array().into_iter().flatten();
        sandboxes.map(|sandbox| table::text(sandbox, "id")).collect()
    })
}
