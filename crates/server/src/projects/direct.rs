//! `POST /api/v1/projects/{project}/completions`: a push, the completion of work that was done outside a sandbox.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::json;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::project_completions::CompleteSnapshot;
use workspace_api::projects::Completion;
use workspace_context::projects::DirectCompletion;

use super::completions::{check_owner_quota, check_wait, shown_to};
use super::lookup::{check_message, project_and_agent, sequence_for_agent};
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::request_id::RequestId;
use crate::sandboxes::idempotency_key;

/// Maximum length of the name of an agent in bytes.
const AGENT_MAX: usize = 128;

/// Complete work that was done outside a sandbox: merge its changes into the project.
///
/// The changes are the differences between the files that the agent sees at `base` and those of the snapshot. They are
/// merged like those of a sandbox. The header `Idempotency-Key` makes a repeated request return the same completion;
/// without it, the same files on the same base do. An agent names the base by its sequence, and sends the files that it
/// sees.
#[utoipa::path(post, path = "/api/v1/projects/{project}/completions", tag = "projects", operation_id = "complete_snapshot",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("Idempotency-Key" = Option<String>, Header, description = "Key that identifies the request")),
    request_body = CompleteSnapshot, responses(
    (status = 202, description = "Completion", body = Completion),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn complete(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(project): Path<String>,
    headers: HeaderMap,
    Json(body): Json<CompleteSnapshot>,
) -> Result<(StatusCode, Json<Completion>), ApiError> {
    let wait = check_wait(body.wait)?;
    check_message(&body.message)?;
    let (project, agent) = project_and_agent(&app, &caller, &project, body.agent.as_deref()).await?;
    check_agent(&agent)?;
    if caller.binding.is_some() {
        check_owner_quota(&app, &caller, &project.id).await?;
    }
    app.sandboxes.check_snapshot_quota(&scope(&caller), 1).await?;
    let content = app.snapshots().find(&scope(&caller), &body.snapshot).await?.id;
    let sequence = sequence_for_agent(&app, &caller, &project, &agent, &body.base).await?;
    let base = app.projects.workspace_base_at(&project, &agent, sequence).await?;
    let id = idempotency_key(&headers)?.map(|key| request_id(&agent, &key));
    // An agent is told about its completion in the events of its own owner.
    let worker = caller.binding.as_ref().map(|_| caller.owner.clone());
    let new = DirectCompletion { id, agent, owner: worker, base, content, message: body.message };
    let queued = app.projects.complete_directly(&project, new).await?;
    let details = json!({ "completion": queued.completion.id, "project": project.id });
    app.audit.record(Entry::for_caller("project.completed", &caller, &request, details));
    let completion = app.projects.wait_for(queued, wait).await?;
    Ok((StatusCode::ACCEPTED, Json(shown_to(&app, &caller, completion).await?)))
}

/// Returns the id of a completion with an idempotency key. It contains the agent, so that two agents may use the same key.
fn request_id(agent: &str, key: &str) -> String {
    format!("key-{}", blake3::hash(format!("push\0{agent}\0{key}").as_bytes()).to_hex())
}

pub(super) fn check_agent(agent: &str) -> Result<(), ApiError> {
    if !agent.is_empty() && agent.len() <= AGENT_MAX && !agent.contains(char::is_control) {
        return Ok(());
    }
    let message = format!("the name of an agent has 1 to {AGENT_MAX} bytes, and no control characters");
    Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "agent"))
}
