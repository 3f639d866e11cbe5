//! Sandboxes whose base is no longer the head of their project: records an event for their owners, once per head, and
//! rebases sandboxes that were created with `follow: "rebase"`.
//!
//! One task checks the sandboxes of this server, after each event that this server records, and every second for
//! changes by other servers. For each sandbox and head there is one attempt to rebase it, while no command runs; one
//! that fails is repeated after growing delays.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use workspace_catalog::Project;
use workspace_context::projects::AgentView;
use workspace_sandbox::{
    ConflictingHead, HeadVersion, IfInUse, ProjectBase, ProjectSandbox, SandboxError, Scope,
};

use crate::app::App;
use crate::error::ApiError;
use crate::projects::{RebaseOutcome, conflicts_to_api, head_version, rebase_sandbox};

/// Interval at which heads are compared that other servers may have changed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two checks, so that many events cause few of them.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(200);
/// Time for which a head must not move before its sandboxes are told. When many agents complete at once, the head moves
/// many times a second, and an event for each sandbox would slow down their completions.
const HEAD_SETTLE_TIME: Duration = Duration::from_millis(500);
/// Time after which the sandboxes are told of a head that does not come to rest.
const HEAD_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum time between two events `sandbox.base_moved` of one sandbox.
const ANNOUNCE_INTERVAL_MIN: Duration = Duration::from_secs(60);
/// Maximum number of sandboxes that are rebased at a time.
const REBASES_AT_ONCE: usize = 4;
/// Delay before another attempt after a failed one; doubled for each further one.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum delay between two attempts.
const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Maximum time that a rebase waits for the last completion of its sandbox: the next check tries again.
const NO_WAIT: Duration = Duration::ZERO;
/// Maximum number of conflicts in an event.
const CONFLICTS_MAX: usize = 20;

/// State to which a sandbox is compared: the head of its project, and the number of its own completions, because each
/// of them leaves a rebase fewer changes to merge.
type Version = (HeadVersion, u64);

/// Work that was done for a sandbox.
#[derive(Debug, Clone, Copy)]
struct Progress {
    version: Version,
    /// Number of times that its base was replaced.
    base_changes: u64,
    /// True if the event for this version was recorded, or need not be: the base is the head, or an attempt to rebase
    /// the sandbox records it.
    is_announced: bool,
    /// True if a rebase onto this version is in progress, or needs no other attempt.
    is_attempted: bool,
    /// Earliest time of the next attempt after a failed one, and the delay before it.
    retry: Option<(Instant, Duration)>,
    /// Time of the last event.
    announced_at: Option<Instant>,
}

/// Movement of the head of a project.
#[derive(Debug, Clone, Copy)]
struct HeadMovement {
    head: HeadVersion,
    /// Time at which the head was first seen.
    seen_at: Instant,
    /// Time of the first move of which the sandboxes were not told yet; `None` if the head is at rest.
    moving_since: Option<Instant>,
}

impl HeadMovement {
    /// Creates the movement of a head that was not seen before, which is at rest.
    fn at_rest(head: HeadVersion, now: Instant) -> Self {
        Self { head, seen_at: now, moving_since: None }
    }

    /// Returns true if the head is at rest, or has been moving for too long to wait.
    fn is_settled(&mut self, head: HeadVersion, now: Instant) -> bool {
        if self.head != head {
            (self.head, self.seen_at) = (head, now);
            self.moving_since.get_or_insert(now);
        }
        let Some(moving_since) = self.moving_since else { return true };
        let is_settled = now - self.seen_at >= HEAD_SETTLE_TIME || now - moving_since >= HEAD_SETTLE_TIMEOUT;
        if is_settled {
            self.moving_since = None;
        }
        is_settled
    }
}

/// State of the task between two checks.
#[derive(Default)]
struct Checks {
    /// Work that was done, by sandbox.
    progress: HashMap<String, Progress>,
    /// Movements of heads, by project.
    heads: HashMap<String, HeadMovement>,
    /// Attempts to rebase sandboxes that have not ended.
    attempts: JoinSet<AttemptEnd>,
}

