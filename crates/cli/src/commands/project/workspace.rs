//! `workspace project workspace` and `workspace project sync`

use workspace_api::agent_workspaces::{
    AgentWorkspace, AgentWorkspaceChanges, AgentWorkspaceList, AgentWorkspaceState, CreateAgentWorkspace,
    RebaseAgentWorkspaceResult, SyncResult,
};
use workspace_api::projects::{CompleteSandbox, Completion};

use super::super::rebase_report::RebaseReport;
use super::super::table;
use super::completion::{finish_completion, wait_while_queued};
use super::routes::{PAGE_SIZE, WAIT_SECONDS, project_path};
use crate::args::{
    ProjectSync, ProjectWorkspaceChanges, ProjectWorkspaceCommand, ProjectWorkspaceComplete,
    ProjectWorkspaceCreate, ProjectWorkspaceLs, ProjectWorkspaceRebase, ProjectWorkspaceRm,
    ProjectWorkspaceShow,
};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{percent_encode, with_client};
use crate::text;

pub(super) fn run(context: &mut Context, command: &ProjectWorkspaceCommand) -> Result<Outcome> {
    match command {
        ProjectWorkspaceCommand::Create(args) => create(context, args),
        ProjectWorkspaceCommand::Ls(args) => list(context, args),
        ProjectWorkspaceCommand::Show(args) => show(context, args),
        ProjectWorkspaceCommand::Changes(args) => changes(context, args),
        ProjectWorkspaceCommand::Complete(args) => complete(context, args),
        ProjectWorkspaceCommand::Rebase(args) => rebase(context, args),
        ProjectWorkspaceCommand::Rm(args) => remove(args),
    }
}

/// Returns the path of the workspace of an agent in the API.
fn workspace_path(project: &str, agent: &str) -> String {
    format!("{}/workspaces/{}", project_path(project), percent_encode(agent.as_bytes()))
}

fn create(context: &mut Context, args: &ProjectWorkspaceCreate) -> Result<Outcome> {
    let path = format!("{}/workspaces", project_path(&args.project));
    let body = CreateAgentWorkspace {
        agent: args.agent.clone(),
        provider: args.provider.clone(),
        base_snapshot: args.at.as_deref().map(Into::into),
    };
    let made: AgentWorkspace = with_client(&args.server, async |client| client.post(&path, &body).await)?;
    if context.output.is_json() {
        context.output.record(&made)?;
    } else {
        context.output.line(text::escape_controls(made.path.as_deref().unwrap_or("-")))?;
    }
    Ok(Outcome::Done)
}

fn list(context: &mut Context, args: &ProjectWorkspaceLs) -> Result<Outcome> {
    let path = format!("{}/workspaces?limit={PAGE_SIZE}", project_path(&args.project));
    let workspaces = with_client(&args.server, async |client| {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page: AgentWorkspaceList = client.get(&format!("{path}{cursor}")).await?;
            all.extend(page.items);
            let Some(next) = page.next else { return Ok(all) };
            cursor = format!("&cursor={}", percent_encode(next.as_bytes()));
        }
    })?;
    if context.output.is_json() {
        workspaces.iter().try_for_each(|workspace| context.output.record(workspace))?;
        return Ok(Outcome::Done);
    }
    let row = |workspace: &AgentWorkspace| {
        vec![
            workspace.agent.clone(),
            state_name(workspace.state).to_owned(),
            workspace.sequence.to_string(),
            table::time(&workspace.created_at),
            workspace.path.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = workspaces.iter().map(row).collect();
    table::print(&mut context.output, &["AGENT", "STATE", "SEQUENCE", "CREATED", "PATH"], &rows)?;
    Ok(Outcome::Done)
}

fn state_name(state: AgentWorkspaceState) -> &'static str {
    match state {
        AgentWorkspaceState::Creating => "creating",
        AgentWorkspaceState::Ready => "ready",
        AgentWorkspaceState::Moving => "moving",
        AgentWorkspaceState::Removing => "removing",
    }
}

