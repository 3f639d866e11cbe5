//! Merge of the queued completions of a project into its head, in batches. A completion is finished work of an agent;
//! the head is the snapshot of the present files. One transaction records all results of a batch and moves the head.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use workspace_catalog::{
    Advance, AdvanceResult, AdvanceStep, Completion, CompletionOutcome, CompletionState, EventKind,
    NewCompletion, NewEvent, OperationKind, Operator, Project,
};
use workspace_state::{Difference, Snapshot, SnapshotId, Tree};

use super::completion_merge::{CompletionMerger, MergeOutcome, Work};
use super::git_directory::GitDirectory;
use super::head_authors::HeadAuthors;
use super::report::CompletionReport;
use super::reviews::opened_reviews;
use super::versions::{FileIds, differences, former_paths, versions};
use super::{
    ATTEMPTS_MAX, PROJECT_LABEL, Projects, Result, blocking, failpoint, parse_snapshot, pending_snapshot,
    references,
};
use crate::policy::Policy;
use crate::projects::ProjectError;

/// Maximum number of completions in a batch.
const BATCH_MAX: u32 = 200;
/// Number of changed files after which a batch ends, since all of them are in memory and recorded at once.
const CHANGES_MAX: usize = 20_000;

/// Completions that were merged in the store, but are not recorded yet.
#[derive(Default)]
struct Merged {
    /// Results in the order of the completions, with the differences between the heads before and after.
    outcomes: Vec<(Completion, MergeOutcome, Vec<Difference>)>,
    /// Completions that could not be merged, with the reason.
    failed: Vec<(Completion, String)>,
    /// True if completions were left for the next batch.
    has_more: bool,
}

/// End of a batch of merges of one project.
pub(super) enum BatchEnd {
    /// Completions were decided. More may be queued, also some that came meanwhile.
    Decided,
    /// The queued completions that are left have failed, so the next batch would only have them again.
    Failed,
    /// No completion was queued, or the project does not exist.
    Empty,
}