impl Checks {
    /// Returns the maximum time until the next check.
    fn interval(&self) -> Duration {
        match self.heads.values().any(|head| head.moving_since.is_some()) {
            true => HEAD_SETTLE_TIME,
            false => POLL_INTERVAL,
        }
    }
}

/// End of an attempt to rebase a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// No other attempt is needed: the base is the head, or the changes conflict with it.
    Done,
    /// The last completion of the sandbox is not merged yet.
    Waiting,
    /// The rebase failed, for example because a process uses the workspace.
    Failed,
}

/// Attempt that ended, for the version that the sandbox had when it began.
#[derive(Debug, Clone)]
struct AttemptEnd {
    sandbox: String,
    version: Version,
    attempt: Attempt,
}

/// Task that compares the sandboxes of this server with the heads of their projects. Drop its future to stop it.
#[derive(Clone)]
pub(crate) struct OutdatedBases {
    app: App,
}

impl OutdatedBases {
    pub(crate) fn new(app: &App) -> Self {
        Self { app: app.clone() }
    }

    /// Compares until the future is dropped. Rebases in progress are cancelled then.
    pub(crate) async fn run(self) {
        let mut recorded = self.app.catalog.events().subscribe();
        let mut checks = Checks::default();
        loop {
            let began = Instant::now();
            while let Some(ended) = checks.attempts.try_join_next() {
                record_end(&mut checks.progress, ended);
            }
            self.check_all(&mut checks).await;
            sleep_until(began + CHECK_INTERVAL_MIN).await;
            // Continues after a change or the interval. `changed` itself cannot fail, because the catalog lives as long
            // as this task.
            let _ = timeout(checks.interval(), recorded.changed()).await;
        }
    }

    async fn check_all(&self, checks: &mut Checks) {
        let mut by_project: BTreeMap<String, Vec<ProjectSandbox>> = BTreeMap::new();
        for sandbox in self.app.sandboxes.project_sandboxes() {
            by_project.entry(sandbox.project.clone()).or_default().push(sandbox);
        }
        let present: HashSet<&str> =
            by_project.values().flatten().map(|sandbox| sandbox.id.as_str()).collect();
        checks.progress.retain(|id, _| present.contains(id.as_str()));
        checks.heads.retain(|project, _| by_project.contains_key(project));
        let ids: Vec<String> = by_project.keys().cloned().collect();
        let projects = match self.app.catalog.projects().with_ids(&ids).await {
            Ok(projects) => projects,
            Err(error) => {
                tracing::warn!(%error, "failed to look up the projects of sandboxes, trying again");
                return;
            }
        };
        for (id, sandboxes) in &by_project {
            // Sandboxes of a deleted project keep their files.
            let Some(project) = projects.get(id) else { continue };
            self.check_project(project, sandboxes, checks).await;
        }
    }

