//! Refused changes in the workspaces of running sandboxes: reverted after the completion that they were refused in.
//!
//! One task looks at the sandboxes of this server whose work was completed, or whose base was replaced, since it looked at
//! them last; after a restart, at all of them. If the last completion has refused changes, they are reverted as soon as
//! the sandbox is quiet ([`Service::rebase_if_quiet`]). Attempts are repeated after growing delays.
//!
//! [`Service::rebase_if_quiet`]: workspace_sandbox::Service::rebase_if_quiet

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use workspace_catalog::CompletionState;
use workspace_context::projects::{ProjectError, Projects, RefusedChanges, RevertInput};
use workspace_sandbox::{
    MergedFiles, ProjectBase, ProjectSandbox, QuietRebase, Rebase, RebaseDecision, RebaseFiles,
    RevertedChanges, Scope,
};
use workspace_state::SnapshotId;

use crate::app::App;
use crate::error::ApiError;

/// Interval at which completions are looked up that other servers merge.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two checks, so that many events cause few of them.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(200);
/// Maximum number of sandboxes in which changes are looked up or reverted at a time.
const ATTEMPTS_AT_ONCE: usize = 4;
/// Delay before another attempt; doubled for each further one.
const RETRY_BACKOFF: Duration = Duration::from_millis(500);
/// Maximum delay between two attempts while a sandbox is not quiet.
const NOT_QUIET_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Maximum delay between two attempts after a failed one.
const FAILED_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Number of completions of a sandbox, and of replacements of its base.
type Version = (u64, u64);

/// Work that was done for a sandbox.
#[derive(Debug, Clone, Copy)]
struct Progress {
    version: Version,
    /// True while an attempt is in progress, and when no other is needed for this version.
    is_attempted: bool,
    /// Earliest time of the next attempt, and the delay before it.
    retry: Option<(Instant, Duration)>,
}

/// End of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// There is nothing more to revert.
    Done,
    /// The last completion is not merged yet.
    Waiting,
    /// Files may be changing.
    NotQuiet,
    Failed,
}

/// Attempt that ended, for the version that the sandbox had when it began.
type AttemptEnd = (String, Version, Attempt);

/// Task that reverts the refused changes in the sandboxes of this server. Drop its future to stop it.
#[derive(Clone)]
pub(crate) struct RefusedChangeReverts {
    app: App,
}

/// Result of making the files without refused changes, while the sandbox is frozen.
type Report = Result<(), ProjectError>;

impl RefusedChangeReverts {
    pub(crate) fn new(app: &App) -> Self {
        Self { app: app.clone() }
    }

    /// Reverts until the future is dropped. Attempts in progress are cancelled then.
    pub(crate) async fn run(self) {
        let mut recorded = self.app.catalog.events().subscribe();
        let (mut progress, mut attempts) = (HashMap::new(), JoinSet::new());
        loop {
            let began = Instant::now();
            while let Some(ended) = attempts.try_join_next() {
                record_end(&mut progress, ended);
            }
            self.start_attempts(&mut progress, &mut attempts);
            sleep_until(began + CHECK_INTERVAL_MIN).await;
            // Continues after a change or the interval. `changed` itself cannot fail, because the catalog lives as long
            // as this task.
            let _ = timeout(POLL_INTERVAL, recorded.changed()).await;
        }
    }

    fn start_attempts(&self, progress: &mut HashMap<String, Progress>, attempts: &mut JoinSet<AttemptEnd>) {
        let mut former = std::mem::take(progress);
        for sandbox in self.app.sandboxes.project_sandboxes() {
            let mut entry = Progress::next(former.remove(&sandbox.id), &sandbox);
            let is_due = entry.retry.is_none_or(|(time, _)| time <= Instant::now());
            // The others have their turn at the next check.
            if !entry.is_attempted && is_due && attempts.len() < ATTEMPTS_AT_ONCE {
                entry.is_attempted = true;
                let (this, id, version) = (self.clone(), sandbox.id.clone(), entry.version);
                attempts.spawn(async move {
                    let attempt = this.attempt(&id).await;
                    (id, version, attempt)
                });
            }
            progress.insert(sandbox.id, entry);
        }
    }

