//! Fixture of the tests: a project with a catalog, in SQLite or PostgreSQL, and a store.
//!
//! The head is the snapshot of the present files of the project. Each change of it (a merge, an import, a rollback, a
//! decision about a review) adds 1 to the sequence. Files are given as pairs of path and content.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use workspace_catalog::{Catalog, Completion, NewCompletion, Operator, PolicyResult, Project};
use workspace_context::projects::{
    ChangeAuthor, CompletionReport, Daemon, ImportOrigin, ProjectSettings, Projects,
};
use workspace_state::{NewSnapshot, Node, Snapshot, SnapshotId, Store, Tree, VirtualTree};

use crate::database::{Database, DatabaseKind};
use crate::server::{Server, new_client_snapshot};

/// Limit of [`Projects::create`] on the number of projects.
pub(crate) const NO_LIMIT: Option<u64> = None;
/// Sequence for [`Projects::head`] that selects the present head.
pub(crate) const PRESENT: Option<i64> = None;
/// Sequence that [`Projects::import`] expects of the head.
pub(crate) const ANY_SEQUENCE: Option<i64> = None;
/// Origin for [`Projects::import`] of files that do not come from git.
pub(crate) const NOT_FROM_GIT: Option<&ImportOrigin> = None;
/// Path for [`Projects::rollback`] that selects all files.
pub(crate) const WHOLE_PROJECT: Option<Vec<u8>> = None;

/// Project with its catalog and store, and the service over both.
pub(crate) struct Fixture {
    directory: tempfile::TempDir,
    /// Database of the catalog.
    _database: Database,
    /// URL of the catalog.
    pub(crate) url: String,
    /// Catalog at the URL, which `projects` uses.
    pub(crate) catalog: Catalog,
    /// Store in the directory, which `projects` uses.
    pub(crate) store: Store,
    /// Service of projects.
    pub(crate) projects: Projects,
    /// Row of the project when it was last read ([`Self::refresh`]).
    pub(crate) project: Project,
}

/// Workspace of an agent. A virtual tree stands for the directory of a real workspace.
pub(crate) struct Workspace {
    /// Id, which is part of the ids of its completions.
    pub(crate) id: String,
    /// Name of the agent.
    pub(crate) agent: String,
    /// Snapshot that the workspace was made from.
    pub(crate) base: SnapshotId,
    /// Files with the changes of the agent.
    pub(crate) files: VirtualTree,
}

impl Fixture {
    /// Creates the project `website` of `alice` with a new store, and a catalog in a new database of this kind. With
    /// files, imports them, which is change 1; without, the project has no head.
    pub(crate) async fn new(database: DatabaseKind, files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::new(database, directory.path());
        let url = database.url.clone();
        let Server { catalog, store, projects, .. } = Server::with_catalog(directory.path(), &url).await;
        let project =
            projects.create("alice", "website", ProjectSettings::default(), NO_LIMIT).await.unwrap();
        let mut fixture = Self { directory, _database: database, url, catalog, store, projects, project };
        if !files.is_empty() {
            fixture.replace_files(files).await;
        }
        fixture
    }

    /// Replaces all files of the project by `files`, as an import by `alice`. Files that are not in `files` are
    /// removed. Makes a new head, and panics if the project has exactly these files already.
    pub(crate) async fn replace_files(&mut self, files: &[(&str, &str)]) {
        let content = self.snapshot(files);
        self.import_snapshot(content.id).await;
    }

    /// Replaces all files of the project by those of a snapshot, like [`Self::replace_files`].
    pub(crate) async fn import_snapshot(&mut self, content: SnapshotId) {
        let imported = self
            .projects
            .import(&self.project, content, &person(), "import", ANY_SEQUENCE, NOT_FROM_GIT)
            .await;
        imported.unwrap().expect("the import changes files");
        self.refresh().await;
    }

    /// Commits a snapshot with exactly these files. Changes nothing in the project.
    pub(crate) fn snapshot(&self, files: &[(&str, &str)]) -> Snapshot {
        let mut tree = self.store.empty_tree().unwrap();
        files.iter().for_each(|(path, content)| tree.write(path, *content).unwrap());
        tree.commit(new_client_snapshot()).unwrap()
    }

    /// Returns the directory of catalog and store.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the catalog, the store and the service of this fixture, which are not opened again.
    pub(crate) fn server(&self) -> Server {
        let (catalog, store, projects) = (self.catalog.clone(), self.store.clone(), self.projects.clone());
        Server { url: self.url.clone(), catalog, store, projects }
    }

    /// Opens the catalog and the store once more, like another server. Returns its service of projects.
    pub(crate) async fn other_server(&self) -> Projects {
        Server::with_catalog(self.path(), &self.url).await.projects
    }

    /// Reads the row of the project from the catalog again into [`Self::project`], after a change of the project.
    pub(crate) async fn refresh(&mut self) {
        self.project = self.catalog.projects().get(&self.project.id).await.unwrap().unwrap();
    }

