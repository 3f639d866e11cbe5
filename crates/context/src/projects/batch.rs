//! Merge of all completions of a project that wait, with one change of its head.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use workspace_catalog::{
    Advance, AdvanceResult, Completion, CompletionOutcome, CompletionState, EventKind, NewCompletion,
    NewEvent, OperationKind, Operator, Project, Step,
};
use workspace_state::{Difference, Snapshot, SnapshotId, Tree};

use super::git_directory::GitDirectory;
use super::landing::{Landed, Lander, Work};
use super::report::CompletionReport;
use super::reviews::opened_reviews;
use super::versions::{FileIds, differences, former_paths, versions};
use super::{PROJECT_LABEL, Projects, Result, blocking, failpoint, labelled, parse_snapshot, references};
use crate::policy::Policy;
use crate::projects::ProjectError;

/// Maximum number of completions that are merged before the head moves.
const BATCH_MAX: u32 = 200;
/// Number of changed files after which a batch ends, since all of them are in memory and recorded at once.
const CHANGES_MAX: usize = 20_000;
/// Number of attempts to move a head that others move at the same time.
const ATTEMPTS_MAX: usize = 20;

/// Completions that were merged in the store, but are not recorded yet.
#[derive(Default)]
struct Merged {
    /// Results in the order of the completions, with the differences of the heads before and after.
    landed: Vec<(Completion, Landed, Vec<Difference>)>,
    /// Completions that could not be merged, with the reason.
    failed: Vec<(Completion, String)>,
    /// True if some were left for the next batch.
    has_more: bool,
}

