//! `workspace log`

use workspace_state::{Snapshot, Store};

use super::server_snapshots;
use crate::args::Log;
use crate::context::{Context, References};
use crate::error::{Outcome, Result};
use crate::fields::SnapshotFields;
use crate::output::Output;
use crate::{names, text, time};

pub(crate) fn run(context: &mut Context, args: &Log) -> Result<Outcome> {
    if let Some(server) = args.server.selected() {
        return server_snapshots::list(context, &server, args.limit);
    }
    let store = context.store()?;
    let references = References::read(&store)?;
    let limit = args.limit.unwrap_or(usize::MAX);
    match &args.reference {
        Some(name) => {
            let newest = names::snapshot(&store, name)?;
            for snapshot in store.history(&newest.id)?.take(limit) {
                print(&mut context.output, &snapshot?, &references)?;
            }
        }
        None => {
            for snapshot in newest_first(&store)?.take(limit) {
                print(&mut context.output, &snapshot, &references)?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn newest_first(store: &Store) -> Result<impl Iterator<Item = Snapshot>> {
    let mut snapshots = store.snapshots()?;
    snapshots.sort_by_key(|snapshot| (snapshot.time, snapshot.id));
    Ok(snapshots.into_iter().rev())
}

/// Prints a snapshot on one line, or as a record.
fn print(output: &mut Output, snapshot: &Snapshot, references: &References) -> Result<()> {
    let names = references.of(&snapshot.id);
    if output.is_json() {
        return output.record(&SnapshotFields::new(snapshot, names));
    }
    let mut line = format!("{}  {}", snapshot.id, time::format(snapshot.time));
    let names = if names.is_empty() { String::new() } else { format!("[{}]", names.join(", ")) };
    for part in [text::first_line(&snapshot.author), names.into(), text::first_line(&snapshot.message)] {
        if !part.is_empty() {
            line.push_str("  ");
            line.push_str(&part);
        }
    }
    output.line(line)
}
