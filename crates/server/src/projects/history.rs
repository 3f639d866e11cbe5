//! `/api/v1/projects/{project}/operations`, `/snapshots`, `/events` and `/versions/{path}`: history of a project and of
//! its files.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::event_log::{EventMessage, EventPage, EventsQuery};
use workspace_api::project_history::{
    ListProjectSnapshotsQuery, ProjectEventsQuery, ProjectSnapshot, ProjectSnapshotList,
};
use workspace_api::projects::{FileVersionList, ListOperationsQuery, ListVersionsQuery, OperationList};
use workspace_catalog::{CreationOrder, FileVersion, Operation, OperationFilter, OperationKind, Role};
use workspace_context::projects::AgentView;

use super::conversion::{
    operation_for_agent, operation_to_api, sequence_number, snapshot_to_api, version_to_api,
};
use super::lookup::{Found, NamedAgent, check_limit, open};
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::event_log::{self, AgentEvents, AgentRole, EventReader};
use crate::extract::{Json, Path, Query};
use crate::snapshots::TreeLocation;

/// Minimum number of operations that are read at a time for an agent.
const OPERATIONS_SCANNED: u32 = 1_000;
/// Number of versions of a file, the newest, that are read for an agent, who may see few of them.
const AGENT_VERSIONS_MAX: u32 = 10_000;

/// List the operations of a project, the newest first.
#[utoipa::path(get, path = "/api/v1/projects/{project}/operations", tag = "projects", operation_id = "list_operations",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ListOperationsQuery), responses(
    (status = 200, description = "Page of operations", body = OperationList),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn operations(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
    Query(query): Query<ListOperationsQuery>,
) -> Result<Json<OperationList>, ApiError> {
    let limit = check_limit(query.limit)?;
    let Found { project, view } = open(&app, &caller, agent, &project).await?;
    let filter = OperationFilter {
        operation: query.operation.as_deref().map(parse_operation).transpose()?,
        author: query.author,
        before: query.before.map(sequence_number).transpose()?,
        order: CreationOrder::Newest,
        limit,
        ..OperationFilter::default()
    };
    let total = match &view {
        None => Some(app.catalog.operations().count(&project.id, &filter).await?),
        // Those of others that match must not be counted, and most of them would have to be read.
        Some(_) if filter.operation.is_some() || filter.author.is_some() => None,
        Some(view) => Some(view.sequence().unsigned_abs()),
    };
    let operations = match &view {
        Some(view) => visible_operations(&app, view, filter).await?,
        None => app.catalog.operations().list(&project.id, &filter).await?,
    };
    let is_full = operations.len() as u64 == u64::from(limit);
    let next = operations.last().filter(|_| is_full).map(|last| last.sequence.unsigned_abs());
    let items = operations.into_iter().map(operation_to_api);
    let items = items.map(|operation| match &view {
        Some(view) => Ok(operation_for_agent(operation?, view)),
        None => operation,
    });
    Ok(Json(OperationList { items: items.collect::<Result<_, ApiError>>()?, total, limit, next }))
}