impl Projects {
    /// Merges the completions of a project that wait. Returns true if there may be more.
    pub(super) async fn land_queued(&self, project: &str) -> Result<bool> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(project) = self.catalog.projects().get(project).await? else { return Ok(false) };
            let queued = self.catalog.completions().queued(&project.id, BATCH_MAX).await?;
            if queued.is_empty() {
                return Ok(false);
            }
            let is_full = queued.len() as u32 == BATCH_MAX;
            let policy = self.policy(&project).await?;
            let merged = self.merge(&project, policy.clone(), queued).await?;
            self.record_failures(&project, &merged.failed).await?;
            // Otherwise only completions that failed could be left.
            let more = (is_full || merged.has_more) && !merged.landed.is_empty();
            if merged.landed.is_empty() || self.record_landed(&project, &policy, merged.landed).await? {
                return Ok(more);
            }
        }
        Err(ProjectError::Contended { project: project.to_owned() })
    }

    /// Merges completions one after another, each into the head that the one before it made.
    async fn merge(&self, project: &Project, policy: Policy, queued: Vec<Completion>) -> Result<Merged> {
        let mut bases = HashMap::new();
        for workspace in queued.iter().filter_map(|completion| completion.completion.workspace.as_ref()) {
            if !bases.contains_key(workspace) {
                let last = self.catalog.completions().last_decided(&project.id, workspace).await?;
                let base = last.map(|last| parse_snapshot(&last.completion.theirs_snapshot)).transpose()?;
                bases.insert(workspace.clone(), base);
            }
        }
        let (head, git) = (self.head(project, None).await?, GitDirectory::of(project));
        let (store, views, id) = (self.store.clone(), Arc::clone(&self.views), project.id.clone());
        blocking(move || {
            let head = match head {
                Some(head) => head,
                None => store.empty_tree()?.commit(labelled([(PROJECT_LABEL, id.clone())]))?,
            };
            let mut lander =
                Lander { store: &store, policy: &policy, views: &views, git, temporary: Vec::new() };
            let merged = merge_all(&mut lander, &id, head, queued, bases);
            lander.clean_up()?;
            failpoint::hit("merge-cleaned")?;
            let merged = merged?;
            // Everything that the transaction refers to must be on disk before it.
            store.sync()?;
            failpoint::hit("merge-synced")?;
            Ok(merged)
        })
        .await
    }

    async fn record_failures(&self, project: &Project, failed: &[(Completion, String)]) -> Result<()> {
        for (completion, error) in failed {
            let Completion { completion, .. } = completion;
            tracing::warn!(
                project = completion.project,
                completion = completion.id,
                error,
                "failed to merge a completion"
            );
            let data = json!({ "project": project.name, "completionId": completion.id, "agent": completion.agent,
                "reason": error });
            let event = NewEvent { kind: EventKind::CompletionFailed, data };
            self.catalog
                .completions()
                .record_attempt(&completion.project, &completion.id, error, &[event])
                .await?;
        }
        if !failed.is_empty() {
            self.decided.notify_waiters();
        }
        Ok(())
    }

    /// Moves the head and records the outcomes in one transaction. Returns false if the head or a completion changed
    /// meanwhile, and nothing was recorded.
    async fn record_landed(
        &self,
        project: &Project,
        policy: &Policy,
        landed: Vec<(Completion, Landed, Vec<Difference>)>,
    ) -> Result<bool> {
        let heads: Vec<SnapshotId> =
            landed.iter().filter_map(|(_, landed, _)| landed.head.as_ref()).map(|head| head.id).collect();
        let advance = self.advance_of(project, policy, landed).await?;
        match self.catalog.projects().advance(&advance).await? {
            AdvanceResult::Advanced { .. } => {
                self.decided.notify_waiters();
                failpoint::hit("merge-advanced")?;
                references::set(&self.store, &self.catalog, &project.id, project.sequence).await?;
                Ok(true)
            }
            AdvanceResult::Moved { .. } | AdvanceResult::Decided => {
                let store = self.store.clone();
                blocking(move || Ok(store.remove_snapshots(&heads)?)).await?;
                Ok(false)
            }
        }
    }

    async fn advance_of(
        &self,
        project: &Project,
        policy: &Policy,
        landed: Vec<(Completion, Landed, Vec<Difference>)>,
    ) -> Result<Advance> {
        let former: Vec<Vec<u8>> =
            landed.iter().flat_map(|(_, _, differences)| former_paths(differences)).collect();
        let mut ids = FileIds::default();
        ids.add_stored(self.catalog.file_versions().file_ids(&project.id, &former).await?);
        let mut advance = Advance {
            project: project.id.clone(),
            expected_sequence: project.sequence,
            expected_policy: Some(project.policy_version),
            ..Advance::default()
        };
        for (completion, landed, differences) in landed {
            let report = CompletionReport::of(&landed);
            let new = &completion.completion;
            let sequence = landed.head.as_ref().map(|head| {
                let rows = versions(&differences, &mut ids, &new.agent, &landed.strategies);
                advance.steps.push(Step {
                    snapshot: head.id.to_string(),
                    operation: OperationKind::Merge,
                    author: new.agent.clone(),
                    operator: Operator::Agent,
                    completion: Some(new.id.clone()),
                    message: Some(head.message.clone()),
                    details: json!({ "merged": report.merged, "base": new.base_sequence, "files": rows.len() }),
                    versions: rows,
                });
                project.sequence + advance.steps.len() as i64
            });
            if !landed.conflicts.is_empty() {
                let opened = project.sequence + advance.steps.len() as i64;
                let reviews = opened_reviews(&landed, new, &policy.for_agent(&new.agent), opened)?;
                for review in &reviews {
                    let event = review_opened(&project.name, new, &review.id);
                    advance.events.push((project.owner.clone(), event));
                }
                advance.reviews.extend(reviews);
            }
            let state = state_of(&landed);
            let event =
                |sequence| completion_event(event_of(state), &project.name, &new.id, &new.agent, sequence);
            advance.events.push((project.owner.clone(), event(sequence)));
            if let Some(requester) = &new.requester {
                // Without the sequence: an agent counts only the changes that it can see.
                advance.events.push((requester.clone(), event(None)));
            }
            advance.completions.push(CompletionOutcome {
                id: new.id.clone(),
                from: CompletionState::Queued,
                state,
                result: Some(report.to_json()),
            });
        }
        if let Some(last) = advance.steps.last() {
            let sequence = project.sequence + advance.steps.len() as i64;
            let data = json!({ "project": project.name, "sequence": sequence, "snapshotId": last.snapshot });
            advance.events.push((project.owner.clone(), NewEvent { kind: EventKind::ProjectAdvanced, data }));
        }
        Ok(advance)
    }
}

