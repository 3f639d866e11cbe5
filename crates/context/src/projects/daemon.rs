//! Merge daemon: lands the completions that wait.

use std::time::Duration;

use tokio::time::timeout;

use super::{Projects, Result, references};

/// Maximum time between two looks for completions that other servers queued.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Duration of the lease of a project. A killed server delays the merges of others by at most this time.
const LEASE: Duration = Duration::from_secs(5);
/// Number of projects that are listed at a time.
const PAGE: u32 = 100;

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
        loop {
            if let Err(error) = self.land_all().await {
                tracing::warn!(%error, "failed to merge completions");
            }
            // A notification between the merge and this wait is not lost: it is stored.
            let _ = timeout(POLL_INTERVAL, self.projects.queued.notified()).await;
        }
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
