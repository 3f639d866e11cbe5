//! Merge daemon: lands the completions that wait, escalates or expires reviews that nobody decided in time, and
//! removes abandoned snapshots.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::batch::BatchEnd;
use super::merges::{Attempt, Merges};
use super::reviews::now;
use super::{Projects, Result, references};

/// Duration of the lease of a project. A killed server delays the merges of others by at most this time.
const LEASE_TTL: Duration = Duration::from_secs(5);
/// Duration after which a project with more completions gives way to others.
const TURN: Duration = Duration::from_secs(1);
/// Interval at which overdue reviews are looked for.
const REVIEWS_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before overdue reviews are looked for again after some could not be settled.
const REVIEWS_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Interval at which snapshots are looked for that killed servers left behind.
const ABANDONED_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Number of projects that are listed at a time.
const PAGE_SIZE: u32 = 100;

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

    /// Finishes what a crash interrupted, and then lands completions, settles overdue reviews and removes abandoned
    /// snapshots until the future is dropped.
    pub async fn run(self) {
        if let Err(error) = self.repair_references().await {
            tracing::warn!(%error, "failed to restore the references of projects");
        }
        let daemon = Arc::new(self);
        tokio::join!(daemon.run_merges(), daemon.settle_reviews(), daemon.remove_abandoned());
    }

    async fn run_merges(self: &Arc<Self>) {
        let (mut merges, mut cursor) = (Merges::default(), None);
        loop {
            match self.start_merges(&mut merges, cursor.take()).await {
                Ok(next) => cursor = next,
                Err(error) => tracing::warn!(%error, "failed to look for completions"),
            }
            merges.wait(&self.projects.completion_queued).await;
        }
    }

    /// Escalates and expires reviews that were not decided in time.
    async fn settle_reviews(&self) {
        loop {
            let delay = match self.projects.settle_overdue_reviews(now()).await {
                Ok(settled) if settled.has_more => Duration::ZERO,
                Ok(settled) if settled.failed > 0 => REVIEWS_RETRY_DELAY,
                Ok(_) => REVIEWS_POLL_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "failed to look for overdue reviews");
                    REVIEWS_RETRY_DELAY
                }
            };
            sleep(delay).await;
        }
    }

    /// Removes the snapshots that killed servers left behind, at first those of the former server, and what is left of
    /// deleted projects.
    async fn remove_abandoned(&self) {
        loop {
            if let Err(error) = self.projects.finish_deletions().await {
                tracing::warn!(%error, "failed to finish the deletion of projects");
            }
            match self.projects.remove_abandoned().await {
                Ok(0) => {}
                Ok(removed) => tracing::info!(removed, "removed abandoned snapshots"),
                Err(error) => tracing::warn!(%error, "failed to remove abandoned snapshots"),
            }
            sleep(ABANDONED_POLL_INTERVAL).await;
        }
    }

    /// Starts a task for each project with queued completions, as long as there is room. A project that takes long
    /// does not delay others. `cursor` is the project after which this call starts, `None` for the first one. Returns
    /// the cursor for the next call, so that all projects get their turn.
    async fn start_merges(
        self: &Arc<Self>,
        merges: &mut Merges,
        mut cursor: Option<String>,
    ) -> Result<Option<String>> {
        let mut is_from_start = cursor.is_none();
        while merges.has_room() {
            let completions = self.projects.catalog.completions();
            let page = completions.projects_with_queued(cursor.as_deref(), PAGE_SIZE).await?;
            if page.is_empty() {
                if is_from_start {
                    return Ok(None);
                }
                (is_from_start, cursor) = (true, None);
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
            let page = completions.projects_with_queued(cursor.as_deref(), PAGE_SIZE).await?;
            let Some(last) = page.last().cloned() else { return Ok(()) };
            for project in &page {
                while self.attempt(project).await == Attempt::More {}
            }
            cursor = Some(last);
        }
    }

    /// Lands the queued completions of a project, unless another server does. Goes on with those that come meanwhile
    /// until its turn ends.
    async fn land_project(&self, project: &str) -> Result<Attempt> {
        let leases = self.projects.catalog.leases();
        let ttl = LEASE_TTL.as_millis() as i64;
        let Some(mut lease) = leases.acquire(&format!("merge/{project}"), &self.server, ttl).await? else {
            return Ok(Attempt::Leased);
        };
        let began = Instant::now();
        let landed = loop {
            match self.projects.land_queued(project).await {
                Ok(BatchEnd::Decided) if began.elapsed() >= TURN => break Ok(Attempt::More),
                Ok(BatchEnd::Decided) => match leases.renew(&lease, ttl).await? {
                    Some(renewed) => lease = renewed,
                    None => return Ok(Attempt::Leased),
                },
                Ok(BatchEnd::Failed) => break Ok(Attempt::RetryLater),
                // A completion that is queued from now on wakes the daemon.
                Ok(BatchEnd::Empty) => break Ok(Attempt::Done),
                Err(error) => break Err(error),
            }
        };
        leases.release(&lease).await?;
        landed
    }

    /// Sets the references that heads lack because a server was killed before it set them.
    async fn repair_references(&self) -> Result<()> {
        let mut cursor = None;
        loop {
            let filter = workspace_catalog::ProjectFilter { cursor, limit: PAGE_SIZE, ..Default::default() };
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
