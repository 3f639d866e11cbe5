//! `workspace project`, `complete`, `history` and `rollback`

mod clone;
mod completion;
mod diff;
mod export;
pub(super) mod git;
mod git_export;
mod git_stream;
mod graph;
mod import;
mod local;
mod log;
mod refused;
mod routes;
mod sync;
mod workspace;

use std::time::Duration;

use workspace_api::projects::{
    self, CreateProject, FileVersion, FileVersionList, MergeInterval, MergeSetting, Operation, Project,
    ProjectList, Rollback as RollbackRequest, UpdateProject,
};

pub(crate) use completion::complete;
pub(super) use routes::project_path;

use self::routes::PAGE_SIZE;
use super::table;
use crate::args::{History, MergeMode, ProjectCommand, ProjectLs, ProjectRm, Rollback, Server};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{percent_encode, with_client};
use crate::text;

pub(crate) fn run(context: &mut Context, command: ProjectCommand) -> Result<Outcome> {
    match command {
        ProjectCommand::Create(args) => {
            let merge = args.merge.map(|mode| merge_setting(mode, args.interval));
            let body = CreateProject { name: args.name, merge };
            let created: Project =
                with_client(&args.server, async |client| client.post("/api/v1/projects", &body).await)?;
            if context.output.is_json() {
                context.output.record(&created)?;
            } else {
                context.output.line(&created.id)?;
            }
            Ok(Outcome::Done)
        }
        ProjectCommand::Ls(args) => list(context, &args),
        ProjectCommand::Show(args) => {
            let path = project_path(&args.project);
            let project: Project = with_client(&args.server, async |client| client.get(&path).await)?;
            show(context, &project)
        }
        ProjectCommand::Rm(args) => remove(&args),
        ProjectCommand::Import(args) => import::run(context, &args),
        ProjectCommand::Export(args) => export::run(context, &args),
        ProjectCommand::Log(args) => log::run(context, &args),
        ProjectCommand::Diff(args) => diff::run(context, &args),
        ProjectCommand::Clone(args) => clone::run(context, &args),
        ProjectCommand::Status(args) => clone::status(context, &args),
        ProjectCommand::Pull(args) => sync::pull(context, &args),
        ProjectCommand::Push(args) => sync::push(context, &args),
        ProjectCommand::Workspace(command) => workspace::run(context, &command),
        ProjectCommand::Sync(args) => workspace::sync(context, &args),
        ProjectCommand::Refused(args) => refused::run(context, &args),
        ProjectCommand::Rename(args) => {
            let body = UpdateProject { name: Some(args.name), ..UpdateProject::default() };
            update(context, &args.server, &args.project, &body)
        }
        ProjectCommand::Set(args) => {
            let merge = Some(merge_setting(args.merge, args.interval));
            let body = UpdateProject { merge, ..UpdateProject::default() };
            update(context, &args.server, &args.project, &body)
        }
    }
}

fn update(context: &mut Context, server: &Server, project: &str, body: &UpdateProject) -> Result<Outcome> {
    let path = project_path(project);
    let updated: Project = with_client(server, async |client| client.patch(&path, body).await)?;
    if context.output.is_json() {
        context.output.record(&updated)?;
    }
    Ok(Outcome::Done)
}

fn merge_setting(mode: MergeMode, interval: Option<Duration>) -> MergeSetting {
    let interval = interval.map(|interval| MergeInterval::Seconds(interval.as_secs()));
    MergeSetting { mode: mode.into(), interval }
}

fn merge_text(merge: &MergeSetting) -> String {
    match (&merge.mode, &merge.interval) {
        (projects::MergeMode::Completion, _) => "on completion".to_owned(),
        (projects::MergeMode::Periodic, Some(MergeInterval::Seconds(seconds))) => {
            format!("every {seconds} s")
        }
        (projects::MergeMode::Periodic, _) => "periodic".to_owned(),
        (projects::MergeMode::Write, _) => "after each change".to_owned(),
    }
}

fn list(context: &mut Context, args: &ProjectLs) -> Result<Outcome> {
    let projects = with_client(&args.server, async |client| {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page: ProjectList =
                client.get(&format!("/api/v1/projects?limit={PAGE_SIZE}{cursor}")).await?;
            all.extend(page.items);
            let Some(next) = page.next else { return Ok(all) };
            cursor = format!("&cursor={}", percent_encode(next.as_bytes()));
        }
    })?;
    if context.output.is_json() {
        projects.iter().try_for_each(|project| context.output.record(project))?;
        return Ok(Outcome::Done);
    }
    let row = |project: &Project| {
        vec![
            project.name.clone(),
            project.sequence.to_string(),
            table::time(&project.updated_at),
            project.id.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = projects.iter().map(row).collect();
    table::print(&mut context.output, &["NAME", "SEQUENCE", "CHANGED", "ID"], &rows)?;
    Ok(Outcome::Done)
}

fn show(context: &mut Context, project: &Project) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(project)?;
        return Ok(Outcome::Done);
    }
    let fields = [
        ("name", project.name.clone()),
        ("id", project.id.clone()),
        ("owner", project.owner.clone()),
        ("sequence", project.sequence.to_string()),
        ("head", project.head.clone().unwrap_or_else(|| "-".to_owned())),
        ("policy", project.policy_version.to_string()),
        ("merges", merge_text(&project.merge)),
        ("created", table::time(&project.created_at)),
        ("changed", table::time(&project.updated_at)),
    ];
    table::print_fields(&mut context.output, &fields)?;
    Ok(Outcome::Done)
}

fn remove(args: &ProjectRm) -> Result<Outcome> {
    with_client(&args.server, async |client| {
        for project in &args.projects {
            client.delete::<()>(&project_path(project)).await?;
        }
        Ok(())
    })?;
    Ok(Outcome::Done)
}

pub(crate) fn history(context: &mut Context, args: &History) -> Result<Outcome> {
    let path = format!(
        "{}/versions/{}?limit={PAGE_SIZE}",
        project_path(&args.project),
        percent_encode(args.path.as_bytes())
    );
    with_client(&args.server, async |client| {
        let mut before = String::new();
        loop {
            let page: FileVersionList = client.get(&format!("{path}{before}")).await?;
            page.items.iter().try_for_each(|version| print_version(context, version))?;
            let Some(next) = page.next else { return Ok(()) };
            before = format!("&before={next}");
        }
    })?;
    Ok(Outcome::Done)
}

fn print_version(context: &mut Context, version: &FileVersion) -> Result<()> {
    if context.output.is_json() {
        return context.output.record(version);
    }
    let FileVersion { sequence, time, change, author, path, .. } = version;
    let size = version.size.map_or_else(|| "-".to_owned(), text::format_bytes);
    let from = version.previous_path.as_ref().map(|from| format!(" (from {from})")).unwrap_or_default();
    let line =
        format!("{sequence:>5}  {}  {change:<8}  {size:>9}  {author}  {path}{from}", table::time(time));
    context.output.line(text::escape_controls(&line))
}

pub(crate) fn rollback(context: &mut Context, args: &Rollback) -> Result<Outcome> {
    let body = RollbackRequest {
        to: args.sequence.as_str().into(),
        path: args.path.clone(),
        message: args.message.clone(),
    };
    let path = format!("{}/rollback", project_path(&args.project));
    let operation: Option<Operation> =
        with_client(&args.server, async |client| client.post(&path, &body).await)?;
    match operation {
        Some(operation) => log::print_operation(context, &operation)?,
        None if context.output.is_json() => context.output.record(&operation)?,
        None => context.output.line("nothing differs")?,
    }
    Ok(Outcome::Done)
}
