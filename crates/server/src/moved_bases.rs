//! Sandboxes of projects whose base has moved: tells their owners, and rebases those that want it.
//!
//! One task looks at the sandboxes of this server, after each event that this server records, and from time to time for
//! changes by other servers. For each sandbox and head there is one attempt to rebase it, while no command runs;
//! one that fails is repeated after growing delays.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use workspace_catalog::Project;
use workspace_context::projects::AgentView;
use workspace_sandbox::{HeadVersion, IfInUse, ProjectBase, ProjectMember, SandboxError, Scope};

use crate::app::App;
use crate::error::ApiError;
use crate::projects::{RebaseOutcome, conflicts_to_api, head_version, rebase_sandbox};

/// Interval at which heads are compared that other servers may have changed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two looks, so that many events cause few of them.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(200);
/// Minimum time between two events that tell of the moved base of one sandbox.
const ANNOUNCE_INTERVAL_MIN: Duration = Duration::from_secs(60);
/// Maximum number of sandboxes that are rebased at a time.
const REBASES_AT_ONCE: usize = 4;
/// Delay before another attempt after a failed one; doubled for each further one.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum delay between two attempts.
const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Maximum number of conflicts in an event.
const CONFLICTS_MAX: usize = 20;

/// State to which a sandbox is compared: the head of its project, and its own completions, which change what a rebase
/// has to do.
type Version = (HeadVersion, u64);

/// What was done for a sandbox.
#[derive(Debug, Clone, Copy)]
struct Seen {
    version: Version,
    /// Number of changes of its base.
    base_changes: u64,
    /// True if its owner was told of this version, or need not be.
    is_announced: bool,
    /// True if it was tried to rebase it onto this version.
    is_attempted: bool,
    /// Earliest time of the next attempt after a failed one, and the delay before it.
    retry: Option<(Instant, Duration)>,
    announced_at: Option<Instant>,
}

/// End of an attempt to rebase a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Done,
    /// Its last completion is not merged yet.
    Waiting,
    /// It failed, for example because a process uses the workspace.
    Failed,
}

/// Task that compares the sandboxes of this server with the heads of their projects. Drop its future to stop it.
#[derive(Clone)]
pub(crate) struct MovedBases {
    app: App,
}

impl MovedBases {
    pub(crate) fn new(app: &App) -> Self {
        Self { app: app.clone() }
    }

    /// Compares until the future is dropped. Rebases in progress are cancelled then.
    pub(crate) async fn run(self) {
        let mut recorded = self.app.catalog.events().subscribe();
        let (mut seen, mut attempts) = (HashMap::new(), JoinSet::new());
        loop {
            let began = Instant::now();
            while let Some(ended) = attempts.try_join_next() {
                note_end(&mut seen, ended);
            }
            self.look(&mut seen, &mut attempts).await;
            sleep_until(began + LOOK_INTERVAL_MIN).await;
            // An error is impossible, because the catalog lives as long as this task.
            let _ = timeout(POLL_INTERVAL, recorded.changed()).await;
        }
    }

