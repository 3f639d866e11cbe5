//! `workspace log --server` and `workspace rm --server`: snapshots on a server.

use serde::Serialize;
use workspace_api::snapshots::{Snapshot, SnapshotList};

use super::reference::remote::{get_existing, remove_found};
use super::table;
use crate::args::{Rm, Server};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, find_snapshot, percent_encode, with_client};
use crate::text::{self, escape_controls, pluralize};

/// Number of snapshots per request, the maximum of the API.
const PAGE_SIZE: usize = 100;

/// Report as `--json` prints it.
#[derive(Serialize)]
struct RemovedFields<'a> {
    snapshots: &'a [String],
    references: &'a [String],
}

/// Lists snapshots, newest first.
pub(super) fn list(context: &mut Context, server: &Server, limit: Option<usize>) -> Result<Outcome> {
    with_client(server, async |client| {
        let (mut remaining, mut cursor) = (limit.unwrap_or(usize::MAX), String::new());
        while remaining > 0 {
            let size = remaining.min(PAGE_SIZE);
            let page: SnapshotList = client.get(&format!("/api/v1/snapshots?limit={size}{cursor}")).await?;
            page.items.iter().try_for_each(|snapshot| print(context, snapshot))?;
            remaining = remaining.saturating_sub(page.items.len());
            let Some(next) = page.next else { break };
            cursor = format!("&cursor={}", percent_encode(next.as_bytes()));
        }
        Ok(Outcome::Done)
    })
}

/// Prints a snapshot on one line, as `workspace log` does.
fn print(context: &mut Context, snapshot: &Snapshot) -> Result<()> {
    if context.output.is_json() {
        return context.output.record(snapshot);
    }
    let references = &snapshot.references;
    let names = if references.is_empty() { String::new() } else { format!("[{}]", references.join(", ")) };
    let mut line = format!("{}  {}", snapshot.id, table::time(&snapshot.time));
    for part in [&text::first_line(&snapshot.author), &names.into(), &text::first_line(&snapshot.message)] {
        if !part.is_empty() {
            line.push_str("  ");
            line.push_str(part);
        }
    }
    context.output.line(escape_controls(&line))
}

/// Removes references and snapshots. All are looked up before anything is removed.
pub(super) fn remove(context: &mut Context, server: &Server, args: &Rm) -> Result<Outcome> {
    let snapshots = with_client(server, async |client| remove_on(client, args).await)?;
    if context.output.is_json() {
        context.output.record(&RemovedFields { snapshots: &snapshots, references: &args.references })?;
    }
    Ok(Outcome::Done)
}

/// Removes references and snapshots, and returns the ids of the snapshots.
async fn remove_on(client: &Client, args: &Rm) -> Result<Vec<String>> {
    let mut ids: Vec<String> = Vec::with_capacity(args.snapshots.len());
    for text in &args.snapshots {
        let id = find_snapshot(client, text).await?;
        if !ids.contains(&id) {
            // Fails if it does not exist.
            client.get::<Snapshot>(&snapshot_path(&id)).await?;
            ids.push(id);
        }
    }
    let mut references = Vec::with_capacity(args.references.len());
    for name in &args.references {
        references.push(get_existing(client, name).await?);
    }
    remove_found(client, &references).await?;
    for (index, id) in ids.iter().enumerate() {
        let removed = client.try_delete::<()>(&snapshot_path(id), None).await;
        removed.map_err(|failure| partial(client.explain(failure), index, references.len()))?;
    }
    Ok(ids)
}

/// Adds to an error that something was removed before it.
fn partial(error: CommandError, snapshots: usize, references: usize) -> CommandError {
    if snapshots + references == 0 {
        return error;
    }
    let (snapshots, references) = (
        pluralize(snapshots as u64, "snapshot", "snapshots"),
        pluralize(references as u64, "reference", "references"),
    );
    error.hint(format!("{snapshots} and {references} before it were removed"))
}

fn snapshot_path(id: &str) -> String {
    format!("/api/v1/snapshots/{}", percent_encode(id.as_bytes()))
}
