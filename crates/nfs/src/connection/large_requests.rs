//! Bound of the memory for large requests and replies.
//!
//! A thread needs a permit before it takes a large buffer. The number of permits is limited, in total and for each
//! client address. One permit covers a request and its reply, so no thread waits for a permit while it holds one.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::settings::Limits;

/// Permits for large requests.
#[derive(Debug)]
pub(crate) struct LargeRequests {
    /// Maximum number of permits.
    total: usize,
    /// Maximum number of permits of one client address.
    per_client: usize,
    state: Mutex<State>,
}

/// Permit for a large request. Released when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    requests: Arc<LargeRequests>,
    client: IpAddr,
}

/// Held permits and waiting threads. Invariant: while permits are free, each client with a waiting thread holds its
/// maximum.
#[derive(Debug, Default)]
struct State {
    /// Number of permits that are held.
    held: usize,
    /// Number of permits of each client that holds one.
    held_by: HashMap<IpAddr, usize>,
    /// Waiting threads; the thread that has waited for the longest time is first.
    waiting: VecDeque<Arc<Waiter>>,
    /// True from a stop of the server to its next start; no permit is granted then.
    is_closed: bool,
}

/// Thread that waits for a permit.
#[derive(Debug)]
struct Waiter {
    client: IpAddr,
    /// Notified when the decision is set.
    decided: Condvar,
    /// True if the permit was granted, false if it was refused; unset while the thread waits. Set under the lock of the
    /// state.
    decision: OnceLock<bool>,
}

impl LargeRequests {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            total: limits.large_requests.max(1),
            per_client: limits.large_requests_per_client.max(1),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the number of permits that are held.
    pub(crate) fn held(&self) -> usize {
        self.lock().held
    }

    /// Waits for a permit. `None` if the server stops.
    pub(super) fn acquire(self: &Arc<Self>, client: IpAddr) -> Option<Permit> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        if state.held < self.total && state.held_by(client) < self.per_client {
            state.grant(client);
        } else if !wait(state, client) {
            return None;
        }
        Some(Permit { requests: Arc::clone(self), client })
    }

    /// Refuses permits from now on, also to waiting threads.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for waiter in state.waiting.drain(..) {
            waiter.decide(false);
        }
    }

    /// Grants permits again after a [`close`](Self::close).
    pub(crate) fn reopen(&self) {
        self.lock().is_closed = false;
    }
}

/// Waits until a permit is granted. Returns false if it is refused.
fn wait(mut state: MutexGuard<'_, State>, client: IpAddr) -> bool {
    let (decided, decision) = (Condvar::new(), OnceLock::new());
    let waiter = Arc::new(Waiter { client, decided, decision });
    state.waiting.push_back(Arc::clone(&waiter));
    loop {
        if let Some(is_granted) = waiter.decision.get() {
            return *is_granted;
        }
        waiter.decided.wait(&mut state);
    }
}

impl State {
    fn held_by(&self, client: IpAddr) -> usize {
        self.held_by.get(&client).copied().unwrap_or(0)
    }

    fn grant(&mut self, client: IpAddr) {
        self.held += 1;
        *self.held_by.entry(client).or_default() += 1;
    }

    fn release(&mut self, client: IpAddr) {
        self.held -= 1;
        if let Some(count) = self.held_by.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.held_by.remove(&client);
            }
        }
    }

    /// Grants a permit to the waiting client that holds the fewest, except clients that hold their maximum.
    fn grant_next(&mut self, per_client: usize) {
        let held = self.waiting.iter().map(|waiter| self.held_by(waiter.client)).enumerate();
        let next = held.filter(|(_, held)| *held < per_client).min_by_key(|(_, held)| *held);
        if let Some((index, _)) = next
            && let Some(waiter) = self.waiting.remove(index)
        {
            self.grant(waiter.client);
            waiter.decide(true);
        }
    }
}

