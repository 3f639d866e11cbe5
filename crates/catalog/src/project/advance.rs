//! The transaction that moves the head of a project.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use sqlx::AnyConnection;

use super::{Project, Projects, get};
use crate::clock::now;
use crate::completion::{self, CompletionOutcome};
use crate::error::{CatalogError, Result};
use crate::event::{self, NewEvent};
use crate::failpoint;
use crate::file_version::{self, NewFileVersion, Staging};
use crate::operation::{self, Operation, OperationKind, Operator};
use crate::review::{self, NewReview, ReviewDecision};
use crate::statement::Statement;

/// Change of the head by one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct AdvanceStep {
    /// Head after the step. Its content must be durable.
    pub snapshot: String,
    /// Kind of the change.
    pub operation: OperationKind,
    /// Agent or person that made the change.
    pub author: String,
    /// Kind of the author: an agent, a person, or the server itself.
    pub operator: Operator,
    /// Id of the completion that this step merges, or whose review it decides; `None` for other changes.
    pub completion: Option<String>,
    /// Message of the author.
    pub message: Option<String>,
    /// Details, such as the merge strategy of each merged file, as JSON.
    pub details: Value,
    /// Versions of the changed files.
    pub versions: Vec<NewFileVersion>,
}

/// Change of a project's head, with everything that becomes true at the same time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Advance {
    /// Id of the project.
    pub project: String,
    /// Sequence of the head on which the change is based.
    pub expected_sequence: i64,
    /// Version of the policy that the change was checked against; `None` if it does not depend on the policy.
    pub expected_policy: Option<i64>,
    /// Steps in order; each gets the next sequence. Without steps the head stays, and only the rest is recorded.
    pub steps: Vec<AdvanceStep>,
    /// Versions of a large import that were inserted before (`file_version/staging.rs`). They become versions of the
    /// first step, in addition to its own.
    pub staging: Option<Staging>,
    /// Outcomes of completions: of those that the steps merge, and of others. A completion that a step names gets the
    /// sequence of that step.
    pub completions: Vec<CompletionOutcome>,
    /// Reviews to open.
    pub reviews: Vec<NewReview>,
    /// Decisions about reviews.
    pub decisions: Vec<ReviewDecision>,
    /// Completions of the decided reviews. A completion that has no undecided review left gets the state `landed`.
    pub reviewed: Vec<ReviewedCompletion>,
    /// Events, each with its owner.
    pub events: Vec<(String, NewEvent)>,
}

/// Completion of a review that this change decides. It may have other, undecided ones.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewedCompletion {
    /// Id of the completion.
    pub id: String,
    /// Owner of the event.
    pub owner: String,
    /// Event that is inserted if the completion gets the state `landed`.
    pub landed: NewEvent,
}

/// Result of [`Projects::advance`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvanceResult {
    /// Everything was recorded.
    Advanced {
        /// Sequence of the head after the last step.
        sequence: i64,
    },
    /// Nothing was recorded, because the project has another head or policy. The caller starts over.
    Moved {
        /// Sequence of the current head.
        sequence: i64,
        /// Current head.
        head: Option<String>,
        /// Version of the policy in force.
        policy_version: i64,
    },
    /// Nothing was recorded, because a completion or a review has another state than expected: another request merged
    /// the completion or decided the review meanwhile. The caller reads them again.
    StateChanged,
}

impl Projects<'_> {
    /// Moves the head of a project if it has the expected sequence, and records everything that belongs to the move,
    /// in one transaction. A completion is merged at most once, because its state must be the expected one, too.
    ///
    /// Fails with [`CatalogError::StagingReplaced`] if the staged versions were discarded: the head has moved, or
    /// another import has begun.
    pub async fn advance(&self, advance: &Advance) -> Result<AdvanceResult> {
        advance.check()?;
        let mut transaction = self.database.begin().await?;
        let project = current(&mut transaction, &advance.project).await?;
        if project.sequence != advance.expected_sequence {
            return Ok(AdvanceResult::moved(project));
        }
        if !move_head(&mut transaction, advance).await? {
            return Ok(AdvanceResult::moved(current(&mut transaction, &advance.project).await?));
        }
        failpoint::hit("advance-moved")?;
        if !advance.steps.is_empty() {
            let (id, sequence) = (&advance.project, advance.expected_sequence);
            file_version::end_staging(&mut transaction, id, sequence, advance.staging.as_ref()).await?;
            // The head that was read is that of the expected sequence.
            advance.insert_steps(&mut transaction, project.head).await?;
        }
        failpoint::hit("advance-inserted")?;
        if !advance.record_outcomes(&mut transaction).await? {
            return Ok(AdvanceResult::StateChanged);
        }
        failpoint::hit("advance-recorded")?;
        review::insert_all(&mut transaction, &advance.project, &advance.reviews).await?;
        let mut events = advance.events.clone();
        events.extend(advance.land_reviewed(&mut transaction).await?);
        event::insert_for_owners(&mut transaction, &events).await?;
        failpoint::hit("advance-before-commit")?;
        self.database.commit_and_wake_readers(transaction, &events).await?;
        failpoint::hit("advance-committed")?;
        Ok(AdvanceResult::Advanced { sequence: advance.sequence() })
    }
}

