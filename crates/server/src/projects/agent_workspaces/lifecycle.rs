//! Creation, removal and recovery of workspaces of agents.
//!
//! The row is inserted before the directory is made, and deleted after it was removed. Operations on a directory hold a
//! lock of the server that has it, so that only a killed server leaves one unfinished; the next start of that server
//! finishes or undoes it.

use axum::http::StatusCode;
use workspace_api::error_codes;
use workspace_api::revision::Revision;
use workspace_catalog::{
    AgentWorkspace, AgentWorkspaceInsertion, AgentWorkspaceState, CatalogError, NewAgentWorkspace, Project,
};
use workspace_context::projects::{ProjectError, WorkspaceBase};
use workspace_sandbox::ProviderKind;

use super::super::completions::workspace_base;
use super::lookup::{busy, is_last_completion, lock, lock_any, read_changes};
use super::moves::{continue_move, head_of};
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::snapshots::work_limits::WorkPermit;

pub(super) fn parse_provider(text: &str) -> Result<ProviderKind, ApiError> {
    text.parse().map_err(|message: String| {
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "provider")
    })
}

/// Returns the workspace that an agent has, after operations on it have ended; `None` if it has none.
pub(super) async fn existing(
    app: &App,
    project: &Project,
    agent: &str,
) -> Result<Option<AgentWorkspace>, ApiError> {
    if app.catalog.agent_workspaces().find(&project.id, agent).await?.is_none() {
        return Ok(None);
    }
    match lock(app, project, agent).await {
        Ok((_lock, row)) => Ok(Some(row)),
        Err(error) if error.code() == error_codes::WORKSPACE_NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// Fails if a workspace does not have the base `at` that a request names. Without one, any base will do.
pub(super) async fn check_base(
    app: &App,
    caller: &Caller,
    project: &Project,
    row: &AgentWorkspace,
    at: Option<&Revision>,
) -> Result<(), ApiError> {
    if at.is_none() {
        return Ok(());
    }
    let agent = &row.workspace.agent;
    let wanted = workspace_base(app, caller, project, agent, at).await?;
    if wanted.snapshot.to_string() == row.workspace.base.snapshot {
        return Ok(());
    }
    let message = format!("agent `{agent}` has a workspace with another base; delete it first");
    Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "baseSnapshot"))
}

/// Creates the workspace of an agent, unless another request has created it meanwhile.
pub(super) async fn create(
    app: &App,
    caller: &Caller,
    project: &Project,
    agent: &str,
    provider: Option<ProviderKind>,
    at: Option<&Revision>,
) -> Result<(StatusCode, AgentWorkspace), ApiError> {
    let base = workspace_base(app, caller, project, agent, at).await?;
    if base.is_read_only {
        let message = format!(
            "agent `{agent}` may change nothing in project `{}`, so it needs no workspace; read the files with \
             `GET …/archive`, or follow the project with a sandbox",
            project.name
        );
        return Err(ApiError::new(error_codes::WORKSPACE_READ_ONLY, message).detail("agent", agent));
    }
    let new = NewAgentWorkspace {
        id: format!("wsp-{}", uuid::Uuid::now_v7().simple()),
        project: project.id.clone(),
        agent: agent.to_owned(),
        owner: caller.owner.clone(),
        server: app.sandboxes.settings().server.clone(),
        base: head_of(&base),
    };
    let limit = app.settings.max_workspaces_per_owner;
    let lock = app.agent_workspace_locks.acquire(&new.id).await;
    let limited = (!caller.is_admin()).then_some(limit);
    let inserted = app.catalog.agent_workspaces().insert(&new, limited).await;
    match inserted.map_err(|error| project_gone(error, project))? {
        AgentWorkspaceInsertion::New(_) => {}
        AgentWorkspaceInsertion::Existing(_) => {
            let (_lock, row) = super::lookup::lock(app, project, agent).await?;
            check_base(app, caller, project, &row, at).await?;
            return Ok((StatusCode::OK, row));
        }
        AgentWorkspaceInsertion::LimitReached => {
            let message = format!(
                "`{}` may have {limit} workspaces for agents at most; delete some, or raise MAX_WORKSPACES_PER_OWNER",
                caller.owner
            );
            let error = ApiError::new(error_codes::WORKSPACE_LIMIT_EXCEEDED, message).detail("limit", limit);
            return Err(error.detail("setting", "MAX_WORKSPACES_PER_OWNER"));
        }
    }
    // In a separate task, so that it is finished or undone even if the client disconnects.
    let app = app.clone();
    let made = tokio::spawn(async move {
        let _lock = lock;
        make_directory(&app, &new, base, provider).await
    });
    Ok((StatusCode::CREATED, made.await.map_err(ApiError::internal)??))
}