fn show(context: &mut Context, args: &ProjectWorkspaceShow) -> Result<Outcome> {
    let path = workspace_path(&args.project, &args.agent);
    let workspace: AgentWorkspace = with_client(&args.server, async |client| client.get(&path).await)?;
    if context.output.is_json() {
        context.output.record(&workspace)?;
        return Ok(Outcome::Done);
    }
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let fields = [
        ("agent", workspace.agent),
        ("project", workspace.project),
        ("state", state_name(workspace.state).to_owned()),
        ("path", or_dash(workspace.path)),
        ("user", or_dash(workspace.user)),
        ("provider", or_dash(workspace.provider)),
        ("sequence", workspace.sequence.to_string()),
        ("base", workspace.base_snapshot),
        ("server", workspace.server),
        ("created", table::time(&workspace.created_at)),
        ("id", workspace.id),
    ];
    table::print_fields(&mut context.output, &fields)?;
    Ok(Outcome::Done)
}

fn changes(context: &mut Context, args: &ProjectWorkspaceChanges) -> Result<Outcome> {
    let path = format!("{}/changes", workspace_path(&args.project, &args.agent));
    let changes: AgentWorkspaceChanges = with_client(&args.server, async |client| client.get(&path).await)?;
    if context.output.is_json() {
        context.output.record(&changes)?;
    } else {
        for entry in &changes.modified {
            context.output.line(text::escape_controls(&format!("modified  {}", entry.path)))?;
        }
        for path in &changes.deleted {
            context.output.line(text::escape_controls(&format!("deleted   {path}")))?;
        }
        for entry in &changes.skipped {
            context
                .output
                .line(text::escape_controls(&format!("skipped   {} ({})", entry.path, entry.reason)))?;
        }
    }
    Ok(Outcome::with_warnings_if(changes.truncated))
}

fn complete(context: &mut Context, args: &ProjectWorkspaceComplete) -> Result<Outcome> {
    let wait = if args.no_wait { 0 } else { WAIT_SECONDS };
    let body = CompleteSandbox { message: args.message.clone(), wait };
    let path = format!("{}/complete", workspace_path(&args.project, &args.agent));
    let completion: Completion = with_client(&args.server, async |client| {
        let completion: Completion = client.post(&path, &body).await?;
        if args.no_wait { Ok(completion) } else { wait_while_queued(client, completion).await }
    })?;
    finish_completion(context, &completion)
}

fn rebase(context: &mut Context, args: &ProjectWorkspaceRebase) -> Result<Outcome> {
    let path = format!("{}/rebase", workspace_path(&args.project, &args.agent));
    let rebased: RebaseAgentWorkspaceResult =
        with_client(&args.server, async |client| client.post(&path, &serde_json::json!({})).await)?;
    let report = RebaseReport {
        state: rebased.state,
        sequence: rebased.sequence,
        former: rebased.former.as_deref(),
        merged: &rebased.merged,
        conflicts: &rebased.conflicts,
    };
    report.print(context, &rebased)
}

fn remove(args: &ProjectWorkspaceRm) -> Result<Outcome> {
    let query = if args.discard { "?discard=true" } else { "" };
    with_client(&args.server, async |client| {
        for agent in &args.agents {
            client.delete::<()>(&format!("{}{query}", workspace_path(&args.project, agent))).await?;
        }
        Ok(())
    })?;
    Ok(Outcome::Done)
}

pub(super) fn sync(context: &mut Context, args: &ProjectSync) -> Result<Outcome> {
    let path = format!("{}/sync", project_path(&args.project));
    let synced: SyncResult =
        with_client(&args.server, async |client| client.post(&path, &serde_json::json!({})).await)?;
    if context.output.is_json() {
        context.output.record(&synced)?;
    } else {
        let SyncResult { synced, skipped, total } = synced;
        context.output.line(format!("{synced} of {total} workspaces synced, {skipped} skipped"))?;
    }
    Ok(Outcome::Done)
}
