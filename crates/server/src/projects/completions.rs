//! `/api/v1/sandboxes/{id}/complete` and `/api/v1/projects/{project}/completions`: finished work of agents.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::json;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::projects::{CompleteSandbox, Completion, CompletionList, ListCompletionsQuery, WaitQuery};
use workspace_api::revision::Revision;
use workspace_catalog::{
    Completion as Record, CompletionFilter, CompletionState, CreationOrder, NewCompletion, Project, Sandbox,
};
use workspace_context::projects::{AgentView, ProjectError, WorkspaceBase};
use workspace_sandbox::{
    Config, Lineage, NewCommit, ProjectBase, SandboxError, SandboxInfo, Scope, WorkLock,
};
use workspace_state::SnapshotId;

use super::conversion::{completion_for_agent, completion_to_api};
use super::lookup::{
    Found, NamedAgent, check_limit, check_message, open, project_and_agent, sequence_for_agent,
};
use super::project_files::ProjectFiles;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::{ApiError, invalid_cursor};
use crate::extract::{Json, Optional, Path, Query};
use crate::followers::anchor_name;
use crate::request_id::RequestId;
use crate::sandboxes::idempotency_key;
use crate::snapshots;

/// Maximum time that a request waits for a completion.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Returns the name of the project of a new sandbox, and the files that the sandbox is made from: those of the present
/// head, or of the state `at`.
pub(crate) async fn workspace_of_project(
    app: &App,
    caller: &Caller,
    project: &str,
    agent: Option<&str>,
    at: Option<&Revision>,
) -> Result<(String, ProjectFiles), ApiError> {
    let (project, agent) = project_and_agent(app, caller, project, agent).await?;
    let base = workspace_base(app, caller, &project, &agent, at).await?;
    let anchor = anchor_name(&project.id, base.view_key);
    let is_read_only = base.is_read_only;
    let base = base_of_workspace(&project.id, &agent, &base);
    Ok((project.name, ProjectFiles { base, anchor, is_read_only }))
}

/// Returns the files that an agent sees of the present head, or of the state `at`.
pub(super) async fn workspace_base(
    app: &App,
    caller: &Caller,
    project: &Project,
    agent: &str,
    at: Option<&Revision>,
) -> Result<WorkspaceBase, ApiError> {
    let Some(at) = at else { return Ok(app.projects.workspace_base(project, agent).await?) };
    let sequence = sequence_for_agent(app, caller, project, agent, at).await?;
    Ok(app.projects.workspace_base_at(project, agent, sequence).await?)
}

/// Returns the base of a workspace that has the files which an agent sees.
pub(super) fn base_of_workspace(project: &str, agent: &str, base: &WorkspaceBase) -> ProjectBase {
    ProjectBase {
        project: project.to_owned(),
        agent: agent.to_owned(),
        snapshot: base.snapshot,
        sequence: base.sequence,
        policy_version: base.policy_version,
        view_key: Some(base.view_key.to_string()),
        rebased: None,
        untouched: None,
        reverted: None,
    }
}