fn project_gone(error: CatalogError, project: &Project) -> ApiError {
    match error {
        CatalogError::NotFound { .. } => ProjectError::NotFound { project: project.name.clone() }.into(),
        error => error.into(),
    }
}

/// Makes the directory of a workspace whose row was inserted. Removes everything again if that fails.
async fn make_directory(
    app: &App,
    new: &NewAgentWorkspace,
    base: WorkspaceBase,
    provider: Option<ProviderKind>,
) -> Result<AgentWorkspace, ApiError> {
    let workspaces = app.catalog.agent_workspaces();
    let made = app.sandboxes.create_agent_workspace(&new.id, &new.owner, base.snapshot, provider).await;
    let failure = match made {
        Ok(made) => match workspaces.set_ready(&new.id, &made).await {
            Ok(Some(ready)) => return Ok(ready),
            Ok(None) => busy(&new.agent, AgentWorkspaceState::Removing),
            Err(error) => error.into(),
        },
        Err(error) => error.into(),
    };
    if let Err(error) = remove_directory(app, &new.id).await {
        // The next start of the server, or a deletion, tries again.
        tracing::error!(
            workspace = new.id,
            cause = error.cause(),
            "failed to undo the creation of a workspace"
        );
    }
    Err(failure)
}

/// Removes the directory of a workspace, and then its row.
async fn remove_directory(app: &App, id: &str) -> Result<(), ApiError> {
    app.sandboxes.remove_agent_workspace(id).await?;
    app.catalog.agent_workspaces().delete(id).await?;
    Ok(())
}

/// Removes the workspace of an agent, and returns its id. Fails if it has changes that were not completed, unless they are
/// to be discarded.
pub(super) async fn remove(
    app: &App,
    permit: &WorkPermit,
    (project, agent): (&Project, &str),
    discard: bool,
) -> Result<String, ApiError> {
    let (lock, row) = lock_any(app, project, agent).await?;
    match row.state {
        AgentWorkspaceState::Ready if !discard => check_completed(app, permit, project, &row).await?,
        AgentWorkspaceState::Moving if !discard => return Err(busy(agent, row.state)),
        _ => {}
    }
    let (app, id) = (app.clone(), row.workspace.id);
    let removal = tokio::spawn(async move {
        let _lock = lock;
        app.catalog.agent_workspaces().begin_removal(&id).await?;
        remove_directory(&app, &id).await?;
        Ok(id)
    });
    removal.await.map_err(ApiError::internal)?
}

async fn check_completed(
    app: &App,
    permit: &WorkPermit,
    project: &Project,
    row: &AgentWorkspace,
) -> Result<(), ApiError> {
    let changes = read_changes(app, permit, &row.workspace.id).await?;
    if changes.before.id() == changes.after.id() || is_last_completion(app, row, changes.after.id()).await? {
        return Ok(());
    }
    let agent = &row.workspace.agent;
    let message = format!(
        "the workspace of agent `{agent}` has changes that were not completed; complete it first, or discard them \
         (`discard=true`)"
    );
    let error = ApiError::new(error_codes::WORKSPACE_UNCOMPLETED, message).detail("agent", agent.clone());
    Err(error.detail("project", project.name.clone()))
}

/// Finishes or undoes what the last server process began: undoes creations, and finishes removals and moves to a newer
/// head, with and without changes. A workspace for which that fails is logged, and stays as it is until it is deleted or the server starts again.
pub(crate) async fn recover(app: &App) -> Result<(), CatalogError> {
    let server = app.sandboxes.settings().server.clone();
    for row in app.catalog.agent_workspaces().unfinished(&server).await? {
        let recovered = match row.state {
            AgentWorkspaceState::Ready => Ok(()),
            AgentWorkspaceState::Creating | AgentWorkspaceState::Removing => {
                remove_directory(app, &row.workspace.id).await
            }
            AgentWorkspaceState::Moving => continue_move(app, &row).await.map(|_| ()),
        };
        if let Err(error) = recovered {
            tracing::error!(
                workspace = row.workspace.id,
                cause = error.cause().unwrap_or(error.message()),
                "failed to recover the workspace of an agent"
            );
        }
    }
    Ok(())
}
