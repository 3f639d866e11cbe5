//! Lookup of projects as the caller may see them, and checks that their routes share.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use workspace_api::error_codes;
use workspace_api::revision::Revision;
use workspace_catalog::{KeyBinding, Operator, Project, Review, Role};
use workspace_context::projects::{AgentView, ChangeAuthor, ProjectError, check_reviewer, is_shown};
use workspace_state::{Snapshot, unquote_path};

use super::conversion::sequence_number;
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;

const LIMIT_DEFAULT: u32 = 100;
const LIMIT_MAX: u32 = 1_000;
/// Maximum length of a message for the history in bytes.
const MESSAGE_MAX: usize = 64 << 10;

/// Header that names the agent as which a request reads a project.
const AGENT_HEADER: &str = "x-agent";

/// Agent that a request names in the header `X-Agent`; `None` if it names none.
#[derive(Debug, Clone, Default)]
pub(super) struct NamedAgent(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for NamedAgent {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let value = parts.headers.get(AGENT_HEADER).map(axum::http::HeaderValue::as_bytes);
        Ok(Self(value.map(|name| String::from_utf8_lossy(name).into_owned())))
    }
}

impl NamedAgent {
    /// Returns the name in the header.
    pub(super) fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Returns the agent for which a bound key acts, see [`agent_of`].
    pub(super) fn of(self, binding: &KeyBinding) -> Result<String, ApiError> {
        agent_of(binding, self.0)
    }
}

/// Project that a request names.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) project: Project,
    /// Restriction to what an agent may see; `None` for the owner of the project, who sees everything.
    pub(super) view: Option<AgentView>,
}

/// Returns a project, and the view of the named agent, or of the agent of a bound key. The owner of the project needs
/// to name no agent, and then sees everything.
pub(super) async fn open(
    app: &App,
    caller: &Caller,
    named: NamedAgent,
    project: &str,
) -> Result<Found, ApiError> {
    let (project, agent) = match &caller.binding {
        None => (find(app, caller, project).await?, named.0),
        Some(binding) => (find_bound(app, binding, project).await?, Some(named.of(binding)?)),
    };
    let view = match agent {
        Some(agent) => Some(app.projects.agent_view(&project, &agent).await?),
        None => None,
    };
    Ok(Found { project, view })
}

/// Returns a project, and the agent for which a request acts in it: the named one, that of the key, or one with the name
/// of the key.
pub(super) async fn project_and_agent(
    app: &App,
    caller: &Caller,
    project: &str,
    agent: Option<&str>,
) -> Result<(Project, String), ApiError> {
    Ok(match &caller.binding {
        Some(binding) => {
            let agent = agent_of(binding, agent.map(str::to_owned))?;
            (find_bound(app, binding, project).await?, agent)
        }
        None => (find(app, caller, project).await?, agent.unwrap_or(&caller.name).to_owned()),
    })
}

/// Access of a caller to the reviews of a project.
#[derive(Debug)]
pub(super) struct ReviewAccess {
    pub(super) project: Project,
    /// Author of decisions. The policy names reviewers by this name.
    pub(super) reviewer: ChangeAuthor,
    /// Restriction to what a reviewer with a bound key may see; `None` for the owner of the project.
    pub(super) view: Option<AgentView>,
}

impl ReviewAccess {
    /// Returns a review of the project. Fails with `REVIEW_NOT_FOUND` if a bound reviewer may not see its files or not
    /// resolve it.
    pub(super) async fn review(&self, app: &App, id: &str) -> Result<Review, ApiError> {
        let review = app.projects.review(&self.project, id).await?;
        let Some(view) = &self.view else { return Ok(review) };
        let policy = app.projects.policy(&self.project).await?;
        let is_reviewer = check_reviewer(&policy, &review, &self.reviewer.name).is_ok();
        if is_reviewer && is_shown(&review, view) {
            return Ok(review);
        }
        Err(ProjectError::ReviewNotFound { project: self.project.name.clone(), review: id.to_owned() }.into())
    }
}

impl ReviewAccess {
    /// Converts the version of the head that a reviewer has seen. `head.version` of a review stays as it is. A number
    /// is a sequence. That of a bound reviewer counts only the changes that it can see, and is converted to the
    /// sequence of the project.
    pub(super) fn project_version(&self, expect: Option<&str>) -> Result<Option<String>, ApiError> {
        let number = expect.and_then(|expect| expect.parse::<i64>().ok());
        let (Some(view), Some(number)) = (&self.view, number) else { return Ok(expect.map(str::to_owned)) };
        Ok(Some(project_sequence(view, number)?.to_string()))
    }
}

/// Returns the access of a caller to the reviews of a project.
pub(super) async fn open_reviews(
    app: &App,
    caller: &Caller,
    named: NamedAgent,
    project: &str,
) -> Result<ReviewAccess, ApiError> {
    let Some(binding) = &caller.binding else {
        let reviewer = ChangeAuthor { name: caller.name.clone(), operator: Operator::Person };
        return Ok(ReviewAccess { project: find(app, caller, project).await?, reviewer, view: None });
    };
    let project = find_bound(app, binding, project).await?;
    if caller.role != Role::Reviewer {
        caller.require_unbound()?;
    }
    let name = named.of(binding)?;
    let view = Some(app.projects.agent_view(&project, &name).await?);
    Ok(ReviewAccess { project, reviewer: ChangeAuthor { name, operator: Operator::Agent }, view })
}

/// Returns the project that a binding has under a name or id.
pub(super) async fn find_bound(app: &App, binding: &KeyBinding, project: &str) -> Result<Project, ApiError> {
    let mut projects = bound_projects(app, binding).await?.into_iter();
    let found = projects.find(|found| found.id == project || found.name == project);
    found.ok_or_else(|| ProjectError::NotFound { project: project.to_owned() }.into())
}

