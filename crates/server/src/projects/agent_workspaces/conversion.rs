//! Conversion of workspaces of agents into the types of the API.

use workspace_api::agent_workspaces::{AgentWorkspace, AgentWorkspaceState};
use workspace_catalog::{AgentWorkspace as Row, AgentWorkspaceState as StoredState, WorkspaceHead};
use workspace_context::projects::AgentView;

use super::super::conversion::agent_sequence;
use super::lookup::not_found;
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::time::format_millis;

/// Returns a workspace as the caller sees it: the sequence of an agent counts only the changes of the project that it
/// can see.
pub(super) async fn shown_to(app: &App, caller: &Caller, row: Row) -> Result<AgentWorkspace, ApiError> {
    if caller.binding.is_none() {
        return to_api(row, None);
    }
    let project = app.catalog.projects().get(&row.workspace.project).await?;
    let project = project.ok_or_else(|| not_found(&row.workspace.project, &row.workspace.agent))?;
    let view = app.projects.agent_view(&project, &row.workspace.agent).await?;
    to_api(row, Some(&view))
}

pub(super) fn to_api(row: Row, view: Option<&AgentView>) -> Result<AgentWorkspace, ApiError> {
    let WorkspaceHead { snapshot, sequence, .. } = row.workspace.base;
    let sequence = sequence.unsigned_abs();
    let (provider, path, user) = match row.directory {
        Some(made) => {
            (Some(made.provider), Some(made.path), Some(format!("{}:{}", made.owner.0, made.owner.1)))
        }
        None => (None, None, None),
    };
    Ok(AgentWorkspace {
        id: row.workspace.id,
        project: row.workspace.project,
        agent: row.workspace.agent,
        state: match row.state {
            StoredState::Creating => AgentWorkspaceState::Creating,
            StoredState::Ready => AgentWorkspaceState::Ready,
            StoredState::Moving => AgentWorkspaceState::Moving,
            StoredState::Removing => AgentWorkspaceState::Removing,
        },
        server: row.workspace.server,
        path,
        provider,
        user,
        base_snapshot: snapshot,
        sequence: view.map_or(sequence, |view| agent_sequence(sequence, view)),
        created_at: format_millis(row.created_at)?,
    })
}
