//! A project as an agent sees it: the files that the policy shows to it, and the changes of these files.
//!
//! The *sequence* of a change of a project counts all changes of its head (the snapshot of its present files). The
//! *number* of a change counts only those that the agent can see, and takes the place of the sequence for the agent: a
//! gap in the sequences would reveal that hidden files changed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use workspace_catalog::{Catalog, ChangedPath, FileChange, FileVersion, Project};
use workspace_state::{Snapshot, SnapshotId};

use super::Projects;
use super::error::{ProjectError, Result};
use super::store_access::{blocking, find_snapshot};
use super::versions::FILE_ID_PREFIX;
use crate::policy::{AgentPolicy, ViewKey};

/// Number of changed paths that are read at a time.
const PATHS_PER_PAGE: u32 = 5_000;
/// Maximum number of views whose visible changes are cached.
const CACHED_VIEWS_MAX: usize = 1_000;
/// Length in characters of the hash in the id of a file for an agent.
const FILE_ID_HASH_LENGTH: usize = 32;
/// Maximum number of snapshots of views of earlier heads that are kept in the store.
const EARLIER_VIEWS_MAX: usize = 64;

/// A project as an agent sees it.
#[derive(Debug, Clone)]
pub struct AgentView {
    project: Project,
    policy: AgentPolicy,
    /// Sequences of the changes that the agent can see, in order; `None` if it can see all.
    visible: Option<Arc<Vec<i64>>>,
}

/// Changes of a project that a view shows, as far as they were read.
#[derive(Debug, Default)]
struct ChangesOfView {
    /// Sequence and file id after which the next changed path is read.
    position: (i64, String),
    /// Sequences of the visible changes that were read, in order.
    sequences: Arc<Vec<i64>>,
}

/// Key of a view of a project. Agents that may read the same paths share a view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ProjectView {
    /// Id of the project.
    project: String,
    view: ViewKey,
}

/// Key of the view of an earlier head.
#[derive(Debug, PartialEq, Eq)]
struct EarlierHead {
    view: ProjectView,
    /// Snapshot of the head; `None` is the state before the first change.
    head: Option<SnapshotId>,
}

/// Lock of the visible changes of a view, so that one request at a time reads them.
type ChangesLock = Arc<tokio::sync::Mutex<ChangesOfView>>;

/// Cache of the visible changes by view.
#[derive(Debug, Default)]
pub(super) struct VisibleChanges(Mutex<HashMap<ProjectView, ChangesLock>>);

/// Snapshots of views of earlier heads, the least recently made first.
#[derive(Debug, Default)]
pub(super) struct EarlierViews(Mutex<VecDeque<(EarlierHead, SnapshotId)>>);

impl AgentView {
    /// Returns the project.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// Returns the policy of the agent.
    pub fn policy(&self) -> &AgentPolicy {
        &self.policy
    }

    /// Returns true if the agent may see a path.
    pub fn shows(&self, path: &[u8]) -> bool {
        self.policy.access(path).can_read()
    }

    /// Returns the number of the newest change that the agent can see; 0 if it can see none.
    pub fn sequence(&self) -> i64 {
        self.agent_sequence_at(self.project.sequence)
    }

    /// Converts a sequence of the project to the number of the newest visible change up to it.
    pub fn agent_sequence_at(&self, sequence: i64) -> i64 {
        match &self.visible {
            None => sequence,
            Some(visible) => visible.partition_point(|visible| *visible <= sequence) as i64,
        }
    }

    /// Converts the number of a change to its sequence; 0 for 0, `None` if there is no such change yet.
    pub fn sequence_of(&self, number: i64) -> Option<i64> {
        match (&self.visible, number) {
            (_, 0) => Some(0),
            (None, _) => (number <= self.project.sequence).then_some(number),
            (Some(visible), _) => visible.get(usize::try_from(number - 1).ok()?).copied(),
        }
    }