/// Returns the projects of a binding that still exist.
pub(super) async fn bound_projects(app: &App, binding: &KeyBinding) -> Result<Vec<Project>, ApiError> {
    let mut projects = Vec::with_capacity(binding.projects.len());
    for id in &binding.projects {
        projects.extend(app.catalog.projects().get(id).await?);
    }
    Ok(projects)
}

/// Returns the agent for which a bound key acts: the named one, or its only one. Fails with `FORBIDDEN` if the key may
/// not act for the named agent, and with `AGENT_REQUIRED` if it may act for several and none is named.
pub(super) fn agent_of(binding: &KeyBinding, named: Option<String>) -> Result<String, ApiError> {
    match (named, binding.agents.as_slice()) {
        (Some(named), agents) if agents.contains(&named) => Ok(named),
        (Some(named), _) => {
            let message = format!("the key may not act for the agent `{named}`");
            Err(ApiError::new(error_codes::FORBIDDEN, message).detail("agent", named))
        }
        (None, [only]) => Ok(only.clone()),
        (None, agents) => {
            let message =
                "the key may act for several agents; name one in the header `X-Agent`, or as `agent`";
            Err(ApiError::new(error_codes::AGENT_REQUIRED, message).detail("agents", agents.to_vec()))
        }
    }
}

/// Returns the project of the caller's owner with that name or id; for an admin, of any owner by id. Fails for a bound
/// key: with `FORBIDDEN` for its own projects, else as if the project did not exist. Use [`open`] for routes that bound
/// keys may use.
pub(super) async fn find(app: &App, caller: &Caller, project: &str) -> Result<Project, ApiError> {
    if let Some(binding) = &caller.binding {
        find_bound(app, binding, project).await?;
        caller.require_unbound()?;
    }
    if caller.is_admin()
        && let Some(found) = app.catalog.projects().get(project).await?
    {
        return Ok(found);
    }
    Ok(app.projects.find(&caller.owner, project).await?)
}

/// Returns the sequence that a revision names. A number may be one that the project does not have.
pub(super) async fn sequence_of(app: &App, project: &Project, revision: &Revision) -> Result<i64, ApiError> {
    match revision {
        Revision::Sequence(sequence) => sequence_number(*sequence),
        Revision::Snapshot(id) => Ok(app.projects.sequence_of(project, id).await?),
    }
}

/// Returns the snapshot with the files of a project at a revision, or of its head; `None` if the project was empty.
pub(super) async fn project_snapshot_at(
    app: &App,
    project: &Project,
    at: Option<&Revision>,
) -> Result<Option<Snapshot>, ApiError> {
    let at = match at {
        Some(revision) => Some(sequence_of(app, project, revision).await?),
        None => None,
    };
    Ok(app.projects.head(project, at).await?)
}

/// Returns the snapshot with the files of a project that an agent sees, at a revision or of its head; `None` if there
/// were none.
pub(super) async fn agent_snapshot_at(
    app: &App,
    view: &AgentView,
    at: Option<&Revision>,
) -> Result<Option<Snapshot>, ApiError> {
    let number = at.map(agent_number).transpose()?;
    Ok(app.projects.agent_head(view, number).await?)
}

/// Returns the number of a change that an agent names: its sequence, which counts only the changes that the agent can
/// see. There may be no such change.
pub(super) fn agent_number(revision: &Revision) -> Result<i64, ApiError> {
    match revision {
        Revision::Sequence(number) => sequence_number(*number),
        Revision::Snapshot(_) => {
            let message = "an agent names a state of the project by its sequence";
            Err(ApiError::new(error_codes::SEQUENCE_NOT_FOUND, message))
        }
    }
}

/// Returns the sequence of the project that a revision names. If `agent` acts with a bound key, the revision is a sequence
/// of the agent.
pub(super) async fn sequence_for_agent(
    app: &App,
    caller: &Caller,
    project: &Project,
    agent: &str,
    revision: &Revision,
) -> Result<i64, ApiError> {
    if caller.binding.is_none() {
        return sequence_of(app, project, revision).await;
    }
    let view = app.projects.agent_view(project, agent).await?;
    project_sequence(&view, agent_number(revision)?)
}

/// Converts a sequence of an agent to that of the project. Fails with `SEQUENCE_NOT_FOUND` if there is no such change.
fn project_sequence(view: &AgentView, number: i64) -> Result<i64, ApiError> {
    let not_found = || ProjectError::NoSuchSequence {
        project: view.project().name.clone(),
        sequence: number,
        head: view.sequence(),
    };
    Ok(view.sequence_of(number).ok_or_else(not_found)?)
}

pub(super) fn check_limit(limit: Option<u32>) -> Result<u32, ApiError> {
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    let message = format!("limit must be between 1 and {LIMIT_MAX}");
    Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "limit"))
}

/// Fails if a message cannot be stored.
pub(super) fn check_message(message: &str) -> Result<(), ApiError> {
    if message.len() <= MESSAGE_MAX && !message.contains('\0') {
        return Ok(());
    }
    let text = format!("the message must have at most {MESSAGE_MAX} bytes, and no NUL");
    Err(ApiError::new(error_codes::INVALID_REQUEST, text).detail("field", "message"))
}

/// Parses a path in a project, which may be quoted.
pub(super) fn parse_path(text: &str) -> Result<Vec<u8>, ApiError> {
    match unquote_path(text) {
        Some(path) if !path.is_empty() => Ok(path.into_owned()),
        _ => {
            let message = "the path is empty, or its quotes are not closed";
            Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "path"))
        }
    }
}