/// Merges completions in order. One that fails must not hold up the others, unless the machine is the reason: then all
/// stay queued. Later completions of its workspace contain its changes, so they wait for it.
fn merge_all(
    lander: &mut Lander<'_>,
    project: &str,
    mut head: Snapshot,
    queued: Vec<Completion>,
    mut bases: HashMap<String, Option<SnapshotId>>,
) -> Result<Merged> {
    let (mut merged, mut waiting, mut changes) = (Merged::default(), HashSet::new(), 0);
    for completion in queued {
        let workspace = completion.completion.workspace.clone();
        if workspace.as_ref().is_some_and(|workspace| waiting.contains(workspace)) {
            continue;
        }
        if changes >= CHANGES_MAX {
            merged.has_more = true;
            break;
        }
        match merge_one(lander, project, &head, &completion, &mut bases) {
            Ok((landed, differences)) => {
                if let Some(next) = &landed.head {
                    head = next.clone();
                }
                changes += differences.len();
                merged.landed.push((completion, landed, differences));
            }
            Err(error) if error.is_temporary() => return Err(error),
            Err(error) => {
                waiting.extend(workspace);
                merged.failed.push((completion, error.to_string()));
            }
        }
    }
    Ok(merged)
}

/// Merges a completion. A workspace that completed work before still has the changes of then: these are in its last
/// completion, which is therefore the base of this one.
fn merge_one(
    lander: &mut Lander<'_>,
    project: &str,
    head: &Snapshot,
    completion: &Completion,
    bases: &mut HashMap<String, Option<SnapshotId>>,
) -> Result<(Landed, Vec<Difference>)> {
    let new = &completion.completion;
    let before = new.workspace.as_ref().and_then(|workspace| bases.get(workspace).copied().flatten());
    let base = before.map_or_else(|| parse_snapshot(&new.base_snapshot), Ok)?;
    let theirs = parse_snapshot(&new.theirs_snapshot)?;
    let work = Work { project, completion: &new.id, agent: &new.agent, base, theirs };
    let landed = lander.land(head, &work)?;
    failpoint::hit("merge-committed")?;
    let changes = match &landed.head {
        Some(next) => {
            differences(&Tree::of_snapshot(lander.store, head)?, &Tree::of_snapshot(lander.store, next)?)?
        }
        None => Vec::new(),
    };
    if let Some(workspace) = &new.workspace {
        bases.insert(workspace.clone(), Some(theirs));
    }
    Ok((landed, changes))
}

fn state_of(landed: &Landed) -> CompletionState {
    let nothing_landed = landed.head.is_none() && landed.has_changes;
    if !landed.conflicts.is_empty() {
        CompletionState::InReview
    } else if nothing_landed && !landed.refused.is_empty() {
        CompletionState::Refused
    } else {
        CompletionState::Landed
    }
}

fn event_of(state: CompletionState) -> EventKind {
    match state {
        CompletionState::InReview => EventKind::CompletionInReview,
        CompletionState::Refused => EventKind::CompletionRefused,
        CompletionState::Failed => EventKind::CompletionFailed,
        CompletionState::Queued => EventKind::CompletionQueued,
        CompletionState::Landed => EventKind::CompletionLanded,
    }
}

fn review_opened(project: &str, completion: &NewCompletion, review: &str) -> NewEvent {
    NewEvent {
        kind: EventKind::ReviewOpened,
        data: json!({ "project": project, "completionId": completion.id, "agent": completion.agent,
            "reviewId": review }),
    }
}

fn completion_event(
    kind: EventKind,
    project: &str,
    id: &str,
    agent: &str,
    sequence: Option<i64>,
) -> NewEvent {
    NewEvent {
        kind,
        data: json!({ "project": project, "completionId": id, "agent": agent, "sequence": sequence }),
    }
}