    async fn attempt(&self, id: &str) -> Attempt {
        match self.try_revert(id).await {
            Ok(attempt) => attempt,
            Err(error) => {
                tracing::debug!(sandbox = id, cause = error.cause(), "failed to revert refused changes");
                Attempt::Failed
            }
        }
    }

    async fn try_revert(&self, id: &str) -> Result<Attempt, ApiError> {
        let sandboxes = &self.app.sandboxes;
        let Some(base) = sandboxes.get(&Scope::All, id).await?.config.lineage.project_base else {
            return Ok(Attempt::Done);
        };
        let found = match self.find_refused(id, &base).await? {
            Found::Refused(found) => found,
            Found::None => return Ok(Attempt::Done),
            Found::Waiting => return Ok(Attempt::Waiting),
        };
        // Otherwise the error says why its files cannot be replaced: it is read-only or paused, or its runtime cannot.
        sandboxes.rebasable(&Scope::All, id).await?;
        let Some(_lock) = sandboxes.try_lock_work(id) else { return Ok(Attempt::NotQuiet) };
        // A completion in between has other files.
        match self.find_refused(id, &base).await? {
            Found::Refused(now) if now.completion == found.completion => {}
            _ => return Ok(Attempt::Waiting),
        }
        let made = Arc::<Mutex<Vec<SnapshotId>>>::default();
        let reversion = Reversion {
            projects: self.app.projects.clone(),
            refused: found,
            sandbox: id.to_owned(),
            made: Arc::clone(&made),
        };
        let merge = move |files: RebaseFiles| reversion.clone().decide(files);
        let reverted = sandboxes.rebase_if_quiet(id, &base, merge).await;
        let mut made = std::mem::take(&mut *made.lock());
        if let Ok(QuietRebase::Rebased(Rebase::Done(result, _))) = &reverted {
            // The earlier ones are of attempts that failed.
            if let Some(made) = made.pop() {
                self.app.projects.keep_reverted_base(&base.project, made).await?;
            }
            tracing::info!(sandbox = id, snapshot = %result.snapshot, "reverted refused changes");
        }
        self.app.projects.abandon_reverted_bases(made).await?;
        match reverted? {
            QuietRebase::NotQuiet => Ok(Attempt::NotQuiet),
            QuietRebase::Rebased(Rebase::Done(_, report) | Rebase::Kept(report)) => {
                Ok(report.map(|()| Attempt::Done)?)
            }
        }
    }

    /// Looks up the refused changes of the present round of a workspace.
    async fn find_refused(&self, id: &str, base: &ProjectBase) -> Result<Found, ApiError> {
        let round = base.round_id(id);
        match self.app.catalog.completions().newest(&base.project, &round).await? {
            None => return Ok(Found::None),
            Some(newest) if newest.state == CompletionState::Queued => return Ok(Found::Waiting),
            Some(_) => {}
        }
        let found = self.app.projects.refused_changes(&base.project, &round, base.snapshot).await?;
        Ok(found.map_or(Found::None, Found::Refused))
    }
}

/// Result of [`RefusedChangeReverts::find_refused`].
enum Found {
    Refused(RefusedChanges),
    None,
    /// The last completion is not merged yet.
    Waiting,
}

/// Reversion of refused changes in a sandbox.
#[derive(Clone)]
struct Reversion {
    projects: Projects,
    refused: RefusedChanges,
    /// Id of the sandbox.
    sandbox: String,
    /// Snapshots that were made as the base of the sandbox.
    made: Arc<Mutex<Vec<SnapshotId>>>,
}