impl Waiter {
    fn decide(&self, is_granted: bool) {
        self.decision.set(is_granted).expect("a waiter is in the queue until it is decided");
        self.decided.notify_one();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.requests.lock();
        state.release(self.client);
        state.grant_next(self.requests.per_client);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{self, JoinHandle};

    use workspace_test_support::wait_until;

    use super::*;

    const CLIENT_A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const CLIENT_B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn requests(total: usize, per_client: usize) -> Arc<LargeRequests> {
        let limits =
            Limits { large_requests: total, large_requests_per_client: per_client, ..Limits::default() };
        Arc::new(LargeRequests::new(&limits))
    }

    /// Acquires a permit on another thread. Returns when that thread waits.
    fn wait_for(requests: &Arc<LargeRequests>, client: IpAddr) -> JoinHandle<Option<Permit>> {
        let waiting = requests.lock().waiting.len();
        let acquiring = Arc::clone(requests);
        let thread = thread::spawn(move || acquiring.acquire(client));
        wait_until("the thread waits", || requests.lock().waiting.len() > waiting);
        thread
    }

    fn assert_unused(requests: &LargeRequests) {
        let state = requests.lock();
        assert_eq!((state.held, state.held_by.len(), state.waiting.len()), (0, 0, 0));
    }

    #[test]
    fn a_client_waits_for_its_share_while_another_is_served() {
        let requests = requests(3, 2);
        let held = [CLIENT_A, CLIENT_A].map(|client| requests.acquire(client).unwrap());
        let waiting = wait_for(&requests, CLIENT_A);
        drop(requests.acquire(CLIENT_B).unwrap());
        assert_eq!(requests.lock().waiting.len(), 1, "the share is that of one client");
        drop(held);
        drop(waiting.join().unwrap().unwrap());
        assert_unused(&requests);
    }

    #[test]
    fn the_client_that_holds_the_fewest_is_next() {
        let requests = requests(2, 2);
        let mut held = vec![requests.acquire(CLIENT_A).unwrap(), requests.acquire(CLIENT_A).unwrap()];
        let first = wait_for(&requests, CLIENT_A);
        let second = wait_for(&requests, CLIENT_B);
        held.pop();
        let permit = second.join().unwrap().unwrap();
        assert_eq!(requests.lock().waiting.len(), 1);
        drop(permit);
        drop(first.join().unwrap().unwrap());
        drop(held);
        assert_unused(&requests);
    }

    #[test]
    fn a_thread_that_panics_releases_its_permit() {
        let requests = requests(1, 1);
        let panicking = {
            let permit = requests.acquire(CLIENT_A).unwrap();
            let waiting = wait_for(&requests, CLIENT_B);
            let result = thread::spawn(move || {
                let _permit = permit;
                panic!("for the test");
            });
            assert!(waiting.join().unwrap().is_some());
            result
        };
        assert!(panicking.join().is_err());
        assert_unused(&requests);
    }

    #[test]
    fn waiting_threads_are_refused_when_the_server_stops() {
        let requests = requests(1, 1);
        let permit = requests.acquire(CLIENT_A).unwrap();
        let waiting = [CLIENT_A, CLIENT_B].map(|client| wait_for(&requests, client));
        requests.close();
        assert!(waiting.into_iter().all(|it| it.join().unwrap().is_none()));
        assert!(requests.acquire(CLIENT_B).is_none());
        requests.reopen();
        let waiting = wait_for(&requests, CLIENT_B);
        drop(permit);
        drop(waiting.join().unwrap().unwrap());
        assert_unused(&requests);
    }

    #[test]
    fn limits_of_zero_allow_one_permit() {
        assert!(requests(0, 0).acquire(CLIENT_A).is_some());
    }

    #[test]
    fn no_more_permits_are_held_than_allowed() {
        const TOTAL: usize = 4;
        const PER_CLIENT: usize = 3;
        let requests = requests(TOTAL, PER_CLIENT);
        let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let work = |client: usize| {
            for _ in 0..200 {
                let _permit = requests.acquire([CLIENT_A, CLIENT_B][client]).unwrap();
                let own = counts[client].fetch_add(1, Ordering::SeqCst) + 1;
                assert!(own <= PER_CLIENT && requests.held() <= TOTAL);
                thread::yield_now();
                counts[client].fetch_sub(1, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            for thread in 0..16 {
                scope.spawn(move || work(thread % 2));
            }
        });
        assert_unused(&requests);
    }
}
