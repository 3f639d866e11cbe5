//! `workspace import-git`

pub(super) mod git;
pub(super) mod history;
mod objects;

use serde::Serialize;
use workspace_state::{Durability, Expect, Progress, SnapshotId, Store};

use super::report::{SkippedFields, print_skipped};
use crate::args::ImportGit;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use git::{CommitParents, Repository};
use history::Importer;

/// Report as `--json` prints it.
#[derive(Serialize)]
struct Report {
    /// Number of commits that became snapshots in this run.
    imported: u64,
    /// Number of commits that were imported before.
    reused: u64,
    revisions: Vec<RevisionFields>,
    skipped: Vec<SkippedFields>,
}

/// A revision and its snapshot.
#[derive(Serialize)]
struct RevisionFields {
    revision: String,
    commit: String,
    snapshot: SnapshotId,
}

pub(crate) fn run(context: &mut Context, args: &ImportGit) -> Result<Outcome> {
    if args.reference.is_some() && args.revisions.len() > 1 {
        return Err(CommandError::usage("`--ref` names the snapshot of one REV, and there are several")
            .hint("import them one by one, or omit `--ref`"));
    }
    let repository = Repository::open(&args.repository)?;
    let tips: Vec<String> =
        args.revisions.iter().map(|revision| repository.commit(revision)).collect::<Result<_>>()?;
    let commits = repository.history(&tips)?;
    let store = context.store_or_create()?;
    let reference = args.reference.as_deref().map(|name| ReferenceMove::read(&store, name)).transpose()?;
    let mut importer = Importer::new(&store, repository.start_cat_file()?)?;
    let imported = import(&mut importer, &commits, &context.progress)?;
    let revisions: Vec<RevisionFields> = args
        .revisions
        .iter()
        .zip(tips)
        .map(|(revision, commit)| {
            let snapshot = importer.snapshot(&commit)?;
            Ok(RevisionFields { revision: revision.clone(), commit, snapshot })
        })
        .collect::<Result<_>>()?;
    match (reference, revisions.first()) {
        (Some(reference), Some(tip)) => reference.move_to(&store, tip.snapshot)?,
        // This also syncs snapshots of an earlier run that was interrupted.
        _ => store.sync()?,
    }
    let reused = commits.len() as u64 - imported;
    let skipped = importer.into_skipped();
    let skipped: Vec<_> = skipped.iter().map(|entry| SkippedFields::new(&entry.path, entry.reason)).collect();
    print_skipped(&skipped);
    print(context, &Report { imported, reused, revisions, skipped })?;
    Ok(Outcome::Done)
}

/// Imports new commits, oldest first, and returns their number.
fn import(importer: &mut Importer<'_>, commits: &[CommitParents], progress: &dyn Progress) -> Result<u64> {
    let new: Vec<&CommitParents> = commits.iter().filter(|commit| !importer.has(&commit.id)).collect();
    progress.begin("importing commits", Some(new.len() as u64));
    for commit in &new {
        // Each import is a commit of the store, so the next run continues here after an interruption.
        importer.import(commit)?;
        progress.advance(1);
    }
    progress.end();
    Ok(new.len() as u64)
}

/// Reference to move, and its target at the start.
struct ReferenceMove<'a> {
    name: &'a str,
    from: Option<SnapshotId>,
}

impl<'a> ReferenceMove<'a> {
    fn read(store: &Store, name: &'a str) -> Result<Self> {
        Ok(Self { name, from: store.reference(name)? })
    }

    fn move_to(self, store: &Store, to: SnapshotId) -> Result<()> {
        let expect = self.from.map_or(Expect::Absent, Expect::At);
        Ok(store.set_reference(self.name, expect, to, Durability::Synced)?)
    }
}

fn print(context: &mut Context, report: &Report) -> Result<()> {
    if context.output.is_json() {
        return context.output.record(report);
    }
    report.revisions.iter().try_for_each(|revision| context.output.line(revision.snapshot))
}
