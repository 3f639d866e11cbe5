//! Projects: files that many agents share.
//!
//! The *head* of a project is the snapshot of its present files; its *sequence* is the number of changes so far. Each
//! change is an *operation* in the history. Agents work on a *view* of the head: the part that the policy lets them
//! read. Finished work of an agent is a *completion*. The merge daemon merges it into the head: it *lands*. A conflict
//! that no rule resolves becomes a *review*, which waits for a decision.
//!
//! The row of a project in the catalog (an SQL database) says which snapshot is the head. Every change of the head has
//! the same three steps: make the content durable in the store, commit one transaction
//! ([`workspace_catalog::Projects::advance`]), and set the reference that protects the snapshot from removal. Until its
//! reference is set, the snapshot is *pending*: the store records which process made it. A crash before the
//! transaction leaves a pending snapshot, which another server removes (`abandoned.rs`). A crash after the transaction
//! leaves a head without a reference; the next server that starts sets the reference (`references::set_missing`).

mod abandoned;
mod agent_view;
mod batch;
mod completion_merge;
mod daemon;
mod direct;
mod error;
mod failpoint;
mod git_directory;
mod head_authors;
mod head_change;
mod incoming;
mod merge_mode;
mod merges;
mod rebase;
mod references;
mod report;
mod revert;
mod reviews;
mod settings;
mod store_access;
mod update;
mod versions;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::time::{Instant, timeout_at};
use workspace_catalog::{
    Catalog, CatalogError, Completion, CompletionInsertion, CompletionState, EventKind, NewCompletion,
    NewEvent, NewProject, Operation, OperationKind, Operator, Policies, Project,
};
use workspace_state::{Durability, NewSnapshot, Snapshot, SnapshotId, Store, Tree, TreeId, VirtualTree};

use crate::policy::{AgentPolicy, Policy, PolicyDocument, ViewKey};
use crate::view::{ViewCache, view};

pub use agent_view::AgentView;
use agent_view::{EarlierViews, VisibleChanges};
pub use completion_merge::{COMPLETION_LABEL, PROJECT_LABEL};
pub use daemon::Daemon;
pub use direct::DirectCompletion;
pub use error::ProjectError;
use error::Result;
pub use git_directory::{GitDirectory, ImportOrigin};
use head_change::HeadChange;
use incoming::Incoming;
pub use incoming::IncomingCompletion;
pub use merge_mode::MergeMode;
pub use rebase::{RebaseInput, RebaseTarget, RebasedFiles};
pub use report::{CompletionReport, Conflict, MergedFile, RefusedChange};
pub use revert::{RefusedChanges, RevertInput, RevertedFiles};
pub use reviews::{
    Resolution, ResolveRequest, Resolved, ReviewData, ReviewDetails, ReviewEntry, ReviewPage, ReviewSide,
    ReviewVersion, SettledReviews, StrategyChoice, TheirsChoice, check_reviewer, is_shown,
};
pub use settings::ProjectSettings;
use store_access::{blocking, find_snapshot, parse_snapshot};

/// Name of the label of a snapshot of a view. Its value is the [`ViewKey`].
const VIEW_LABEL: &str = "view";
/// Maximum length of the name of a project in bytes.
const NAME_MAX: usize = 128;
/// Maximum number of views whose newest snapshot is cached.
const VIEWS_MAX: usize = 10_000;
/// Maximum number of attempts to change a head that other requests or servers change at the same time.
const ATTEMPTS_MAX: usize = 20;
/// Interval at which a request that waits for a completion reads it again: another server may decide it.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Projects of a deployment, with the content in the store of this server. Clones share everything.
#[derive(Debug, Clone)]
pub struct Projects {
    catalog: Catalog,
    store: Store,
    /// Cache of filtered directories.
    view_cache: Arc<ViewCache>,
    /// Newest snapshot of each view, by id of the project and key of the view. Workspaces are made from it.
    bases: Arc<Mutex<HashMap<(String, ViewKey), ViewLock>>>,
    /// Cache of the sequences of the changes that each view shows.
    visible_changes: Arc<VisibleChanges>,
    /// Cache of snapshots of views of earlier heads.
    earlier_views: Arc<EarlierViews>,
    /// Completions that requests of this server are about to queue.
    incoming: Arc<Incoming>,
    /// Notified when a completion was queued on this server.
    completion_queued: Arc<Notify>,
    /// Notified when this server changed the state of a completion.
    completion_decided: Arc<Notify>,
}

