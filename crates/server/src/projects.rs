//! `/api/v1/projects`: files that many agents share, with history, policies and completions.

pub(crate) mod agent_workspaces;
mod completed_file;
mod completion_files;
mod completions;
mod content;
mod conversion;
mod diff;
mod direct;
mod history;
mod import;
mod lookup;
mod policies;
mod project_files;
mod rebase;
mod review_conversion;
mod reviews;
mod work_recorder;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::projects::{
    CreateProject, ImportQuery, ImportResult, ListProjectsQuery, Operation, Project, ProjectList, Rollback,
    UpdateProject,
};
use workspace_catalog::{CatalogError, KeyBinding, Operator, ProjectFilter};
use workspace_context::projects::{AgentView, ChangeAuthor, ProjectError, ProjectSettings};
use workspace_state::{NewSnapshot, TreeError};

pub(crate) use agent_workspaces::recover_workspaces;
pub(crate) use completions::{completed_files, workspace_of_project};
use conversion::{git_directory, merge_mode, operation_to_api, project_for_agent, project_to_api};
use import::{import_author, import_origin};
use lookup::{
    Found, NamedAgent, bound_projects, check_limit, check_message, find, open, parse_path, sequence_of,
};
pub(crate) use project_files::ProjectFiles;
pub(crate) use rebase::{RebaseOutcome, conflicts_to_api, head_version, rebase_sandbox};
pub(crate) use work_recorder::ProjectWorkRecorder;

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::snapshots;

#[derive(OpenApi)]
#[openapi(paths(
    create,
    list,
    fetch,
    update,
    remove,
    import,
    rollback,
    content::root,
    content::tree,
    content::file,
    content::archive,
    history::operations,
    history::versions,
    history::snapshots,
    history::events,
    diff::compare,
    policies::fetch,
    policies::set,
    policies::explain,
    completions::complete,
    rebase::rebase,
    completions::fetch,
    completions::list,
    completion_files::content,
    reviews::list,
    reviews::fetch,
    reviews::version,
    reviews::resolve,
    direct::complete
))]
struct Document;

