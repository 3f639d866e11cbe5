//! `/api/v1/projects/{project}/reviews`: conflicts and critical changes that wait for a decision.

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use workspace_api::diff::Cause;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::notes::Note;
use workspace_api::projects::Operation;
use workspace_api::reviews::{
    ListReviewsQuery, ResolveReview, ResolvedReview, Review, ReviewChange, ReviewDetails, ReviewList,
};
use workspace_catalog::{CreationOrder, ReviewFilter, ReviewState};
use workspace_context::projects::{
    AgentView, Resolution, ResolveRequest, ReviewDetails as Details, ReviewEntry, ReviewSide,
};
use workspace_sandbox::Scope;
use workspace_state::SnapshotId;

use super::conversion::{agent_sequence, operation_for_agent, operation_to_api};
use super::lookup::{NamedAgent, ReviewAccess, check_limit, check_message, open_reviews, parse_path};
use super::review_conversion::{details_to_api, review_to_api};
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::request_id::RequestId;
use crate::snapshots::{self, EntryPaths};

/// List the reviews of a project, the oldest first.
#[utoipa::path(get, path = "/api/v1/projects/{project}/reviews", tag = "projects", operation_id = "list_reviews",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Reviewer. Needed if the key may act for several agents"), ListReviewsQuery), responses(
    (status = 200, description = "Page of reviews", body = ReviewList),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
    Query(query): Query<ListReviewsQuery>,
) -> Result<Json<ReviewList>, ApiError> {
    let limit = check_limit(query.limit)?;
    let access = open_reviews(&app, &caller, agent, &project).await?;
    // With a bound key, the list has only the reviews that its reviewer may resolve, and `assigned` has no effect.
    let reviewer = access.view.as_ref().map_or(query.assigned, |_| Some(access.reviewer.name.clone()));
    let filter = ReviewFilter {
        state: query.state.as_deref().map(parse_state).transpose()?,
        completion: query.completion,
        path: query.path.as_deref().map(parse_path).transpose()?,
        // The column does not have all reviewers: the policy names further ones.
        assigned: None,
        order: CreationOrder::Oldest,
        cursor: query.cursor,
        limit,
    };
    let page =
        app.projects.reviews(&access.project, filter, reviewer.as_deref(), access.view.as_ref()).await?;
    let reviews = page.reviews.into_iter().map(review_to_api);
    let items = reviews.map(|review| Ok(review_for(review?, access.view.as_ref())));
    Ok(Json(ReviewList {
        items: items.collect::<Result<_, ApiError>>()?,
        total: page.total,
        limit,
        next: page.next,
    }))
}