    /// Replaces the policy of the project by the JSON document `policy`, and refreshes [`Self::project`].
    pub(crate) async fn set_policy(&mut self, policy: Value) {
        let policies = self.catalog.policies();
        let set = policies.set(&self.project.id, self.project.policy_version, &policy, "alice", &[]).await;
        assert!(matches!(set.unwrap(), PolicyResult::Set(_)));
        self.refresh().await;
    }

    /// Makes a workspace with the files of the head that the agent named `agent` may see. `id` is the id of the
    /// new workspace.
    pub(crate) async fn workspace(&self, agent: &str, id: &str) -> Workspace {
        let base = self.projects.workspace_base(&self.project, agent).await.unwrap();
        let files = self.store.restore(&base.snapshot).unwrap();
        Workspace { id: id.to_owned(), agent: agent.to_owned(), base: base.snapshot, files }
    }

    /// Commits the present files of a workspace, and queues a completion (finished work) with them. It is merged by
    /// [`Self::land`].
    pub(crate) async fn complete(&self, workspace: &mut Workspace) -> Completion {
        let new = self.completion(workspace);
        self.projects.complete(new).await.unwrap()
    }

    /// Commits the present files of a workspace. Returns a completion with them, which is not queued.
    pub(crate) fn completion(&self, workspace: &mut Workspace) -> NewCompletion {
        let new = NewSnapshot { message: "work".to_owned(), ..new_client_snapshot() };
        let theirs = workspace.files.commit(new).unwrap();
        self.new_completion(&workspace.id, &workspace.agent, workspace.base, theirs.id)
    }

    /// Queues a completion with the snapshot `theirs`, which an agent made from the snapshot `base` of its view.
    pub(crate) async fn complete_snapshot(
        &self,
        agent: &str,
        base: SnapshotId,
        theirs: SnapshotId,
    ) -> Completion {
        self.projects.complete(self.new_completion("work", agent, base, theirs)).await.unwrap()
    }

    /// Returns a completion of the workspace with this id. The agent made the snapshot `theirs` from `base`.
    fn new_completion(
        &self,
        workspace: &str,
        agent: &str,
        base: SnapshotId,
        theirs: SnapshotId,
    ) -> NewCompletion {
        NewCompletion {
            id: format!("{workspace}-{theirs}"),
            project: self.project.id.clone(),
            owner: "alice".to_owned(),
            // The owner of the project.
            workspace_owner: None,
            agent: agent.to_owned(),
            sandbox: Some(workspace.to_owned()),
            round_id: Some(workspace.to_owned()),
            base_snapshot: base.to_string(),
            base_sequence: self.project.sequence,
            theirs_snapshot: theirs.to_string(),
            policy_version: self.project.policy_version,
        }
    }

    /// Returns a new merge daemon with the service of this fixture. It does nothing until it is run.
    pub(crate) fn daemon(&self) -> Daemon {
        Daemon::new(self.projects.clone(), "server-1".to_owned())
    }

    /// Merges all queued completions into the head, and refreshes [`Self::project`]. Conflicts become reviews.
    pub(crate) async fn land(&mut self) {
        self.daemon().land_all().await.unwrap();
        self.refresh().await;
    }

    /// Reads a completion from the catalog again, and returns it with its present state.
    pub(crate) async fn state(&self, completion: &Completion) -> Completion {
        let found = self.catalog.completions().find(&self.project.id, &completion.completion.id).await;
        found.unwrap().unwrap()
    }

    /// Returns the report about a merged completion. Panics if it has none yet.
    pub(crate) async fn report(&self, completion: &Completion) -> CompletionReport {
        serde_json::from_value(self.state(completion).await.result.unwrap()).unwrap()
    }

    /// Returns the contents of the files of the present head by path. Symlinks are omitted.
    pub(crate) async fn files(&self) -> BTreeMap<String, String> {
        files_at(&self.server(), &self.project).await
    }
}

/// Returns the contents of the files of the head of a project by path.
pub(crate) async fn files_at(server: &Server, project: &Project) -> BTreeMap<String, String> {
    let head = server.projects.head(project, PRESENT).await.unwrap().unwrap();
    files_of(&Tree::of_snapshot(&server.store, &head).unwrap())
}

/// Returns the contents of the files of a tree by path.
pub(crate) fn files_of(tree: &Tree) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    tree.walk(&mut |path, entry| {
        if let Node::File(file) = &entry.node {
            files.insert(text(path.to_vec()), text(tree.read(file)?));
        }
        Ok(())
    })
    .unwrap();
    files
}

/// Returns the author of imports and rollbacks: `alice`, a person.
pub(crate) fn person() -> ChangeAuthor {
    ChangeAuthor { name: "alice".to_owned(), operator: Operator::Person }
}
