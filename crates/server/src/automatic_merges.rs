//! Merges of the changes of running sandboxes, for projects whose merge mode is `periodic` or `write`.
//!
//! One task checks the sandboxes of this server several times a second. A sandbox in which nothing happened since its
//! last merge costs a comparison of two numbers. For the others, the mode of the project decides when they are due. A
//! merge is a completion. It is made when the sandbox is *quiet*: no command, leftover process or request may be
//! changing files ([`Service::complete_if_quiet`]). It changes no file of the workspace: the changes that follow are
//! compared with those that were completed. Each server merges its own sandboxes.

mod refusal;
mod schedule;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use workspace_catalog::Catalog;
use workspace_context::projects::MergeMode;
use workspace_sandbox::{ActiveSandbox, QuietWork, SandboxError, Service};

use crate::app::App;
use schedule::{Attempt, Schedule};

/// Interval at which sandboxes are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time for which the mode of a project is remembered. A change by any server takes effect after it.
const MODE_LIFETIME: Duration = Duration::from_secs(2);
/// Maximum number of projects whose mode is looked up at a time.
const LOOKUPS_MAX: usize = 64;
/// Maximum number of sandboxes that are merged at the same time.
const MERGES_AT_ONCE: usize = 8;

/// Task that merges changes of running sandboxes. Drop its future to stop it.
#[derive(Debug)]
pub(crate) struct AutomaticMerges {
    catalog: Catalog,
    sandboxes: Service,
    /// Modes of the projects of sandboxes with changes, with the time at which they were looked up.
    modes: HashMap<String, (Instant, MergeMode)>,
    /// Schedules of the sandboxes of this server.
    schedules: HashMap<String, Schedule>,
    merges: JoinSet<Merge>,
}

/// Attempt to merge a sandbox.
#[derive(Debug)]
struct Merge {
    sandbox: String,
    /// [`ActiveSandbox::activity`] before the attempt.
    activity: u64,
    result: Result<QuietWork, SandboxError>,
}

impl AutomaticMerges {
    pub(crate) fn new(app: &App) -> Self {
        Self {
            catalog: app.catalog.clone(),
            sandboxes: app.sandboxes.clone(),
            modes: HashMap::new(),
            schedules: HashMap::new(),
            merges: JoinSet::new(),
        }
    }

    /// Merges changes until the future is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            self.record_finished().await;
            let changed = self.changed_sandboxes();
            self.look_up_modes(&changed).await;
            self.start_merges(&changed);
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Records the attempts that have ended.
    async fn record_finished(&mut self) {
        while let Some(ended) = self.merges.try_join_next() {
            let merge = match ended {
                Ok(merge) => merge,
                Err(error) => {
                    tracing::error!(%error, "the task that merges a sandbox failed");
                    continue;
                }
            };
            let attempt = match merge.result {
                Ok(QuietWork::Completed(completion)) => {
                    tracing::debug!(sandbox = merge.sandbox, completion, "merged a running sandbox");
                    Attempt::Merged
                }
                Ok(QuietWork::Unchanged) => Attempt::Merged,
                Ok(QuietWork::NotQuiet) | Err(SandboxError::NotFound { .. } | SandboxError::Cancelled) => {
                    Attempt::NotQuiet
                }
                Err(error) => {
                    tracing::warn!(sandbox = merge.sandbox, %error, "failed to merge a running sandbox");
                    if error.is_snapshot_quota() {
                        self.announce_refusal(&merge.sandbox, &error).await;
                    }
                    Attempt::Failed
                }
            };
            if let Some(schedule) = self.schedules.get_mut(&merge.sandbox) {
                schedule.end_attempt(attempt, merge.activity, Instant::now());
            }
        }
    }

