//! `workspace merge-tree`

use std::ffi::OsString;

use serde::Serialize;
use workspace_merge::{
    Choice, MergedFile, Side as Winner, TreeConflict, TreeOptions, merge_trees, tree_choices,
};
use workspace_state::{
    Durability, Expect, NewSnapshot, SnapshotId, Store, Timestamp, Tree, TreePath, VirtualTree, quote_path,
};

use super::diff::side::{Name, Side};
use super::merge_rules;
use super::record::new_snapshot;
use crate::args::MergeTree;
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
    let policy = merge_rules::policy(&args.rules)?;
    // Directories can be merged without a store; what is read of them goes with the temporary one.
    let (store, _temporary) =
        if args.commit { (context.store_or_create()?, None) } else { context.store_or_temporary()? };
    // Before OURS is: who moves the reference from here on is not overwritten.
    let new =
        args.commit.then(|| new_snapshot(&store, args.record, Vec::new(), Durability::Synced)).transpose()?;
    let name = |typed: &OsString| Name::resolve(&store, typed);
    let (base, ours) = (name(&args.base)?, name(&args.ours)?);
    let theirs: Vec<Name> = args.theirs.iter().map(name).collect::<Result<_>>()?;
    let new = new.map(|new| onto(new, &ours, &theirs)).transpose()?;
    let (ours_at, theirs_at): (i64, Vec<i64>) = (made(&ours), theirs.iter().map(made).collect());
    let open = |name| Side::open(&store, name, !args.no_ignore, &context.progress);
    let (base, ours) = (open(base)?, open(ours)?);
    let theirs: Vec<Side> = theirs.into_iter().map(open).collect::<Result<_>>()?;

    let mut options = TreeOptions { policy, ..TreeOptions::default() };
    (options.ours.priority, options.theirs.priority) = merge_rules::priorities(&args.rules);
    let mut all = Merging {
        store: &store,
        base: &base.tree,
        head: ours.tree.clone(),
        result: None,
        told: Vec::new(),
        merged: Vec::new(),
    };
    for (number, side) in theirs.iter().enumerate() {
        options.ours.time = theirs_at[..number].iter().copied().fold(ours_at, i64::max);
        options.theirs.time = theirs_at[number];
        let name = (theirs.len() > 1).then(|| args.theirs[number].to_string_lossy().into_owned());
        all.merge(&side.tree, name.as_deref(), &options, context.output.json())?;
    }
    let Merging { result, told, merged, .. } = all;
    let mut result = result.ok_or_else(|| CommandError::usage("there is nothing to merge"))?;
    let tree = result.tree_id()?.to_string();
    let snapshot = new.map(|new| result.commit(new)).transpose()?.map(|snapshot| snapshot.id.to_string());
    let is_settled = told.iter().all(|told| told.conflict.decided.is_some());
    print(&mut context.output, &Fields { tree, snapshot, conflicts: told, merged })?;
    if !is_settled {
        return Ok(Outcome::Exit(CONFLICTS));
    }
    let lacks_content = [&base, &ours].into_iter().chain(&theirs).any(|side| side.lacks_content);
    Ok(Outcome::with_reservations_if(lacks_content))
}

/// The sides are the parents of what is made of them. A reference that stands elsewhere would lose what it stands at.
fn onto(mut new: NewSnapshot, ours: &Name, theirs: &[Name]) -> Result<NewSnapshot> {
    if let (Some(ours), [(name, Expect::At(there))]) = (ours.snapshot(), &new.references[..])
        && ours != *there
    {
        let message = format!("`{name}` is at {there}, which is not what was merged onto");
        return Err(CommandError::failed(message)
            .hint(format!("name `{name}` as OURS, or another reference with `--ref`")));
    }
    let parents: Vec<SnapshotId> = [ours].into_iter().chain(theirs).filter_map(Name::snapshot).collect();
    if !parents.is_empty() {
        new.parents = parents;
    }
    Ok(new)
}

/// When a side was made, for rules that go by it: a directory is as it is now.
fn made(name: &Name) -> i64 {
    match name {
        Name::Snapshot(snapshot) => snapshot.time.0,
        Name::Directory(_) => Timestamp::now().0,
    }
}

/// Sides that are merged one after another.
struct Merging<'a> {
    store: &'a Store,
    base: &'a Tree,
    /// What is merged onto.
    head: Tree,
    result: Option<VirtualTree>,
    told: Vec<Told>,
    merged: Vec<MergedFile>,
}

impl Merging<'_> {
    fn merge(
        &mut self,
        theirs: &Tree,
        name: Option<&str>,
        options: &TreeOptions,
        with_choices: bool,
    ) -> Result<()> {
        if let Some(mut before) = self.result.take() {
            self.head = self.kept(&mut before)?;
        }
        let merge = merge_trees(self.base, &self.head, theirs, options)?;
        for conflict in merge.conflicts {
            let choices = if with_choices {
                tree_choices(&conflict, self.base, &self.head, theirs, options)?
            } else {
                Vec::new()
            };
            self.told.push(Told { side: name.map(str::to_owned), conflict, choices });
        }
        self.merged.extend(merge.merged);
        self.result = Some(merge.tree);
        Ok(())
    }

    /// What came out so far as a tree that can be merged onto. Its snapshot is gone when this returns; the open tree keeps
    /// what it holds from being collected.
    fn kept(&self, result: &mut VirtualTree) -> Result<Tree> {
        let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() };
        let snapshot = result.commit(new)?;
        let tree = Tree::of_snapshot(self.store, &snapshot);
        self.store.remove_snapshots(&[snapshot.id])?;
        Ok(tree?)
    }
}

/// A conflict, whose it is where several are merged, and what it would become.
#[derive(Serialize)]
struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<String>,
    #[serde(flatten)]
    conflict: TreeConflict,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<Choice>,
}

/// What became of a merge.
#[derive(Serialize)]
struct Fields {
    tree: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    conflicts: Vec<Told>,
    merged: Vec<MergedFile>,
}

fn print(output: &mut Output, fields: &Fields) -> Result<()> {
    if output.json() {
        return output.record(fields);
    }
    output.line(&fields.tree)?;
    if let Some(snapshot) = &fields.snapshot {
        output.line(snapshot)?;
    }
    for told in &fields.conflicts {
        output.line(line(told))?;
    }
    Ok(())
}

fn line(Told { side, conflict, .. }: &Told) -> String {
    let shown = |path: &TreePath| quote_path(&path.0).into_owned();
    let mut line = format!("conflict ({}): {}", conflict.class.name(), shown(&conflict.path));
    if let Some(beside) = &conflict.beside {
        line += &format!(", theirs is {}", shown(beside));
    }
    if let Some(side) = side {
        line += &format!(", of {side}");
    }
    if let Some(decided) = conflict.decided {
        line += match decided.winner {
            Winner::Ours => ", ours was taken",
            Winner::Theirs => ", theirs was taken",
        };
    }
    line
}
