//! Waits for locks. A wait that takes longer than a second is reported by a notice (an event for users, `notice.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::lock_holder;
use crate::notice::{self, Notice};

/// Duration of a wait before the first notice.
const NOTICE_AFTER: Duration = Duration::from_secs(1);
/// Time between two notices about one wait.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60);
/// Time between two checks of pending waits.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time without a wait after which the watcher thread ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Wait in a loop that polls a lock. Sends notices while it lasts.
pub(crate) struct PolledWait<'a> {
    /// Directory of the store.
    store: &'a Path,
    /// Purpose of the wait, such as `to open it`.
    purpose: &'static str,
    started: Instant,
    /// Time of the last notice; `None` if none was sent.
    notified: Option<Instant>,
}

impl<'a> PolledWait<'a> {
    pub(crate) fn new(store: &'a Path, purpose: &'static str) -> Self {
        Self { store, purpose, started: Instant::now(), notified: None }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sleeps until the next poll, after sending a notice if one is due. `holder` returns the PID of the process that
    /// holds the lock, if it is known. It is called only for a notice.
    pub(crate) fn sleep(&mut self, holder: impl FnOnce() -> Option<u32>) {
        if is_notice_due(self.started, self.notified) {
            let (store, purpose, holder) = (self.store, self.purpose, holder());
            notice::send(&Notice::Waiting { store, purpose, holder });
            self.notified = Some(Instant::now());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_notice_due(since: Instant, notified: Option<Instant>) -> bool {
    since.elapsed() >= NOTICE_AFTER && notified.is_none_or(|notified| notified.elapsed() >= NOTICE_INTERVAL)
}

/// Watcher of waits for the write lock of an index, an LMDB database. LMDB blocks the waiting thread, so another
/// thread, the watcher thread, sends the notices.
pub(crate) struct WriteWaits(Arc<Shared>);

/// State of the waits, shared with the watcher thread.
struct Shared {
    /// Directory of the index.
    directory: PathBuf,
    state: Mutex<State>,
    /// Signalled when the watcher thread has to end.
    stopped: Condvar,
}

struct State {
    /// Number of waits in progress.
    waiting: usize,
    /// Start of the oldest wait in progress, or the end of the last wait, if that is later.
    since: Instant,
    /// Time of the last notice after `since`; `None` if none was sent.
    notified: Option<Instant>,
    /// True while the watcher thread runs.
    is_watched: bool,
    /// True if the watcher thread has to end.
    is_stopped: bool,
}

/// A wait in progress. Dropping it marks the end of the wait.
pub(crate) struct WriteWait<'a>(&'a Shared);

impl WriteWaits {
    pub(crate) fn new(directory: PathBuf) -> Self {
        let state =
            State { waiting: 0, since: Instant::now(), notified: None, is_watched: false, is_stopped: false };
        Self(Arc::new(Shared { directory, state: Mutex::new(state), stopped: Condvar::new() }))
    }

    /// Marks the start of a wait. Starts the watcher thread if it is not running.
    pub(crate) fn begin(&self) -> WriteWait<'_> {
        let mut state = self.0.lock();
        if state.waiting == 0 {
            (state.since, state.notified) = (Instant::now(), None);
        }
        state.waiting += 1;
        if !state.is_watched {
            let shared = Arc::clone(&self.0);
            // If no thread can be started, there are no notices.
            let watcher = std::thread::Builder::new().name("store-waits".to_owned());
            state.is_watched = watcher.spawn(move || shared.watch()).is_ok();
        }
        WriteWait(&self.0)
    }
}

impl Drop for WriteWaits {
    fn drop(&mut self) {
        self.0.lock().is_stopped = true;
        self.0.stopped.notify_all();
    }
}

impl Drop for WriteWait<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        (state.since, state.notified) = (Instant::now(), None);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Body of the watcher thread.
    fn watch(&self) {
        let mut state = self.lock();
        loop {
            let idle = state.waiting == 0 && state.since.elapsed() > IDLE_TIMEOUT;
            if state.is_stopped || idle {
                state.is_watched = false;
                return;
            }
            if state.waiting > 0 && is_notice_due(state.since, state.notified) {
                state.notified = Some(Instant::now());
                drop(state);
                self.send_notice();
                state = self.lock();
            }
            self.stopped.wait_for(&mut state, POLL_INTERVAL);
        }
    }

    fn send_notice(&self) {
        let holder = lock_holder::of_write_lock(&self.directory);
        let store = self.directory.parent().unwrap_or(&self.directory);
        notice::send(&Notice::Waiting { store, purpose: "to write to it", holder });
    }
}