    /// Converts versions of a file, under all its paths and newest first, to those that the agent sees. For the agent,
    /// a move to a hidden path removes the file, and a move back adds another file. Returns the versions of the newest
    /// of these files that has or had the path `path`. The id of a file for the agent has a hash of its first version,
    /// and looks like any other file id.
    fn versions(&self, path: &[u8], versions: Vec<FileVersion>) -> Vec<FileVersion> {
        let mut files: Vec<Vec<FileVersion>> = vec![Vec::new()];
        for version in versions {
            let Some(version) = self.version(version) else { continue };
            // The newest version comes first: a file begins here with its removal, and ends with its addition.
            let is_last_version = version.version.change == FileChange::Removed;
            let is_first_version = version.version.change == FileChange::Added;
            if is_last_version {
                files.push(Vec::new());
            }
            files.last_mut().into_iter().for_each(|file| file.push(version.clone()));
            if is_first_version {
                files.push(Vec::new());
            }
        }
        let has_path = |file: &Vec<FileVersion>| file.iter().any(|version| version.version.path == path);
        let mut found = files.into_iter().find(has_path).unwrap_or_default();
        let first = found.last().map(|first| format!("{}/{}", first.version.file_id, first.sequence));
        let hash = first.map(|first| blake3::hash(first.as_bytes()).to_hex());
        let id = hash.map(|hash| format!("{FILE_ID_PREFIX}{}", &hash[..FILE_ID_HASH_LENGTH]));
        for version in &mut found {
            version.version.file_id.clone_from(id.as_ref().unwrap_or(&String::new()));
        }
        found
    }

    /// Returns a version of a file as the agent sees it, with the number of its change as the sequence; `None` if it
    /// is hidden.
    fn version(&self, mut stored: FileVersion) -> Option<FileVersion> {
        let version = &mut stored.version;
        let came_from_hidden = version.previous_path.as_deref().is_some_and(|previous| !self.shows(previous));
        match (self.shows(&version.path), came_from_hidden) {
            (true, false) => {}
            // The file was moved from a hidden path: for the agent it was added.
            (true, true) => {
                version.previous_path = None;
                version.change = FileChange::Added;
                version.strategy = None;
            }
            // The file was moved to a hidden path: for the agent it was removed.
            (false, false) if version.previous_path.is_some() => {
                version.path = version.previous_path.take()?;
                version.change = FileChange::Removed;
                (version.strategy, version.mime) = (None, None);
            }
            (false, _) => return None,
        }
        stored.sequence = self.agent_sequence_at(stored.sequence);
        Some(stored)
    }
}

impl Projects {
    /// Returns a project as an agent sees it.
    pub async fn agent_view(&self, project: &Project, agent: &str) -> Result<AgentView> {
        let policy = self.policy(project).await?.for_agent(agent);
        let visible = match policy.reads_everything() {
            true => None,
            false => Some(self.visible_changes.of(&self.catalog, project, &policy).await?),
        };
        Ok(AgentView { project: project.clone(), policy, visible })
    }

    /// Returns the view of the same agent of the present state of the project: with later changes, and the policy that
    /// is now in force.
    pub async fn renewed(&self, view: &AgentView) -> Result<AgentView> {
        let project = self.catalog.projects().get(&view.project.id).await?;
        let not_found = || ProjectError::NotFound { project: view.project.name.clone() };
        self.agent_view(&project.ok_or_else(not_found)?, view.policy.agent()).await
    }

    /// Returns a snapshot of the files that an agent sees: of the present head, or after the change with this number.
    /// Returns `None` only for an agent that reads everything, before the first change. Any other agent gets a
    /// snapshot, which is empty if the agent sees nothing: so it cannot tell a project without files from one with only
    /// hidden files.
    pub async fn agent_head(&self, view: &AgentView, number: Option<i64>) -> Result<Option<Snapshot>> {
        let project = &view.project;
        let sequence = match number {
            None => project.sequence,
            Some(number) => view.sequence_of(number).ok_or_else(|| ProjectError::NoSuchSequence {
                project: project.name.clone(),
                sequence: number,
                head: view.sequence(),
            })?,
        };
        let head = self.head(project, Some(sequence)).await?;
        if view.policy.reads_everything() {
            return Ok(head);
        }
        let id = match sequence == project.sequence {
            true => self.workspace_base(project, view.policy.agent()).await?.snapshot,
            false => self.earlier_view(project, head, &view.policy).await?,
        };
        let store = self.store.clone();
        blocking(move || Ok(Some(find_snapshot(&store, id)?))).await
    }

    /// Returns the newest versions, at most `limit`, of the file that has a path for the agent, or else was the last
    /// one to have it. The field `sequence` of a version has the number of its change. A hidden path has no versions.
    pub async fn agent_versions(
        &self,
        view: &AgentView,
        path: &[u8],
        limit: u32,
    ) -> Result<Vec<FileVersion>> {
        if !view.shows(path) {
            return Ok(Vec::new());
        }
        let versions = self.catalog.file_versions();
        let mut found = versions.of_path(&view.project.id, path, None, limit).await?;
        let oldest = found.last().filter(|_| found.len() as u64 == u64::from(limit)).cloned();
        let Some(oldest) = oldest else { return Ok(view.versions(path, found)) };
        // The id of the file for the agent is a hash of its first version, which may be older than `oldest`.
        let id = &oldest.version.file_id;
        found.extend(versions.moves_of_file(&view.project.id, id, oldest.sequence, limit).await?);
        let mut found = view.versions(path, found);
        let last_omitted = view.agent_sequence_at(oldest.sequence - 1);
        found.retain(|version| version.sequence > last_omitted);
        Ok(found)
    }

