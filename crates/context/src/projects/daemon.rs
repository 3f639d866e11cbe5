//! Merge daemon: lands the completions that wait.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Projects, Result, references};

/// Maximum time between two looks for completions that other servers queued.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Duration of the lease of a project. A killed server delays the merges of others by at most this time.
const LEASE: Duration = Duration::from_secs(5);
/// Maximum number of projects that are merged at a time.
const CONCURRENT_MAX: usize = 4;
/// Number of projects that are listed at a time.
const PAGE: u32 = 100;

/// Merges in progress. Dropping it stops them.
#[derive(Default)]
struct Merges {
    tasks: JoinSet<String>,
    /// Projects of the tasks.
    running: HashSet<String>,
}

impl Merges {
    fn has_room(&self) -> bool {
        self.running.len() < CONCURRENT_MAX
    }

    fn start(&mut self, daemon: &Arc<Daemon>, project: String) {
        if !self.has_room() || !self.running.insert(project.clone()) {
            return;
        }
        let daemon = Arc::clone(daemon);
        self.tasks.spawn(async move {
            if let Err(error) = daemon.land_project(&project).await {
                tracing::warn!(project, %error, "failed to merge the completions of a project");
            }
            project
        });
    }

    /// Waits for a new completion, the end of a merge, or the poll interval.
    async fn wait(&mut self, queued: &Notify) {
        tokio::select! {
            // A notification before this wait is not lost: it is stored.
            () = queued.notified() => {}
            Some(ended) = self.tasks.join_next() => match ended {
                Ok(project) => {
                    self.running.remove(&project);
                }
                Err(error) => {
                    // The name of its project is lost with it.
                    tracing::error!(%error, "a merge ended early");
                    self.running.clear();
                    self.tasks.abort_all();
                }
            },
            () = sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Merge daemon of a server. Drop its future to stop it: completions that it has not recorded stay queued.
#[derive(Debug)]
pub struct Daemon {
    projects: Projects,
    server: String,
}

impl Daemon {
    /// Creates the daemon of a server with that name.
    pub fn new(projects: Projects, server: String) -> Self {
        Self { projects, server }
    }

    /// Lands completions until the future is dropped.
    pub async fn run(self) {
        if let Err(error) = self.projects.catalog.projects().finish_deletions().await {
            tracing::warn!(%error, "failed to finish the deletion of projects");
        }
        if let Err(error) = self.repair_references().await {
            tracing::warn!(%error, "failed to restore the references of projects");
        }
        let daemon = Arc::new(self);
        let mut merges = Merges::default();
        loop {
            if let Err(error) = daemon.start_merges(&mut merges).await {
                tracing::warn!(%error, "failed to look for completions");
            }
            merges.wait(&daemon.projects.queued).await;
        }
    }

    /// Starts a task for each project with queued completions, as long as there is room. A project that takes long does
    /// not delay others.
    async fn start_merges(self: &Arc<Self>, merges: &mut Merges) -> Result<()> {
        let mut cursor: Option<String> = None;
        while merges.has_room() {
            let completions = self.projects.catalog.completions();
            let page = completions.projects_with_queued(cursor.as_deref(), PAGE).await?;
            let Some(last) = page.last().cloned() else { return Ok(()) };
            for project in page {
                merges.start(self, project);
            }
            cursor = Some(last);
        }
        Ok(())
    }

    /// Lands the queued completions of all projects once.
    pub async fn land_all(&self) -> Result<()> {
        let mut cursor: Option<String> = None;
        loop {
            let completions = self.projects.catalog.completions();
            let page = completions.projects_with_queued(cursor.as_deref(), PAGE).await?;
            let Some(last) = page.last().cloned() else { return Ok(()) };
            for project in &page {
                if let Err(error) = self.land_project(project).await {
                    tracing::warn!(project, %error, "failed to merge the completions of a project");
                }
            }
            cursor = Some(last);
        }
    }

    /// Lands the queued completions of a project, unless another server does.
    async fn land_project(&self, project: &str) -> Result<()> {
        let leases = self.projects.catalog.leases();
        let ttl = LEASE.as_millis() as i64;
        let Some(mut lease) = leases.acquire(&format!("merge/{project}"), &self.server, ttl).await? else {
            return Ok(());
        };
        let landed = loop {
            match self.projects.land_queued(project).await {
                Ok(true) => match leases.renew(&lease, ttl).await? {
                    Some(renewed) => lease = renewed,
                    None => return Ok(()),
                },
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        leases.release(&lease).await?;
        landed
    }

    async fn repair_references(&self) -> Result<()> {
        let mut cursor = None;
        loop {
            let filter = workspace_catalog::ProjectFilter { cursor, limit: PAGE, ..Default::default() };
            let (projects, _) = self.projects.catalog.projects().list(&filter).await?;
            let Some(last) = projects.last().map(|project| project.id.clone()) else { return Ok(()) };
            for project in &projects {
                references::set_missing(&self.projects.store, &self.projects.catalog, &project.id).await?;
            }
            cursor = Some(last);
        }
    }
}