const RULES: &[Rule] = &[
    Rule::only_keys("GET", "/api/v1/projects"),
    Rule::only_keys("POST", "/api/v1/projects"),
    Rule::only_keys("GET", "/api/v1/projects/{project}"),
    Rule::only_keys("PATCH", "/api/v1/projects/{project}"),
    Rule::only_keys("DELETE", "/api/v1/projects/{project}"),
    Rule::only_keys("POST", "/api/v1/projects/{project}/import"),
    Rule::only_keys("POST", "/api/v1/projects/{project}/rollback"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/archive"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/tree"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/tree/"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/tree/{*path}"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/files/{*path}"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/operations"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/snapshots"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/diff"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/events"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/versions/{*path}"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/policy"),
    Rule::only_keys("PUT", "/api/v1/projects/{project}/policy"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/policy/explain"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/completions"),
    Rule::only_keys("POST", "/api/v1/projects/{project}/completions"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/completions/{completion}"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/completions/{completion}/files/{*path}"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/reviews"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/reviews/{review}"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/reviews/{review}/versions/{side}"),
    Rule::only_keys("POST", "/api/v1/projects/{project}/reviews/{review}/resolve"),
    Rule::right("POST", "/api/v1/sandboxes/{id}/complete", workspace_api::access::Right::Snapshot),
    Rule::right("POST", "/api/v1/sandboxes/{id}/rebase", workspace_api::access::Right::Snapshot),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/projects", get(list).post(create))
        .route("/api/v1/projects/{project}", get(fetch).patch(update).delete(remove))
        // `MAX_UPLOAD` limits the archive instead; it is written to the store as it arrives.
        .route("/api/v1/projects/{project}/import", post(import).layer(DefaultBodyLimit::disable()))
        .route("/api/v1/projects/{project}/rollback", post(rollback))
        .route("/api/v1/projects/{project}/archive", get(content::archive))
        .route("/api/v1/projects/{project}/tree", get(content::root))
        .route("/api/v1/projects/{project}/tree/", get(content::root))
        .route("/api/v1/projects/{project}/tree/{*path}", get(content::tree))
        .route("/api/v1/projects/{project}/files/{*path}", get(content::file))
        .route("/api/v1/projects/{project}/operations", get(history::operations))
        .route("/api/v1/projects/{project}/snapshots", get(history::snapshots))
        .route("/api/v1/projects/{project}/diff", get(diff::compare))
        .route("/api/v1/projects/{project}/events", get(history::events))
        .route("/api/v1/projects/{project}/versions/{*path}", get(history::versions))
        .route("/api/v1/projects/{project}/policy", get(policies::fetch).put(policies::set))
        .route("/api/v1/projects/{project}/policy/explain", get(policies::explain))
        .route("/api/v1/projects/{project}/completions", get(completions::list).post(direct::complete))
        .route("/api/v1/projects/{project}/completions/{completion}", get(completions::fetch))
        .route("/api/v1/projects/{project}/completions/{completion}/files/{*path}", get(completion_files::content))
        .route("/api/v1/projects/{project}/reviews", get(reviews::list))
        .route("/api/v1/projects/{project}/reviews/{review}", get(reviews::fetch))
        .route("/api/v1/projects/{project}/reviews/{review}/versions/{side}", get(reviews::version))
        .route("/api/v1/projects/{project}/reviews/{review}/resolve", post(reviews::resolve))
        .route("/api/v1/sandboxes/{id}/complete", post(completions::complete))
        .route("/api/v1/sandboxes/{id}/rebase", post(rebase::rebase));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Returns the caller as the author of a change by a person.
fn person(caller: &Caller) -> ChangeAuthor {
    ChangeAuthor { name: caller.name.clone(), operator: Operator::Person }
}

/// Create an empty project.
#[utoipa::path(post, path = "/api/v1/projects", tag = "projects", operation_id = "create_project", request_body = CreateProject, responses(
    (status = 201, description = "New project", body = Project),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Json(body): Json<CreateProject>,
) -> Result<(StatusCode, Json<Project>), ApiError> {
    caller.require_unbound()?;
    let limit = app.settings.max_projects_per_owner.0;
    let limit = (!caller.is_admin() && limit > 0).then_some(u64::from(limit));
    let settings = ProjectSettings { git: None, merge: body.merge.map(merge_mode).transpose()? };
    let project = app.projects.create(&caller.owner, &body.name, settings, limit).await?;
    let details = json!({ "project": project.id, "name": project.name });
    app.audit.record(Entry::for_caller("project.created", &caller, &request, details));
    Ok((StatusCode::CREATED, Json(project_to_api(project)?)))
}

/// List projects, the newest first.
///
/// With the key of an agent: all projects that it is bound to, as the agent sees them.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", operation_id = "list_projects",
    params(("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ListProjectsQuery), responses(
    (status = 200, description = "Page of projects", body = ProjectList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Query(query): Query<ListProjectsQuery>,
) -> Result<Json<ProjectList>, ApiError> {
    let limit = check_limit(query.limit)?;
    if let Some(binding) = &caller.binding {
        return Ok(Json(list_bound(&app, binding, agent, limit).await?));
    }
    let owner = (!caller.is_admin()).then(|| caller.owner.clone());
    let filter = ProjectFilter { owner, cursor: query.cursor, limit, ..ProjectFilter::default() };
    let (projects, total) = app.catalog.projects().list(&filter).await?;
    let is_full = projects.len() as u64 == u64::from(limit);
    let next = projects.last().filter(|_| is_full).map(|project| project.id.clone());
    let items = projects.into_iter().map(project_to_api).collect::<Result<_, ApiError>>()?;
    Ok(Json(ProjectList { items, total, limit, next }))
}

/// Get a project.
#[utoipa::path(get, path = "/api/v1/projects/{project}", tag = "projects", operation_id = "get_project",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents")), responses(
    (status = 200, description = "Project", body = Project),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn fetch(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
) -> Result<Json<Project>, ApiError> {
    let Found { project, view } = open(&app, &caller, agent, &project).await?;
    match view {
        Some(view) => Ok(Json(shown_to_agent(&app, &view).await?)),
        None => Ok(Json(project_to_api(project)?)),
    }
}

/// Returns a project as an agent sees it.
async fn shown_to_agent(app: &App, view: &AgentView) -> Result<Project, ApiError> {
    let head = app.projects.agent_head(view, None).await?.map(|head| head.id.to_string());
    let last = match view.sequence_of(view.sequence()) {
        Some(last) => app.catalog.operations().find(&view.project().id, last).await?,
        None => None,
    };
    project_for_agent(view, head, last.map(|last| last.created_at))
}

/// Lists the projects that a key is bound to, as its agent sees them.
async fn list_bound(
    app: &App,
    binding: &KeyBinding,
    agent: NamedAgent,
    limit: u32,
) -> Result<ProjectList, ApiError> {
    let agent = agent.of(binding)?;
    let mut items = Vec::new();
    for project in bound_projects(app, binding).await? {
        let view = app.projects.agent_view(&project, &agent).await?;
        items.push(shown_to_agent(app, &view).await?);
    }
    // A key is bound to few projects, so they are on one page.
    Ok(ProjectList { total: items.len() as u64, items, limit, next: None })
}

/// Change a project: its name, its treatment of git repositories, and when changes of sandboxes are merged.
#[utoipa::path(patch, path = "/api/v1/projects/{project}", tag = "projects", operation_id = "update_project",
    params(("project" = String, Path, description = "Name or id of the project")), request_body = UpdateProject, responses(
    (status = 200, description = "Changed project", body = Project),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn update(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(project): Path<String>,
    Json(body): Json<UpdateProject>,
) -> Result<Json<Project>, ApiError> {
    let mut project = find(&app, &caller, &project).await?;
    let UpdateProject { name, git, merge } = body;
    let settings = ProjectSettings { git: git.map(git_directory), merge: merge.map(merge_mode).transpose()? };
    if name.is_some() || settings != ProjectSettings::default() {
        project = app.projects.update(&project, name.as_deref(), settings).await?;
    }
    let details = json!({ "project": project.id, "name": project.name });
    app.audit.record(Entry::for_caller("project.updated", &caller, &request, details));
    Ok(Json(project_to_api(project)?))
}

/// Delete a project with its history.
///
/// Fails with `PROJECT_IN_USE` while completions wait to be merged, or agents have workspaces of it. Sandboxes of the
/// project stay.
#[utoipa::path(delete, path = "/api/v1/projects/{project}", tag = "projects", operation_id = "delete_project",
    params(("project" = String, Path, description = "Name or id of the project")), responses(
    (status = 204, description = "The project was deleted"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(project): Path<String>,
) -> Result<StatusCode, ApiError> {
    let project = find(&app, &caller, &project).await?;
    app.projects.delete(&project).await?;
    let details = json!({ "project": project.id, "name": project.name });
    app.audit.record(Entry::for_caller("project.deleted", &caller, &request, details));
    Ok(StatusCode::NO_CONTENT)
}

/// Import an archive: its files replace those of the project.
///
/// The body is a tar archive, which may be compressed with gzip or zstd. History is kept: the import is one operation.
#[utoipa::path(post, path = "/api/v1/projects/{project}/import", tag = "projects", operation_id = "import_project",
    params(("project" = String, Path, description = "Name or id of the project"), ImportQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 200, description = "Operation that the import made", body = ImportResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn import(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(project): Path<String>,
    Query(query): Query<ImportQuery>,
    body: Body,
) -> Result<Json<ImportResult>, ApiError> {
    let project = find(&app, &caller, &project).await?;
    app.sandboxes.check_snapshot_quota(&crate::caller::scope(&caller), 1).await?;
    let message = query.message.clone().unwrap_or_default();
    check_message(&message)?;
    let (origin, author) = (import_origin(&query)?, import_author(&query, &caller)?);
    let new = NewSnapshot { author: author.name.clone(), message: message.clone(), ..NewSnapshot::default() };
    let report = snapshots::receive_upload(&app, caller.owner.clone(), new, body).await?;
    let expected = match &query.expect {
        Some(revision) => Some(sequence_of(&app, &project, revision).await?),
        None => None,
    };
    let uploaded = report.snapshot.id;
    // In a separate task, so that the reference that keeps a new head's snapshot is set even if the client disconnects.
    let (task_app, task_project, owner) = (app.clone(), project.clone(), caller.owner.clone());
    let imported = tokio::spawn(async move {
        let projects = &task_app.projects;
        let imported =
            projects.import(&task_project, uploaded, &author, &message, expected, origin.as_ref()).await;
        // The files are in the head now; the upload itself is not needed.
        if let Err(error) = snapshots::remove_redundant(&task_app, &owner, uploaded).await {
            tracing::warn!(snapshot = %uploaded, cause = error.cause(), "failed to remove an imported upload");
        }
        imported
    });
    let imported = imported.await.map_err(ApiError::internal)?;
    let operation = imported?.map(operation_to_api).transpose()?;
    let details =
        json!({ "project": project.id, "sequence": operation.as_ref().map(|operation| operation.sequence) });
    app.audit.record(Entry::for_caller("project.imported", &caller, &request, details));
    Ok(Json(ImportResult { operation, files: report.files, bytes: report.bytes }))
}

/// Roll back a file, a directory or the whole project to an earlier sequence.
///
/// The result is a new version with the former content; history is not rewritten.
#[utoipa::path(post, path = "/api/v1/projects/{project}/rollback", tag = "projects", operation_id = "rollback_project",
    params(("project" = String, Path, description = "Name or id of the project")), request_body = Rollback, responses(
    (status = 200, description = "Operation that the rollback made; null if nothing differs", body = Option<Operation>),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn rollback(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(project): Path<String>,
    Json(body): Json<Rollback>,
) -> Result<Json<Option<Operation>>, ApiError> {
    let project = find(&app, &caller, &project).await?;
    let path = body.path.as_deref().map(parse_path).transpose()?;
    let to = sequence_of(&app, &project, &body.to).await?;
    check_message(&body.message)?;
    app.sandboxes.check_snapshot_quota(&crate::caller::scope(&caller), 1).await?;
    let (task_app, task_project, author) = (app.clone(), project.clone(), person(&caller));
    let rolled_back = tokio::spawn(async move {
        task_app.projects.rollback(&task_project, to, path, &author, &body.message).await
    });
    let operation = rolled_back.await.map_err(ApiError::internal)??;
    let details = json!({ "project": project.id, "to": to });
    app.audit.record(Entry::for_caller("project.rolled_back", &caller, &request, details));
    Ok(Json(operation.map(operation_to_api).transpose()?))
}

impl From<ProjectError> for ApiError {
    fn from(error: ProjectError) -> Self {
        let message = error.to_string();
        match error {
            ProjectError::NotFound { project } => {
                Self::new(error_codes::PROJECT_NOT_FOUND, message).detail("project", project)
            }
            ProjectError::NameTaken { name } => {
                Self::new(error_codes::PROJECT_EXISTS, message).detail("project", name)
            }
            ProjectError::TooMany { limit, .. } => Self::new(error_codes::PROJECT_LIMIT_EXCEEDED, message)
                .detail("limit", limit)
                .detail("setting", "MAX_PROJECTS_PER_OWNER"),
            ProjectError::InvalidName { .. } => {
                Self::new(error_codes::INVALID_REQUEST, message).detail("field", "name")
            }
            ProjectError::NoSuchSequence { sequence, head, .. } => {
                Self::new(error_codes::SEQUENCE_NOT_FOUND, message)
                    .detail("sequence", sequence)
                    .detail("head", head)
            }
            ProjectError::NoSuchSnapshot { snapshot, .. } => {
                Self::new(error_codes::SNAPSHOT_NOT_FOUND, message).detail("snapshot", snapshot)
            }
            ProjectError::Moved { expected, found, .. } => Self::new(error_codes::PROJECT_MOVED, message)
                .detail("expected", expected)
                .detail("sequence", found),
            ProjectError::Contended { .. } => Self::new(error_codes::PROJECT_BUSY, message),
            ProjectError::InUse { .. } => Self::new(error_codes::PROJECT_IN_USE, message),
            ProjectError::ReviewNotFound { review, .. } => {
                Self::new(error_codes::REVIEW_NOT_FOUND, message).detail("review", review)
            }
            ProjectError::ReviewDecided { by, state, .. } => {
                Self::new(error_codes::REVIEW_DECIDED, message).detail("by", by).detail("state", state)
            }
            ProjectError::NotReviewer { reviewers, .. } => {
                Self::new(error_codes::REVIEW_FORBIDDEN, message).detail("reviewers", reviewers)
            }
            ProjectError::ReviewOutdated { version, .. } => {
                Self::new(error_codes::REVIEW_OUTDATED, message).detail("version", version)
            }
            ProjectError::ResolutionNotApplicable { .. } => {
                Self::new(error_codes::RESOLUTION_NOT_APPLICABLE, message)
            }
            ProjectError::ResolutionTooLarge { limit, .. } => {
                Self::new(error_codes::PAYLOAD_TOO_LARGE, message).detail("limit", limit)
            }
            ProjectError::UnknownStrategy(_) => {
                Self::new(error_codes::INVALID_REQUEST, message).detail("field", "strategy")
            }
            ProjectError::Policy(_) => Self::new(error_codes::POLICY_INVALID, message),
            ProjectError::Tree(TreeError::Store(error)) => error.into(),
            ProjectError::Tree(_) => Self::new(error_codes::FILE_CONFLICT, message),
            ProjectError::Catalog(CatalogError::IdempotencyConflict { .. }) => {
                Self::new(error_codes::IDEMPOTENCY_CONFLICT, message)
            }
            ProjectError::Catalog(error) => error.into(),
            ProjectError::Store(error) => error.into(),
            _ => Self::internal(error),
        }
    }
}