    /// Compares the sandboxes of a project with its head. One that fails does not hold up the others, and is compared
    /// again at the next check.
    async fn check_project(
        &self,
        project: &Project,
        sandboxes: &[ProjectSandbox],
        Checks { progress, heads, attempts }: &mut Checks,
    ) {
        let (head, now) = (head_version(project), Instant::now());
        let movement = heads.entry(project.id.clone()).or_insert_with(|| HeadMovement::at_rest(head, now));
        let is_settled = movement.is_settled(head, now);
        // `None` for an agent whose view could not be made.
        let mut views: HashMap<&str, Option<AgentView>> = HashMap::new();
        for sandbox in sandboxes {
            let version = (head, sandbox.completions);
            let entry = progress.entry(sandbox.id.clone()).or_insert_with(|| Progress::of(sandbox, version));
            if entry.version != version {
                let announced_at = entry.announced_at.filter(|_| entry.base_changes == sandbox.base_changes);
                *entry = Progress { announced_at, ..Progress::of(sandbox, version) };
            } else if entry.base_changes != sandbox.base_changes {
                // A rebase or a restore replaced its base. It is announced again if the new base is not the head. After
                // a restore, the sandbox keeps these files until the next head, unless an attempt was still due.
                *entry = Progress { is_attempted: entry.is_attempted, ..Progress::of(sandbox, version) };
            }
            let is_due = entry.retry.is_none_or(|(time, _)| time <= Instant::now());
            if sandbox.rebases && sandbox.is_idle && !entry.is_attempted && is_due {
                // The others have their turn at the next check.
                if attempts.len() < REBASES_AT_ONCE {
                    // An attempt that fails records the event itself.
                    (entry.is_attempted, entry.is_announced) = (true, true);
                    let (this, id) = (self.clone(), sandbox.id.clone());
                    attempts.spawn(async move {
                        let attempt = this.attempt(&id, head).await;
                        AttemptEnd { sandbox: id, version, attempt }
                    });
                }
                continue;
            }
            let is_recent = entry.announced_at.is_some_and(|time| time.elapsed() < ANNOUNCE_INTERVAL_MIN);
            if !entry.is_announced && !is_recent && is_settled {
                if !views.contains_key(sandbox.agent.as_str()) {
                    let view =
                        self.app.projects.agent_view(project, &sandbox.agent).await.map_err(ApiError::from);
                    let view = view.inspect_err(|error| warn_not_compared(&sandbox.id, error)).ok();
                    views.insert(&sandbox.agent, view);
                }
                let Some(Some(view)) = views.get(sandbox.agent.as_str()) else { continue };
                match self.announce(&sandbox.id, view, head).await {
                    Ok(has_moved) => {
                        if has_moved {
                            entry.announced_at = Some(Instant::now());
                        }
                        entry.is_announced = true;
                    }
                    Err(error) => warn_not_compared(&sandbox.id, &error),
                }
            }
        }
    }

    /// Records the event for the owner of a sandbox that its base has moved, if it has. Returns true if it has.
    async fn announce(&self, id: &str, view: &AgentView, head: HeadVersion) -> Result<bool, ApiError> {
        let Some(base) = self.base_of(id).await? else { return Ok(false) };
        let moved = self.app.projects.has_base_moved(view, id, base.sequence, base.view_key.as_deref());
        if !moved.await? {
            return Ok(false);
        }
        self.app.sandboxes.announce_moved_base(id, &base, head).await?;
        Ok(true)
    }

    /// Returns the base of the workspace of a sandbox; `None` if it was deleted.
    async fn base_of(&self, id: &str) -> Result<Option<ProjectBase>, ApiError> {
        match self.app.sandboxes.get(&Scope::All, id).await {
            Ok(sandbox) => Ok(sandbox.config.lineage.project_base),
            Err(SandboxError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Rebases an idle sandbox. If that fails, records the event that its base has moved.
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
                "failed to record that the base of a sandbox has moved"
            );
        }
        Attempt::Failed
    }

