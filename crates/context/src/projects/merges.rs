//! Tasks of the merge daemon. Each task merges the queued completions (finished work of agents) of one project. After a
//! failed attempt, the project waits before the next one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep};

/// Maximum number of projects that are merged at a time.
const CONCURRENT_MAX: usize = 4;
/// Interval at which the daemon looks for completions that other servers queued.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay after the first failed attempt to merge a project. Doubled after each further failure.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum delay between two attempts.
const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Result of an attempt to merge the completions of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// All queued completions were decided.
    Done,
    /// More completions may be queued, but other projects get their turn first.
    More,
    /// Some completions failed, and are still queued.
    RetryLater,
    /// Another server has the lease of the project, which lets it alone merge the completions.
    Leased,
}

/// Merges in progress. Dropping it stops them.
#[derive(Default)]
pub(super) struct Merges {
    tasks: JoinSet<Attempt>,
    /// Ids of the projects, by task.
    running: HashMap<Id, String>,
    /// Time before which a project is not tried again, and the delay that led to this time, by id of the project.
    delayed: HashMap<String, (Instant, Duration)>,
}

impl Merges {
    /// Returns true if fewer than the maximum number of merges are running.
    pub(super) fn has_room(&self) -> bool {
        self.running.len() < CONCURRENT_MAX
    }

    /// Starts a task for a project, unless one is running, the delay of the project has not passed, or the maximum
    /// number of merges are running.
    pub(super) fn start(&mut self, project: String, task: impl Future<Output = Attempt> + Send + 'static) {
        let is_early = self.delayed.get(&project).is_some_and(|(time, _)| Instant::now() < *time);
        let running: HashSet<&String> = self.running.values().collect();
        if is_early || !self.has_room() || running.contains(&project) {
            return;
        }
        let id = self.tasks.spawn(task).id();
        self.running.insert(id, project);
    }

    /// Waits until a completion is queued, a merge ends, or the poll interval has passed.
    pub(super) async fn wait(&mut self, queued: &Notify) {
        tokio::select! {
            // A notification before this wait is not lost, because `Notify` stores it.
            () = queued.notified() => {}
            Some(ended) = self.tasks.join_next_with_id() => match ended {
                Ok((id, attempt)) => self.end(id, attempt),
                Err(error) => {
                    tracing::error!(%error, "a merge ended early");
                    self.end(error.id(), Attempt::RetryLater);
                }
            },
            () = sleep(POLL_INTERVAL) => {}
        }
    }

    /// Records the end of a task, and the delay of its project.
    fn end(&mut self, id: Id, attempt: Attempt) {
        let Some(project) = self.running.remove(&id) else { return };
        let last = self.delayed.remove(&project);
        let delay = match attempt {
            Attempt::Done | Attempt::More => return,
            Attempt::RetryLater => {
                last.map_or(RETRY_BACKOFF, |(_, delay)| (delay * 2).min(RETRY_BACKOFF_MAX))
            }
            // A lease ends soon. With a growing delay, nobody would merge for a minute after its holder was killed.
            Attempt::Leased => RETRY_BACKOFF,
        };
        self.delayed.insert(project, (Instant::now() + delay, delay));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of the first four attempts for a project, in seconds, if each of them ends with `attempt`.
    async fn starts_of(attempt: Attempt) -> Vec<u64> {
        let (mut merges, queued) = (Merges::default(), Notify::new());
        let mut starts = Vec::new();
        let began = Instant::now();
        while starts.len() < 4 {
            let before = merges.running.len();
            merges.start("p".to_owned(), async move { attempt });
            if merges.running.len() > before {
                starts.push(began.elapsed().as_secs());
            }
            merges.wait(&queued).await;
        }
        starts
    }

    #[tokio::test(start_paused = true)]
    async fn a_project_that_fails_is_tried_again_after_growing_delays() {
        assert_eq!(starts_of(Attempt::RetryLater).await, [0, 1, 3, 7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_project_with_more_completions_is_tried_again_at_once() {
        assert_eq!(starts_of(Attempt::More).await, [0, 0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_project_that_another_server_merges_is_tried_again_soon() {
        assert_eq!(starts_of(Attempt::Leased).await, [0, 1, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_project_is_merged_by_one_task_at_a_time_and_others_are_not_delayed() {
        let (mut merges, queued) = (Merges::default(), Notify::new());
        merges.start("slow".to_owned(), std::future::pending());
        merges.start("slow".to_owned(), std::future::pending());
        assert_eq!(merges.running.len(), 1);
        merges.start("quick".to_owned(), async { Attempt::Done });
        merges.start("broken".to_owned(), async { panic!("a merge panicked") });
        merges.wait(&queued).await;
        merges.wait(&queued).await;
        assert_eq!(merges.running.values().collect::<Vec<_>>(), ["slow"]);
        assert!(merges.delayed.contains_key("broken"));
    }
}
