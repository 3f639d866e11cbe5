//! Commit queue for group commits: one thread, the leader, commits the requests of all waiting threads together.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::commit_options::Durability;
use crate::error::Result;
use crate::log_record::Change;
use crate::new_objects::NewObjects;

/// Commit queue of one store in this process. At most one thread at a time is the leader.
#[derive(Default)]
pub(crate) struct CommitQueue {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Requests that no leader has taken yet.
    waiting: Vec<CommitRequest>,
    has_leader: bool,
}

/// A commit that waits for a leader.
pub(crate) struct CommitRequest {
    pub(crate) objects: NewObjects,
    pub(crate) changes: Vec<Change>,
    pub(crate) durability: Durability,
    pub(crate) waiter: Arc<CommitWaiter>,
}

/// Slot in which a committing thread waits for its result, or for its turn to lead.
#[derive(Default)]
pub(crate) struct CommitWaiter {
    state: Mutex<WaiterState>,
    /// Signalled when the status changes.
    changed: Condvar,
}

#[derive(Default)]
struct WaiterState {
    status: WaiterStatus,
    /// Set while the thread sleeps. A thread that is awake is not notified, to save the system call.
    is_sleeping: bool,
}

#[derive(Default)]
enum WaiterStatus {
    #[default]
    Waiting,
    /// The thread must become the leader.
    Lead,
    /// Result of the commit.
    Done(Result<()>),
}

impl CommitWaiter {
    /// Ends the wait with the result of the commit.
    pub(crate) fn finish(&self, result: Result<()>) {
        self.set(WaiterStatus::Done(result));
    }

    fn set(&self, status: WaiterStatus) {
        let mut state = self.state.lock();
        state.status = status;
        if state.is_sleeping {
            self.changed.notify_one();
        }
    }

    /// Waits for the result; `None` if this thread must become the leader.
    pub(crate) fn wait(&self) -> Option<Result<()>> {
        let mut state = self.state.lock();
        loop {
            match std::mem::take(&mut state.status) {
                WaiterStatus::Waiting => {
                    state.is_sleeping = true;
                    self.changed.wait(&mut state);
                }
                WaiterStatus::Lead => return None,
                WaiterStatus::Done(result) => return Some(result),
            }
        }
    }
}

impl CommitQueue {
    /// Adds a request. Returns true if there is no leader, so that the calling thread must become it.
    pub(crate) fn push(&self, request: CommitRequest) -> bool {
        let mut queue = self.queue.lock();
        queue.waiting.push(request);
        !std::mem::replace(&mut queue.has_leader, true)
    }

    /// Takes all waiting requests, for the leader.
    pub(crate) fn take_group(&self) -> Vec<CommitRequest> {
        std::mem::take(&mut self.queue.lock().waiting)
    }

    /// Makes the thread of the first request in the queue the next leader, if there is a request.
    pub(crate) fn pass_lead(&self) {
        let mut queue = self.queue.lock();
        match queue.waiting.first() {
            Some(next) => next.waiter.set(WaiterStatus::Lead),
            None => queue.has_leader = false,
        }
    }
}