    async fn look(&self, seen: &mut HashMap<String, Seen>, attempts: &mut JoinSet<(String, Attempt)>) {
        let mut by_project: BTreeMap<String, Vec<ProjectMember>> = BTreeMap::new();
        for member in self.app.sandboxes.project_members() {
            by_project.entry(member.project.clone()).or_default().push(member);
        }
        let members: HashMap<&str, ()> =
            by_project.values().flatten().map(|member| (member.id.as_str(), ())).collect();
        seen.retain(|id, _| members.contains_key(id.as_str()));
        for (id, members) in &by_project {
            let looked = match self.app.catalog.projects().get(id).await {
                Ok(Some(project)) => self.look_at(&project, members, seen, attempts).await,
                // Its sandboxes keep their files.
                Ok(None) => Ok(()),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = looked {
                tracing::warn!(
                    project = id,
                    cause = error.cause(),
                    "failed to compare sandboxes with the head of their project, trying again"
                );
            }
        }
    }

    async fn look_at(
        &self,
        project: &Project,
        members: &[ProjectMember],
        seen: &mut HashMap<String, Seen>,
        attempts: &mut JoinSet<(String, Attempt)>,
    ) -> Result<(), ApiError> {
        let (head, mut views) = (head_version(project), HashMap::new());
        for member in members {
            let version = (head, member.completions);
            let entry = seen.entry(member.id.clone()).or_insert_with(|| Seen::of(member, version));
            if entry.version != version {
                let announced_at = entry.announced_at.filter(|_| entry.base_changes == member.base_changes);
                *entry = Seen { announced_at, ..Seen::of(member, version) };
            } else if entry.base_changes != member.base_changes {
                // It may be behind the head with its new base, too, but is not rebased again.
                *entry = Seen { is_attempted: entry.is_attempted, ..Seen::of(member, version) };
            }
            let is_due = entry.retry.is_none_or(|(time, _)| time <= Instant::now());
            if member.rebases && member.is_idle && !entry.is_attempted && is_due {
                // The others have their turn at the next look.
                if attempts.len() < REBASES_AT_ONCE {
                    (entry.is_attempted, entry.is_announced) = (true, true);
                    let (this, id) = (self.clone(), member.id.clone());
                    attempts.spawn(async move {
                        let attempt = this.attempt(&id, head).await;
                        (id, attempt)
                    });
                }
                continue;
            }
            let is_recent = entry.announced_at.is_some_and(|time| time.elapsed() < ANNOUNCE_INTERVAL_MIN);
            if !entry.is_announced && !is_recent {
                if !views.contains_key(&member.agent) {
                    let view = self.app.projects.agent_view(project, &member.agent).await?;
                    views.insert(member.agent.clone(), view);
                }
                let Some(view) = views.get(&member.agent) else { continue };
                if self.announce(&member.id, view, head).await? {
                    entry.announced_at = Some(Instant::now());
                }
                entry.is_announced = true;
            }
        }
        Ok(())
    }

    /// Tells the owner of a sandbox that its base has moved, if it has. Returns true if it has.
    async fn announce(&self, id: &str, view: &AgentView, head: HeadVersion) -> Result<bool, ApiError> {
        let Some(base) = self.base_of(id).await? else { return Ok(false) };
        let moved = self.app.projects.has_base_moved(view, id, base.sequence, base.view.as_deref());
        if !moved.await? {
            return Ok(false);
        }
        self.app.sandboxes.announce_moved_base(id, &base, head).await?;
        Ok(true)
    }

    /// Returns the base of the workspace of a sandbox; `None` if it was deleted.
    async fn base_of(&self, id: &str) -> Result<Option<ProjectBase>, ApiError> {
        match self.app.sandboxes.get(&Scope::All, id).await {
            Ok(view) => Ok(view.config.lineage.project_base),
            Err(SandboxError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Rebases an idle sandbox, or tells its owner why not.
    async fn attempt(&self, id: &str, head: HeadVersion) -> Attempt {
        let error = match self.try_rebase(id, head).await {
            Ok(attempt) => return attempt,
            Err(error) => error,
        };
        tracing::debug!(sandbox = id, cause = error.cause(), "failed to rebase a sandbox onto a new head");
        if let Err(error) = self.announce_unrebased(id, head).await {
            tracing::debug!(
                sandbox = id,
                cause = error.cause(),
                "failed to tell of the moved base of a sandbox"
            );
        }
        Attempt::Failed
    }

    async fn try_rebase(&self, id: &str, head: HeadVersion) -> Result<Attempt, ApiError> {
        let view = self.app.sandboxes.get(&Scope::All, id).await?;
        if view.config.conflicted == Some(head) {
            return Ok(Attempt::Done);
        }
        // Processes that a command left behind are not killed.
        let rebased = rebase_sandbox(&self.app, &Scope::All, id, IfInUse::Fail, Duration::ZERO).await?;
        match rebased {
            (RebaseOutcome::Waiting(_), _) => Ok(Attempt::Waiting),
            (RebaseOutcome::Conflicts { base, mut conflicts }, project) => {
                conflicts.truncate(CONFLICTS_MAX);
                let (head, conflicts) = (head_version(&project), json!(conflicts_to_api(conflicts)));
                self.app.sandboxes.announce_conflict(id, &base, head, &conflicts).await?;
                Ok(Attempt::Done)
            }
            (RebaseOutcome::Rebased { .. } | RebaseOutcome::Current(_), _) => Ok(Attempt::Done),
        }
    }

    async fn announce_unrebased(&self, id: &str, head: HeadVersion) -> Result<(), ApiError> {
        let Some(base) = self.base_of(id).await? else { return Ok(()) };
        let Some(project) = self.app.catalog.projects().get(&base.project).await? else { return Ok(()) };
        let view = self.app.projects.agent_view(&project, &base.agent).await?;
        self.announce(id, &view, head).await.map(|_| ())
    }
}

impl Seen {
    fn of(member: &ProjectMember, version: Version) -> Self {
        let base_changes = member.base_changes;
        Self {
            version,
            base_changes,
            is_announced: false,
            is_attempted: false,
            retry: None,
            announced_at: None,
        }
    }
}

/// Notes the end of an attempt. One that waits for a completion is tried again, as is a failed one, after a delay.
fn note_end(seen: &mut HashMap<String, Seen>, ended: Result<(String, Attempt), tokio::task::JoinError>) {
    match ended {
        Ok((id, Attempt::Waiting)) => {
            if let Some(entry) = seen.get_mut(&id) {
                entry.is_attempted = false;
            }
        }
        Ok((id, Attempt::Failed)) => {
            if let Some(entry) = seen.get_mut(&id) {
                let delay =
                    entry.retry.map_or(RETRY_BACKOFF, |(_, delay)| (delay * 2).min(RETRY_BACKOFF_MAX));
                entry.retry = Some((Instant::now() + delay, delay));
                entry.is_attempted = false;
            }
        }
        Ok((_, Attempt::Done)) => {}
        Err(error) => tracing::error!(%error, "the task that rebases a sandbox failed"),
    }
}
