//! `workspace project clone` and `status`

use workspace_api::projects::Project;
use workspace_state::{CheckoutOptions, NewSnapshot, Progress as _, apply_changes, diff};

use super::super::diff::{difference_fields, print_difference};
use super::git;
use super::local::{LocalProject, Record, fetch};
use super::routes::project_path;
use crate::args::{ProjectClone, ProjectStatus};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::with_client;

pub(super) fn run(context: &mut Context, args: &ProjectClone) -> Result<Outcome> {
    let directory = git::absolute(&args.directory)?;
    with_client(&args.server, async |client| {
        let project: Project = client.get(&project_path(&args.project)).await?;
        let store = LocalProject::create_store(&directory)?;
        context.progress.begin_bytes("cloning", None);
        let head = fetch(client, &store, &project.id, project.sequence, &context.progress).await?;
        context.progress.end();
        let empty = store.empty_tree()?.commit(NewSnapshot::default())?;
        apply_changes(&store, &empty, &head, &directory, &CheckoutOptions::default(), &context.progress)?;
        let record = Record {
            server: client.server.url.clone(),
            project: project.id,
            name: project.name,
            sequence: project.sequence,
            snapshot: project.head,
            base: head.id,
        };
        LocalProject { directory: directory.clone(), store, record: record.clone() }.save(record)
    })?;
    Ok(Outcome::Done)
}

/// Prints the changes of the directory, and on stderr if the head has moved.
pub(super) fn status(context: &mut Context, args: &ProjectStatus) -> Result<Outcome> {
    let local = LocalProject::open(&args.directory)?;
    let base = local.base()?;
    let files = local.files(&base, &context.progress)?;
    let project: Project = with_client(&args.server, async |client| {
        local.check_server(client)?;
        client.get(&local.project_path()).await
    })?;
    let differences = diff(&base, &files)?;
    if context.output.is_json() {
        let changes: Vec<_> = differences.iter().map(difference_fields).collect();
        let status = serde_json::json!({ "project": project.name, "sequence": local.record.sequence,
            "head": project.sequence, "changes": changes });
        context.output.record(&status)?;
        return Ok(Outcome::Done);
    }
    let sequence = local.record.sequence;
    context.output.line(match project.sequence > sequence {
        true => format!("{} at sequence {sequence}; the head has {}", project.name, project.sequence),
        false => format!("{} at sequence {sequence}, the head", project.name),
    })?;
    differences.iter().try_for_each(|difference| print_difference(&mut context.output, difference))?;
    Ok(Outcome::Done)
}