/// Snapshot of an agent's view of a head, on which the agent bases its work: in a workspace that is made from it, or
/// outside of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceBase {
    /// Snapshot of the agent's view.
    pub snapshot: SnapshotId,
    /// Sequence of the head that the snapshot is a view of.
    pub sequence: i64,
    /// Version of the policy that made the view.
    pub policy_version: i64,
    /// Key of the agent's view. Agents with equal rules for reading have equal keys.
    pub view_key: ViewKey,
    /// True if the agent may not add, change or delete anything.
    pub is_read_only: bool,
}

/// Newest snapshot of a view. Locked while the next one is made, so that concurrent requests make it once.
type ViewLock = Arc<tokio::sync::Mutex<Option<ViewSnapshot>>>;

/// Committed view of a head.
#[derive(Debug, Clone, Copy)]
struct ViewSnapshot {
    /// Head that the view shows; `None` is the state before the first change.
    head: Option<SnapshotId>,
    /// Snapshot of the view.
    view: SnapshotId,
}

/// Author of a change that is not a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeAuthor {
    /// Name of the agent or person.
    pub name: String,
    /// Kind of the author.
    pub operator: Operator,
}

impl Projects {
    /// Creates the service.
    pub fn new(catalog: Catalog, store: Store) -> Self {
        Self {
            catalog,
            store,
            view_cache: Arc::default(),
            bases: Arc::default(),
            visible_changes: Arc::default(),
            earlier_views: Arc::default(),
            incoming: Arc::default(),
            completion_queued: Arc::default(),
            completion_decided: Arc::default(),
        }
    }

    /// Creates an empty project, unless the owner has `limit` projects already; `None` is no limit.
    pub async fn create(
        &self,
        owner: &str,
        name: &str,
        settings: ProjectSettings,
        limit: Option<u64>,
    ) -> Result<Project> {
        check_name(name)?;
        let id = format!("prj-{}", uuid::Uuid::now_v7().simple());
        let new = NewProject {
            id: id.clone(),
            owner: owner.to_owned(),
            name: name.to_owned(),
            settings: settings.to_json(),
        };
        let event =
            NewEvent { kind: EventKind::ProjectCreated, data: json!({ "project": name, "projectId": id }) };
        match self.catalog.projects().create(&new, limit, &[event]).await {
            Err(CatalogError::Exists { .. }) => Err(ProjectError::NameTaken { name: name.to_owned() }),
            Err(CatalogError::LimitReached { limit, .. }) => {
                Err(ProjectError::TooMany { owner: owner.to_owned(), limit })
            }
            created => Ok(created?),
        }
    }

    /// Returns the project of an owner with this name or id.
    pub async fn find(&self, owner: &str, project: &str) -> Result<Project> {
        let projects = self.catalog.projects();
        let by_id = projects.get(project).await?.filter(|found| found.owner == owner);
        let found = match by_id {
            Some(found) => Some(found),
            None => projects.find(owner, project).await?,
        };
        found.ok_or_else(|| ProjectError::NotFound { project: project.to_owned() })
    }

    /// Returns the snapshot of the head with this sequence, or of the present head if `sequence` is `None`. Returns
    /// `None` for the state before the first change, which has the sequence 0.
    pub async fn head(&self, project: &Project, sequence: Option<i64>) -> Result<Option<Snapshot>> {
        let id = match sequence {
            Some(0) => None,
            Some(sequence) if sequence != project.sequence => {
                let found = self.catalog.operations().find(&project.id, sequence).await?;
                Some(found.ok_or_else(|| no_such_sequence(project, sequence))?.snapshot)
            }
            _ => project.head.clone(),
        };
        let Some(id) = id else { return Ok(None) };
        let (store, id) = (self.store.clone(), parse_snapshot(&id)?);
        blocking(move || Ok(Some(find_snapshot(&store, id)?))).await
    }

