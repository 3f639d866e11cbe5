//! The sandboxes of the warm pool, and how many are kept of each template.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::guest::handle::SandboxHandle;
use crate::id::Token;
use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// After so long without anybody wanting one, half as many are kept.
const MEMORY: Duration = Duration::from_secs(60);
/// Whoever got one runs something in it first; the next is started after that.
const QUIET: Duration = Duration::from_millis(30);

/// A sandbox that can be given away: one that was started ahead, or one of which nothing but the name is there.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) handle: Arc<SandboxHandle>,
    pub(crate) token: Token,
    /// Its template and what is missing of it, if it was started.
    pub(super) started: Option<(String, Vec<String>)>,
}

/// Those that are nobody's yet.
#[derive(Debug, Default)]
pub(crate) struct Pool(LeafMutex<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) ready: HashMap<String, Vec<Ready>>,
    pub(super) demand: HashMap<String, Demand>,
    /// Everything that is here, being started, or on its way to somebody.
    pub(super) ids: BTreeSet<String>,
    /// Somebody is filling it.
    pub(super) filling: bool,
    pub(super) closed: bool,
    pub(super) pause: Option<Instant>,
    /// When one was taken last.
    pub(super) taken: Option<Instant>,
}

/// How many were wanted lately.
#[derive(Debug)]
pub(super) struct Demand {
    pub(super) recent: f64,
    pub(super) at: Instant,
}

impl Demand {
    fn now(&self) -> f64 {
        self.recent * 0.5_f64.powf(self.at.elapsed().as_secs_f64() / MEMORY.as_secs_f64())
    }

    pub(super) fn grow(&mut self) {
        (self.recent, self.at) = (self.now() + 1.0, Instant::now());
    }
}

impl Pool {
    pub(super) fn lock(&self) -> LeafGuard<'_, Inner> {
        self.0.lock()
    }

    /// What belongs to the pool and is in no catalog.
    pub(crate) fn ids(&self) -> BTreeSet<String> {
        self.lock().ids.clone()
    }

    /// The catalog tells of it from now on.
    pub(crate) fn leave(&self, id: &str) {
        self.lock().ids.remove(id);
    }

    pub(super) fn forget(&self, id: &str) -> Option<Ready> {
        let mut inner = self.lock();
        inner.ids.remove(id);
        inner.ready.values_mut().find_map(|ready| {
            let at = ready.iter().position(|one| one.handle.id == id)?;
            Some(ready.swap_remove(at))
        })
    }

    /// Waits while one is taken after another, unless there is none left of that template.
    pub(super) async fn quiet(&self, template: &str) {
        loop {
            let wait = {
                let inner = self.lock();
                let left = inner.ready.get(template).is_some_and(|ready| !ready.is_empty());
                let since = inner.taken.map(|taken| taken.elapsed()).filter(|_| left && !inner.closed);
                since.and_then(|since| QUIET.checked_sub(since))
            };
            match wait {
                Some(wait) if !wait.is_zero() => sleep(wait).await,
                _ => return,
            }
        }
    }

    /// A template of which there should be one more.
    pub(super) fn wants(&self, most: u32) -> Option<String> {
        let inner = self.lock();
        let paused = inner.pause.is_some_and(|until| until > Instant::now());
        let there: usize = inner.ready.values().map(Vec::len).sum();
        if inner.closed || paused || there >= most as usize {
            return None;
        }
        let short = |(template, demand): (&String, &Demand)| {
            // One at least of what was ever wanted, and as many as a minute sees.
            let wanted = demand.now().ceil().max(1.0) as usize;
            let has = inner.ready.get(template).map_or(0, Vec::len);
            (has < wanted).then(|| template.clone())
        };
        inner.demand.iter().find_map(short)
    }
}
