//! Merge daemon: lands the completions that wait, and ends reviews that nobody decided in time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::merges::{Attempt, Merges};
use super::reviews::now;
use super::{Projects, Result, references};

/// Duration of the lease of a project. A killed server delays the merges of others by at most this time.
const LEASE: Duration = Duration::from_secs(5);
/// Time between two looks for overdue reviews.
const REVIEWS_INTERVAL: Duration = Duration::from_secs(1);
/// Time until the next look after one that failed.
const REVIEWS_RETRY: Duration = Duration::from_secs(30);
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
        if let Err(error) = self.projects.finish_deletions().await {
            tracing::warn!(%error, "failed to finish the deletion of projects");
        }
        if let Err(error) = self.repair_references().await {
            tracing::warn!(%error, "failed to restore the references of projects");
        }
        let daemon = Arc::new(self);
        tokio::join!(daemon.run_merges(), daemon.settle_reviews());
    }

    async fn run_merges(self: &Arc<Self>) {
        let (mut merges, mut cursor) = (Merges::default(), None);
        loop {
            match self.start_merges(&mut merges, cursor.take()).await {
                Ok(next) => cursor = next,
                Err(error) => tracing::warn!(%error, "failed to look for completions"),
            }
            merges.wait(&self.projects.queued).await;
        }
    }

    /// Escalates and expires reviews that were not decided in time.
    async fn settle_reviews(&self) {
        loop {
            let delay = match self.projects.settle_overdue_reviews(now()).await {
                Ok(settled) if settled.failed > 0 => REVIEWS_RETRY,
                Ok(settled) if settled.has_more => Duration::ZERO,
                Ok(_) => REVIEWS_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "failed to look for overdue reviews");
                    REVIEWS_RETRY
                }
            };
            sleep(delay).await;
        }
    }

    /// Starts a task for each project with queued completions, as long as there is room. A project that takes long does
    /// not delay others. Returns the project after which the next call goes on, so that all get their turn.
    async fn start_merges(
        self: &Arc<Self>,
        merges: &mut Merges,
        mut cursor: Option<String>,
    ) -> Result<Option<String>> {
        while merges.has_room() {
            let completions = self.projects.catalog.completions();
            let page = completions.projects_with_queued(cursor.as_deref(), PAGE).await?;
            if page.is_empty() {
                return Ok(None);
            }
            for project in page {
                if !merges.has_room() {
                    return Ok(cursor);
                }
                let (daemon, name) = (Arc::clone(self), project.clone());
                merges.start(project.clone(), async move { daemon.attempt(&name).await });
                cursor = Some(project);
            }
        }
        Ok(cursor)
    }

    async fn attempt(&self, project: &str) -> Attempt {
        match self.land_project(project).await {
            Ok(attempt) => attempt,
            Err(error) => {
                tracing::warn!(project, %error, "failed to merge the completions of a project");
                Attempt::RetryLater
            }
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
                self.attempt(project).await;
            }
            cursor = Some(last);
        }
    }

    /// Lands the queued completions of a project, unless another server does.
    async fn land_project(&self, project: &str) -> Result<Attempt> {
        let leases = self.projects.catalog.leases();
        let ttl = LEASE.as_millis() as i64;
        let Some(mut lease) = leases.acquire(&format!("merge/{project}"), &self.server, ttl).await? else {
            return Ok(Attempt::Leased);
        };
        let landed = loop {
            match self.projects.land_queued(project).await {
                Ok(true) => match leases.renew(&lease, ttl).await? {
                    Some(renewed) => lease = renewed,
                    None => return Ok(Attempt::Leased),
                },
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        leases.release(&lease).await?;
        landed?;
        let left = self.projects.catalog.completions().queued(project, 1).await?;
        Ok(if left.is_empty() { Attempt::Done } else { Attempt::RetryLater })
    }

    async fn repair_references(&self) -> Result<()> {
        let mut cursor = None;
        loop {
            let filter = workspace_catalog::ProjectFilter { cursor, limit: PAGE, ..Default::default() };
            let (projects, _) = self.projects.catalog.projects().list(&filter).await?;
            let Some(last) = projects.last().map(|project| project.id.clone()) else { return Ok(()) };
            for project in &projects {
                let (store, catalog) = (&self.projects.store, &self.projects.catalog);
                if let Err(error) = references::set_missing(store, catalog, &project.id).await {
                    tracing::warn!(project = project.id, %error, "failed to restore the references of a project");
                }
            }
            cursor = Some(last);
        }
    }
}