    /// Returns a snapshot of the view of an earlier head. It is kept until [`EARLIER_VIEWS_MAX`] others were made.
    async fn earlier_view(
        &self,
        project: &Project,
        head: Option<Snapshot>,
        policy: &AgentPolicy,
    ) -> Result<SnapshotId> {
        let view = ProjectView::of(project, policy);
        let key = EarlierHead { view, head: head.as_ref().map(|head| head.id) };
        if let Some(found) = self.earlier_views.find(&key) {
            return Ok(found);
        }
        let (projects, policy) = (self.clone(), policy.clone());
        blocking(move || {
            // No workspace is made from an earlier view. So it needs no parent, from which layers (read-only
            // directories under workspaces) could be derived.
            let no_parents = Vec::new();
            let made = projects.commit_view(&key.view.project, head.as_ref(), &policy, no_parents)?.id;
            let evicted = projects.earlier_views.insert(key, made);
            // A response that is still reading a removed snapshot is not disturbed: garbage collection removes the
            // content much later.
            projects.store.remove_snapshots(&evicted)?;
            Ok(made)
        })
        .await
    }
}

impl ProjectView {
    fn of(project: &Project, policy: &AgentPolicy) -> Self {
        Self { project: project.id.clone(), view: policy.view_key() }
    }
}

impl VisibleChanges {
    /// Returns the sequences of the changes that a policy shows, up to the head of `project`.
    async fn of(&self, catalog: &Catalog, project: &Project, policy: &AgentPolicy) -> Result<Arc<Vec<i64>>> {
        let changes = self.lock_of(ProjectView::of(project, policy));
        let mut changes = changes.lock().await;
        let versions = catalog.file_versions();
        while changes.position.0 <= project.sequence {
            let (sequence, file) = &changes.position;
            let position = (*sequence, file.as_str());
            let page =
                versions.changed_paths(&project.id, position, project.sequence, PATHS_PER_PAGE).await?;
            // The next query may fail, or the request may be dropped while it waits: the changes of a page and the
            // position after it are set without an `await` in between.
            changes.add(&page, policy);
            changes.position = match page.last() {
                Some(last) => (last.sequence, last.file_id.clone()),
                None => (project.sequence + 1, String::new()),
            };
        }
        Ok(Arc::clone(&changes.sequences))
    }

    fn lock_of(&self, view: ProjectView) -> ChangesLock {
        let mut views = self.0.lock();
        if views.len() >= CACHED_VIEWS_MAX {
            views.clear();
        }
        Arc::clone(views.entry(view).or_default())
    }
}

impl ChangesOfView {
    /// Adds the changes of a page that a policy shows.
    fn add(&mut self, page: &[ChangedPath], policy: &AgentPolicy) {
        let shows = |path: &[u8]| policy.access(path).can_read();
        for changed in page {
            let is_known = self.sequences.last() == Some(&changed.sequence);
            let is_visible = || shows(&changed.path) || changed.previous_path.as_deref().is_some_and(shows);
            if !is_known && is_visible() {
                Arc::make_mut(&mut self.sequences).push(changed.sequence);
            }
        }
    }
}

impl EarlierViews {
    fn find(&self, key: &EarlierHead) -> Option<SnapshotId> {
        let views = self.0.lock();
        views.iter().find(|(found, _)| found == key).map(|(_, view)| *view)
    }

    /// Adds a view. Returns the snapshots that the caller must remove: the oldest one if there are too many, and a
    /// duplicate of `view` that another request made meanwhile.
    fn insert(&self, key: EarlierHead, view: SnapshotId) -> Vec<SnapshotId> {
        let mut views = self.0.lock();
        let equal = views.iter().position(|(found, _)| *found == key).and_then(|index| views.remove(index));
        views.push_back((key, view));
        let oldest = if views.len() > EARLIER_VIEWS_MAX { views.pop_front() } else { None };
        [equal, oldest].into_iter().flatten().map(|(_, view)| view).collect()
    }
}
