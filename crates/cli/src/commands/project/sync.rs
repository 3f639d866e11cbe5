//! `workspace project pull` and `push`

use hyper::Method;
use workspace_api::project_completions::CompleteSnapshot;
use workspace_api::projects::{Completion, CompletionConflict, CompletionState, Project};
use workspace_api::revision::Revision;
use workspace_api::snapshots::UploadSnapshotResult;
use workspace_merge::{
    Author, ConflictClass, ConflictMarkers, DiffLimits, Style, TextMerge, TreeConflict, TreeOptions,
    merge_trees,
};
use workspace_state::{
    CheckoutOptions, Durability, NewSnapshot, Node, Progress as _, Snapshot, Tree, VirtualTree,
    apply_changes, quote_path,
};

use super::super::tree_upload;
use super::completion::print_completion;
use super::local::{LocalProject, Record, fetch};
use super::routes::{WAIT_SECONDS, project_path};
use crate::args::{Conflicts, ProjectPull, ProjectPush};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, percent_encode, with_client};
use crate::text;

/// Maximum size in bytes of a file that gets conflict markers.
const MARKED_MAX: u64 = 8 << 20;

pub(super) fn pull(context: &mut Context, args: &ProjectPull) -> Result<Outcome> {
    let (mut local, _lock) = LocalProject::open_locked(&args.directory)?;
    with_client(&args.server, async |client| {
        local.check_server(client)?;
        let project: Project = client.get(&local.project_path()).await?;
        if project.sequence == local.record.sequence {
            print(context, project.sequence, &[])?;
            return Ok(Outcome::Done);
        }
        merge_head(context, client, &mut local, project, args.conflicts).await
    })
}

/// Merges the head of the project into the directory. On a conflict, nothing is changed, unless markers are wanted.
async fn merge_head(
    context: &mut Context,
    client: &Client,
    local: &mut LocalProject,
    project: Project,
    on_conflict: Conflicts,
) -> Result<Outcome> {
    context.progress.begin_bytes("pulling", None);
    let head = fetch(client, &local.store, &project.id, project.sequence, &context.progress).await?;
    context.progress.end();
    let base = local.base()?;
    let ours = local.files(&base, &context.progress)?;
    let theirs = Tree::of_snapshot(&local.store, &head)?;
    let options = TreeOptions { theirs: Author { time: 1, ..Author::default() }, ..TreeOptions::default() };
    let mut merged = merge_trees(&base, &ours, &theirs, &options)?;
    let conflicts: Vec<TreeConflict> =
        merged.conflicts.into_iter().filter(|conflict| conflict.decided.is_none()).collect();
    if !conflicts.is_empty() && on_conflict == Conflicts::Refuse {
        print(context, local.record.sequence, &conflicts)?;
        context.output.flush()?;
        return Err(CommandError::failed("the head conflicts with your changes; nothing was changed")
            .hint("`--conflicts=markers` merges the rest and marks the conflicts in the files")
            .hint("`workspace project push` merges your changes on the server, and leaves conflicts to a review"));
    }
    for conflict in &conflicts {
        add_markers(&mut merged.tree, conflict, (&base, &ours, &theirs))?;
    }
    let unsynced = || NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() };
    let from = VirtualTree::over(&ours)?.commit(unsynced())?;
    let to = merged.tree.commit(unsynced())?;
    let (store, directory) = (&local.store, &local.directory);
    apply_changes(store, &from, &to, directory, &CheckoutOptions::default(), &context.progress)?;
    store.remove_snapshots(&[from.id, to.id])?;
    finish(local, &project, &head)?;
    print(context, project.sequence, &conflicts)?;
    Ok(Outcome::with_warnings_if(!conflicts.is_empty()))
}

/// Prints conflicts, and the sequence of the directory.
fn print(context: &mut Context, sequence: u64, conflicts: &[TreeConflict]) -> Result<()> {
    let fields = |conflict: &TreeConflict| {
        let (path, class) = (quote_path(&conflict.path.0).into_owned(), conflict.class.name().to_owned());
        CompletionConflict { path, class }
    };
    let conflicts: Vec<CompletionConflict> = conflicts.iter().map(fields).collect();
    if context.output.is_json() {
        return context.output.record(&serde_json::json!({ "sequence": sequence, "conflicts": conflicts }));
    }
    for CompletionConflict { path, class } in &conflicts {
        context.output.line(format!("conflict  {path} ({class})"))?;
    }
    context.output.line(format!("at sequence {sequence}"))
}

