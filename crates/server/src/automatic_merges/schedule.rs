//! Time of the next automatic merge of a sandbox.

use std::time::Duration;

use tokio::time::Instant;
use workspace_context::projects::MergeMode;

/// Time without an event in a sandbox after which it is merged: requests and commands that follow each other closely
/// are merged together. An event is counted by [`ActiveSandbox::activity`](workspace_sandbox::ActiveSandbox::activity).
const SETTLE_TIME: Duration = Duration::from_millis(300);
/// Maximum time for which further events delay a merge.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(3);
/// Minimum time between two merges of a sandbox.
const MERGE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// First and maximum delay of the next attempt while the sandbox is not quiet.
const NOT_QUIET_DELAY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// First and maximum delay of the next attempt after a failure.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Result of an attempt to merge a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The changes of the sandbox are completed, or there were none.
    Merged,
    /// Files of the sandbox may be changing.
    NotQuiet,
    /// An error occurred.
    Failed,
}

/// Schedule of a sandbox.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    /// Number of events in the sandbox after which its files may differ, such as commands that ended.
    activity: u64,
    /// Number of events whose changes are merged.
    merged: u64,
    /// Times of the first and the last event whose changes are not merged.
    changed: (Instant, Instant),
    /// Time of the last merge, or of the creation of the schedule.
    last_merge: Instant,
    last_attempt: Instant,
    is_in_progress: bool,
    /// Time before which no attempt is made.
    not_before: Instant,
    /// Consecutive attempts at which it was not quiet.
    not_quiet: u32,
    /// Consecutive attempts that failed.
    failed: u32,
    /// True if an event about a refusal was recorded since the last merge.
    is_refusal_announced: bool,
}

impl Schedule {
    /// Creates the schedule of a sandbox that may have changes.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            activity: 0,
            merged: 0,
            changed: (now, now),
            last_merge: now,
            last_attempt: now,
            is_in_progress: false,
            not_before: now,
            not_quiet: 0,
            failed: 0,
            is_refusal_announced: false,
        }
    }

    /// Records the number of events. After a new event, a sandbox that was not quiet may be tried at once; the delay
    /// after a failure stays.
    pub(super) fn set_activity(&mut self, activity: u64, now: Instant) {
        if activity == self.activity {
            return;
        }
        let is_first = self.activity == self.merged;
        self.changed = (if is_first { now } else { self.changed.0 }, now);
        self.activity = activity;
        if self.not_quiet > 0 && self.failed == 0 {
            (self.not_quiet, self.not_before) = (0, now);
        }
    }

    /// Returns true if there are events whose changes are not merged, and an attempt is possible now.
    pub(super) fn may_be_due(&self, now: Instant) -> bool {
        self.activity != self.merged && !self.is_in_progress && now >= self.not_before
    }

    /// Returns true if an attempt is to be made now.
    pub(super) fn is_due(&self, mode: MergeMode, now: Instant) -> bool {
        let interval = match mode {
            MergeMode::Completion => return false,
            MergeMode::Periodic(interval) => interval,
            MergeMode::Write => MERGE_INTERVAL_MIN,
        };
        let (first, last) = self.changed;
        let is_settled = now >= last + SETTLE_TIME || now >= first + SETTLE_TIME_MAX;
        // The first merge of a sandbox in the mode `write` waits for nothing else.
        let is_first = mode == MergeMode::Write && self.merged == 0;
        self.may_be_due(now) && is_settled && (is_first || now >= self.last_merge + interval)
    }

    /// Returns the time of the last attempt.
    pub(super) fn last_attempt(&self) -> Instant {
        self.last_attempt
    }

    /// Records that an attempt begins.
    pub(super) fn begin_attempt(&mut self, now: Instant) {
        (self.is_in_progress, self.last_attempt) = (true, now);
    }

    /// Returns true if an event about a refusal was recorded since the last merge.
    pub(super) fn is_refusal_announced(&self) -> bool {
        self.is_refusal_announced
    }

    /// Records that an event about a refusal was recorded.
    pub(super) fn set_refusal_announced(&mut self) {
        self.is_refusal_announced = true;
    }

    /// Records the result of an attempt, before which there were `activity` events.
    pub(super) fn end_attempt(&mut self, attempt: Attempt, activity: u64, now: Instant) {
        self.is_in_progress = false;
        match attempt {
            Attempt::Merged => {
                self.merged = activity;
                self.last_merge = now;
                self.changed.0 = self.changed.1;
                (self.not_quiet, self.failed, self.is_refusal_announced) = (0, 0, false);
            }
            Attempt::NotQuiet => {
                self.not_before = now + delay(NOT_QUIET_DELAY, self.not_quiet);
                (self.not_quiet, self.failed) = (self.not_quiet.saturating_add(1), 0);
            }
            Attempt::Failed => {
                self.not_before = now + delay(RETRY_BACKOFF, self.failed);
                self.failed = self.failed.saturating_add(1);
            }
        }
    }
}