/// Complete the work in a sandbox: merge its changes into its project.
///
/// The workspace is committed, and the completion is recorded; from then on, the sandbox may be deleted. The changes are
/// merged in the order of the completions. The header `Idempotency-Key` makes a repeated request return the same
/// completion; without it, a request that finds no further change does.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/complete", tag = "projects", operation_id = "complete_sandbox",
    params(("id" = String, Path, description = "Id of the sandbox"),
        ("Idempotency-Key" = Option<String>, Header, description = "Key that identifies the request")),
    request_body = Option<CompleteSandbox>, responses(
    (status = 202, description = "Completion", body = Completion),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn complete(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    headers: HeaderMap,
    Optional(body): Optional<CompleteSandbox>,
) -> Result<(StatusCode, Json<Completion>), ApiError> {
    let wait = check_wait(body.wait)?;
    let scope = scope(&caller);
    let SandboxInfo { sandbox, config, .. } = app.sandboxes.get(&scope, &id).await?;
    check_writable(&id, &config)?;
    let base = project_base(&id, config.lineage)?;
    let key = idempotency_key(&headers)?.map(|key| request_key(&id, &key));
    check_message(&body.message)?;
    check_owner_quota(&app, &caller, &base.project).await?;
    // Completions of a sandbox are recorded in the order of their commits.
    let lock = app.sandboxes.lock_work(&id).await;
    let queued = match repeated(&app, &base.project, key.as_deref()).await? {
        Some(existing) => existing,
        None => {
            let _incoming = app.projects.begin_completion();
            queue(&app, &scope, &sandbox, key, body.message).await?
        }
    };
    app.sandboxes.count_completion(&id);
    // A removal of the sandbox waits for the lock.
    drop(lock);
    let details = json!({ "completion": queued.completion.id, "project": queued.completion.project });
    let entry = Entry::for_caller("sandbox.completed", &caller, &request, details);
    app.audit.record(Entry { sandbox_id: Some(id), ..entry });
    let completion = app.projects.wait_for(queued, wait).await?;
    Ok((StatusCode::ACCEPTED, Json(shown_to(&app, &caller, completion).await?)))
}

/// Returns a completion as the caller sees it: everything, or what its agent may see.
pub(super) async fn shown_to(app: &App, caller: &Caller, completion: Record) -> Result<Completion, ApiError> {
    // A token for the sandbox of an agent sees no more than the agent, whatever key it was made with.
    let is_agents = caller.grant.is_some() && completion.completion.workspace_owner.is_some();
    if caller.binding.is_none() && !is_agents {
        return completion_to_reader(completion, None);
    }
    let project = app.catalog.projects().get(&completion.completion.project).await?;
    let not_found = || ProjectError::NotFound { project: completion.completion.project.clone() };
    let project = project.ok_or_else(not_found)?;
    let view = app.projects.agent_view(&project, &completion.completion.agent).await?;
    completion_to_reader(completion, Some(&view))
}

/// Returns a lock that keeps further completions of a sandbox from being recorded, and the snapshot of its last
/// completion that did not fail. Without such a completion there is no snapshot; without a project there is no lock
/// either.
pub(crate) async fn completed_files(
    app: &App,
    scope: &Scope,
    id: &str,
) -> Result<(Option<WorkLock>, Option<SnapshotId>), ApiError> {
    let lineage = app.sandboxes.get(scope, id).await?.config.lineage;
    if lineage.project_base.is_none() {
        return Ok((None, None));
    }
    let lock = app.sandboxes.lock_work(id).await;
    // Read again under the lock, because a rebase may have replaced the base meanwhile.
    let lineage = app.sandboxes.get(scope, id).await?.config.lineage;
    let Some(base) = lineage.project_base else { return Ok((None, None)) };
    let (completions, round) = (app.catalog.completions(), base.round_id(id));
    let newest = completions.newest(&base.project, &round).await?;
    let last = match newest.filter(|newest| newest.state != CompletionState::Failed) {
        Some(newest) => Some(newest),
        None => completions.newest_merged_or_refused(&base.project, &round).await?,
    };
    let snapshot = last.map(|last| last.completion.theirs_snapshot.parse()).transpose();
    Ok((Some(lock), snapshot.map_err(|_| ApiError::internal("a completion has no valid snapshot"))?))
}

/// Fails if a sandbox cannot have changes.
fn check_writable(id: &str, config: &Config) -> Result<(), ApiError> {
    if !config.read_only || config.lineage.project_base.is_none() {
        return Ok(());
    }
    let hint = match config.follows {
        true => "it follows the head of its project; create a sandbox without `follow`",
        false => {
            "its agent may change nothing when it was created; change the policy, and create another sandbox"
        }
    };
    Err(SandboxError::ReadOnly { id: id.to_owned(), hint }.into())
}

fn project_base(id: &str, lineage: Lineage) -> Result<ProjectBase, ApiError> {
    Ok(lineage.project_base.ok_or_else(|| SandboxError::NoProject { id: id.to_owned() })?)
}

/// Fails if the owner of the project has used up the quota of the store, against which the content of the project
/// counts. An agent has a quota of its own for its snapshots.
pub(super) async fn check_owner_quota(app: &App, caller: &Caller, project: &str) -> Result<(), ApiError> {
    if caller.is_admin() {
        return Ok(());
    }
    Ok(app.sandboxes.check_project_quota(project, &caller.owner).await?)
}

/// Returns the completion that an earlier request with the same key made.
pub(super) async fn repeated(
    app: &App,
    project: &str,
    key: Option<&str>,
) -> Result<Option<Record>, ApiError> {
    match key {
        Some(key) => Ok(app.catalog.completions().find(project, key).await?),
        None => Ok(None),
    }
}

/// Commits the files of a sandbox and queues a completion of them. If its last completion has the same files, returns
/// that one.
async fn queue(
    app: &App,
    scope: &Scope,
    sandbox: &Sandbox,
    key: Option<String>,
    message: String,
) -> Result<Record, ApiError> {
    let (owner, id) = (sandbox.owner.as_str(), sandbox.id.as_str());
    let new = NewCommit { message, ..NewCommit::default() };
    let commit = app.sandboxes.commit_found(scope, sandbox, new).await?;
    let theirs = commit.committed.snapshot;
    // The base at the commit: a rebase or a restore may have replaced it since the request began.
    let base = commit.base.ok_or_else(|| SandboxError::NoProject { id: id.to_owned() })?;
    let newest = app.catalog.completions().newest(&base.project, &base.round_id(id)).await?;
    if let Some(newest) = newest.as_ref().filter(|newest| newest.state != CompletionState::Failed)
        && key.is_none()
        && app.projects.has_tree(&newest.completion.theirs_snapshot, theirs.tree).await?
    {
        snapshots::remove_redundant(app, owner, theirs.id).await?;
        return Ok(newest.clone());
    }
    let before = newest.map_or_else(|| base.snapshot.to_string(), |newest| newest.completion.id);
    let key =
        key.unwrap_or_else(|| content_key("tree", &base.round_id(id), &before, &theirs.tree.to_string()));
    Ok(app.projects.complete(new_completion(key, owner, id, base, theirs.id.to_string())).await?)
}

/// Returns the id of a completion with an idempotency key. Keys of one sandbox mean nothing in another.
pub(super) fn request_key(sandbox: &str, key: &str) -> String {
    format!("key-{}", blake3::hash(format!("{sandbox}\0{key}").as_bytes()).to_hex())
}

/// Returns the id of a completion without an idempotency key, so that the same files after the same completion are
/// completed once. `prefix` distinguishes the occasions, such as the end of a sandbox. `before` is the id of the last
/// completion of the round, or of the snapshot from which the workspace was made; `files` that of the committed tree or
/// snapshot.
pub(super) fn content_key(prefix: &str, workspace: &str, before: &str, files: &str) -> String {
    format!("{prefix}-{}", blake3::hash(format!("{workspace}\0{before}\0{files}").as_bytes()).to_hex())
}

/// Creates a completion of a sandbox. `theirs` is the snapshot with the work of the agent; in the merge, *ours* is the
/// head.
pub(super) fn new_completion(
    id: String,
    owner: &str,
    sandbox: &str,
    base: ProjectBase,
    theirs: String,
) -> NewCompletion {
    let round_id = Some(base.round_id(sandbox));
    NewCompletion {
        id,
        project: base.project,
        owner: owner.to_owned(),
        workspace_owner: Some(owner.to_owned()),
        agent: base.agent,
        sandbox: Some(sandbox.to_owned()),
        round_id,
        base_snapshot: base.snapshot.to_string(),
        base_sequence: base.sequence,
        theirs_snapshot: theirs,
        policy_version: base.policy_version,
    }
}

pub(super) fn check_wait(seconds: u64) -> Result<Duration, ApiError> {
    let wait = Duration::from_secs(seconds);
    if wait <= WAIT_MAX {
        return Ok(wait);
    }
    let message = format!("wait must be at most {} seconds", WAIT_MAX.as_secs());
    Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "wait"))
}

