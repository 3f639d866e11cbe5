//! Decisions of reviewers about reviews (conflicts that wait for a decision), applied to the present head: the files of
//! the project.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use workspace_catalog::{
    EventKind, NewEvent, Operation, OperationKind, Project, Review, ReviewDecision, ReviewState,
    ReviewedCompletion,
};
use workspace_merge::{FileSettings, Strategies};

use super::apply::{Application, HeadCheck};
use super::data::ReviewData;
use super::sides::ReviewSide;
use super::{check_reviewer, is_undecided};
use crate::policy::Policy;
use crate::projects::error::{ProjectError, Result};
use crate::projects::head_change::{HeadChange, PreparedDecision};
use crate::projects::{ChangeAuthor, Projects, no_such_sequence};

/// Maximum size in bytes of new content for a file.
const RESOLUTION_CONTENT_MAX: usize = 16 << 20;

/// Maximum number of attempts to change a head that others change at the same time. More than for other changes,
/// because the merge daemon often moves the head while a decision is prepared.
const RESOLVE_ATTEMPTS_MAX: u64 = 100;
/// Maximum delay before an attempt in milliseconds.
const BACKOFF_MAX_MILLIS: u64 = 100;

/// Choice of a reviewer for the path of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The head stays as it is.
    Ours,
    /// The version of the agent.
    Theirs,
    /// Merge of the present head and the version of the agent by the strategy with this name.
    Strategy(String),
    /// File with this content.
    Content(Vec<u8>),
    /// No entry at the path.
    Delete,
}

impl Resolution {
    /// Returns the name of the choice.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Theirs => "theirs",
            Self::Strategy(_) => "strategy",
            Self::Content(_) => "content",
            Self::Delete => "delete",
        }
    }
}

/// Decision about a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveRequest {
    /// Choice of the reviewer.
    pub resolution: Resolution,
    /// Version of the path that the reviewer has seen in the head: its identity (`ReviewVersion::version`), or a
    /// sequence. `None` stands for the sequence at which the review was opened. Ignored for the choice `ours`.
    pub expect: Option<String>,
    /// Message for the history.
    pub message: String,
}

/// Decided review.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// Review with its decision.
    pub review: Review,
    /// Operation (change of the head); `None` if the head had the chosen version already.
    pub operation: Option<Operation>,
}

impl Projects {
    /// Resolves a review: changes the present head, and records the decision in the same transaction. Fails with
    /// [`ProjectError::ReviewDecided`] if somebody else was faster.
    pub async fn resolve_review(
        &self,
        project: &Project,
        id: &str,
        reviewer: &ChangeAuthor,
        request: ResolveRequest,
    ) -> Result<Resolved> {
        check_request(&request)?;
        let message = request.message.clone();
        let change = HeadChange {
            operation: OperationKind::Resolve,
            author: reviewer,
            message: &message,
            expected: None,
            origin: None,
        };
        let request = Arc::new(request);
        for attempt in 0..RESOLVE_ATTEMPTS_MAX {
            back_off(attempt).await;
            let current = self.catalog.projects().get(&project.id).await?;
            let current = current.ok_or_else(|| ProjectError::NotFound { project: project.name.clone() })?;
            let review = self.review(&current, id).await?;
            if !is_undecided(&review) {
                return Err(decided_error(review));
            }
            let policy = self.policy(&current).await?;
            check_reviewer(&policy, &review, &reviewer.name)?;
            let application = self.application(&current, &review, &policy, Arc::clone(&request)).await?;
            let strategy = application.strategy_name();
            let prepared = self.prepare(
                &current,
                &change,
                Arc::new(move |store: &_, head: &_| application.apply(store, head)),
            );
            let prepared = prepared.await?;
            let sequence = prepared.as_ref().map(|_| current.sequence + 1);
            let resolution = resolution_json(&request.resolution, strategy, sequence);
            let decision = ReviewDecision {
                id: id.to_owned(),
                state: ReviewState::Resolved,
                resolved_by: reviewer.name.clone(),
                resolution,
            };
            let mut decided = self.prepare_decision(&current, &review, decision, sequence).await?;
            decided.strategy = strategy.map(|name| (review.opened.path.clone(), name));
            let is_recorded = match prepared {
                Some(prepared) => self.record(&current, &change, prepared, Some(decided)).await?.is_some(),
                None => self.record_decision(&current, decided).await?,
            };
            if is_recorded {
                return self.resolved(&current, id, sequence).await;
            }
        }
        Err(ProjectError::Contended { project: project.name.clone() })
    }

    /// Reads the decided review, and the operation with the sequence of the new head, if the decision made one.
    async fn resolved(&self, project: &Project, id: &str, sequence: Option<i64>) -> Result<Resolved> {
        let review = self.review(project, id).await?;
        let Some(sequence) = sequence else { return Ok(Resolved { review, operation: None }) };
        let found = self.catalog.operations().find(&project.id, sequence).await?;
        let operation = found.ok_or_else(|| no_such_sequence(project, sequence))?;
        Ok(Resolved { review, operation: Some(operation) })
    }