    /// Records the event that a quota keeps a sandbox from being merged, once until it is merged again.
    async fn announce_refusal(&mut self, sandbox: &str, error: &SandboxError) {
        let Some(schedule) =
            self.schedules.get_mut(sandbox).filter(|schedule| !schedule.is_refusal_announced())
        else {
            return;
        };
        match refusal::announce(&self.catalog, &self.sandboxes, sandbox, error).await {
            Ok(()) => schedule.set_refusal_announced(),
            Err(error) => {
                tracing::warn!(
                    sandbox,
                    cause = error.cause(),
                    "failed to record that an automatic merge was refused"
                );
            }
        }
    }

    /// Updates the schedules, and returns the sandboxes whose next attempt may be due.
    fn changed_sandboxes(&mut self) -> Vec<ActiveSandbox> {
        let (active, now) = (self.sandboxes.active_sandboxes(), Instant::now());
        let mut schedules = HashMap::with_capacity(active.len());
        let mut changed = Vec::new();
        for sandbox in active {
            let mut schedule = self.schedules.remove(&sandbox.id).unwrap_or_else(|| Schedule::new(now));
            schedule.set_activity(sandbox.activity, now);
            let has_changes = schedule.may_be_due(now);
            schedules.insert(sandbox.id.clone(), schedule);
            if has_changes {
                changed.push(sandbox);
            }
        }
        self.schedules = schedules;
        changed
    }

    /// Looks up the modes of projects whose last lookup is older than [`MODE_LIFETIME`] or never took place, the oldest
    /// first, at most [`LOOKUPS_MAX`].
    async fn look_up_modes(&mut self, changed: &[ActiveSandbox]) {
        let projects: BTreeSet<&str> = changed.iter().map(|sandbox| sandbox.project.as_str()).collect();
        self.modes.retain(|project, _| projects.contains(project.as_str()));
        let last_lookup = |project: &str| self.modes.get(project).map(|(time, _)| *time);
        let is_outdated =
            |project: &&str| last_lookup(project).is_none_or(|time| time.elapsed() >= MODE_LIFETIME);
        let mut outdated: Vec<&str> = projects.iter().copied().filter(is_outdated).collect();
        outdated.sort_by_key(|project| last_lookup(project));
        for project in outdated.into_iter().take(LOOKUPS_MAX) {
            match self.catalog.projects().get(project).await {
                Ok(found) => {
                    let mode = found.as_ref().map(MergeMode::of).unwrap_or_default();
                    self.modes.insert(project.to_owned(), (Instant::now(), mode));
                }
                Err(error) => {
                    tracing::warn!(project, %error, "failed to look up the merge mode of a project");
                    // The others would fail, too.
                    return;
                }
            }
        }
    }

    /// Starts the merges that are due, the one with the oldest last attempt first, at most [`MERGES_AT_ONCE`] at a
    /// time.
    fn start_merges(&mut self, changed: &[ActiveSandbox]) {
        let now = Instant::now();
        let mode = |sandbox: &ActiveSandbox| self.modes.get(&sandbox.project).map(|(_, mode)| *mode);
        let schedule = |sandbox: &ActiveSandbox| self.schedules.get(&sandbox.id);
        let mut due: Vec<&ActiveSandbox> = changed
            .iter()
            .filter(|sandbox| {
                let due = schedule(sandbox).zip(mode(sandbox));
                due.is_some_and(|(schedule, mode)| schedule.is_due(mode, now))
            })
            .collect();
        due.sort_by_key(|sandbox| schedule(sandbox).map(Schedule::last_attempt));
        let free = MERGES_AT_ONCE.saturating_sub(self.merges.len());
        for ActiveSandbox { id, activity, .. } in due.into_iter().take(free) {
            if let Some(schedule) = self.schedules.get_mut(id) {
                schedule.begin_attempt(now);
            }
            let (sandboxes, sandbox, activity) = (self.sandboxes.clone(), id.clone(), *activity);
            self.merges.spawn(async move {
                let result = sandboxes.complete_if_quiet(&sandbox).await;
                Merge { sandbox, activity, result }
            });
        }
    }
}