    /// Returns the policy in force of a project. Before a policy is set (version 0), everybody may read and write
    /// everything.
    pub async fn policy(&self, project: &Project) -> Result<Policy> {
        let document = match project.policy_version {
            0 => PolicyDocument::default(),
            version => {
                let stored = policies(&self.catalog).get(&project.id, version).await?;
                let stored =
                    stored.ok_or_else(|| ProjectError::Record(format!("policy {version} is missing")))?;
                parse_policy(stored.document)?
            }
        };
        Ok(Policy::compile(document)?)
    }

    /// Returns the snapshot from which a workspace of an agent is made: the view that the agent has of the head.
    pub async fn workspace_base(&self, project: &Project, agent: &str) -> Result<WorkspaceBase> {
        let policy = self.policy(project).await?.for_agent(agent);
        let head = self.head(project, None).await?;
        let (view_key, is_read_only) = (policy.view_key(), policy.is_read_only());
        let snapshot = match &head {
            Some(head) if policy.reads_everything() => head.id,
            _ => {
                // The wait for the lock must not occupy one of the threads for blocking work.
                let last = self.view_lock(&project.id, policy.view_key()).lock_owned().await;
                let (projects, id) = (self.clone(), project.id.clone());
                let made =
                    blocking(move || projects.view_snapshot(&id, head.as_ref(), &policy, last)).await?;
                references::undo_if_project_deleted(&self.store, &self.catalog, &project.id, vec![made])
                    .await?;
                made
            }
        };
        let (sequence, policy_version) = (project.sequence, project.policy_version);
        Ok(WorkspaceBase { snapshot, sequence, policy_version, view_key, is_read_only })
    }

    /// Returns the key of the view that each agent has under the policy in force.
    pub async fn view_keys(
        &self,
        project: &Project,
        agents: BTreeSet<String>,
    ) -> Result<BTreeMap<String, ViewKey>> {
        let policy = self.policy(project).await?;
        blocking(move || {
            let view = |agent: String| {
                let view = policy.for_agent(&agent).view_key();
                (agent, view)
            };
            Ok(agents.into_iter().map(view).collect())
        })
        .await
    }

    /// Returns the lock of the newest snapshot of a view. Clears the cache of snapshots if it is full.
    fn view_lock(&self, project: &str, view: ViewKey) -> ViewLock {
        let mut bases = self.bases.lock();
        if bases.len() >= VIEWS_MAX {
            // Locks that are held stay alive. Snapshots that are cleared are found again by their tree (`same_view`).
            bases.clear();
        }
        Arc::clone(bases.entry((project.to_owned(), view)).or_default())
    }

    /// Returns a snapshot of the view that an agent has of a head. Agents with the same view share it. `last` is the
    /// lock of the newest snapshot of this view.
    fn view_snapshot(
        &self,
        project: &str,
        head: Option<&Snapshot>,
        policy: &AgentPolicy,
        mut last: OwnedMutexGuard<Option<ViewSnapshot>>,
    ) -> Result<SnapshotId> {
        let shown = head.map(|head| head.id);
        if let Some(ViewSnapshot { view, .. }) = last.filter(|last| last.head == shown)
            && self.store.find_snapshot(&view)?.is_some()
        {
            return Ok(view);
        }
        let parents: Vec<SnapshotId> = last.iter().map(|last| last.view).collect();
        let snapshot = self.commit_view(project, head, policy, parents)?;
        failpoint::hit("view-committed")?;
        // A new snapshot id for an equal tree would reveal that something hidden changed.
        if let Some(view) = self.same_view(project, &snapshot, *last)? {
            self.store.remove_snapshots(&[snapshot.id])?;
            *last = Some(ViewSnapshot { head: shown, view });
            return Ok(view);
        }
        references::protect_base(&self.store, project, snapshot.id)?;
        failpoint::hit("view-protected")?;
        self.store.end_pending(&[snapshot.id])?;
        *last = Some(ViewSnapshot { head: shown, view: snapshot.id });
        Ok(snapshot.id)
    }

