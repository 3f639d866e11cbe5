//! Order in which a task waits for the locks of sandboxes.

use std::future::Future;

/// A lock that is held across awaits, as its place in the order.
///
/// A task waits only for locks of later ranks than those that it holds, so no two tasks wait for each other. Debug
/// builds panic where that rule is broken. A lock that is taken without waiting is held like any other.
///
/// Three locks need no rank. The creation lock of the service is only ever waited for by readers. The gate of a workspace
/// ([`Gates`](crate::gate::Gates)) is taken exclusively under the operation lock, and its holders wait for no lock. A
/// [`LeafMutex`](crate::leaf_mutex::LeafMutex) checks itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockRank {
    /// [`WorkLock`](crate::WorkLock).
    Work,
    /// Operation lock of a sandbox ([`OperationLocks`](crate::lifecycle::operation_lock::OperationLocks)).
    Operation,
    /// Lock under which the files of a template are imported.
    TemplateImport,
    /// Lock between traces and starts of commands ([`Tracer`](crate::command::tracer::Tracer)).
    Starts,
    /// Lock under which sandboxes are counted for a quota.
    Quota,
}

/// Guard of a lock with a rank.
#[derive(Debug)]
pub(crate) struct Ranked<G> {
    _guard: G,
    held: held::Held,
}

impl LockRank {
    /// Waits for a lock of this rank.
    pub(crate) async fn wait<G>(self, lock: impl Future<Output = G>) -> Ranked<G> {
        held::check(self);
        self.taken(lock.await)
    }

    /// Returns the guard of a lock of this rank that was taken without waiting.
    pub(crate) fn taken<G>(self, guard: G) -> Ranked<G> {
        Ranked { _guard: guard, held: held::Held::new(self) }
    }
}

impl<G> Ranked<G> {
    /// Returns the guard for another task, which keeps it. The present task does not hold the lock any more.
    pub(crate) fn into_other_task(mut self) -> Self {
        self.held.forget();
        self
    }
}

#[cfg(debug_assertions)]
mod held {
    use std::collections::HashMap;

    use parking_lot::Mutex;
    use tokio::task::{self, Id};

    use super::LockRank;

    /// Locks that each task holds, in the order in which it took them. Futures outside of tasks, such as the main future
    /// of a test, are not checked: they can be several operations at once.
    static HELD: Mutex<Option<HashMap<Id, Vec<LockRank>>>> = Mutex::new(None);

    /// Fails if the present task may not wait for a lock of this rank.
    pub(super) fn check(rank: LockRank) {
        let Some(task) = task::try_id() else { return };
        let held = HELD.lock();
        let last = held.as_ref().and_then(|held| held.get(&task)?.iter().max().copied());
        // A panic that held the mutex would be reported again in each drop.
        drop(held);
        if let Some(last) = last.filter(|last| *last >= rank) {
            panic!("a task waits for a lock {rank:?} while it holds a lock {last:?}");
        }
    }

    /// Record that a task holds a lock.
    #[derive(Debug)]
    pub(super) struct Held {
        rank: LockRank,
        /// `None` for a future outside of a task, and after [`Held::forget`].
        task: Option<Id>,
    }

    impl Held {
        pub(super) fn new(rank: LockRank) -> Self {
            let task = task::try_id();
            if let Some(task) = task {
                HELD.lock().get_or_insert_default().entry(task).or_default().push(rank);
            }
            Self { rank, task }
        }

        pub(super) fn forget(&mut self) {
            let Some(task) = self.task.take() else { return };
            let mut held = HELD.lock();
            let Some(held) = held.as_mut() else { return };
            if let Some(ranks) = held.get_mut(&task) {
                if let Some(index) = ranks.iter().position(|rank| *rank == self.rank) {
                    ranks.swap_remove(index);
                }
                if ranks.is_empty() {
                    held.remove(&task);
                }
            }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.forget();
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    use super::LockRank;

    #[derive(Debug)]
    pub(super) struct Held;

    pub(super) const fn check(_rank: LockRank) {}

    impl Held {
        pub(super) const fn new(_rank: LockRank) -> Self {
            Self
        }

        pub(super) const fn forget(&mut self) {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Mutex;

    use super::*;

    /// Takes locks of these ranks one after the other in a task, and holds all of them. Returns the panic.
    async fn take(ranks: &'static [LockRank]) -> Option<String> {
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            for rank in ranks {
                held.push(rank.wait(Arc::new(Mutex::new(())).lock_owned()).await);
            }
        });
        Some(*task.await.err()?.into_panic().downcast::<String>().unwrap())
    }

    #[tokio::test]
    async fn locks_can_be_taken_in_the_order_of_their_ranks() {
        use LockRank::{Operation, Quota, Starts, TemplateImport, Work};
        assert_eq!(take(&[Work, Operation, TemplateImport, Starts, Quota]).await, None);
        assert_eq!(take(&[Work, Quota]).await, None);
    }

    #[tokio::test]
    #[cfg(debug_assertions)]
    async fn waiting_for_a_lock_of_an_earlier_or_the_same_rank_is_a_defect() {
        for ranks in [&[LockRank::Operation, LockRank::Work], &[LockRank::Operation, LockRank::Operation]] {
            let panic = take(ranks).await.expect("a panic");
            assert!(panic.contains("while it holds a lock Operation"), "{panic}");
        }
    }

    #[tokio::test]
    async fn a_lock_that_was_released_or_given_to_another_task_is_not_held() {
        let lock = Arc::new(Mutex::new(()));
        let task = tokio::spawn(async move {
            drop(LockRank::Quota.wait(Arc::clone(&lock).lock_owned()).await);
            let guard = LockRank::Operation.wait(lock.lock_owned()).await.into_other_task();
            let other = LockRank::Work.wait(Arc::new(Mutex::new(())).lock_owned()).await;
            drop((guard, other));
        });
        task.await.unwrap();
    }
}