/// Get a review with all versions, and the commands and notes that led to them.
#[utoipa::path(get, path = "/api/v1/projects/{project}/reviews/{review}", tag = "projects", operation_id = "get_review",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Reviewer. Needed if the key may act for several agents"),
        ("review" = String, Path, description = "Id of the review")), responses(
    (status = 200, description = "Review", body = ReviewDetails),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn fetch(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path((project, id)): Path<(String, String)>,
) -> Result<Json<ReviewDetails>, ApiError> {
    let access = open_reviews(&app, &caller, agent, &project).await?;
    access.review(&app, &id).await?;
    let permit = app.work_limits.comparison(&caller.owner).await;
    let details = app.projects.review_details(&access.project, &id).await?;
    drop(permit);
    let theirs_paths = theirs_paths(&details);
    let theirs_change = change(&app, &caller, &access, Some(details.theirs_range), theirs_paths).await?;
    let ours_paths = (details.entry.stored.opened.path.clone(), None);
    let mut ours_change = change(&app, &caller, &access, details.ours_range, ours_paths).await?;
    ours_change.operation = details.ours_operation.clone().map(operation_to_api).transpose()?;
    if let Some(view) = &access.view {
        let operation = ours_change.operation.take();
        let operation = operation.filter(|operation| is_visible(operation.sequence, view));
        ours_change.operation = operation.map(|operation| as_agent_sees(operation, view));
    }
    let mut details = details_to_api(details, ours_change, theirs_change)?;
    if let Some(view) = &access.view {
        details.sequence = view.sequence().unsigned_abs();
        details.review = review_for(details.review, Some(view));
    }
    Ok(Json(details))
}

/// Returns the path of their version, and its former path if the agent renamed it.
fn theirs_paths(details: &Details) -> EntryPaths {
    let (base, theirs) = (&details.base.path, &details.theirs.path);
    (theirs.clone(), (base != theirs).then(|| base.clone()))
}

/// Returns the commands that changed an entry between two snapshots, with their notes.
async fn change(
    app: &App,
    caller: &Caller,
    access: &ReviewAccess,
    range: Option<(SnapshotId, SnapshotId)>,
    paths: EntryPaths,
) -> Result<ReviewChange, ApiError> {
    let Some(range) = range else {
        return Ok(ReviewChange { operation: None, causes: Vec::new(), complete: true });
    };
    let (causes, complete) = match access.view.clone() {
        None => snapshots::causes_of(app, caller, &scope(caller), range, paths, |_| true).await?,
        Some(view) => {
            // The key of a reviewer owns none of these snapshots. It gets only what `cause_for_reviewer` leaves.
            let scope = Scope::Owner(access.project.owner.clone());
            let shows = move |path: &[u8]| view.shows(path);
            let (causes, complete) = snapshots::causes_of(app, caller, &scope, range, paths, shows).await?;
            (causes.into_iter().map(cause_for_reviewer).collect(), complete)
        }
    };
    Ok(ReviewChange { operation: None, causes, complete })
}

/// Returns a cause as a reviewer with a bound key sees it: its time, its notes, and a message that somebody wrote. The
/// message of an automatic snapshot is a command line. It was not written for readers, and may name files that are
/// hidden from the reviewer, as in `diff secret/plan.md a.txt > b.txt`. So it is left out, with everything that describes
/// the command.
fn cause_for_reviewer(cause: Cause) -> Cause {
    let notes = cause.notes.into_iter().map(|note| Note { command: None, ..note }).collect();
    let message = if cause.command.is_none() { cause.message } else { String::new() };
    Cause { message, command: None, shared_with: Vec::new(), notes, ..cause }
}

/// Get the content of one version of a review, or a range of it.
#[utoipa::path(get, path = "/api/v1/projects/{project}/reviews/{review}/versions/{side}", tag = "projects", operation_id = "get_review_version",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Reviewer. Needed if the key may act for several agents"),
        ("review" = String, Path, description = "Id of the review"),
        ("side" = String, Path, description = "Version: `base`, `ours`, `theirs` or `head`"),
        ("Range" = Option<String>, Header, description = "Range of bytes, such as `bytes=0-99`. Several ranges are ignored, and the whole file is sent"),
        ("If-None-Match" = Option<String>, Header, description = "`ETag` of cached content"),
    ),
    responses(
        (status = 200, description = "Content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "Range of the content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "The cached content is current"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn version(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path((project, id, side)): Path<(String, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let side = ReviewSide::parse(&side).ok_or_else(|| {
        let message = format!("`{side}` is no version: use base, ours, theirs or head");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "side")
    })?;
    let access = open_reviews(&app, &caller, agent, &project).await?;
    let review = access.review(&app, &id).await?;
    let found = app.projects.review_side(&access.project, &review, side).await?;
    let (snapshot, path) = found.ok_or_else(|| {
        let message = format!("version `{side}` of review `{id}` has no entry");
        ApiError::new(error_codes::PATH_NOT_FOUND, message)
    })?;
    snapshots::send_content(&app, &caller, snapshot, path, &method, &headers).await
}

/// Resolve a review.
///
/// The decision is applied to the present head, as a new operation of the caller. Fails with `REVIEW_DECIDED` if the
/// review is decided, and with `REVIEW_OUTDATED` if the head has changed the path since the review was opened and
/// `expect` does not name its present version; the choice `ours` needs none.
#[utoipa::path(post, path = "/api/v1/projects/{project}/reviews/{review}/resolve", tag = "projects", operation_id = "resolve_review",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Reviewer. Needed if the key may act for several agents"),
        ("review" = String, Path, description = "Id of the review")), request_body = ResolveReview, responses(
    (status = 200, description = "Decided review, and the operation that changed the head", body = ResolvedReview),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn resolve(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    request: RequestId,
    Path((project, id)): Path<(String, String)>,
    Json(body): Json<ResolveReview>,
) -> Result<Json<ResolvedReview>, ApiError> {
    let access = open_reviews(&app, &caller, agent, &project).await?;
    let review = access.review(&app, &id).await?;
    if access.view.is_some() && review.opened.author == access.reviewer.name {
        let message = "an agent may not decide about its own changes";
        return Err(ApiError::new(error_codes::REVIEW_FORBIDDEN, message));
    }
    let expect = access.project_version(body.expect.as_deref())?;
    let ReviewAccess { project, reviewer, view } = access;
    check_message(&body.message)?;
    let decision =
        ResolveRequest { expect, message: body.message.clone(), resolution: parse_resolution(body)? };
    let choice = decision.resolution.name();
    app.sandboxes.check_snapshot_quota(&scope(&caller), 1).await?;
    let (task_app, task_project, author) = (app.clone(), project.clone(), reviewer);
    let task_id = id.clone();
    // In a separate task, so that the reference that keeps a new head's snapshot is set even if the client disconnects.
    let resolved = tokio::spawn(async move {
        task_app.projects.resolve_review(&task_project, &task_id, &author, decision).await
    });
    let resolved = resolved.await.map_err(ApiError::internal)??;
    let operation = resolved.operation.map(operation_to_api).transpose()?;
    let sequence = operation.as_ref().map(|operation| operation.sequence);
    let details = json!({ "project": project.id, "review": id, "choice": choice, "sequence": sequence });
    app.audit.record(Entry::for_caller("review.resolved", &caller, &request, details));
    let review = decided_to_api(&app, &project, resolved.review).await?;
    let Some(view) = view else { return Ok(Json(ResolvedReview { review, operation })) };
    let view = app.projects.renewed(&view).await?;
    let operation = operation.map(|operation| as_agent_sees(operation, &view));
    Ok(Json(ResolvedReview { review: review_for(review, Some(&view)), operation }))
}

/// Returns a review as a reviewer with a bound key sees it: with sequences that count only the changes that it can see.
fn review_for(mut review: Review, view: Option<&AgentView>) -> Review {
    if let (Some(view), Some(resolution)) = (view, &mut review.resolution) {
        resolution.sequence = resolution.sequence.map(|sequence| agent_sequence(sequence, view));
    }
    review
}

/// Returns true if an agent can see the change with this sequence of the project.
fn is_visible(sequence: u64, view: &AgentView) -> bool {
    let sequence = i64::try_from(sequence).unwrap_or(i64::MAX);
    // A hidden change has the agent's sequence of the last visible one before it.
    view.sequence_of(view.agent_sequence_at(sequence)) == Some(sequence)
}

/// Returns an operation as an agent sees it, with the sequence of the agent.
fn as_agent_sees(operation: Operation, view: &AgentView) -> Operation {
    let sequence = agent_sequence(operation.sequence, view);
    Operation { sequence, ..operation_for_agent(operation, view) }
}

async fn decided_to_api(
    app: &App,
    project: &workspace_catalog::Project,
    review: workspace_catalog::Review,
) -> Result<Review, ApiError> {
    let policy = app.projects.policy(project).await?.for_agent(&review.opened.author);
    let reviewers = policy.conflict_settings(&review.opened.path).reviewers;
    review_to_api(ReviewEntry { stored: review, reviewers })
}

fn parse_resolution(body: ResolveReview) -> Result<Resolution, ApiError> {
    let wrong = |message: &str, field: &'static str| {
        Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", field))
    };
    if body.strategy.is_some() && body.choice.as_deref() != Some("strategy") {
        return wrong("`strategy` needs the choice `strategy`", "strategy");
    }
    match (body.choice.as_deref(), body.content, body.content_base64) {
        (Some("ours"), None, None) => Ok(Resolution::Ours),
        (Some("theirs"), None, None) => Ok(Resolution::Theirs),
        (Some("delete"), None, None) => Ok(Resolution::Delete),
        (Some("strategy"), None, None) => match body.strategy {
            Some(strategy) => Ok(Resolution::Strategy(strategy)),
            None => wrong("the choice `strategy` needs the name of a `strategy`", "strategy"),
        },
        (Some(_), None, None) => wrong("choice must be ours, theirs, strategy or delete", "choice"),
        (None, Some(text), None) => Ok(Resolution::Content(text.into_bytes())),
        (None, None, Some(text)) => match BASE64_STANDARD.decode(text) {
            Ok(content) => Ok(Resolution::Content(content)),
            Err(_) => wrong("contentBase64 is not base64", "contentBase64"),
        },
        _ => wrong("give one of `choice`, `content` and `contentBase64`", "choice"),
    }
}

fn parse_state(text: &str) -> Result<ReviewState, ApiError> {
    text.parse().map_err(|_| {
        let message = format!("`{text}` is no state: use open, escalated, resolved or expired");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "state")
    })
}
