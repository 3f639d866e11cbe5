//! `workspace merge-tree`

use serde::Serialize;
use workspace_merge::{MergedFile, Side as Winner, TreeConflict, TreeMerge, TreeOptions, merge_trees};
use workspace_state::{Durability, SnapshotId, Store, TreePath, quote_path};

use super::diff::side::{Name, Side};
use super::record::new_snapshot;
use crate::args::{MergeTree, Record};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::output::Output;

/// The status that git has for conflicts.
const CONFLICTS: u8 = 1;

pub(crate) fn run(context: &mut Context, args: MergeTree) -> Result<Outcome> {
    merge(context, args).map_err(CommandError::not_merged)
}

fn merge(context: &mut Context, args: MergeTree) -> Result<Outcome> {
    if !args.commit && args.record.says_something() {
        return Err(CommandError::usage("only a snapshot has a message, a reference, an author and labels")
            .hint("`--commit` makes the result a snapshot"));
    }
    // Directories can be merged without a store; what is read of them goes with the temporary one.
    let (store, _temporary) =
        if args.commit { (context.store_or_create()?, None) } else { context.store_or_temporary()? };
    let names = [&args.base, &args.ours, &args.theirs];
    let [base, ours, theirs] = names.map(|typed| Name::resolve(&store, typed));
    let (base, ours, theirs) = (base?, ours?, theirs?);
    let parents = [ours.snapshot(), theirs.snapshot()].into_iter().flatten().collect();
    let open = |name| Side::open(&store, name, !args.no_ignore, &context.progress);
    let (base, ours, theirs) = (open(base)?, open(ours)?, open(theirs)?);
    let mut merge = merge_trees(&base.tree, &ours.tree, &theirs.tree, &TreeOptions::default())?;
    let tree = merge.tree.tree_id()?.to_string();
    let snapshot = if args.commit { Some(commit(&store, &mut merge, args.record, parents)?) } else { None };
    print(&mut context.output, tree, snapshot, &merge)?;
    if !merge.is_settled() {
        return Ok(Outcome::Exit(CONFLICTS));
    }
    Ok(Outcome::with_reservations_if([&base, &ours, &theirs].iter().any(|side| side.lacks_content)))
}

fn commit(
    store: &Store,
    merge: &mut TreeMerge,
    record: Record,
    parents: Vec<SnapshotId>,
) -> Result<SnapshotId> {
    let new = new_snapshot(store, record, parents, Durability::Synced)?;
    Ok(merge.tree.commit(new)?.id)
}

/// What became of a merge.
#[derive(Serialize)]
struct Fields<'m> {
    tree: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    conflicts: &'m [TreeConflict],
    merged: &'m [MergedFile],
}

fn print(output: &mut Output, tree: String, snapshot: Option<SnapshotId>, merge: &TreeMerge) -> Result<()> {
    let snapshot = snapshot.map(|id| id.to_string());
    if output.json() {
        let (conflicts, merged) = (&merge.conflicts[..], &merge.merged[..]);
        return output.record(&Fields { tree, snapshot, conflicts, merged });
    }
    output.line(tree)?;
    if let Some(snapshot) = snapshot {
        output.line(snapshot)?;
    }
    for conflict in &merge.conflicts {
        output.line(line(conflict))?;
    }
    Ok(())
}

fn line(conflict: &TreeConflict) -> String {
    let shown = |path: &TreePath| quote_path(&path.0).into_owned();
    let mut line = format!("conflict ({}): {}", conflict.class.name(), shown(&conflict.path));
    if let Some(beside) = &conflict.beside {
        line += &format!(", theirs is {}", shown(beside));
    }
    if let Some(decided) = conflict.decided {
        line += match decided.winner {
            Winner::Ours => ", ours was taken",
            Winner::Theirs => ", theirs was taken",
        };
    }
    line
}
