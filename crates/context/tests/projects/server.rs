//! Servers of one deployment: several may open the same directory.

use std::path::Path;

use sqlx::{AnyPool, Executor};
use workspace_catalog::{Catalog, Completion, NewCompletion, Project};
use workspace_context::projects::{Projects, WorkspaceBase};
use workspace_state::{NewSnapshot, SnapshotId, Store, VirtualTree};

/// Label of the snapshots of clients.
pub(crate) const CLIENT_LABEL: &str = "client";

/// Catalog and store of a directory, opened by a server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    pub(crate) projects: Projects,
}

impl Server {
    pub(crate) async fn with_catalog(home: &Path, url: &str) -> Self {
        let catalog = Catalog::open(url).await.unwrap();
        let store = Store::open_or_create(home.join("store")).unwrap();
        let projects = Projects::new(catalog.clone(), store.clone());
        Self { url: url.to_owned(), catalog, store, projects }
    }

    pub(crate) async fn project(&self, id: &str) -> Project {
        self.catalog.projects().get(id).await.unwrap().expect("the project exists")
    }

    /// Queues files that an agent has made of a view.
    pub(crate) async fn complete(
        &self,
        project: &Project,
        agent: &str,
        id: &str,
        base: &WorkspaceBase,
        files: &mut VirtualTree,
    ) -> Completion {
        let theirs = files.commit(NewSnapshot { message: id.to_owned(), ..of_client() }).unwrap().id;
        self.projects.complete(new_completion(project, agent, id, base, theirs)).await.unwrap()
    }

    /// Ends the leases that a killed server held, for which its successor would wait.
    pub(crate) async fn end_leases(&self) {
        sqlx::any::install_default_drivers();
        let pool = AnyPool::connect(&self.url).await.unwrap();
        pool.execute("UPDATE leases SET until = 0").await.unwrap();
        pool.close().await;
    }
}

/// Returns the description of a snapshot that a client of the server makes, which is none of its own.
pub(crate) fn of_client() -> NewSnapshot {
    NewSnapshot { labels: [(CLIENT_LABEL.to_owned(), String::new())].into(), ..NewSnapshot::default() }
}

pub(crate) fn new_completion(
    project: &Project,
    agent: &str,
    id: &str,
    base: &WorkspaceBase,
    theirs: SnapshotId,
) -> NewCompletion {
    NewCompletion {
        id: id.to_owned(),
        project: project.id.clone(),
        owner: project.owner.clone(),
        workspace_owner: None,
        agent: agent.to_owned(),
        sandbox: Some(format!("sbx-{id}")),
        round_id: Some(format!("ws-{id}")),
        base_snapshot: base.snapshot.to_string(),
        base_sequence: base.sequence,
        theirs_snapshot: theirs.to_string(),
        policy_version: base.policy_version,
    }
}