    async fn try_rebase(&self, id: &str, head: HeadVersion) -> Result<Attempt, ApiError> {
        let sandbox = self.app.sandboxes.get(&Scope::All, id).await?;
        if let Some(conflicting) = sandbox.config.conflicting_head.filter(|former| former.head == head)
            && let Some(base) = &sandbox.config.lineage.project_base
        {
            // After another completion, fewer changes are left to merge, so they may no longer conflict, even if the
            // head did not move. Without one, the result would be the same.
            let newest = self.app.catalog.completions().newest(&base.project, &base.round_id(id)).await?;
            if newest.map(|newest| newest.completion.id) == conflicting.completion {
                return Ok(Attempt::Done);
            }
        }
        // Processes that a command left behind are not killed. A completion that waits to be merged is not waited for.
        let rebased = rebase_sandbox(&self.app, &Scope::All, id, IfInUse::Fail, NO_WAIT).await?;
        match rebased {
            (RebaseOutcome::Waiting(_), _) => Ok(Attempt::Waiting),
            (RebaseOutcome::Conflicts { base, completion, mut conflicts }, project) => {
                conflicts.truncate(CONFLICTS_MAX);
                let conflicting = ConflictingHead { head: head_version(&project), completion };
                let conflicts = json!(conflicts_to_api(conflicts));
                self.app.sandboxes.announce_conflict(id, &base, &conflicting, &conflicts).await?;
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

impl Progress {
    fn of(sandbox: &ProjectSandbox, version: Version) -> Self {
        let base_changes = sandbox.base_changes;
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

fn warn_not_compared(sandbox: &str, error: &ApiError) {
    tracing::warn!(
        sandbox,
        cause = error.cause(),
        "failed to compare sandbox with the head of its project, trying again"
    );
}

/// Records the end of an attempt. One that waits for a completion is tried again at the next check, a failed one after
/// a delay. The end of an attempt for an earlier version changes nothing: the present version has attempts of its own.
/// A waiting attempt recorded no event, so the next check does that if a command runs in the sandbox by then.
fn record_end(progress: &mut HashMap<String, Progress>, ended: Result<AttemptEnd, tokio::task::JoinError>) {
    let AttemptEnd { sandbox, version, attempt } = match ended {
        Ok(ended) => ended,
        Err(error) => {
            tracing::error!(%error, "the task that rebases a sandbox failed");
            return;
        }
    };
    let Some(entry) = progress.get_mut(&sandbox).filter(|entry| entry.version == version) else { return };
    match attempt {
        Attempt::Done => {}
        Attempt::Waiting => (entry.is_attempted, entry.is_announced) = (false, false),
        Attempt::Failed => {
            let delay = entry.retry.map_or(RETRY_BACKOFF, |(_, delay)| (delay * 2).min(RETRY_BACKOFF_MAX));
            entry.retry = Some((Instant::now() + delay, delay));
            entry.is_attempted = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(sequence: i64) -> Version {
        (HeadVersion { sequence, policy_version: 0 }, 0)
    }

    fn sandbox() -> ProjectSandbox {
        ProjectSandbox {
            id: "sbx-1".to_owned(),
            project: "prj-1".to_owned(),
            agent: "a".to_owned(),
            rebases: true,
            is_idle: true,
            completions: 0,
            base_changes: 0,
        }
    }

    #[test]
    fn sandboxes_are_told_of_a_head_at_rest_and_of_one_that_moves_for_long() {
        let head = |sequence| version(sequence).0;
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut movement = HeadMovement::at_rest(head(1), start);
        assert!(movement.is_settled(head(1), start), "a new server has not seen it move");
        assert!(!movement.is_settled(head(2), at(100)) && !movement.is_settled(head(2), at(500)));
        assert!(movement.is_settled(head(2), at(600)) && movement.is_settled(head(2), at(601)));
        let told = (0..70).map(|n| movement.is_settled(head(3 + n), at(1_000 + 100 * n as u64)));
        assert_eq!(told.filter(|told| *told).count(), 1, "after five of seven seconds");
    }

    /// A command may start before the completion ends, and the head may stay the same.
    #[test]
    fn a_moved_base_is_announced_after_an_attempt_that_waited_for_a_completion() {
        let sandbox = sandbox();
        for (attempt, is_announced) in
            [(Attempt::Waiting, false), (Attempt::Done, true), (Attempt::Failed, true)]
        {
            let begun =
                Progress { is_attempted: true, is_announced: true, ..Progress::of(&sandbox, version(2)) };
            let mut progress = HashMap::from([(sandbox.id.clone(), begun)]);
            let ended = AttemptEnd { sandbox: sandbox.id.clone(), version: version(2), attempt };
            record_end(&mut progress, Ok(ended));
            assert_eq!(progress[&sandbox.id].is_announced, is_announced, "{attempt:?}");
        }
    }

    #[test]
    fn the_end_of_an_attempt_for_an_earlier_head_is_ignored() {
        let sandbox = sandbox();
        let attempted = Progress { is_attempted: true, ..Progress::of(&sandbox, version(2)) };
        let mut progress = HashMap::from([(sandbox.id.clone(), attempted)]);
        let mut end_attempt = |sequence, attempt| {
            let ended = AttemptEnd { sandbox: sandbox.id.clone(), version: version(sequence), attempt };
            record_end(&mut progress, Ok(ended));
            let entry = progress[&sandbox.id];
            (entry.is_attempted, entry.retry.is_some())
        };
        for attempt in [Attempt::Done, Attempt::Waiting, Attempt::Failed] {
            assert_eq!(end_attempt(1, attempt), (true, false), "{attempt:?}");
        }
        assert_eq!(end_attempt(2, Attempt::Failed), (false, true));
    }
}