/// Get a completion.
#[utoipa::path(get, path = "/api/v1/projects/{project}/completions/{completion}", tag = "projects", operation_id = "get_completion",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"),
        ("completion" = String, Path, description = "Id of the completion"), WaitQuery), responses(
    (status = 200, description = "Completion", body = Completion),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn fetch(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path((project, id)): Path<(String, String)>,
    Query(query): Query<WaitQuery>,
) -> Result<Json<Completion>, ApiError> {
    let wait = check_wait(query.wait.unwrap_or(0))?;
    let Found { project, view } = open(&app, &caller, agent, &project).await?;
    let found = app.catalog.completions().find(&project.id, &id).await?;
    let is_shown = |agent: &str| view.as_ref().is_none_or(|view| view.policy().agent() == agent);
    let found = found.filter(|found| is_shown(&found.completion.agent));
    let found = found.ok_or_else(|| completion_not_found(&project.name, &id))?;
    let completion = app.projects.wait_for(found, wait).await?;
    // The head that has the changes is newer than the view.
    let view = match view {
        Some(view) => Some(app.projects.renewed(&view).await?),
        None => None,
    };
    Ok(Json(completion_to_reader(completion, view.as_ref())?))
}

/// List the completions of a project, the newest first.
#[utoipa::path(get, path = "/api/v1/projects/{project}/completions", tag = "projects", operation_id = "list_completions",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ListCompletionsQuery), responses(
    (status = 200, description = "Page of completions", body = CompletionList),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
    Query(query): Query<ListCompletionsQuery>,
) -> Result<Json<CompletionList>, ApiError> {
    let limit = check_limit(query.limit)?;
    let Found { project, view } = open(&app, &caller, agent, &project).await?;
    let filter = CompletionFilter {
        state: query.state.as_deref().map(parse_state).transpose()?,
        agent: view.as_ref().map_or(query.agent, |view| Some(view.policy().agent().to_owned())),
        order: CreationOrder::Newest,
        cursor: query.cursor.as_deref().map(parse_cursor).transpose()?,
        limit,
    };
    let total = app.catalog.completions().count(&project.id, &filter).await?;
    let found = app.catalog.completions().list(&project.id, &filter).await?;
    let is_full = found.len() as u64 == u64::from(limit);
    let next = found.last().filter(|_| is_full).map(cursor_after);
    let items = found.into_iter().map(|completion| completion_to_reader(completion, view.as_ref()));
    let items = items.collect::<Result<_, ApiError>>()?;
    Ok(Json(CompletionList { items, total, limit, next }))
}

pub(super) fn completion_not_found(project: &str, id: &str) -> ApiError {
    let message = format!("project `{project}` has no completion `{id}`");
    ApiError::new(error_codes::COMPLETION_NOT_FOUND, message).detail("completion", id)
}

/// Returns a completion as its agent sees it, or with everything if there is no view.
fn completion_to_reader(completion: Record, view: Option<&AgentView>) -> Result<Completion, ApiError> {
    let completion = completion_to_api(completion)?;
    Ok(match view {
        Some(view) => completion_for_agent(completion, view),
        None => completion,
    })
}

fn cursor_after(last: &Record) -> String {
    format!("{}.{}", last.created_at, last.completion.id)
}

fn parse_cursor(text: &str) -> Result<(i64, String), ApiError> {
    let (time, id) = text.split_once('.').ok_or_else(invalid_cursor)?;
    Ok((time.parse().map_err(|_| invalid_cursor())?, id.to_owned()))
}

fn parse_state(text: &str) -> Result<CompletionState, ApiError> {
    text.parse().map_err(|_| {
        let message = format!("`{text}` is no state: use queued, landed, in_review, refused or failed");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "state")
    })
}