/// Returns the delay before the next attempt, which is doubled for each of the consecutive `attempts` before it.
fn delay((first, max): (Duration, Duration), attempts: u32) -> Duration {
    first.saturating_mul(1 << attempts.min(20)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIODIC: MergeMode = MergeMode::Periodic(Duration::from_secs(30));

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn only_sandboxes_with_changes_are_merged_and_only_in_automatic_modes() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        let later = start + seconds(60.0);
        assert!(!schedule.is_due(MergeMode::Write, later), "nothing happened");
        schedule.set_activity(1, start);
        assert!(!schedule.is_due(MergeMode::Completion, later));
        assert!(schedule.is_due(MergeMode::Write, later) && schedule.is_due(PERIODIC, later));
        schedule.begin_attempt(later);
        assert!(!schedule.is_due(PERIODIC, later), "it is being merged");
        schedule.end_attempt(Attempt::Merged, 1, later);
        assert!(!schedule.is_due(PERIODIC, later + seconds(60.0)), "there are no further changes");
    }

    #[test]
    fn merges_are_coalesced_and_their_rate_is_bounded() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        let mut merges = 0;
        for step in 1..=100_u32 {
            let now = start + Duration::from_millis(100) * step;
            schedule.set_activity(step.into(), now);
            if schedule.is_due(MergeMode::Write, now) {
                schedule.begin_attempt(now);
                schedule.end_attempt(Attempt::Merged, step.into(), now);
                merges += 1;
            }
        }
        assert!((2..=4).contains(&merges), "{merges} merges for events all the time in 10 s");
    }

    #[test]
    fn periodic_merges_wait_for_the_interval() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.set_activity(1, start);
        assert!(!schedule.is_due(PERIODIC, start + seconds(29.0)));
        let first = start + seconds(30.0);
        assert!(schedule.is_due(PERIODIC, first));
        schedule.begin_attempt(first);
        schedule.end_attempt(Attempt::Merged, 1, first);
        schedule.set_activity(2, first);
        assert!(
            !schedule.is_due(PERIODIC, first + seconds(29.0))
                && schedule.is_due(PERIODIC, first + seconds(30.0))
        );
    }

    #[test]
    fn events_during_a_merge_are_merged_by_the_next_one() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.set_activity(1, start);
        schedule.begin_attempt(start);
        schedule.set_activity(2, start);
        schedule.end_attempt(Attempt::Merged, 1, start);
        assert!(schedule.is_due(MergeMode::Write, start + seconds(2.0)));
    }

    #[test]
    fn failures_back_off_and_a_new_event_ends_only_the_wait_for_a_quiet_moment() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.set_activity(1, start);
        for _ in 0..30 {
            schedule.end_attempt(Attempt::NotQuiet, 1, start);
        }
        assert!(!schedule.may_be_due(start + seconds(4.9)) && schedule.may_be_due(start + seconds(5.0)));
        schedule.set_activity(2, start);
        assert!(schedule.may_be_due(start), "a command ended");
        for _ in 0..30 {
            schedule.end_attempt(Attempt::Failed, 2, start);
        }
        schedule.set_activity(3, start);
        assert!(!schedule.may_be_due(start + seconds(299.0)) && schedule.may_be_due(start + seconds(300.0)));
    }
}
