//! `workspace ref`, `workspace branch`, `workspace tag`

pub(super) mod remote;

use serde::Serialize;
use workspace_state::{Durability, Expect, SnapshotId, Store, StoreError, check_reference_name};

use super::refs::{self, Reference};
use crate::args::{BranchOrTagArgs, RefCommand, RefSet};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::names;

/// Prefix of the references of tags.
const TAG_PREFIX: &str = "tags/";

/// A reference that was created or moved, as `--json` prints it.
#[derive(Serialize)]
struct MovedFields<'a> {
    name: &'a str,
    snapshot: SnapshotId,
    /// Target before the move; `None` for a new reference.
    previous: Option<SnapshotId>,
}

pub(crate) fn run(context: &mut Context, command: RefCommand) -> Result<Outcome> {
    match command {
        RefCommand::Ls { server } => match server.selected() {
            Some(server) => remote::list(context, &server),
            None => refs::run(context),
        },
        RefCommand::Get { name, server } => match server.selected() {
            Some(server) => remote::get(context, &server, &name),
            None => get(context, &name),
        },
        RefCommand::Set(args) => match args.server.selected() {
            Some(server) => remote::set(context, &server, &args),
            None => set(context, &args),
        },
        RefCommand::Rm(args) => match args.server.selected() {
            Some(server) => remote::remove(context, &server, &args.names),
            None => remove(context, &args.names),
        },
    }
}

fn get(context: &mut Context, name: &str) -> Result<Outcome> {
    let snapshot = target(&context.store()?, name)?;
    if context.output.is_json() {
        context.output.record(&Reference { name, snapshot })?;
    } else {
        context.output.line(snapshot)?;
    }
    Ok(Outcome::Done)
}

/// Returns the snapshot that a reference points to.
fn target(store: &Store, name: &str) -> Result<SnapshotId> {
    store.reference(name)?.ok_or_else(|| {
        CommandError::failed(format!("there is no reference `{name}`"))
            .hint("`workspace refs` lists the references")
    })
}

fn set(context: &mut Context, args: &RefSet) -> Result<Outcome> {
    let store = context.store()?;
    let to = names::snapshot(&store, &args.snapshot)?.id;
    let previous = store.reference(&args.name)?;
    if args.new
        && let Some(previous) = previous
    {
        let moves = format!("`workspace ref set {} SNAPSHOT` moves it", args.name);
        return Err(exists_error(&args.name, previous).hint(moves));
    }
    if let Some(text) = &args.expect {
        let expected = names::snapshot(&store, text)?.id;
        if previous != Some(expected) {
            let state = previous.map_or("does not exist".to_owned(), |target| format!("points to {target}"));
            return Err(CommandError::failed(format!("reference `{}` {state}", args.name)).hint(format!(
                "it was expected to point to {expected}; `workspace refs` lists the references"
            )));
        }
    }
    move_to(context, &store, &args.name, previous, to)
}

/// Runs `workspace branch`.
pub(crate) fn branch(context: &mut Context, args: &BranchOrTagArgs) -> Result<Outcome> {
    run_branch_or_tag(context, args, "", |name| !name.starts_with(TAG_PREFIX))
}

/// Runs `workspace tag`.
pub(crate) fn tag(context: &mut Context, args: &BranchOrTagArgs) -> Result<Outcome> {
    run_branch_or_tag(context, args, TAG_PREFIX, |name| name.starts_with(TAG_PREFIX))
}

fn run_branch_or_tag(
    context: &mut Context,
    args: &BranchOrTagArgs,
    prefix: &str,
    is_listed: impl Fn(&str) -> bool,
) -> Result<Outcome> {
    if !args.delete.is_empty() {
        let names: Vec<String> = args.delete.iter().map(|name| format!("{prefix}{name}")).collect();
        return remove(context, &names);
    }
    let (Some(name), Some(text)) = (&args.name, &args.snapshot) else {
        return refs::list(context, is_listed);
    };
    let name = format!("{prefix}{name}");
    check_reference_name(&name)?;
    let store = context.store()?;
    let to = names::snapshot(&store, text)?.id;
    let previous = store.reference(&name)?;
    if let (Some(previous), false) = (previous, args.force) {
        return Err(exists_error(&name, previous).hint("`--force` moves it"));
    }
    move_to(context, &store, &name, previous, to)
}

fn exists_error(name: &str, target: SnapshotId) -> CommandError {
    CommandError::failed(format!("reference `{name}` exists and points to {target}"))
}

/// Moves a reference. Fails if it no longer points to `previous`.
fn move_to(
    context: &mut Context,
    store: &Store,
    name: &str,
    previous: Option<SnapshotId>,
    snapshot: SnapshotId,
) -> Result<Outcome> {
    let expect = previous.map_or(Expect::Absent, Expect::At);
    store.set_reference(name, expect, snapshot, Durability::Synced)?;
    if context.output.is_json() {
        context.output.record(&MovedFields { name, snapshot, previous })?;
    } else {
        context.output.line(Reference { name, snapshot })?;
    }
    Ok(Outcome::Done)
}

/// Removes references: all of them, or none if one does not exist.
fn remove(context: &mut Context, names: &[String]) -> Result<Outcome> {
    let store = context.store()?;
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        if found.iter().any(|(other, _)| other == name) {
            continue;
        }
        found.push((name.clone(), target(&store, name)?));
    }
    for (name, target) in found {
        match store.remove_reference(&name, Expect::At(target)) {
            // Another process removed it in the meantime.
            Err(StoreError::ReferenceMoved { .. }) if store.reference(&name)?.is_none() => {}
            removed => removed?,
        }
        if context.output.is_json() {
            context.output.record(&Reference { name: &name, snapshot: target })?;
        }
    }
    Ok(Outcome::Done)
}
