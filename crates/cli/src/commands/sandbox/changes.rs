//! `workspace sandbox changes` and `workspace sandbox diff`

use std::borrow::Cow;

use http_body_util::BodyExt as _;
use workspace_api::diff::{ChangeKind, Diff, Difference, DifferenceSide};
use workspace_api::sandbox_snapshots as api;
use workspace_api::snapshots::EntryKind;
use workspace_state::{ChangeCode, InsightDiff, unquote_path};

use super::super::diff::{change_label, display_path, print_insight};
use super::super::exec::reject_json;
use super::snapshots::print_skipped;
use crate::args::{SandboxArgs, SandboxChanges};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::output::Output;
use crate::remote::{Client, RequestError, find_sandbox, with_client};
use crate::text::print_stderr;

/// Maximum number of changes in one response.
pub(in crate::commands) const CHANGES_MAX: usize = 10_000;
/// Response header that says whether the patch is truncated.
const TRUNCATED_HEADER: &str = "x-truncated";

pub(super) fn list(context: &mut Context, args: &SandboxChanges) -> Result<Outcome> {
    let changes: api::SandboxChanges = with_client(&args.server, async |client| {
        let path =
            changes_path(client, &args.sandbox, if args.insight { "insight=true&" } else { "" }).await?;
        client.get(&path).await
    })?;
    if context.output.is_json() {
        context.output.record(&changes)?;
        return Ok(outcome(changes.diff.truncated));
    }
    print_skipped(&changes.skipped);
    print_diff(context, &changes.diff, args.insight)?;
    Ok(outcome(changes.diff.truncated))
}

/// Prints the differences that a server found.
pub(in crate::commands) fn print_diff(context: &mut Context, diff: &Diff, insight: bool) -> Result<()> {
    if insight {
        return print_insight(&mut context.output, &insight_diff(diff)?);
    }
    diff.entries.iter().try_for_each(|entry| print(&mut context.output, entry))
}

/// Returns the path of a sandbox's changes in the API. `query` is empty or ends with `&`.
async fn changes_path(client: &Client, sandbox: &str, query: &str) -> Result<String> {
    let id = find_sandbox(client, sandbox).await?;
    Ok(format!("/api/v1/sandboxes/{id}/changes?{query}limit={CHANGES_MAX}"))
}

/// Returns the outcome, and prints a warning if the server omitted changes.
pub(in crate::commands) fn outcome(truncated: bool) -> Outcome {
    if truncated {
        print_stderr(&format!("warning: there are more changes; these are the first {CHANGES_MAX}"));
    }
    Outcome::with_warnings_if(truncated)
}

/// Converts an insight diff (sizes, line counts and risk notes of each change) of the API to the type of local diffs.
/// Both have the same JSON.
fn insight_diff(diff: &Diff) -> Result<InsightDiff> {
    let converted = serde_json::to_value(diff).and_then(serde_json::from_value);
    converted.map_err(|error| {
        CommandError::failed(format!("cannot parse the server's response: {error}"))
            .hint("the server may be newer than this command; `--json` prints the response")
    })
}

fn print(output: &mut Output, entry: &Difference) -> Result<()> {
    let is_directory =
        |side: Option<&DifferenceSide>| side.is_some_and(|side| side.kind == EntryKind::Directory);
    let path = display_path(&unquoted(&entry.path), is_directory(entry.new.as_ref().or(entry.old.as_ref())));
    let change_label = change_label(change_code(entry.change));
    match (&entry.renamed_from, &entry.old, &entry.new) {
        (Some(from), old, _) => {
            let from = display_path(&unquoted(from), is_directory(old.as_ref()));
            output.line(format_args!("{change_label}{from} -> {path}"))
        }
        (None, Some(old), Some(new)) if entry.change == ChangeKind::ModeChanged => {
            // `ModeChanged` covers extended attributes, too.
            let what = match old.mode == new.mode {
                true => "extended attributes".to_owned(),
                false => format!("{} -> {}", old.mode, new.mode),
            };
            output.line(format_args!("{change_label}{path} ({what})"))
        }
        _ => output.line(format_args!("{change_label}{path}")),
    }
}

/// Returns the unquoted bytes of a path.
fn unquoted(path: &str) -> Cow<'_, [u8]> {
    unquote_path(path).unwrap_or(Cow::Borrowed(path.as_bytes()))
}

fn change_code(change: ChangeKind) -> ChangeCode {
    match change {
        ChangeKind::Added => ChangeCode::Added,
        ChangeKind::Removed => ChangeCode::Removed,
        ChangeKind::Modified => ChangeCode::Modified,
        ChangeKind::TypeChanged => ChangeCode::TypeChanged,
        ChangeKind::ModeChanged => ChangeCode::ModeChanged,
        ChangeKind::Renamed => ChangeCode::Renamed,
    }
}

/// Prints the changes as a patch.
pub(super) fn patch(context: &mut Context, args: &SandboxArgs) -> Result<Outcome> {
    reject_json(context, "a patch")?;
    let truncated = with_client(&args.server, async |client| {
        let path = changes_path(client, &args.sandbox, "patch=true&").await?;
        print_patch(&mut context.output, client, &path).await
    })?;
    Ok(outcome(truncated))
}

/// Prints the patch that a route returns. Returns true if the server truncated it.
pub(in crate::commands) async fn print_patch(
    output: &mut Output,
    client: &Client,
    path: &str,
) -> Result<bool> {
    let response = client.open_with_headers(path, &[]).await.map_err(|failure| client.explain(failure))?;
    let truncated = response.headers().get(TRUNCATED_HEADER).is_some_and(|value| value == "true");
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| client.explain(RequestError::Disconnected(error.to_string())))?;
        if let Some(data) = frame.data_ref() {
            output.bytes(data)?;
        }
    }
    Ok(truncated)
}