impl Advance {
    /// Returns the sequence after the last step.
    fn sequence(&self) -> i64 {
        self.expected_sequence + self.steps.len() as i64
    }

    /// Returns the steps, each with its sequence.
    fn numbered_steps(&self) -> impl Iterator<Item = (i64, &AdvanceStep)> {
        (self.expected_sequence + 1..).zip(&self.steps)
    }

    fn check(&self) -> Result<()> {
        let invalid = |reason| Err(CatalogError::InvalidAdvance { reason });
        let with_outcome: HashSet<&str> =
            self.completions.iter().map(|outcome| outcome.id.as_str()).collect();
        if with_outcome.len() < self.completions.len() {
            return invalid("a completion has two outcomes");
        }
        // Without an outcome it would stay queued, and be merged again.
        let mut merges = self.steps.iter().filter(|step| step.operation == OperationKind::Merge);
        if merges.any(|step| step.completion.as_deref().is_some_and(|id| !with_outcome.contains(id))) {
            return invalid("a merged completion has no outcome");
        }
        match &self.staging {
            Some(_) if self.steps.is_empty() => invalid("there are staged versions, but no step"),
            Some(staging) if !staging.is_based_on(&self.project, self.expected_sequence) => {
                invalid("the staged versions are based on another head")
            }
            _ => Ok(()),
        }
    }

    /// Inserts the operations and the versions of all steps.
    async fn insert_steps(&self, connection: &mut AnyConnection, head: Option<String>) -> Result<()> {
        let created_at = now();
        let mut previous = head;
        let mut operations = Vec::with_capacity(self.steps.len());
        for (sequence, step) in self.numbered_steps() {
            let previous = previous.replace(step.snapshot.clone());
            operations.push(step.operation(sequence, previous, created_at));
        }
        operation::insert_all(connection, &self.project, &operations).await?;
        let versions = self.numbered_steps().flat_map(|(sequence, step)| {
            let with_sequence = move |version| (sequence, version);
            step.versions.iter().map(with_sequence)
        });
        let versions: Vec<_> = versions.collect();
        file_version::insert_all(connection, &self.project, &versions, created_at).await
    }

    /// Returns the sequences of the steps that name a completion.
    fn sequences(&self) -> HashMap<&str, i64> {
        let steps = self.numbered_steps();
        steps.filter_map(|(sequence, step)| Some((step.completion.as_deref()?, sequence))).collect()
    }

    /// Gives the state `landed` to the completions that have no undecided review left, and returns their events. The
    /// row of the project is locked, so of two decisions at the same time the later one sees the other.
    async fn land_reviewed(&self, connection: &mut AnyConnection) -> Result<Vec<(String, NewEvent)>> {
        let (sequences, mut events) = (self.sequences(), Vec::new());
        for reviewed in &self.reviewed {
            // A completion that landed in part keeps its first sequence. One of which everything was in review gets
            // that of the decision, if it changed the head.
            let sequence = sequences.get(reviewed.id.as_str()).copied();
            if completion::land_if_decided(connection, &self.project, &reviewed.id, sequence).await? {
                events.push((reviewed.owner.clone(), reviewed.landed.clone()));
            }
        }
        Ok(events)
    }

    /// Records outcomes of completions and decisions about reviews. Returns false if one was made already.
    async fn record_outcomes(&self, connection: &mut AnyConnection) -> Result<bool> {
        let sequences = self.sequences();
        let outcomes = self.completions.iter();
        let outcomes = outcomes.map(|outcome| (outcome, sequences.get(outcome.id.as_str()).copied()));
        let outcomes: Vec<_> = outcomes.collect();
        if !completion::record_all(connection, &self.project, &outcomes).await? {
            return Ok(false);
        }
        for decision in &self.decisions {
            if !review::decide(connection, &self.project, decision).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl AdvanceResult {
    fn moved(project: Project) -> Self {
        let Project { sequence, head, policy_version, .. } = project;
        Self::Moved { sequence, head, policy_version }
    }
}

impl AdvanceStep {
    fn operation(&self, sequence: i64, previous: Option<String>, created_at: i64) -> Operation {
        Operation {
            sequence,
            snapshot: self.snapshot.clone(),
            previous,
            operation: self.operation,
            author: self.author.clone(),
            operator: self.operator,
            completion: self.completion.clone(),
            message: self.message.clone(),
            details: self.details.clone(),
            created_at,
        }
    }
}

async fn current(connection: &mut AnyConnection, project: &str) -> Result<Project> {
    get(connection, project).await?.ok_or_else(|| CatalogError::no_project(project))
}

/// Moves the head if it has the expected sequence and policy, and locks the row of the project. Returns false
/// otherwise.
async fn move_head(connection: &mut AnyConnection, advance: &Advance) -> Result<bool> {
    let update = Statement::new(
        "UPDATE projects SET sequence = $1, head = COALESCE($2, head), updated_at = $3
         WHERE id = $4 AND sequence = $5 AND policy_version = COALESCE($6, policy_version)",
    );
    let head = advance.steps.last().map(|step| step.snapshot.as_str());
    let update = update.number(advance.sequence()).optional_text("snapshot", head).number(now());
    let update = update.text("project", &advance.project).number(advance.expected_sequence);
    Ok(update.optional_number(advance.expected_policy).run(connection).await? > 0)
}
