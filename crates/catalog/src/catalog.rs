//! Entry point of the catalog: opens the database and gives access to its tables.

use std::sync::Arc;

use crate::agent_workspace::AgentWorkspaces;
use crate::api_key::ApiKeys;
use crate::command::Commands;
use crate::command_claim::CommandClaims;
use crate::completion::Completions;
use crate::database::{Database, DatabaseKind};
use crate::episode::Episodes;
use crate::error::Result;
use crate::event::{Events, Notifications};
use crate::file_version::FileVersions;
use crate::idempotency::Idempotency;
use crate::lease::Leases;
use crate::migration;
use crate::note::Notes;
use crate::operation::Operations;
use crate::policy::Policies;
use crate::project::Projects;
use crate::recorder::Recorder;
use crate::review::Reviews;
use crate::sandbox::Sandboxes;
use crate::secret::Secrets;
use crate::snapshot::Snapshots;
use crate::template_step::TemplateSteps;
use crate::writer::Writer;

/// Connection to the database of a deployment. Clones share one pool.
#[derive(Debug, Clone)]
pub struct Catalog {
    database: Database,
    /// Batches small writes for SQLite; PostgreSQL does group commits by itself.
    writer: Option<Writer>,
    /// Batches insertions of snapshots and completions.
    recorder: Recorder,
    /// Tasks that exchange notifications with other servers; `None` for SQLite. They end with the last clone.
    _notifications: Option<Arc<Notifications>>,
}

impl Catalog {
    /// Opens `sqlite:///PATH`, which is created if it is missing, or `postgres://USER@HOST/DATABASE`, and
    /// migrates the schema to the newest version.
    pub async fn open(url: &str) -> Result<Self> {
        let database = Database::open(url).await?;
        migration::migrate(&database).await?;
        let writer = (database.kind() == DatabaseKind::Sqlite).then(|| Writer::start(&database));
        let notifications = (database.kind() == DatabaseKind::Postgres)
            .then(|| Arc::new(Notifications::start(&database, url)));
        let recorder = Recorder::start(&database);
        Ok(Self { database, writer, recorder, _notifications: notifications })
    }

    /// Accesses the table `sandboxes`.
    pub fn sandboxes(&self) -> Sandboxes<'_> {
        Sandboxes { database: &self.database }
    }

    /// Accesses the table `events`.
    pub fn events(&self) -> Events<'_> {
        Events { database: &self.database }
    }

    /// Accesses the table `api_keys`.
    pub fn api_keys(&self) -> ApiKeys<'_> {
        ApiKeys { database: &self.database }
    }

    /// Accesses the table `secrets`.
    pub fn secrets(&self) -> Secrets<'_> {
        Secrets { database: &self.database }
    }

    /// Accesses the table `commands`.
    pub fn commands(&self) -> Commands<'_> {
        Commands { database: &self.database, writer: self.writer.as_ref() }
    }

    /// Accesses the table `snapshots`.
    pub fn snapshots(&self) -> Snapshots<'_> {
        Snapshots { database: &self.database, recorder: &self.recorder }
    }

    /// Accesses the table `episodes`.
    pub fn episodes(&self) -> Episodes<'_> {
        Episodes { database: &self.database }
    }

    /// Accesses the table `notes`.
    pub fn notes(&self) -> Notes<'_> {
        Notes { database: &self.database }
    }

    /// Accesses the table `template_steps`.
    pub fn template_steps(&self) -> TemplateSteps<'_> {
        TemplateSteps { database: &self.database }
    }

    /// Accesses the table `idempotency`.
    pub fn idempotency(&self) -> Idempotency<'_> {
        Idempotency { database: &self.database }
    }

    /// Accesses the table `command_claims`.
    pub fn command_claims(&self) -> CommandClaims<'_> {
        CommandClaims { database: &self.database }
    }

    /// Accesses the table `projects`.
    pub fn projects(&self) -> Projects<'_> {
        Projects { database: &self.database }
    }

    /// Accesses the table `project_operations`.
    pub fn operations(&self) -> Operations<'_> {
        Operations { database: &self.database }
    }

    /// Accesses the table `file_versions`.
    pub fn file_versions(&self) -> FileVersions<'_> {
        FileVersions { database: &self.database }
    }

    /// Accesses the table `policies`.
    pub fn policies(&self) -> Policies<'_> {
        Policies { database: &self.database }
    }

    /// Accesses the table `completions`.
    pub fn completions(&self) -> Completions<'_> {
        Completions { database: &self.database, recorder: &self.recorder }
    }

    /// Accesses the table `agent_workspaces`.
    pub fn agent_workspaces(&self) -> AgentWorkspaces<'_> {
        AgentWorkspaces { database: &self.database }
    }

    /// Accesses the table `reviews`.
    pub fn reviews(&self) -> Reviews<'_> {
        Reviews { database: &self.database }
    }

    /// Accesses the table `leases`.
    pub fn leases(&self) -> Leases<'_> {
        Leases { database: &self.database }
    }

    /// Waits for running statements and closes all connections.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Returns whether several servers, each with its own store, can use the database.
    pub fn can_be_shared(&self) -> bool {
        self.database.kind() == DatabaseKind::Postgres
    }
}
