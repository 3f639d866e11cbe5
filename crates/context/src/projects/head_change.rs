//! Changes of a head (the snapshot of the present files of a project) that are not merges of completions (finished work
//! of agents): imports, rollbacks and decisions about reviews (conflicts that wait for a decision).
//!
//! The new head is first committed as a *pending* snapshot: it belongs to this process, and another server removes it
//! if this process ends before the snapshot is recorded in the catalog.

use std::sync::Arc;

use serde_json::{Value, json};
use workspace_catalog::{
    Advance, AdvanceResult, AdvanceStep, CatalogError, EventKind, NewEvent, NewFileVersion, Operation,
    OperationKind, Project, ReviewDecision, ReviewedCompletion, Staging,
};
use workspace_state::{Difference, Durability, SnapshotId, Store, Tree, VirtualTree, quote_path};

use super::error::{ProjectError, Result};
use super::{
    ATTEMPTS_MAX, ChangeAuthor, ImportOrigin, PROJECT_LABEL, Projects, blocking, failpoint, no_such_sequence,
    pending_snapshot, references, versions,
};

/// Maximum number of file versions that a change inserts in one transaction. A change with more of them stages them
/// ([`Staging`]): it inserts them in batches of this size before the transaction that moves the head.
const STAGING_BATCH_SIZE: usize = 2_000;

/// Description of a change of a head that is not a merge of a completion.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadChange<'a> {
    pub(super) operation: OperationKind,
    /// Name of the author, and its kind: agent, person or server.
    pub(super) author: &'a ChangeAuthor,
    pub(super) message: &'a str,
    /// Sequence that the head must have; `None` for any.
    pub(super) expected: Option<i64>,
    /// Commit that an import takes its files from; `None` if it is not from git.
    pub(super) origin: Option<&'a ImportOrigin>,
}

/// Pending snapshot that is to become the head.
pub(super) struct Prepared {
    snapshot: SnapshotId,
    /// Differences between the present head and the snapshot.
    differences: Vec<Difference>,
}

/// Decision about a review, with everything that the same transaction records.
#[derive(Debug)]
pub(super) struct PreparedDecision {
    pub(super) decision: ReviewDecision,
    /// Completion whose merge opened the review. The transaction gives it the state `landed` if no other review of it
    /// is undecided. `None` if the review has no completion.
    pub(super) completion: Option<ReviewedCompletion>,
    /// Event about the decision.
    pub(super) event: NewEvent,
    /// Path of the review, and name of the merge strategy that made its new content; `None` if no strategy did.
    pub(super) strategy: Option<(Vec<u8>, &'static str)>,
}

impl Projects {
    /// Changes the head to the tree that `next` returns for the present head, as one operation. Returns `None` if the
    /// head is this tree already.
    pub(super) async fn change_head(
        &self,
        project: &Project,
        change: HeadChange<'_>,
        next: impl Fn(&Store, &Tree) -> Result<VirtualTree> + Send + Sync + 'static,
    ) -> Result<Option<Operation>> {
        let next = Arc::new(next);
        for _ in 0..ATTEMPTS_MAX {
            let current = self.catalog.projects().get(&project.id).await?;
            let current = current.ok_or_else(|| ProjectError::NotFound { project: project.name.clone() })?;
            if let Some(expected) = change.expected.filter(|expected| *expected != current.sequence) {
                let (project, found) = (project.name.clone(), current.sequence);
                return Err(ProjectError::Moved { project, expected, found });
            }
            let Some(prepared) = self.prepare(&current, &change, Arc::clone(&next)).await? else {
                return Ok(None);
            };
            if let Some(sequence) = self.record(&current, &change, prepared, None).await? {
                let stored = self.catalog.operations().find(&project.id, sequence).await?;
                return stored
                    .map_or_else(|| Err(no_such_sequence(project, sequence)), |found| Ok(Some(found)));
            }
        }
        Err(ProjectError::Contended { project: project.name.clone() })
    }

    /// Commits the tree that `next` returns for the present head as a pending snapshot, which is to be recorded as the
    /// next head. Returns `None` if the trees are equal. Before the first change, `next` gets an uncommitted empty
    /// tree, whose nodes are not in the store: a tree that is built over it cannot be committed.
    pub(super) async fn prepare(
        &self,
        current: &Project,
        change: &HeadChange<'_>,
        next: Arc<impl Fn(&Store, &Tree) -> Result<VirtualTree> + Send + Sync + 'static>,
    ) -> Result<Option<Prepared>> {
        let head = self.head(current, None).await?;
        let store = self.store.clone();
        let is_decision = change.operation == OperationKind::Resolve;
        let mut new = pending_snapshot([(PROJECT_LABEL, current.id.clone())]);
        new.author = change.author.name.clone();
        new.message = change.message.to_owned();
        new.durability = Durability::Synced;
        blocking(move || {
            let before = match &head {
                Some(head) => Tree::of_snapshot(&store, head)?,
                None => store.empty_tree()?.preview()?,
            };
            let mut next = next(&store, &before)?;
            let after = next.preview()?;
            // The first import makes a head even if it has no files. A decision about a review does not.
            if after.id() == before.id() && (head.is_some() || is_decision) {
                return Ok(None);
            }
            new.parents = head.iter().map(|head| head.id).collect();
            let differences = versions::differences(&before, &after)?;
            let snapshot = next.commit(new)?.id;
            failpoint::hit("head-committed")?;
            Ok(Some(Prepared { snapshot, differences }))
        })
        .await
    }

