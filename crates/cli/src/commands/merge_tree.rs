//! `workspace merge-tree`

mod sequential_merge;
pub(super) mod sides;

use std::ffi::OsString;

use serde::Serialize;
use workspace_merge::{Choice, ConflictClass, MergedFile, Side as Winner, TreeConflict, TreeOptions};
use workspace_state::{Durability, Expect, NewSnapshot, Timestamp, Tree, TreePath, quote_path};

use self::sequential_merge::SequentialMerge;
use self::sides::InputOpener;
use super::diff::side::SideSource;
use super::merge_rules;
use super::record::new_snapshot;
use crate::args::MergeTree;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::output::Output;

/// Exit status for conflicts, as in git.
const EXIT_CONFLICTS: u8 = 1;

pub(crate) fn run(context: &mut Context, args: MergeTree) -> Result<Outcome> {
    let merged = merge(context, args).and_then(|outcome| context.output.flush().map(|()| outcome));
    merged.map_err(CommandError::with_not_merged_status)
}

fn merge(context: &mut Context, args: MergeTree) -> Result<Outcome> {
    if !args.commit && args.metadata.is_given() {
        return Err(CommandError::usage("message, reference, author and labels need `--commit`")
            .hint("`--commit` stores the result as a snapshot"));
    }
    let rules = merge_rules::read_rules(&args.rules)?;
    // Directories can be merged without a store; then a temporary one holds their content.
    let (store, _temporary) =
        if args.commit { (context.store_or_create()?, None) } else { context.store_or_temporary()? };
    // Reads the reference before OURS, so that a later move of the reference is not overwritten.
    let new = args
        .commit
        .then(|| new_snapshot(&store, args.metadata, Vec::new(), Durability::Synced))
        .transpose()?;
    let resolve = |typed: &OsString| sides::resolve(&store, typed);
    let (base, ours) = (resolve(&args.base)?, resolve(&args.ours)?);
    let theirs: Vec<SideSource> = args.theirs.iter().map(resolve).collect::<Result<_>>()?;
    let new = new.map(|new| with_parents(new, &base, &ours, &theirs)).transpose()?;
    let (ours_time, theirs_times): (i64, Vec<i64>) =
        (side_time(&ours), theirs.iter().map(side_time).collect());
    let opener =
        InputOpener { store: &store, use_ignore_files: !args.no_ignore, progress: &context.progress };
    let base = opener.open(&base)?;
    let ours = opener.open_with_ignored(&ours, &base)?;
    let theirs: Vec<Tree> =
        theirs.iter().map(|source| opener.open_with_ignored(source, &base)).collect::<Result<_>>()?;

    let mut options = TreeOptions { rules, ..TreeOptions::default() };
    (options.ours.priority, options.theirs.priority) = merge_rules::priorities(&args.rules);
    options.ours.time = ours_time;
    let with_choices = context.output.is_json();
    let mut merge = SequentialMerge::new(&store, &base, ours, options.ours);
    for (number, side) in theirs.iter().enumerate() {
        options.theirs.time = theirs_times[number];
        let name = (theirs.len() > 1).then(|| args.theirs[number].to_string_lossy().into_owned());
        merge.merge(side, name.as_deref(), &mut options, with_choices)?;
    }
    let SequentialMerge { result, conflicts, merged, .. } = merge;
    let mut result = result.ok_or_else(|| CommandError::usage("there is nothing to merge"))?;
    let tree = result.tree_id()?.to_string();
    let snapshot = new.map(|new| result.commit(new)).transpose()?.map(|snapshot| snapshot.id.to_string());
    let is_resolved = conflicts.iter().all(|fields| fields.conflict.decided.is_some());
    print(&mut context.output, &Fields { tree, snapshot, conflicts, merged })?;
    Ok(if is_resolved { Outcome::Done } else { Outcome::Exit(EXIT_CONFLICTS) })
}

/// Sets the sides as parents of the result. Fails for a reference that points to neither OURS nor BASE, because
/// its snapshot would be lost.
fn with_parents(
    mut new: NewSnapshot,
    base: &SideSource,
    ours: &SideSource,
    theirs: &[SideSource],
) -> Result<NewSnapshot> {
    let target = match &new.references[..] {
        [(name, Expect::At(target))] => Some((name, *target)),
        _ => None,
    };
    if let Some((name, target)) = target
        && ![ours.snapshot(), base.snapshot()].contains(&Some(target))
    {
        let message = format!("`{name}` is at {target}, which is neither OURS nor BASE");
        return Err(CommandError::failed(message)
            .hint(format!("name `{name}` as OURS, or another reference with `--ref`")));
    }
    let ours = ours.snapshot().or(target.map(|(_, target)| target));
    new.parents = ours.into_iter().chain(theirs.iter().filter_map(SideSource::snapshot)).collect();
    Ok(new)
}

/// Returns the time of a side in nanoseconds since 1970, for rules that depend on it; the current time for a directory.
fn side_time(source: &SideSource) -> i64 {
    match source {
        SideSource::Snapshot(snapshot) => snapshot.time.0,
        SideSource::Directory(_) => Timestamp::now().0,
    }
}

/// Conflict with its side, if several THEIRS are merged, and the possible resolutions.
#[derive(Serialize)]
struct ConflictFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<String>,
    #[serde(flatten)]
    conflict: TreeConflict,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<Choice>,
}

/// Result of a merge as `--json` prints it.
#[derive(Serialize)]
struct Fields {
    /// Id of the merged tree.
    tree: String,
    /// Snapshot of the merged tree, with `--commit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    conflicts: Vec<ConflictFields>,
    /// Files that both sides changed and a strategy merged.
    merged: Vec<MergedFile>,
}

fn print(output: &mut Output, fields: &Fields) -> Result<()> {
    if output.is_json() {
        return output.record(fields);
    }
    output.line(&fields.tree)?;
    if let Some(snapshot) = &fields.snapshot {
        output.line(snapshot)?;
    }
    for conflict in &fields.conflicts {
        output.line(line(conflict))?;
    }
    Ok(())
}

fn line(ConflictFields { side, conflict, .. }: &ConflictFields) -> String {
    let shown = |path: &TreePath| quote_path(&path.0).into_owned();
    let mut line = format!("conflict ({}): {}", conflict.class.name(), shown(&conflict.path));
    if let Some(theirs_path) = &conflict.theirs_path_in_merged {
        line += &format!(", theirs is {}", shown(theirs_path));
    }
    if let Some(side) = side {
        line += &format!(", of {side}");
    }
    match (conflict.class, &conflict.ours, &conflict.theirs) {
        (ConflictClass::ModifyDelete, None, _) => line += ", ours has removed it",
        (ConflictClass::ModifyDelete, _, None) => line += ", theirs has removed it",
        _ => {}
    }
    if let Some(decided) = conflict.decided {
        line += match decided.winner {
            Winner::Ours => ", ours was taken",
            Winner::Theirs => ", theirs was taken",
        };
    }
    line
}