/// Makes a head the base of the directory.
fn finish(local: &mut LocalProject, project: &Project, head: &Snapshot) -> Result<()> {
    let before = local.record.base;
    let record = Record {
        sequence: project.sequence,
        snapshot: project.head.clone(),
        name: project.name.clone(),
        base: head.id,
        ..local.record.clone()
    };
    local.save(record)?;
    Ok(local.store.remove_snapshots(&[before])?)
}

/// Writes both versions of conflicting lines into a text file. Other conflicts keep the version of the directory.
fn add_markers(
    merged: &mut VirtualTree,
    conflict: &TreeConflict,
    (base, ours, theirs): (&Tree, &Tree, &Tree),
) -> Result<()> {
    if !matches!(conflict.class, ConflictClass::Content | ConflictClass::AddAdd) {
        return Ok(());
    }
    let read = |tree: &Tree, version: Option<&workspace_merge::TreeVersion>| match version
        .map(|it| &it.entry.node)
    {
        Some(Node::File(file)) if file.size() <= MARKED_MAX => Ok(Some(tree.read(file)?)),
        Some(_) => Ok(None),
        None => Ok::<_, CommandError>(Some(Vec::new())),
    };
    let versions = (
        read(base, conflict.base.as_ref())?,
        read(ours, conflict.ours.as_ref())?,
        read(theirs, conflict.theirs.as_ref())?,
    );
    let (Some(base), Some(ours), Some(theirs)) = versions else { return Ok(()) };
    if [&base, &ours, &theirs].iter().any(|content| content.contains(&0)) {
        return Ok(());
    }
    if let Ok(text) = TextMerge::new(&base, &ours, &theirs, DiffLimits::default()) {
        let markers = ConflictMarkers { ours: "directory", theirs: "head", ..ConflictMarkers::default() };
        merged.write(&conflict.path.0, text.render(Style::Merge, &markers).0)?;
    }
    Ok(())
}

pub(super) fn push(context: &mut Context, args: &ProjectPush) -> Result<Outcome> {
    let (mut local, _lock) = LocalProject::open_locked(&args.directory)?;
    let base = local.base()?;
    let files = local.files(&base, &context.progress)?;
    if files.id() == base.id() {
        context.output.line("nothing changed")?;
        return Ok(Outcome::Done);
    }
    let pushed = VirtualTree::over(&files)?
        .commit(NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() })?;
    with_client(&args.server, async |client| {
        local.check_server(client)?;
        let completion = complete(client, &local, args, files).await?;
        if context.output.is_json() {
            context.output.record(&completion)?;
        } else {
            print_completion(context, &completion)?;
        }
        let is_clean = completion.refused.is_empty()
            && completion.renamed.is_empty()
            && completion.state == CompletionState::Landed;
        if !is_clean {
            local.store.remove_snapshots(&[pushed.id])?;
            return Ok(Outcome::WithWarnings);
        }
        // The changes are in the head: what it has besides them is merged into the directory.
        let record = Record { base: pushed.id, ..local.record.clone() };
        let former = local.record.base;
        local.save(record)?;
        local.store.remove_snapshots(&[former])?;
        let project: Project = client.get(&local.project_path()).await?;
        merge_head(context, client, &mut local, project, Conflicts::Refuse).await
    })
}

/// Uploads the files and completes them. The same files on the same base are completed once, however often.
async fn complete(
    client: &Client,
    local: &LocalProject,
    args: &ProjectPush,
    files: Tree,
) -> Result<Completion> {
    let (archive, packing) = tree_upload::pack_in_thread(files)?;
    let sent = client.upload::<UploadSnapshotResult>(&Method::POST, "/api/v1/snapshots", archive).await;
    let snapshot = tree_upload::upload_result(sent, packing)?.snapshot.id;
    let body = CompleteSnapshot {
        snapshot: snapshot.clone(),
        base: Revision::Sequence(local.record.sequence),
        agent: args.agent.clone(),
        message: args.message.clone(),
        wait: WAIT_SECONDS,
    };
    let completed = client.post(&format!("{}/completions", local.project_path()), &body).await;
    // The completion has a snapshot of its own.
    let removed =
        client.delete::<()>(&format!("/api/v1/snapshots/{}", percent_encode(snapshot.as_bytes()))).await;
    let mut completion: Completion = completed?;
    if removed.is_err() {
        text::print_stderr(&format!("note: snapshot {snapshot} was left on the server, and is not needed"));
    }
    while completion.state == CompletionState::Queued {
        let (project, id) = (project_path(&completion.project), percent_encode(completion.id.as_bytes()));
        completion = client.get(&format!("{project}/completions/{id}?wait={WAIT_SECONDS}")).await?;
    }
    Ok(completion)
}