impl Projects {
    /// Merges the queued completions of a project, at most one batch.
    pub(super) async fn land_queued(&self, project: &str) -> Result<BatchEnd> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(project) = self.catalog.projects().get(project).await? else {
                return Ok(BatchEnd::Empty);
            };
            let queued = self.catalog.completions().queued(&project.id, BATCH_MAX).await?;
            if queued.is_empty() {
                return Ok(BatchEnd::Empty);
            }
            let is_full = queued.len() as u32 == BATCH_MAX;
            let policy = self.policy(&project).await?;
            let merged = self.merge(&project, policy.clone(), queued).await?;
            self.record_failures(&project, &merged.failed).await?;
            if merged.outcomes.is_empty() {
                return Ok(BatchEnd::Failed);
            }
            let end = match is_full || merged.has_more || merged.failed.is_empty() {
                true => BatchEnd::Decided,
                // The next batch would have only the failed ones again.
                false => BatchEnd::Failed,
            };
            if self.record_outcomes(&project, &policy, merged.outcomes).await? {
                return Ok(end);
            }
        }
        Err(ProjectError::Contended { project: project.to_owned() })
    }

    /// Merges completions one after another, each into the head that the one before it made.
    async fn merge(&self, project: &Project, policy: Policy, queued: Vec<Completion>) -> Result<Merged> {
        // Snapshot of the last decided completion of each round (the time of a workspace between two moves to a newer
        // head); `None` if there is none.
        let rounds: BTreeSet<String> =
            queued.iter().filter_map(|completion| completion.completion.round_id.clone()).collect();
        let rounds = Vec::from_iter(rounds);
        let snapshots = self.catalog.completions().newest_snapshots(&project.id, &rounds).await?;
        let mut bases = HashMap::with_capacity(rounds.len());
        for round in rounds {
            let base = snapshots.get(&round).map(|base| parse_snapshot(base)).transpose()?;
            bases.insert(round, base);
        }
        let (head, git) = (self.head(project, None).await?, GitDirectory::of(project));
        let authors = HeadAuthors::new(&self.catalog, &project.id);
        let (store, views, id) = (self.store.clone(), Arc::clone(&self.view_cache), project.id.clone());
        blocking(move || {
            let mut merger = CompletionMerger::new(&store, &policy, &views, git, authors);
            let head = match head {
                Some(head) => head,
                None => {
                    let empty =
                        store.empty_tree()?.commit(pending_snapshot([(PROJECT_LABEL, id.clone())]))?;
                    merger.temporary.push(empty.id);
                    empty
                }
            };
            let merged = merge_all(&mut merger, &id, head, queued, bases);
            if merged.is_err() {
                merger.discard_heads_after(0);
            }
            merger.clean_up()?;
            failpoint::hit("merge-cleaned")?;
            let merged = merged?;
            // Everything that the transaction refers to must be on disk before it.
            store.sync()?;
            failpoint::hit("merge-synced")?;
            Ok(merged)
        })
        .await
    }

    /// Counts a failed attempt for each completion that could not be merged. After several attempts the catalog gives
    /// it the state `failed`.
    async fn record_failures(&self, project: &Project, failed: &[(Completion, String)]) -> Result<()> {
        for (completion, error) in failed {
            let Completion { completion, .. } = completion;
            tracing::warn!(
                project = completion.project,
                completion = completion.id,
                error,
                "failed to merge a completion"
            );
            let data = json!({ "project": project.name, "projectId": project.id, "completionId": completion.id,
                "agent": completion.agent, "reason": error });
            let event = NewEvent { kind: EventKind::CompletionFailed, data };
            self.catalog
                .completions()
                .record_attempt(&completion.project, &completion.id, error, &[event])
                .await?;
        }
        if !failed.is_empty() {
            self.completion_decided.notify_waiters();
        }
        Ok(())
    }

    /// Moves the head and records the outcomes in one transaction. Returns false if the head or a completion changed
    /// meanwhile, and nothing was recorded.
    async fn record_outcomes(
        &self,
        project: &Project,
        policy: &Policy,
        outcomes: Vec<(Completion, MergeOutcome, Vec<Difference>)>,
    ) -> Result<bool> {
        let heads: Vec<SnapshotId> =
            outcomes.iter().filter_map(|(_, outcome, _)| outcome.head.as_ref()).map(|head| head.id).collect();
        let advance = self.advance_of(project, policy, outcomes).await?;
        match self.catalog.projects().advance(&advance).await? {
            AdvanceResult::Advanced { .. } => {
                self.completion_decided.notify_waiters();
                failpoint::hit("merge-advanced")?;
                // `project` was read before the transaction, so this is the sequence of the former head.
                references::set(&self.store, &self.catalog, &project.id, project.sequence).await?;
                self.end_pending(&project.id, heads).await?;
                Ok(true)
            }
            // Nothing was recorded: the head or the policy has changed, or another server decided a completion.
            AdvanceResult::Moved { .. } | AdvanceResult::StateChanged => {
                let store = self.store.clone();
                blocking(move || Ok(store.remove_snapshots(&heads)?)).await?;
                Ok(false)
            }
        }
    }

    /// Returns everything that the transaction of a batch records: the new heads with their file versions, the outcomes
    /// of the completions, the reviews to open and the events.
    async fn advance_of(
        &self,
        project: &Project,
        policy: &Policy,
        outcomes: Vec<(Completion, MergeOutcome, Vec<Difference>)>,
    ) -> Result<Advance> {
        let former: Vec<Vec<u8>> =
            outcomes.iter().flat_map(|(_, _, differences)| former_paths(differences)).collect();
        let mut ids = FileIds::default();
        ids.add_stored(self.catalog.file_versions().file_ids(&project.id, &former).await?);
        let mut advance = Advance {
            project: project.id.clone(),
            expected_sequence: project.sequence,
            expected_policy: Some(project.policy_version),
            ..Advance::default()
        };
        for (completion, outcome, differences) in outcomes {
            let report = CompletionReport::of(&outcome);
            let new = &completion.completion;
            let sequence = outcome.head.as_ref().map(|head| {
                let rows = versions(&differences, &mut ids, &new.agent, &outcome.strategies);
                advance.steps.push(AdvanceStep {
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
            if !outcome.conflicts.is_empty() {
                let opened = project.sequence + advance.steps.len() as i64;
                let reviews = opened_reviews(&outcome, new, &policy.for_agent(&new.agent), opened)?;
                for review in &reviews {
                    let event = review_opened(project, new, &review.id);
                    advance.events.push((project.owner.clone(), event));
                }
                advance.reviews.extend(reviews);
            }
            let state = state_of(&outcome);
            let event = |sequence| completion_event(event_of(state), project, new, sequence);
            advance.events.push((project.owner.clone(), event(sequence)));
            if let Some(workspace_owner) = &new.workspace_owner {
                // Without the sequence, which would reveal the number of hidden changes to an agent.
                advance.events.push((workspace_owner.clone(), event(None)));
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
            let data = json!({ "project": project.name, "projectId": project.id, "sequence": sequence,
                "previousSequence": project.sequence, "snapshotId": last.snapshot });
            advance.events.push((project.owner.clone(), NewEvent { kind: EventKind::ProjectAdvanced, data }));
        }
        Ok(advance)
    }
}

/// Merges completions in order. After a temporary error, such as a full disk, all completions stay queued. Any other
/// error concerns only the completion that caused it, and the later ones of the same round: these contain its changes,
/// so they stay queued, too. `bases` has the snapshot of the last decided completion of each round; `None` if there is
/// none.
fn merge_all(
    merger: &mut CompletionMerger<'_>,
    project: &str,
    mut head: Snapshot,
    queued: Vec<Completion>,
    mut bases: HashMap<String, Option<SnapshotId>>,
) -> Result<Merged> {
    let (mut merged, mut failed_rounds, mut changes) = (Merged::default(), HashSet::new(), 0);
    for completion in queued {
        let round = completion.completion.round_id.clone();
        if round.as_ref().is_some_and(|round| failed_rounds.contains(round)) {
            continue;
        }
        if changes >= CHANGES_MAX {
            merged.has_more = true;
            break;
        }
        let heads = merger.head_count();
        match merge_one(merger, project, &head, &completion, &mut bases) {
            Ok((outcome, differences)) => {
                if let Some(next) = &outcome.head {
                    head = next.clone();
                }
                changes += differences.len();
                merged.outcomes.push((completion, outcome, differences));
            }
            Err(error) if error.is_temporary() => return Err(error),
            Err(error) => {
                merger.discard_heads_after(heads);
                failed_rounds.extend(round);
                merged.failed.push((completion, error.to_string()));
            }
        }
    }
    Ok(merged)
}

/// Merges a completion. A workspace that completed work before still has the earlier changes. The snapshot of its last
/// completion has them, too, and is therefore the base of this merge.
fn merge_one(
    merger: &mut CompletionMerger<'_>,
    project: &str,
    head: &Snapshot,
    completion: &Completion,
    bases: &mut HashMap<String, Option<SnapshotId>>,
) -> Result<(MergeOutcome, Vec<Difference>)> {
    let new = &completion.completion;
    let previous = new.round_id.as_ref().and_then(|round| bases.get(round).copied().flatten());
    let base = previous.map_or_else(|| parse_snapshot(&new.base_snapshot), Ok)?;
    let theirs = parse_snapshot(&new.theirs_snapshot)?;
    let work = Work { project, completion: &new.id, agent: &new.agent, base, theirs };
    let outcome = merger.merge(head, &work)?;
    failpoint::hit("merge-committed")?;
    let changes = match &outcome.head {
        Some(next) => {
            differences(&Tree::of_snapshot(merger.store, head)?, &Tree::of_snapshot(merger.store, next)?)?
        }
        None => Vec::new(),
    };
    merger.authors.add(&new.agent, &changes);
    if let Some(round) = &new.round_id {
        bases.insert(round.clone(), Some(theirs));
    }
    Ok((outcome, changes))
}

fn state_of(outcome: &MergeOutcome) -> CompletionState {
    let nothing_landed = outcome.head.is_none() && outcome.has_changes;
    if !outcome.conflicts.is_empty() {
        CompletionState::InReview
    } else if nothing_landed && !outcome.refused.is_empty() {
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

fn review_opened(project: &Project, completion: &NewCompletion, review: &str) -> NewEvent {
    NewEvent {
        kind: EventKind::ReviewOpened,
        data: json!({ "project": project.name, "projectId": project.id, "completionId": completion.id,
            "agent": completion.agent, "reviewId": review }),
    }
}

/// Returns an event about a completion. `sequence` is that of the head that first has changes of it, if any.
fn completion_event(
    kind: EventKind,
    project: &Project,
    completion: &NewCompletion,
    sequence: Option<i64>,
) -> NewEvent {
    NewEvent {
        kind,
        data: json!({ "project": project.name, "projectId": project.id, "completionId": completion.id,
            "agent": completion.agent, "sequence": sequence }),
    }
}
