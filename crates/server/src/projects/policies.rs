//! `/api/v1/projects/{project}/policy`: access policy of a project.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use serde_json::json;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::projects::{ExplainQuery, PolicyExplanation, ProjectPolicy};
use workspace_catalog::{EventKind, NewEvent, PolicyResult};
use workspace_context::{Policy, PolicyDocument};
use workspace_state::quote_path;

use super::lookup::{find, parse_path};
use crate::app::App;
use crate::audit::Entry;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::request_id::RequestId;
use crate::time::format_millis;

/// Get the access policy of a project.
#[utoipa::path(get, path = "/api/v1/projects/{project}/policy", tag = "projects", operation_id = "get_policy",
    params(("project" = String, Path, description = "Name or id of the project")), responses(
    (status = 200, description = "Policy in force", body = ProjectPolicy),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn fetch(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
) -> Result<Json<ProjectPolicy>, ApiError> {
    let project = find(&app, &caller, &project).await?;
    let Some(policy) = app.catalog.policies().current(&project.id).await? else {
        let policy = serde_json::to_value(PolicyDocument::default()).map_err(ApiError::internal)?;
        return Ok(Json(ProjectPolicy { version: 0, policy, author: None, time: None }));
    };
    Ok(Json(ProjectPolicy {
        version: policy.version.unsigned_abs(),
        policy: policy.document,
        author: Some(policy.author),
        time: Some(format_millis(policy.created_at)?),
    }))
}

/// Set the access policy of a project.
///
/// The policy is checked as a whole, and gets a new version. With the header `If-Match`, it is set only if the policy in
/// force has that version. It decides about every completion that lands from now on.
#[utoipa::path(put, path = "/api/v1/projects/{project}/policy", tag = "projects", operation_id = "set_policy",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("If-Match" = Option<String>, Header, description = "Version that the policy in force must have, in quotes")),
    request_body(content = Object, description = "Policy: `groups`, `rules` and `default`"), responses(
    (status = 200, description = "New version of the policy", body = ProjectPolicy),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn set(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(project): Path<String>,
    headers: HeaderMap,
    Json(document): Json<PolicyDocument>,
) -> Result<Json<ProjectPolicy>, ApiError> {
    let project = find(&app, &caller, &project).await?;
    let expected = headers.get(header::IF_MATCH).map(parse_version).transpose()?;
    let expected = expected.unwrap_or(project.policy_version);
    let policy = serde_json::to_value(&document).map_err(ApiError::internal)?;
    Policy::compile(document)
        .map_err(|error| ApiError::new(error_codes::POLICY_INVALID, error.to_string()))?;
    let event = NewEvent {
        kind: EventKind::PolicyChanged,
        data: json!({ "project": project.name, "projectId": project.id, "policyVersion": expected + 1 }),
    };
    match app.catalog.policies().set(&project.id, expected, &policy, &caller.name, &[event]).await? {
        PolicyResult::Set(set) => {
            let details = json!({ "project": project.id, "version": set.version });
            app.audit.record(Entry::for_caller("policy.changed", &caller, &request, details));
            let (author, time) = (Some(set.author), Some(format_millis(set.created_at)?));
            Ok(Json(ProjectPolicy { version: set.version.unsigned_abs(), policy, author, time }))
        }
        PolicyResult::Changed { version } => {
            let message = format!("the policy in force has version {version}, not {expected}");
            Err(ApiError::new(error_codes::PRECONDITION_FAILED, message).detail("version", version))
        }
    }
}

/// Explain which rule of the policy decides about a path.
#[utoipa::path(get, path = "/api/v1/projects/{project}/policy/explain", tag = "projects", operation_id = "explain_policy",
    params(("project" = String, Path, description = "Name or id of the project"), ExplainQuery), responses(
    (status = 200, description = "Access, and the rule that decides", body = PolicyExplanation),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn explain(
    State(app): State<App>,
    caller: Caller,
    Path(project): Path<String>,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<PolicyExplanation>, ApiError> {
    let project = find(&app, &caller, &project).await?;
    let policy = app.projects.policy(&project).await?.for_agent(&query.agent);
    let path = parse_path(&query.path)?;
    let explanation = policy.explain(&path);
    Ok(Json(PolicyExplanation {
        agent: query.agent,
        path: quote_path(&path).into_owned(),
        access: explanation.access.name().to_owned(),
        rule: explanation.access_decision.rule,
        why: explanation.access_decision.why,
    }))
}

fn parse_version(value: &axum::http::HeaderValue) -> Result<i64, ApiError> {
    let text = value.to_str().ok().map(|text| text.trim_matches('"'));
    let version = text.and_then(|text| text.parse().ok());
    version.filter(|version| (0..i64::MAX).contains(version)).ok_or_else(|| {
        let message = "If-Match must be the version of a policy in quotes, such as \"3\"";
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "If-Match")
    })
}
