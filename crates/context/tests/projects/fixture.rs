//! A project with a catalog, in SQLite or PostgreSQL, and a store.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use workspace_catalog::{Catalog, Completion, NewCompletion, Operator, PolicyResult, Project, sqlite_url};
use workspace_context::projects::{ChangeAuthor, CompletionReport, Daemon, ProjectSettings, Projects};
use workspace_state::{NewSnapshot, Node, Snapshot, SnapshotId, Store, Tree, VirtualTree};

use crate::server::{Server, of_client};
use crate::servers::new_postgres_database;

pub(crate) struct Fixture {
    directory: tempfile::TempDir,
    /// URL of the catalog.
    pub(crate) url: String,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    pub(crate) projects: Projects,
    pub(crate) project: Project,
}

/// Workspace of an agent: the files that it was made from, and what the agent has made of them.
pub(crate) struct Workspace {
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) base: SnapshotId,
    pub(crate) files: VirtualTree,
}

impl Fixture {
    /// Creates a project with these files.
    pub(crate) async fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = match new_postgres_database().await {
            Some(url) => url,
            None => sqlite_url(&directory.path().join("catalog.db")),
        };
        let Server { catalog, store, projects, .. } = Server::with_catalog(directory.path(), &url).await;
        let project = projects.create("alice", "website", ProjectSettings::default(), None).await.unwrap();
        let mut fixture = Self { directory, url, catalog, store, projects, project };
        if !files.is_empty() {
            fixture.import(files).await;
        }
        fixture
    }

    pub(crate) async fn import(&mut self, files: &[(&str, &str)]) {
        let content = self.snapshot(files);
        self.import_snapshot(content.id).await;
    }

    pub(crate) async fn import_snapshot(&mut self, content: SnapshotId) {
        let imported = self.projects.import(&self.project, content, &person(), "import", None, None).await;
        imported.unwrap().expect("the import changes files");
        self.refresh().await;
    }

    pub(crate) fn snapshot(&self, files: &[(&str, &str)]) -> Snapshot {
        let mut tree = self.store.empty_tree().unwrap();
        files.iter().for_each(|(path, content)| tree.write(path, *content).unwrap());
        tree.commit(of_client()).unwrap()
    }

    /// Returns the directory of catalog and store.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the server of the fixture.
    pub(crate) fn server(&self) -> Server {
        let (catalog, store, projects) = (self.catalog.clone(), self.store.clone(), self.projects.clone());
        Server { url: self.url.clone(), catalog, store, projects }
    }

    /// Opens catalog and store once more, like another server.
    pub(crate) async fn other_server(&self) -> Projects {
        Server::with_catalog(self.path(), &self.url).await.projects
    }

    pub(crate) async fn refresh(&mut self) {
        self.project = self.catalog.projects().get(&self.project.id).await.unwrap().unwrap();
    }

    pub(crate) async fn set_policy(&mut self, policy: Value) {
        let policies = self.catalog.policies();
        let set = policies.set(&self.project.id, self.project.policy_version, &policy, "alice", &[]).await;
        assert!(matches!(set.unwrap(), PolicyResult::Set(_)));
        self.refresh().await;
    }

    /// Makes a workspace of the files that an agent may see.
    pub(crate) async fn workspace(&self, agent: &str, id: &str) -> Workspace {
        let base = self.projects.workspace_base(&self.project, agent).await.unwrap();
        let files = self.store.restore(&base.snapshot).unwrap();
        Workspace { id: id.to_owned(), agent: agent.to_owned(), base: base.snapshot, files }
    }

    /// Queues the present files of a workspace.
    pub(crate) async fn complete(&self, workspace: &mut Workspace) -> Completion {
        let new = self.completion(workspace);
        self.projects.complete(new).await.unwrap()
    }

    pub(crate) fn completion(&self, workspace: &mut Workspace) -> NewCompletion {
        let new = NewSnapshot { message: "work".to_owned(), ..of_client() };
        let theirs = workspace.files.commit(new).unwrap();
        self.new_completion(&workspace.id, &workspace.agent, workspace.base, theirs.id)
    }

    /// Queues a snapshot of what an agent has made of a view.
    pub(crate) async fn complete_snapshot(
        &self,
        agent: &str,
        base: SnapshotId,
        theirs: SnapshotId,
    ) -> Completion {
        self.projects.complete(self.new_completion("work", agent, base, theirs)).await.unwrap()
    }

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

    pub(crate) fn daemon(&self) -> Daemon {
        Daemon::new(self.projects.clone(), "server-1".to_owned())
    }

    /// Lands all queued completions.
    pub(crate) async fn land(&mut self) {
        self.daemon().land_all().await.unwrap();
        self.refresh().await;
    }

    pub(crate) async fn state(&self, completion: &Completion) -> Completion {
        let found = self.catalog.completions().find(&self.project.id, &completion.completion.id).await;
        found.unwrap().unwrap()
    }

    pub(crate) async fn report(&self, completion: &Completion) -> CompletionReport {
        serde_json::from_value(self.state(completion).await.result.unwrap()).unwrap()
    }

    /// Returns the files of the present head.
    pub(crate) async fn files(&self) -> BTreeMap<String, String> {
        files_at(&self.server(), &self.project).await
    }
}

/// Returns the files of the head of a project.
pub(crate) async fn files_at(server: &Server, project: &Project) -> BTreeMap<String, String> {
    let head = server.projects.head(project, None).await.unwrap().unwrap();
    files_of(&Tree::of_snapshot(&server.store, &head).unwrap())
}

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

pub(crate) fn person() -> ChangeAuthor {
    ChangeAuthor { name: "alice".to_owned(), operator: Operator::Person }
}