impl Reversion {
    /// Decides on the files of the sandbox, which is frozen: it gets those without the refused changes.
    async fn decide(self, files: RebaseFiles) -> RebaseDecision<Report> {
        let RebaseFiles { base, theirs, new } = files;
        let input = RevertInput { workspace: self.sandbox, base: base.snapshot, theirs, new };
        match self.projects.revert(&self.refused, input).await {
            Ok(Some(files)) => {
                self.made.lock().push(files.base);
                let reverted = RevertedChanges::new(self.refused.completion, files.reverted, files.kept);
                let base = ProjectBase { snapshot: files.base, reverted: Some(reverted), ..base };
                let snapshot = files.snapshot;
                let files = MergedFiles { snapshot, base, keeps_former: false, report: Ok(()) };
                RebaseDecision::Replace(Box::new(files))
            }
            Ok(None) => RebaseDecision::Keep(Ok(())),
            Err(error) => RebaseDecision::Keep(Err(error)),
        }
    }
}

impl Progress {
    /// Returns the progress for the present version of a sandbox. Another version needs another attempt.
    fn next(former: Option<Self>, sandbox: &ProjectSandbox) -> Self {
        let version = (sandbox.completions, sandbox.base_changes);
        let former = former.filter(|former| former.version == version);
        former.unwrap_or(Self { version, is_attempted: false, retry: None })
    }
}

/// Records the end of an attempt. The end of one for an earlier version changes nothing: the present version has attempts
/// of its own.
fn record_end(progress: &mut HashMap<String, Progress>, ended: Result<AttemptEnd, JoinError>) {
    let (sandbox, version, attempt) = match ended {
        Ok(ended) => ended,
        Err(error) => {
            tracing::error!(%error, "the task that reverts refused changes failed");
            return;
        }
    };
    let Some(entry) = progress.get_mut(&sandbox).filter(|entry| entry.version == version) else { return };
    let backoff_max = match attempt {
        Attempt::Done => return,
        // The daemon is about to merge it: the next check looks again.
        Attempt::Waiting => {
            (entry.is_attempted, entry.retry) = (false, None);
            return;
        }
        Attempt::NotQuiet => NOT_QUIET_BACKOFF_MAX,
        Attempt::Failed => FAILED_BACKOFF_MAX,
    };
    let delay = entry.retry.map_or(RETRY_BACKOFF, |(_, delay)| (delay * 2).min(backoff_max));
    (entry.is_attempted, entry.retry) = (false, Some((Instant::now() + delay, delay)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(completions: u64) -> ProjectSandbox {
        ProjectSandbox {
            id: "sbx-1".to_owned(),
            project: "prj-1".to_owned(),
            agent: "a".to_owned(),
            rebases: false,
            is_idle: true,
            completions,
            base_changes: 0,
        }
    }

    #[test]
    fn attempts_are_repeated_after_growing_delays_until_nothing_is_left() {
        let attempted = Progress { version: (1, 0), is_attempted: true, retry: None };
        let mut progress = HashMap::from([("sbx-1".to_owned(), attempted)]);
        let mut end = |version, attempt| {
            let entry = progress.get_mut("sbx-1").unwrap();
            entry.is_attempted = true;
            record_end(&mut progress, Ok(("sbx-1".to_owned(), version, attempt)));
            let entry = progress["sbx-1"];
            (entry.is_attempted, entry.retry.map(|(_, delay)| delay.as_millis()))
        };
        assert_eq!(end((1, 0), Attempt::NotQuiet), (false, Some(500)));
        assert_eq!(end((1, 0), Attempt::NotQuiet), (false, Some(1_000)));
        for _ in 0..10 {
            end((1, 0), Attempt::Failed);
        }
        assert_eq!(end((1, 0), Attempt::Failed), (false, Some(60_000)));
        assert_eq!(end((0, 0), Attempt::Waiting), (true, Some(60_000)), "an earlier version");
        assert_eq!(end((1, 0), Attempt::Waiting), (false, None));
        assert_eq!(end((1, 0), Attempt::Done), (true, None));
    }

    #[test]
    fn another_completion_needs_another_attempt() {
        let done = Progress { version: (1, 0), is_attempted: true, retry: None };
        assert!(Progress::next(Some(done), &sandbox(1)).is_attempted);
        assert!(!Progress::next(Some(done), &sandbox(2)).is_attempted);
        assert!(!Progress::next(None, &sandbox(0)).is_attempted);
    }
}
