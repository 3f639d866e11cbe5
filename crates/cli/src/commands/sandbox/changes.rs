//! `workspace sandbox changes` and `workspace sandbox diff`

use http_body_util::BodyExt as _;
use hyper::Method;
use serde::Deserialize;
use serde_json::Value;
use workspace_state::{ChangeCode, EntryCode, InsightDiff, TreePath};

use super::super::diff::{print_insight, shown, word};
use super::super::exec::refuse_json;
use super::snapshots::warn;
use super::with;
use crate::args::{SandboxChanges, SandboxOne};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::output::Output;
use crate::remote::{Client, Failure, find};
use crate::text::print_stderr;

/// As many as a server tells at once.
const LIMIT: usize = 10_000;
/// Says of a patch whether something is missing at its end.
const TRUNCATED: &str = "x-truncated";

pub(super) fn list(context: &mut Context, args: &SandboxChanges) -> Result<Outcome> {
    let changes = with(&args.server, async |client| {
        let path = path(client, &args.sandbox, if args.insight { "insight=true&" } else { "" }).await?;
        client.call(Method::GET, &path, None).await
    })?;
    if context.output.json() {
        context.output.record(&changes)?;
        return Ok(Outcome::Done);
    }
    warn(&changes);
    let is_short = changes["truncated"] == true;
    if args.insight {
        print_insight(&mut context.output, &understood::<InsightDiff>(changes)?)?;
    } else {
        let entries = understood::<Plain>(changes)?.entries;
        entries.iter().try_for_each(|entry| entry.print(&mut context.output))?;
    }
    Ok(told_in_full(is_short))
}

async fn path(client: &Client, sandbox: &str, query: &str) -> Result<String> {
    let id = find(client, sandbox).await?;
    Ok(format!("/api/v1/sandboxes/{id}/changes?{query}limit={LIMIT}"))
}

/// Says that there is more, if there is.
fn told_in_full(is_short: bool) -> Outcome {
    if is_short {
        print_stderr(&format!("warning: there are more changes; these are the first {LIMIT}"));
    }
    Outcome::with_reservations_if(is_short)
}

fn understood<T: for<'a> Deserialize<'a>>(answer: Value) -> Result<T> {
    serde_json::from_value(answer).map_err(|error| {
        CommandError::failed(format!("the server's answer is not understood: {error}"))
            .hint("it may be newer than this; `--json` prints the answer as it is")
    })
}

#[derive(Deserialize)]
struct Plain {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    path: TreePath,
    change: ChangeCode,
    renamed_from: Option<TreePath>,
    old: Option<Side>,
    new: Option<Side>,
}

#[derive(Deserialize)]
struct Side {
    kind: EntryCode,
    mode: String,
}

impl Entry {
    fn print(&self, output: &mut Output) -> Result<()> {
        let is_directory = |side: Option<&Side>| side.is_some_and(|side| side.kind == EntryCode::Directory);
        let path = shown(&self.path.0, is_directory(self.new.as_ref().or(self.old.as_ref())));
        let word = word(self.change);
        match (&self.renamed_from, &self.old, &self.new) {
            (Some(from), old, _) => {
                output.line(format_args!("{word}{} -> {path}", shown(&from.0, is_directory(old.as_ref()))))
            }
            (None, Some(old), Some(new)) if self.change == ChangeCode::ModeChanged => {
                let what = match old.mode == new.mode {
                    true => "attributes".to_owned(),
                    false => format!("{} -> {}", old.mode, new.mode),
                };
                output.line(format_args!("{word}{path} ({what})"))
            }
            _ => output.line(format_args!("{word}{path}")),
        }
    }
}

pub(super) fn patch(context: &mut Context, args: &SandboxOne) -> Result<Outcome> {
    refuse_json(context, "a patch")?;
    let output = &mut context.output;
    let is_short = with(&args.server, async |client| {
        let path = path(client, &args.sandbox, "patch=true&").await?;
        let response = client.open_with_head(&path, None).await.map_err(|failure| client.explain(failure))?;
        let is_short = response.headers().get(TRUNCATED).is_some_and(|value| value == "true");
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| client.explain(Failure::Lost(error.to_string())))?;
            if let Some(data) = frame.data_ref() {
                output.bytes(data)?;
            }
        }
        Ok(is_short)
    })?;
    Ok(told_in_full(is_short))
}