    /// Records a prepared head, and the decision that led to it. Then sets the reference that protects the snapshot
    /// from removal, and ends its pending state. Returns the sequence of the new head, or `None` if the head moved
    /// meanwhile, or the review is decided already.
    pub(super) async fn record(
        &self,
        current: &Project,
        change: &HeadChange<'_>,
        prepared: Prepared,
        decided: Option<PreparedDecision>,
    ) -> Result<Option<i64>> {
        let Prepared { snapshot, differences } = prepared;
        let strategies = decided.iter().filter_map(|decided| decided.strategy.clone()).collect();
        // A file that exists in the head keeps its id, also under a new path.
        let mut ids = versions::FileIds::default();
        let former = versions::former_paths(&differences);
        ids.add_stored(self.catalog.file_versions().file_ids(&current.id, &former).await?);
        let mut rows = versions::versions(&differences, &mut ids, &change.author.name, &strategies);
        let details = details_of(decided.as_ref(), change.origin, rows.len());
        let staging = if rows.len() > STAGING_BATCH_SIZE {
            let Some(staging) = self.stage(current, &rows).await? else {
                self.discard(snapshot).await?;
                return Ok(None);
            };
            rows.clear();
            Some(staging)
        } else {
            None
        };
        let data = json!({ "project": current.name, "projectId": current.id, "sequence": current.sequence + 1,
            "previousSequence": current.sequence, "operation": change.operation.as_str(),
            "snapshotId": snapshot.to_string() });
        let step = AdvanceStep {
            snapshot: snapshot.to_string(),
            operation: change.operation,
            author: change.author.name.clone(),
            operator: change.author.operator,
            completion: decided.as_ref().and_then(|decided| Some(decided.completion.as_ref()?.id.clone())),
            message: Some(change.message.to_owned()),
            details,
            versions: rows,
        };
        let mut advance = advance_of(current, decided);
        advance.events.push((current.owner.clone(), NewEvent { kind: EventKind::ProjectAdvanced, data }));
        (advance.steps, advance.staging) = (vec![step], staging);
        let advanced = match self.catalog.projects().advance(&advance).await {
            // Another large change of this project began to stage its versions, which discarded those of this change.
            // The caller tries again.
            Err(CatalogError::StagingReplaced { .. }) => AdvanceResult::StateChanged,
            advanced => advanced?,
        };
        match advanced {
            AdvanceResult::Advanced { sequence } => {
                failpoint::hit("head-advanced")?;
                // Sets the references of all heads after `current`, which is the head before the transaction.
                references::set(&self.store, &self.catalog, &current.id, current.sequence).await?;
                self.end_pending(&current.id, vec![snapshot]).await?;
                Ok(Some(sequence))
            }
            AdvanceResult::Moved { .. } | AdvanceResult::StateChanged => {
                self.discard(snapshot).await?;
                Ok(None)
            }
        }
    }

    /// Removes the snapshot of an attempt whose head was not recorded. Nothing else refers to it.
    async fn discard(&self, snapshot: SnapshotId) -> Result<()> {
        let store = self.store.clone();
        blocking(move || Ok(store.remove_snapshots(&[snapshot])?)).await
    }

    /// Records a decision that leaves the head as it is. Returns false if the head moved meanwhile, or the review is
    /// decided already.
    pub(super) async fn record_decision(&self, current: &Project, decided: PreparedDecision) -> Result<bool> {
        let advanced = self.catalog.projects().advance(&advance_of(current, Some(decided))).await?;
        Ok(matches!(advanced, AdvanceResult::Advanced { .. }))
    }

    /// Inserts the versions of a large change in batches, so that others can write to the catalog in between. Returns
    /// `None` if the head moved meanwhile, or another large change of the project began to stage its versions.
    async fn stage(&self, current: &Project, rows: &[NewFileVersion]) -> Result<Option<Staging>> {
        let (versions, attempt) = (self.catalog.file_versions(), uuid::Uuid::now_v7().to_string());
        let Some(staging) = versions.begin_staging(&current.id, current.sequence, &attempt).await? else {
            return Ok(None);
        };
        for batch in rows.chunks(STAGING_BATCH_SIZE) {
            match versions.stage(&staging, batch).await {
                Err(CatalogError::StagingReplaced { .. }) => return Ok(None),
                staged => staged?,
            }
        }
        Ok(Some(staging))
    }
}

/// Returns a description of the transaction that records a decision, if there is one. It has no steps yet, so it leaves
/// the head as it is. With a decision, the transaction fails if the policy has changed since `current` was read: the
/// policy says who may decide.
fn advance_of(current: &Project, decided: Option<PreparedDecision>) -> Advance {
    let mut advance =
        Advance { project: current.id.clone(), expected_sequence: current.sequence, ..Advance::default() };
    if let Some(PreparedDecision { decision, completion, event, .. }) = decided {
        advance.expected_policy = Some(current.policy_version);
        advance.decisions.push(decision);
        advance.reviewed.extend(completion);
        advance.events.push((current.owner.clone(), event));
    }
    advance
}

/// Returns the details of an operation: the number of changed files, the decided review with the merge strategy of its
/// path, and the commit of an import.
fn details_of(decided: Option<&PreparedDecision>, origin: Option<&ImportOrigin>, files: usize) -> Value {
    let mut details = json!({ "files": files });
    if let Some(decided) = decided {
        let merged = decided.strategy.iter();
        let merged = merged.map(|(path, strategy)| json!({ "path": quote_path(path), "strategy": strategy }));
        details["review"] = json!(decided.decision.id);
        details["merged"] = merged.collect();
    }
    if let Some(ImportOrigin { commit, commit_time }) = origin {
        details["commit"] = json!(commit);
        details["commitTime"] = json!(commit_time);
    }
    details
}
