//! `workspace show`

use serde::Serialize;
use workspace_state::{Snapshot, SnapshotId, Tree};

use crate::args::Show;
use crate::context::{Context, References};
use crate::error::{Outcome, Result};
use crate::fields::SnapshotFields;
use crate::output::Output;
use crate::text::{escape_controls, pluralize};
use crate::{names, time};

/// Snapshot as `--json` prints it.
#[derive(Serialize)]
struct ShowFields<'a> {
    #[serde(flatten)]
    snapshot: SnapshotFields<'a>,
    /// Number of entries of the root directory.
    entries: u64,
    /// Other snapshots of the same tree.
    same_tree: &'a [SnapshotId],
}

pub(crate) fn run(context: &mut Context, args: &Show) -> Result<Outcome> {
    let store = context.store()?;
    let snapshot = names::snapshot(&store, &args.snapshot)?;
    let references = References::read(&store)?;
    let entries = Tree::of_snapshot(&store, &snapshot)?.root().node.size();
    let mut same_tree = store.snapshots_with_tree(&snapshot.tree)?;
    same_tree.retain(|id| *id != snapshot.id);
    if context.output.is_json() {
        let fields = SnapshotFields::new(&snapshot, references.of(&snapshot.id));
        context.output.record(&ShowFields { snapshot: fields, entries, same_tree: &same_tree })?;
    } else {
        print(&mut context.output, &snapshot, &references.of(&snapshot.id), entries, &same_tree)?;
    }
    Ok(Outcome::Done)
}

fn print(
    output: &mut Output,
    snapshot: &Snapshot,
    references: &[&str],
    entries: u64,
    same_tree: &[SnapshotId],
) -> Result<()> {
    let mut field = |name: &str, value: &str| output.line(format_args!("{name:<11} {value}"));
    field("snapshot", &snapshot.id.to_string())?;
    field("tree", &snapshot.tree.to_string())?;
    field("entries", &format!("{} at the root", pluralize(entries, "entry", "entries")))?;
    for parent in &snapshot.parents {
        field("parent", &parent.to_string())?;
    }
    for name in references {
        field("reference", name)?;
    }
    for other in same_tree {
        field("same tree", &other.to_string())?;
    }
    if !snapshot.author.is_empty() {
        field("author", &escape_controls(&snapshot.author))?;
    }
    field("time", &time::format(snapshot.time))?;
    if let Some(root) = &snapshot.root {
        field("root", &escape_controls(&format!("{} of template {}", root.tree, root.template)))?;
    }
    for (key, value) in &snapshot.labels {
        field("label", &escape_controls(&format!("{key}={value}")))?;
    }
    print_message(output, &snapshot.message)
}

fn print_message(output: &mut Output, message: &str) -> Result<()> {
    if message.is_empty() {
        return Ok(());
    }
    output.line("")?;
    for line in escape_controls(message).lines() {
        output.line(format_args!("    {line}"))?;
    }
    Ok(())
}