    /// Reads everything that is needed to apply a resolution to a head.
    async fn application(
        &self,
        project: &Project,
        review: &Review,
        policy: &Policy,
        request: Arc<ResolveRequest>,
    ) -> Result<Application> {
        let data = ReviewData::parse(&review.opened.data)?;
        let path = review.opened.path.clone();
        let expected = match request.expect.as_deref().map(str::parse::<i64>) {
            Some(Ok(sequence)) => HeadCheck::AsInHead(self.head(project, Some(sequence)).await?),
            Some(Err(_)) => HeadCheck::Version(request.expect.clone().unwrap_or_default()),
            None => HeadCheck::AsInHead(self.head(project, Some(data.sequence)).await?),
        };
        let settings = policy.for_agent(&review.opened.author).conflict_settings(&path);
        Ok(Application {
            base: self.version_location(project, review, ReviewSide::Base).await?,
            theirs: self.version_location(project, review, ReviewSide::Theirs).await?,
            theirs_path_in_head: data.theirs_path_in_head.map(|path| path.0),
            review: review.opened.id.clone(),
            class: review.opened.class.clone(),
            settings: settings.file,
            has_head: project.head.is_some(),
            path,
            expected,
            request,
        })
    }

    /// Returns a decision with its event and the completion of the review. `new_sequence` is the sequence of the head
    /// that the decision makes; `None` if it leaves the head as it is.
    pub(super) async fn prepare_decision(
        &self,
        project: &Project,
        review: &Review,
        decision: ReviewDecision,
        new_sequence: Option<i64>,
    ) -> Result<PreparedDecision> {
        let kind = match decision.state {
            ReviewState::Expired => EventKind::ReviewExpired,
            _ => EventKind::ReviewResolved,
        };
        let mut data = event_data(project, review);
        data["by"] = decision.resolved_by.as_str().into();
        data["choice"] = decision.resolution["choice"].clone();
        data["sequence"] = new_sequence.into();
        let completion = match &review.opened.completion {
            Some(id) => self.catalog.completions().find(&project.id, id).await?,
            None => None,
        };
        let completion = completion.map(|completion| {
            let new = &completion.completion;
            let data = json!({ "project": project.name, "projectId": project.id, "completionId": new.id,
                "agent": new.agent, "sequence": completion.sequence.or(new_sequence) });
            let landed = NewEvent { kind: EventKind::CompletionLanded, data };
            ReviewedCompletion { id: new.id.clone(), owner: project.owner.clone(), landed }
        });
        Ok(PreparedDecision { decision, completion, event: NewEvent { kind, data }, strategy: None })
    }
}

/// Waits before each attempt except the first, for a random time. The limit of that time grows with the number of
/// attempts. Without the random time, several reviewers that try again at the same time could collide every time.
async fn back_off(attempt: u64) {
    if attempt > 0 {
        let random = u64::from(uuid::Uuid::now_v7().as_bytes()[15]);
        let limit = (attempt * 4).min(BACKOFF_MAX_MILLIS);
        tokio::time::sleep(Duration::from_millis(random * limit / 255)).await;
    }
}

/// Returns the fields that every event about a review has.
pub(super) fn event_data(project: &Project, review: &Review) -> Value {
    json!({ "project": project.name, "projectId": project.id, "completionId": review.opened.completion,
        "agent": review.opened.author, "reviewId": review.opened.id })
}

fn check_request(request: &ResolveRequest) -> Result<()> {
    match &request.resolution {
        Resolution::Content(content) if content.len() > RESOLUTION_CONTENT_MAX => {
            Err(ProjectError::ResolutionTooLarge { size: content.len(), limit: RESOLUTION_CONTENT_MAX })
        }
        Resolution::Strategy(name) => {
            Strategies::default().get_or_unknown(name).map(drop).map_err(ProjectError::UnknownStrategy)
        }
        _ => Ok(()),
    }
}

fn resolution_json(resolution: &Resolution, strategy: Option<&'static str>, sequence: Option<i64>) -> Value {
    json!({ "choice": resolution.name(), "strategy": strategy, "sequence": sequence })
}

fn decided_error(review: Review) -> ProjectError {
    ProjectError::ReviewDecided {
        review: review.opened.id,
        state: review.state.as_str(),
        by: review.resolved_by.unwrap_or_default(),
    }
}

/// Returns `settings` with this merge strategy, and with conflicts left undecided.
pub(super) fn settings_with(settings: &FileSettings, strategy: &str) -> FileSettings {
    FileSettings {
        strategy: Some(strategy.to_owned()),
        on_conflict: workspace_merge::OnConflict::Review,
        ..settings.clone()
    }
}