/// Returns the operations that an agent can see, with the sequences of the agent.
async fn visible_operations(
    app: &App,
    view: &AgentView,
    mut filter: OperationFilter,
) -> Result<Vec<Operation>, ApiError> {
    let before = filter.before.unwrap_or(i64::MAX);
    // The request has a sequence of the agent, the filter one of the project.
    filter.before = view.sequence_of(before);
    let (limit, mut found) = (filter.limit as usize, Vec::new());
    // Many at a time: an agent may see few of them.
    filter.limit = filter.limit.max(OPERATIONS_SCANNED);
    while found.len() < limit {
        let page = app.catalog.operations().list(&view.project().id, &filter).await?;
        filter.before = page.last().map(|last| last.sequence);
        let is_last = page.len() < filter.limit as usize;
        found.extend(page.into_iter().filter_map(|operation| with_agent_sequence(operation, view)));
        if is_last {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Returns an operation with the sequence of an agent, which counts only the changes that it can see; `None` if the
/// agent cannot see the operation.
fn with_agent_sequence(mut operation: Operation, view: &AgentView) -> Option<Operation> {
    let number = view.agent_sequence_at(operation.sequence);
    (view.sequence_of(number) == Some(operation.sequence)).then(|| {
        operation.sequence = number;
        operation
    })
}

/// List the heads of a project, the newest first.
///
/// Every place below `/api/v1/projects` that takes a sequence also takes the id of such a snapshot. An agent gets the
/// heads that differ for it, with its own sequences and without ids.
#[utoipa::path(get, path = "/api/v1/projects/{project}/snapshots", tag = "projects", operation_id = "list_project_snapshots",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ListProjectSnapshotsQuery), responses(
    (status = 200, description = "Page of heads", body = ProjectSnapshotList),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn snapshots(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
    Query(query): Query<ListProjectSnapshotsQuery>,
) -> Result<Json<ProjectSnapshotList>, ApiError> {
    let limit = check_limit(query.limit)?;
    let Found { project, view } = open(&app, &caller, agent, &project).await?;
    let before = query.before.map(sequence_number).transpose()?;
    let filter =
        OperationFilter { before, order: CreationOrder::Newest, limit, ..OperationFilter::default() };
    let total = match &view {
        None => app.catalog.operations().count(&project.id, &filter).await?,
        Some(view) => view.sequence().unsigned_abs(),
    };
    let operations = match &view {
        Some(view) => visible_operations(&app, view, filter).await?,
        None => app.catalog.operations().list(&project.id, &filter).await?,
    };
    let is_full = operations.len() as u64 == u64::from(limit);
    let next = operations.last().filter(|_| is_full).map(|last| last.sequence.unsigned_abs());
    let items = operations.into_iter().map(|operation| {
        let listed = snapshot_to_api(operation)?;
        // The head has the hidden files.
        Ok(ProjectSnapshot { snapshot: listed.snapshot.filter(|_| view.is_none()), ..listed })
    });
    let items = items.collect::<Result<_, ApiError>>()?;
    Ok(Json(ProjectSnapshotList { items, total, limit, next }))
}

/// List the events of a project, the oldest first, or stream them.
///
/// Pages and streams are those of `GET /api/v1/events`. Events from before a rename have the old name of the project and
/// are not listed here. An agent gets the events of changes that it can see, and of its own completions; with the role
/// `reviewer`, also those of the reviews that it may resolve. For an agent, ids have no order, and both ends of a `gap`
/// are the position of the request.
#[utoipa::path(get, path = "/api/v1/projects/{project}/events", tag = "projects", operation_id = "list_project_events",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ProjectEventsQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last received event, to resume a stream")),
    responses(
        (status = 200, description = "Page of events; with `Accept: text/event-stream`, a stream of events", content(
            (EventPage = "application/json"), (EventMessage = "text/event-stream"))),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
    headers: HeaderMap,
    Query(query): Query<ProjectEventsQuery>,
) -> Result<Response, ApiError> {
    let Found { project, view } = open(&app, &caller, agent, &project).await?;
    let role = if caller.role == Role::Reviewer { AgentRole::Reviewer } else { AgentRole::Worker };
    let reader = match view {
        Some(view) => EventReader::of_agent(&app, AgentEvents::new(view, role)),
        None => EventReader::Full,
    };
    let ProjectEventsQuery { after, limit, kind } = query;
    let query = EventsQuery { after, limit, kind, project: Some(project.name), sandbox: None };
    // An admin sees events of all owners, but other owners may have a project of the same name.
    event_log::respond(&app, caller, &headers, query, Some(project.owner), reader).await
}

/// List the versions of a file, the newest first, also those under former names.
#[utoipa::path(get, path = "/api/v1/projects/{project}/versions/{path}", tag = "projects", operation_id = "list_versions",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"),
        ("path" = String, Path, description = "Path in the project. Slashes may be encoded as `%2F`, other bytes as `%XX`"),
        ListVersionsQuery), responses(
    (status = 200, description = "Page of versions", body = FileVersionList),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn versions(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    location: TreeLocation,
    Query(query): Query<ListVersionsQuery>,
) -> Result<Json<FileVersionList>, ApiError> {
    let limit = check_limit(query.limit)?;
    let Found { project, view } = open(&app, &caller, agent, &location.root).await?;
    let before = query.before.map(sequence_number).transpose()?;
    let versions = match &view {
        Some(view) => visible_versions(&app, view, &location.path, before, limit).await?,
        None => app.catalog.file_versions().of_path(&project.id, &location.path, before, limit).await?,
    };
    let is_full = versions.len() as u64 == u64::from(limit);
    let next = versions.last().filter(|_| is_full).map(|last| last.sequence.unsigned_abs());
    let items = versions.into_iter().map(version_to_api).collect::<Result<_, ApiError>>()?;
    Ok(Json(FileVersionList { items, limit, next }))
}

/// Returns the versions of a file that an agent can see, with the sequences of the agent.
async fn visible_versions(
    app: &App,
    view: &AgentView,
    path: &[u8],
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<FileVersion>, ApiError> {
    let versions = app.projects.agent_versions(view, path, AGENT_VERSIONS_MAX).await?;
    let is_before = |version: &FileVersion| before.is_none_or(|before| version.sequence < before);
    Ok(versions.into_iter().filter(is_before).take(limit as usize).collect())
}

fn parse_operation(text: &str) -> Result<OperationKind, ApiError> {
    text.parse().map_err(|_| {
        let message = format!("`{text}` is no operation: use import, merge, write, rollback or resolve");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "operation")
    })
}
