//! Completion of the work in the workspace of an agent.

use axum::http::{HeaderMap, StatusCode};
use serde_json::json;
use workspace_api::projects::{CompleteSandbox, Completion};
use workspace_catalog::{
    AgentWorkspace, Completion as Record, CompletionState, NewCompletion, Project, WorkspaceHead,
};

use super::super::completions::{
    check_owner_quota, check_wait, content_key, repeated, request_key, shown_to,
};
use super::super::lookup::check_message;
use super::lookup::{lock, round_id};
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::Json;
use crate::request_id::RequestId;
use crate::sandboxes::idempotency_key;
use crate::snapshots;
use crate::snapshots::work_limits::WorkPermit;

/// Completes the work in a workspace, waits for the result as the request says, and returns it as the caller sees it.
pub(super) async fn complete(
    app: &App,
    (caller, request): (&Caller, &RequestId),
    (project, agent): (&Project, &str),
    headers: &HeaderMap,
    body: CompleteSandbox,
) -> Result<(StatusCode, Json<Completion>), ApiError> {
    let wait = check_wait(body.wait)?;
    check_message(&body.message)?;
    let key = idempotency_key(headers)?;
    let queued = {
        let permit = app.work_limits.comparison(&caller.owner).await;
        let (_lock, row) = lock(app, project, agent).await?;
        let key = key.map(|key| request_key(&row.workspace.id, &key));
        match repeated(app, &project.id, key.as_deref()).await? {
            Some(existing) => existing,
            None => queue(app, (caller, &permit), &row, key, body.message).await?,
        }
    };
    let details = json!({ "completion": queued.completion.id, "project": project.id, "agent": agent });
    app.audit.record(Entry::for_caller("workspace.completed", caller, request, details));
    let completion = app.projects.wait_for(queued, wait).await?;
    Ok((StatusCode::ACCEPTED, Json(shown_to(app, caller, completion).await?)))
}

/// Commits the files of a workspace, which needs the permit of a comparison, and queues a completion of them. If its
/// last completion has the same files, returns that one.
async fn queue(
    app: &App,
    (caller, _permit): (&Caller, &WorkPermit),
    row: &AgentWorkspace,
    key: Option<String>,
    message: String,
) -> Result<Record, ApiError> {
    app.sandboxes.check_snapshot_quota(&scope(caller), 1).await?;
    check_owner_quota(app, caller, &row.workspace.project).await?;
    let (new, round) = (&row.workspace, round_id(row));
    let theirs = app.sandboxes.commit_agent_workspace(&new.id, &new.owner, &new.agent, message).await?;
    let newest = app.catalog.completions().newest(&new.project, &round).await?;
    if let Some(newest) = newest.as_ref().filter(|newest| newest.state != CompletionState::Failed)
        && key.is_none()
        && app.projects.has_tree(&newest.completion.theirs_snapshot, theirs.tree).await?
    {
        snapshots::remove_redundant(app, &new.owner, theirs.id).await?;
        return Ok(newest.clone());
    }
    let WorkspaceHead { snapshot, sequence, policy_version } = new.base.clone();
    let before = newest.map_or_else(|| snapshot.clone(), |newest| newest.completion.id);
    let id = key.unwrap_or_else(|| content_key("tree", &round, &before, &theirs.tree.to_string()));
    let completion = NewCompletion {
        id,
        project: new.project.clone(),
        owner: new.owner.clone(),
        workspace_owner: Some(new.owner.clone()),
        agent: new.agent.clone(),
        sandbox: None,
        round_id: Some(round),
        base_snapshot: snapshot,
        base_sequence: sequence,
        theirs_snapshot: theirs.id.to_string(),
        policy_version,
    };
    Ok(app.projects.complete(completion).await?)
}
