//! Merge daemon of a server. It has three tasks:
//!
//! - It lands queued completions: finished work of agents is merged into the heads (present files) of projects.
//! - It escalates or expires reviews (conflicts that wait for a decision) that nobody decided in time.
//! - It removes abandoned snapshots, which killed servers or deleted projects left behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use workspace_catalog::now;

use super::batch::BatchEnd;
use super::merges::{Attempt, Merges};
use super::{Projects, Result, references};

/// Time to live of the lease of a project, which lets only one server merge its completions. A killed server delays
/// the merges of other servers by at most this time.
const LEASE_TTL: Duration = Duration::from_secs(5);
/// Maximum duration of the merges of one project while other projects may wait. A batch is not interrupted.
const TURN_MAX: Duration = Duration::from_secs(1);
/// Interval at which overdue reviews are looked for.
const REVIEWS_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before overdue reviews are looked for again after some could not be settled.
const REVIEWS_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Interval at which abandoned snapshots are looked for.
const ABANDONED_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Number of projects in a page of a list.
const PAGE_SIZE: u32 = 100;

/// Merge daemon of a server. Drop the future of [`Self::run`] to stop it: completions that it has not recorded stay
/// queued.
#[derive(Debug)]
pub struct Daemon {
    projects: Projects,
    server: String,
}

impl Daemon {
    /// Creates the daemon of the server with this name.
    pub fn new(projects: Projects, server: String) -> Self {
        Self { projects, server }
    }

    /// Sets references that are missing after a crash. Then lands completions, settles overdue reviews and removes
    /// abandoned snapshots until the future is dropped.
    pub async fn run(self) {
        if let Err(error) = self.repair_references().await {
            tracing::warn!(%error, "failed to restore the references of projects");
        }
        let daemon = Arc::new(self);
        tokio::join!(daemon.run_merges(), daemon.settle_reviews(), daemon.remove_abandoned());
    }

    /// Lands completions when this server queues one, and at intervals those that other servers queued.
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

    /// Removes abandoned snapshots, and finishes the deletions of projects that a crash interrupted: once at the start,
    /// and then at intervals.
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

    /// Starts a task for each project with queued completions, up to the limit of concurrent merges. A project that
    /// takes long does not delay others. `cursor` is the project after which this call starts; `None` starts with the
    /// first one. Returns the cursor for the next call, so that all projects get their turn.
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

    /// Lands the queued completions of a project. Logs an error.
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

    /// Lands the queued completions of a project, unless another server has its lease. Goes on with completions that
    /// are queued meanwhile, for at most [`TURN_MAX`].
    async fn land_project(&self, project: &str) -> Result<Attempt> {
        let leases = self.projects.catalog.leases();
        let ttl = LEASE_TTL.as_millis() as i64;
        let Some(mut lease) = leases.acquire(&format!("merge/{project}"), &self.server, ttl).await? else {
            return Ok(Attempt::Leased);
        };
        let (began, mut leased) = (Instant::now(), Instant::now());
        let landed = loop {
            self.projects.incoming.wait_until_queued().await;
            match self.projects.land_queued(project).await {
                Ok(BatchEnd::Decided) if began.elapsed() >= TURN_MAX => break Ok(Attempt::More),
                // A renewal is a transaction of its own, which waits for the disk.
                Ok(BatchEnd::Decided) if leased.elapsed() < LEASE_TTL / 4 => {}
                Ok(BatchEnd::Decided) => match leases.renew(&lease, ttl).await {
                    Ok(Some(renewed)) => (lease, leased) = (renewed, Instant::now()),
                    // Another server has the lease.
                    Ok(None) => return Ok(Attempt::Leased),
                    Err(error) => break Err(error.into()),
                },
                Ok(BatchEnd::Failed) => break Ok(Attempt::RetryLater),
                // A completion that is queued from now on wakes the daemon.
                Ok(BatchEnd::Empty) => break Ok(Attempt::Done),
                Err(error) => break Err(error),
            }
        };
        let released = leases.release(&lease).await;
        // The first error is the cause.
        let landed = landed?;
        released?;
        Ok(landed)
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
