//! `workspace rm`

use serde::Serialize;
use workspace_state::{Expect, SnapshotId, Store};

use super::server_snapshots;
use crate::args::Rm;
use crate::context::{Context, References};
use crate::error::{CommandError, Outcome, Result};
use crate::names;
use crate::text::{pluralize, print_stderr};

/// Report as `--json` prints it.
#[derive(Serialize)]
struct RemovedFields<'a> {
    snapshots: &'a [SnapshotId],
    references: &'a [String],
    /// Number of remaining episodes whose snapshot was removed.
    episodes: u64,
}

pub(crate) fn run(context: &mut Context, args: &Rm) -> Result<Outcome> {
    if args.snapshots.is_empty() && args.references.is_empty() {
        return Err(CommandError::usage("no snapshot or reference specified")
            .hint("`workspace rm SNAPSHOT` removes a snapshot; `--ref NAME` alone removes a reference"));
    }
    if let Some(server) = args.server.selected() {
        return server_snapshots::remove(context, &server, args);
    }
    let store = context.store()?;
    // Everything is looked up before anything is removed.
    let mut ids = Vec::with_capacity(args.snapshots.len());
    for text in &args.snapshots {
        let id = names::snapshot(&store, text)?.id;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let targets: Vec<SnapshotId> =
        args.references.iter().map(|name| target(&store, name)).collect::<Result<_>>()?;
    check_unreferenced(&store, &ids, &args.references)?;
    let episodes = count_episodes(&store, &ids)?;
    for (name, target) in args.references.iter().zip(&targets) {
        store.remove_reference(name, Expect::At(*target))?;
    }
    if !ids.is_empty() {
        store.remove_snapshots(&ids)?;
    }
    if context.output.is_json() {
        context.output.record(&RemovedFields { snapshots: &ids, references: &args.references, episodes })?;
    }
    if episodes > 0 {
        let subject_and_verb = pluralize(episodes, "episode names", "episodes name");
        print_stderr(&format!(
            "warning: {subject_and_verb} a removed snapshot, and can be read but not restored"
        ));
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

/// Counts the episodes whose snapshot is one of these.
fn count_episodes(store: &Store, ids: &[SnapshotId]) -> Result<u64> {
    if ids.is_empty() {
        return Ok(0);
    }
    let episodes = store.all_episodes()?;
    Ok(episodes.iter().filter(|episode| ids.contains(&episode.snapshot)).count() as u64)
}

/// Fails with a hint if a snapshot is referenced. The store also rejects that, but without a hint.
fn check_unreferenced(store: &Store, ids: &[SnapshotId], removed: &[String]) -> Result<()> {
    let references = References::read(store)?;
    for id in ids {
        let remaining = references.of(id).into_iter().find(|name| !removed.iter().any(|other| other == name));
        if let Some(name) = remaining {
            return Err(CommandError::failed(format!("snapshot {id} is the target of reference `{name}`"))
                .hint(format!("remove both with `workspace rm --ref {name} {id}`"))
                .hint(format!("or the reference alone with `workspace rm --ref {name}`")));
        }
    }
    Ok(())
}
