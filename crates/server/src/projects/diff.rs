//! `/api/v1/projects/{project}/diff`: differences between two heads of a project.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use workspace_api::diff::{Diff, DiffQuery};
use workspace_api::error::ErrorBody;
use workspace_api::project_history::ProjectDiffQuery;
use workspace_api::revision::Revision;
use workspace_catalog::Project;
use workspace_context::projects::AgentView;
use workspace_state::{Snapshot, Store, Tree};

use super::lookup::{Found, NamedAgent, agent_number, open, project_snapshot_at, sequence_of};
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::snapshots::{check_diff, comparison, insight_diff, open_tree, patch_response, plain_diff};

/// Compare two heads of a project.
///
/// Without parameters, the last change is shown. Sequence 0 is the empty project.
#[utoipa::path(get, path = "/api/v1/projects/{project}/diff", tag = "projects", operation_id = "diff_project",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ProjectDiffQuery),
    responses(
        (status = 200, description = "Differences; with `patch=true`, a patch, whose header `X-Truncated` is `true` if it does not contain all differences",
            content((Diff = "application/json"), (String = "text/x-diff"))),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn compare(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
    Query(query): Query<ProjectDiffQuery>,
) -> Result<Response, ApiError> {
    let ProjectDiffQuery { from, to, insight, patch, limit } = query;
    let limit = check_diff(&DiffQuery { insight, patch, limit })?;
    let pair = match open(&app, &caller, agent, &project).await? {
        Found { project, view: None } => heads(&app, &project, from, to).await?,
        Found { view: Some(view), .. } => {
            // Views may have to be made first.
            let _permit = app.work_limits.read(&caller.owner).await;
            agent_heads(&app, &view, from, to).await?
        }
    };
    if patch {
        return patch_response(&app, &caller, limit, move |store| open_both(store, &pair)).await;
    }
    let compared = comparison(&app, &caller, move |store| {
        let (from, to) = open_both(store, &pair)?;
        let compare = if insight { insight_diff } else { plain_diff };
        Ok(compare(&from, &to, limit)?)
    });
    Ok(Json(compared.await?).into_response())
}

/// Returns the snapshots of what an agent sees of two heads, which it names by its own sequences; `None` for an empty
/// project.
async fn agent_heads(
    app: &App,
    view: &AgentView,
    from: Option<Revision>,
    to: Option<Revision>,
) -> Result<(Option<Snapshot>, Option<Snapshot>), ApiError> {
    let to = match &to {
        Some(revision) => agent_number(revision)?,
        None => view.sequence(),
    };
    let from = match &from {
        Some(revision) => agent_number(revision)?,
        None => (to - 1).max(0),
    };
    let newer = app.projects.agent_head(view, Some(to)).await?;
    Ok((app.projects.agent_head(view, Some(from)).await?, newer))
}

/// Returns the snapshots of two heads; `None` for the empty project.
async fn heads(
    app: &App,
    project: &Project,
    from: Option<Revision>,
    to: Option<Revision>,
) -> Result<(Option<Snapshot>, Option<Snapshot>), ApiError> {
    let to = match &to {
        Some(revision) => sequence_of(app, project, revision).await?,
        None => project.sequence,
    };
    let from = from.unwrap_or_else(|| Revision::Sequence(to.unsigned_abs().saturating_sub(1)));
    let newer = app.projects.head(project, Some(to)).await?;
    Ok((project_snapshot_at(app, project, Some(&from)).await?, newer))
}

fn open_both(store: &Store, (a, b): &(Option<Snapshot>, Option<Snapshot>)) -> Result<(Tree, Tree), ApiError> {
    Ok((open_or_empty(store, a.as_ref())?, open_or_empty(store, b.as_ref())?))
}

fn open_or_empty(store: &Store, snapshot: Option<&Snapshot>) -> Result<Tree, ApiError> {
    match snapshot {
        Some(snapshot) => Ok(open_tree(store, snapshot)?),
        None => Ok(store.empty_tree()?.preview().map_err(ApiError::internal)?),
    }
}