    /// Returns a protected snapshot (one with a reference) of the same view with the same files as `new`: the last one,
    /// or one that another server has made, or this server before a restart. Returns `None` if there is none.
    fn same_view(
        &self,
        project: &str,
        new: &Snapshot,
        last: Option<ViewSnapshot>,
    ) -> Result<Option<SnapshotId>> {
        if let Some(ViewSnapshot { view, .. }) = last
            && self.store.find_snapshot(&view)?.is_some_and(|last| last.tree == new.tree)
        {
            return Ok(Some(view));
        }
        for id in self.store.snapshots_with_tree(&new.tree)? {
            if id != new.id
                && references::is_protected(&self.store, project, id)?
                && self.store.find_snapshot(&id)?.is_some_and(|found| is_same_view(&found, new))
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Commits the view that an agent has of a head, as a pending snapshot. `parents` are earlier snapshots of the
    /// view: the layers (read-only directories under workspaces) of the new snapshot are derived from theirs.
    fn commit_view(
        &self,
        project: &str,
        head: Option<&Snapshot>,
        policy: &AgentPolicy,
        parents: Vec<SnapshotId>,
    ) -> Result<Snapshot> {
        let labels = [(PROJECT_LABEL, project.to_owned()), (VIEW_LABEL, policy.view_key().to_string())];
        let new = NewSnapshot { parents, ..pending_snapshot(labels) };
        match head {
            Some(head) => {
                let tree = Tree::of_snapshot(&self.store, head)?;
                Ok(view(&tree, policy, &self.view_cache)?.commit(new, &self.view_cache)?.0)
            }
            None => Ok(self.store.empty_tree()?.commit(new)?),
        }
    }

    /// Replaces the files of a project by those of a snapshot. Fails if the head does not have the sequence `expected`;
    /// `None` allows any. Returns `None` if the head has these files already. `origin` is `None` if the files are not
    /// from git.
    pub async fn import(
        &self,
        project: &Project,
        content: SnapshotId,
        author: &ChangeAuthor,
        message: &str,
        expected: Option<i64>,
        origin: Option<&ImportOrigin>,
    ) -> Result<Option<Operation>> {
        let change = HeadChange { operation: OperationKind::Import, author, message, expected, origin };
        let git = GitDirectory::of(project);
        self.change_head(project, change, move |store, _| {
            let content = Tree::of_snapshot(store, &find_snapshot(store, content)?)?;
            git.without_ignored(&content)?.map_or_else(|| Ok(VirtualTree::over(&content)?), Ok)
        })
        .await
    }

    /// Restores the content that a path, or the whole project if `path` is `None`, had at the sequence `to`. The
    /// result is a new head. Returns `None` if the present head has this content already.
    pub async fn rollback(
        &self,
        project: &Project,
        to: i64,
        path: Option<Vec<u8>>,
        author: &ChangeAuthor,
        message: &str,
    ) -> Result<Option<Operation>> {
        let former = self.head(project, Some(to)).await?;
        if project.head.is_none() {
            // The project has no files, so there is nothing to restore or to remove.
            return Ok(None);
        }
        let change =
            HeadChange { operation: OperationKind::Rollback, author, message, expected: None, origin: None };
        self.change_head(project, change, move |store, head| {
            let former = match &former {
                Some(former) => Tree::of_snapshot(store, former)?,
                None => return empty_or_without(store, head, path.as_deref()),
            };
            match &path {
                None => Ok(VirtualTree::over(&former)?),
                Some(path) => restore_path(head, &former, path),
            }
        })
        .await
    }

    /// Returns true if a snapshot is in the store and has this tree.
    pub async fn has_tree(&self, snapshot: &str, tree: TreeId) -> Result<bool> {
        let (store, id) = (self.store.clone(), parse_snapshot(snapshot)?);
        blocking(move || Ok(store.find_snapshot(&id)?.is_some_and(|found| found.tree == tree))).await
    }

    /// Returns true if two snapshots have the same files, except for a `.git` that the project ignores. Returns false
    /// if one of the snapshots does not exist.
    pub async fn have_same_files(
        &self,
        project: &Project,
        one: SnapshotId,
        other: SnapshotId,
    ) -> Result<bool> {
        if one == other {
            return Ok(true);
        }
        let (store, git) = (self.store.clone(), GitDirectory::of(project));
        blocking(move || {
            let (Some(one), Some(other)) = (store.find_snapshot(&one)?, store.find_snapshot(&other)?) else {
                return Ok(false);
            };
            if one.tree == other.tree {
                return Ok(true);
            }
            let (one, other) = (Tree::of_snapshot(&store, &one)?, Tree::of_snapshot(&store, &other)?);
            Ok(git.tree_id_without_ignored(&one)? == git.tree_id_without_ignored(&other)?)
        })
        .await
    }

    /// Returns the snapshot of an agent's files at the time of its completion, including refused changes. The snapshot
    /// is kept as long as the project.
    pub async fn completed_files(&self, completion: &Completion) -> Result<Snapshot> {
        let (store, id) = (self.store.clone(), parse_snapshot(&completion.completion.theirs_snapshot)?);
        blocking(move || find_snapshot(&store, id)).await
    }

    /// Announces that a completion will be queued soon, so that it is merged in one batch with others that are queued
    /// before. Drop the result when it is queued, or failed.
    pub fn begin_completion(&self) -> IncomingCompletion {
        self.incoming.begin()
    }

    /// Queues the completed work of a workspace. A repeated call returns the completion that exists with this id.
    pub async fn complete(&self, new: NewCompletion) -> Result<Completion> {
        let project = self.catalog.projects().get(&new.project).await?;
        let project = project.ok_or_else(|| ProjectError::NotFound { project: new.project.clone() })?;
        references::protect_completion(&self.store, &new).await?;
        failpoint::hit("completion-protected")?;
        let workspace_owner = new.workspace_owner.filter(|owner| *owner != project.owner);
        let new = NewCompletion { owner: project.owner.clone(), workspace_owner, ..new };
        let data = json!({ "project": project.name, "projectId": project.id, "completionId": new.id,
            "agent": new.agent });
        let event = NewEvent { kind: EventKind::CompletionQueued, data };
        let inserted = self.catalog.completions().insert(&new, &[event]).await;
        if inserted.is_err() {
            // If the project was deleted meanwhile, the deletion may have missed the references that were set above.
            references::undo_if_project_deleted(&self.store, &self.catalog, &new.project, Vec::new()).await?;
        }
        let inserted = inserted?;
        failpoint::hit("completion-queued")?;
        self.completion_queued.notify_one();
        Ok(match inserted {
            CompletionInsertion::New(completion) | CompletionInsertion::Existing(completion) => completion,
        })
    }
}

impl Projects {
    /// Deletes a project with its history. Snapshots that only the project needed are removed soon after
    /// ([`Self::remove_abandoned`]).
    pub async fn delete(&self, project: &Project) -> Result<()> {
        let data = json!({ "project": project.name, "projectId": project.id });
        let event = NewEvent { kind: EventKind::ProjectDeleted, data };
        match self.catalog.projects().delete(&project.id, &[event]).await {
            Err(CatalogError::ProjectBusy { .. }) => {
                Err(ProjectError::InUse { project: project.name.clone() })
            }
            Ok(false) => Err(ProjectError::NotFound { project: project.name.clone() }),
            deleted => {
                deleted?;
                self.finish_deletion(&project.id).await
            }
        }
    }

    /// Removes the references of a deleted project in this store, and then its rows. After a crash in between, the
    /// merge daemon of a server does the rest ([`Self::finish_deletions`]).
    async fn finish_deletion(&self, project: &str) -> Result<()> {
        references::remove(&self.store, project).await?;
        failpoint::hit("deletion-unprotected")?;
        Ok(self.catalog.projects().finish_deletion(project).await?)
    }

    /// Finishes the deletions of projects that a crash interrupted.
    async fn finish_deletions(&self) -> Result<()> {
        for project in self.catalog.projects().unfinished_deletions().await? {
            self.finish_deletion(&project).await?;
        }
        Ok(())
    }

    /// Ends the pending state of snapshots that the catalog has recorded and that references protect. If the project
    /// was deleted meanwhile, removes the references and abandons the snapshots: a server removes them later.
    async fn end_pending(&self, project: &str, snapshots: Vec<SnapshotId>) -> Result<()> {
        // If the project was deleted before the references were set, the deletion has not abandoned the snapshots. They
        // must be abandoned while they are still pending: after a crash in between, nothing would remove them.
        references::undo_if_project_deleted(&self.store, &self.catalog, project, snapshots.clone()).await?;
        let (store, ids) = (self.store.clone(), snapshots.clone());
        // A deletion from now on finds the references, and abandons the snapshots. `end_own_pending` does not change
        // abandoned snapshots.
        blocking(move || Ok(store.end_own_pending(&ids)?)).await?;
        references::undo_if_project_deleted(&self.store, &self.catalog, project, snapshots).await
    }

    /// Waits until a completion is not queued any more, for at most `wait`. Returns the completion as it is stored at
    /// the end of the wait.
    pub async fn wait_for(&self, completion: Completion, wait: Duration) -> Result<Completion> {
        let deadline = Instant::now() + wait;
        let mut current = completion;
        while current.state == CompletionState::Queued && Instant::now() < deadline {
            let decided = self.completion_decided.notified();
            tokio::pin!(decided);
            // Registered before the row is read: a decision after the read is not missed.
            decided.as_mut().enable();
            let NewCompletion { project, id, .. } = &current.completion;
            let Some(found) = self.catalog.completions().find(project, id).await? else { return Ok(current) };
            current = found;
            if current.state == CompletionState::Queued {
                // Another server may decide it, which does not notify this one.
                let next = deadline.min(Instant::now() + POLL_INTERVAL);
                let _ = timeout_at(next, decided).await;
            }
        }
        if current.state == CompletionState::Queued && !wait.is_zero() {
            let NewCompletion { project, id, .. } = &current.completion;
            return Ok(self.catalog.completions().find(project, id).await?.unwrap_or(current));
        }
        Ok(current)
    }
}

/// Returns the tree that a rollback to the state before the first change leaves: an empty one, or, if `path` is set,
/// the head without the entry at this path.
fn empty_or_without(store: &Store, head: &Tree, path: Option<&[u8]>) -> Result<VirtualTree> {
    let Some(path) = path else { return Ok(store.empty_tree()?) };
    let mut tree = VirtualTree::over(head)?;
    if head.entry(path)?.is_some() {
        tree.remove(path)?;
    }
    Ok(tree)
}

/// Returns the head with the entry at a path replaced by that of a former head, or removed if the former head has
/// none.
fn restore_path(head: &Tree, former: &Tree, path: &[u8]) -> Result<VirtualTree> {
    let mut tree = VirtualTree::over(head)?;
    if head.entry(path)?.is_some() {
        tree.remove(path)?;
    }
    if let Some(entry) = former.entry(path)? {
        let path_in_former = path;
        tree.graft(path, &entry, path_in_former)?;
    }
    Ok(tree)
}

/// Returns true if two snapshots show the same view with the same files and times.
fn is_same_view(one: &Snapshot, other: &Snapshot) -> bool {
    (one.tree, one.times, &one.labels) == (other.tree, other.times, &other.labels)
}

/// Returns the description of a new snapshot with labels. The snapshot is pending, and its commit does not sync the
/// store.
fn pending_snapshot<const N: usize>(labels: [(&str, String); N]) -> NewSnapshot {
    let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    NewSnapshot { labels, durability: Durability::Buffered, pending: true, ..NewSnapshot::default() }
}

fn policies(catalog: &Catalog) -> Policies<'_> {
    catalog.policies()
}

fn parse_policy(document: serde_json::Value) -> Result<PolicyDocument> {
    serde_json::from_value(document).map_err(|error| ProjectError::Record(format!("the policy: {error}")))
}

fn no_such_sequence(project: &Project, sequence: i64) -> ProjectError {
    ProjectError::NoSuchSequence { project: project.name.clone(), sequence, head: project.sequence }
}

/// Fails if a text can be neither the name nor the id of a project.
pub fn check_name(name: &str) -> Result<()> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts_well && name.len() <= NAME_MAX && name.bytes().all(is_valid) {
        Ok(())
    } else {
        Err(ProjectError::InvalidName { name: name.to_owned() })
    }
}
