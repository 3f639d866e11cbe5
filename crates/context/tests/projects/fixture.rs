//! A project with a catalog in SQLite and a store.

use std::collections::BTreeMap;

use serde_json::Value;
use workspace_catalog::{Catalog, Completion, NewCompletion, Operator, PolicyResult, Project, sqlite_url};
use workspace_context::projects::{ChangeAuthor, CompletionReport, Daemon, Projects};
use workspace_state::{NewSnapshot, Node, Snapshot, SnapshotId, Store, Tree, VirtualTree};

pub(crate) struct Fixture {
    directory: tempfile::TempDir,
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
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        let catalog = Catalog::open(&sqlite_url(&directory.path().join("catalog.db"))).await.unwrap();
        let projects = Projects::new(catalog.clone(), store.clone());
        let project = projects.create("alice", "website", None).await.unwrap();
        let mut fixture = Self { directory, catalog, store, projects, project };
        if !files.is_empty() {
            fixture.import(files).await;
        }
        fixture
    }

    pub(crate) async fn import(&mut self, files: &[(&str, &str)]) {
        let content = self.snapshot(files);
        let imported = self.projects.import(&self.project, content.id, &person(), "import", None, None).await;
        imported.unwrap().expect("the import changes files");
        self.refresh().await;
    }

    pub(crate) fn snapshot(&self, files: &[(&str, &str)]) -> Snapshot {
        let mut tree = self.store.empty_tree().unwrap();
        files.iter().for_each(|(path, content)| tree.write(path, *content).unwrap());
        tree.commit(NewSnapshot::default()).unwrap()
    }

    /// Opens catalog and store once more, like another server.
    pub(crate) async fn other_server(&self) -> Projects {
        let path = self.directory.path();
        let catalog = Catalog::open(&sqlite_url(&path.join("catalog.db"))).await.unwrap();
        Projects::new(catalog, Store::open(path.join("store")).unwrap())
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
        let theirs = workspace.files.commit(NewSnapshot::with_message("work")).unwrap();
        NewCompletion {
            id: format!("{}-{}", workspace.id, theirs.id),
            project: self.project.id.clone(),
            owner: "alice".to_owned(),
            requester: None,
            agent: workspace.agent.clone(),
            sandbox: Some(workspace.id.clone()),
            workspace: Some(workspace.id.clone()),
            base_snapshot: workspace.base.to_string(),
            base_sequence: self.project.sequence,
            theirs_snapshot: theirs.id.to_string(),
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
        let head = self.projects.head(&self.project, None).await.unwrap().unwrap();
        files_of(&Tree::of_snapshot(&self.store, &head).unwrap())
    }
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
