//! Events of a project as an agent sees them: those of changes that its view shows, of its own completions, and, for a
//! reviewer, of the reviews that it may resolve.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use workspace_catalog::{Event, EventKind};
use workspace_context::projects::{AgentView, ProjectError, check_reviewer, is_shown};

use crate::app::App;
use crate::error::ApiError;

/// Filter of the events of a project for an agent.
#[derive(Debug)]
pub(crate) struct AgentEvents {
    view: AgentView,
    role: AgentRole,
}

/// Role in which an agent reads events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentRole {
    /// It works on the project, and sees no reviews.
    Worker,
    /// It also sees the reviews that it may resolve.
    Reviewer,
}

impl AgentEvents {
    pub(crate) fn new(view: AgentView, role: AgentRole) -> Self {
        Self { view, role }
    }

    /// Returns the parts of the name of the reader: events have the same ids for all keys of an agent.
    pub(super) fn reader(&self) -> [&str; 2] {
        [&self.view.project().id, self.view.policy().agent()]
    }

    /// Returns what the agent sees of events of its project. The policy in force decides, also about events from before
    /// it was set.
    pub(super) async fn shown(&mut self, app: &App, events: Vec<Event>) -> Result<Vec<Event>, ApiError> {
        if events.is_empty() {
            return Ok(events);
        }
        // The heads that the events are about may be newer than the view.
        self.view = app.projects.renewed(&self.view).await?;
        let mut reviews = ShownReviews::new(app, self).await?;
        let mut shown = Vec::with_capacity(events.len());
        for event in events {
            if let Some(data) = self.data(&event, &mut reviews).await? {
                shown.push(Event { data, sandbox_id: None, ..event });
            }
        }
        Ok(shown)
    }

    /// Returns the details of an event that the agent may see; `None` if the event is hidden.
    async fn data(&self, event: &Event, reviews: &mut ShownReviews<'_>) -> Result<Option<Value>, ApiError> {
        if !self.is_of_project(event) {
            return Ok(None);
        }
        // A newer server may have written a kind that this one does not know, so it may show anything.
        let Ok(kind) = event.kind.parse::<EventKind>() else { return Ok(None) };
        Ok(match kind {
            EventKind::ProjectCreated | EventKind::ProjectUpdated | EventKind::ProjectDeleted => {
                Some(self.with_fields(&event.data, &[]))
            }
            EventKind::ProjectAdvanced => self.advance(&event.data),
            // The reason of a failure may name what the agent must not see.
            EventKind::CompletionQueued
            | EventKind::CompletionLanded
            | EventKind::CompletionInReview
            | EventKind::CompletionRefused
            | EventKind::CompletionFailed => {
                let is_own = event.data["agent"].as_str() == Some(self.view.policy().agent());
                is_own.then(|| self.with_fields(&event.data, &["completionId", "agent"]))
            }
            EventKind::ReviewOpened
            | EventKind::ReviewResolved
            | EventKind::ReviewEscalated
            | EventKind::ReviewExpired => {
                let fields = ["completionId", "agent", "reviewId", "escalatedTo", "by", "choice"];
                let is_shown = reviews.contains(self, event.data["reviewId"].as_str()).await?;
                is_shown.then(|| self.with_fields(&event.data, &fields))
            }
            // A version of the policy may be about hidden files alone. Sandboxes belong to other agents: those of this
            // one have another owner.
            _ => None,
        })
    }

    /// Returns true if an event is about this project, and not about another one that had its name before.
    fn is_of_project(&self, event: &Event) -> bool {
        let project = self.view.project();
        match event.data["projectId"].as_str() {
            Some(id) => id == project.id,
            // Earlier versions wrote only the name.
            None => event.created_at >= project.created_at,
        }
    }

    /// Returns the details of a change of the head; `None` if it changed nothing that the agent sees.
    fn advance(&self, data: &Value) -> Option<Value> {
        let sequence = data["sequence"].as_i64()?;
        // Events of earlier versions have no `previousSequence`.
        let previous = data["previousSequence"].as_i64().unwrap_or(sequence - 1);
        let has_visible = self.view.agent_sequence_at(previous) < self.view.agent_sequence_at(sequence);
        has_visible.then(|| self.with_fields(data, &[]))
    }

    /// Returns the project, some other fields, and the sequence, which counts only the changes that the agent can see.
    fn with_fields(&self, data: &Value, fields: &[&str]) -> Value {
        let mut shown = Map::new();
        for field in ["project"].iter().chain(fields) {
            shown.insert((*field).to_owned(), data[*field].clone());
        }
        if let Some(sequence) = data["sequence"].as_i64() {
            shown.insert("sequence".to_owned(), json!(self.view.agent_sequence_at(sequence)));
        }
        Value::Object(shown)
    }
}

/// Reviews that a reviewer may resolve, as far as they were looked up.
struct ShownReviews<'a> {
    app: &'a App,
    /// Policy in force; `None` for an agent that is no reviewer.
    policy: Option<workspace_context::Policy>,
    known: HashMap<String, bool>,
}

impl<'a> ShownReviews<'a> {
    async fn new(app: &'a App, events: &AgentEvents) -> Result<Self, ApiError> {
        let policy = match events.role {
            AgentRole::Worker => None,
            AgentRole::Reviewer => Some(app.projects.policy(events.view.project()).await?),
        };
        Ok(Self { app, policy, known: HashMap::new() })
    }

    /// Returns true if the agent may resolve a review, and sees its files.
    async fn contains(&mut self, events: &AgentEvents, id: Option<&str>) -> Result<bool, ApiError> {
        let (Some(policy), Some(id)) = (&self.policy, id) else { return Ok(false) };
        if let Some(known) = self.known.get(id) {
            return Ok(*known);
        }
        let view = &events.view;
        let is_contained = match self.app.projects.review(view.project(), id).await {
            Ok(review) => {
                check_reviewer(policy, &review, view.policy().agent()).is_ok() && is_shown(&review, view)
            }
            Err(ProjectError::ReviewNotFound { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        self.known.insert(id.to_owned(), is_contained);
        Ok(is_contained)
    }
}
