//! Server of the tests: the service of projects over a catalog and a store. Several servers may open the same ones.

use std::path::Path;

use sqlx::{AnyPool, Executor};
use workspace_catalog::{Catalog, Completion, NewCompletion, Project};
use workspace_context::projects::{Projects, WorkspaceBase};
use workspace_state::{NewSnapshot, SnapshotId, Store, VirtualTree};

/// Name of the label of snapshots that tests commit as clients. Checks for leftover snapshots ignore them.
pub(crate) const CLIENT_LABEL: &str = "client";

/// Catalog and store of a directory, opened by a server.
#[derive(Clone)]
pub(crate) struct Server {
    /// URL of the catalog.
    pub(crate) url: String,
    /// Catalog at the URL.
    pub(crate) catalog: Catalog,
    /// Store with the snapshots of the projects.
    pub(crate) store: Store,
    /// Service of projects over both.
    pub(crate) projects: Projects,
}

impl Server {
    /// Opens the catalog at a URL, and the store in the directory `home`. Creates the store, and a catalog in
    /// SQLite, if they do not exist.
    pub(crate) async fn with_catalog(home: &Path, url: &str) -> Self {
        let catalog = Catalog::open(url).await.unwrap();
        let store = Store::open_or_create(home.join("store")).unwrap();
        let projects = Projects::new(catalog.clone(), store.clone());
        Self { url: url.to_owned(), catalog, store, projects }
    }

    /// Reads the row of a project. Panics if there is none.
    pub(crate) async fn project(&self, id: &str) -> Project {
        self.catalog.projects().get(id).await.unwrap().expect("the project exists")
    }

    /// Commits `files`, which an agent made from the view `base`, and queues a completion (finished work) with the new
    /// id `id`.
    pub(crate) async fn complete(
        &self,
        project: &Project,
        agent: &str,
        id: &str,
        base: &WorkspaceBase,
        files: &mut VirtualTree,
    ) -> Completion {
        let theirs =
            files.commit(NewSnapshot { message: id.to_owned(), ..new_client_snapshot() }).unwrap().id;
        self.projects.complete(new_completion(project, agent, id, base, theirs)).await.unwrap()
    }

    /// Ends all leases, so that the next server need not wait for those of a killed one.
    pub(crate) async fn end_leases(&self) {
        sqlx::any::install_default_drivers();
        let pool = AnyPool::connect(&self.url).await.unwrap();
        pool.execute("UPDATE leases SET until = 0").await.unwrap();
        pool.close().await;
    }
}

impl Server {
    /// Makes the catalog refuse every renewal of a lease.
    pub(crate) async fn forbid_renewals_of_leases(&self) {
        // A renewal is the only update that keeps the epoch and does not end the lease.
        let is_renewal = "NEW.epoch = OLD.epoch AND NEW.until > 0";
        let statements = if self.url.starts_with("sqlite") {
            vec![format!(
                "CREATE TRIGGER renewal BEFORE UPDATE ON leases WHEN {is_renewal}
                 BEGIN SELECT RAISE(ABORT, 'no renewal'); END"
            )]
        } else {
            vec![
                "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no renewal'; END $$
                 LANGUAGE plpgsql"
                    .to_owned(),
                format!(
                    "CREATE TRIGGER renewal BEFORE UPDATE ON leases FOR EACH ROW WHEN ({is_renewal})
                     EXECUTE FUNCTION refuse()"
                ),
            ]
        };
        sqlx::any::install_default_drivers();
        let pool = AnyPool::connect(&self.url).await.unwrap();
        for statement in statements {
            pool.execute(statement.as_str()).await.unwrap();
        }
        pool.close().await;
    }
}

/// Returns the parameters of a new snapshot, as a client commits it. It has the label [`CLIENT_LABEL`] and no message.
/// Because of the label, it is not taken for one that a server has left behind.
pub(crate) fn new_client_snapshot() -> NewSnapshot {
    NewSnapshot { labels: [(CLIENT_LABEL.to_owned(), String::new())].into(), ..NewSnapshot::default() }
}

/// Returns a completion (finished work of an agent) with the new id `id`. The agent made the snapshot `theirs` from the
/// view `base`. The completion is not queued.
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
