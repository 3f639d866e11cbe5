//! State of the warm pool: its sandboxes, and the demand for each template.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::guest::handle::SandboxHandle;
use crate::id::Token;
use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// Half-life of the demand for a template.
const DEMAND_HALF_LIFE: Duration = Duration::from_secs(60);
/// Time without a request before the pool is refilled: a start would slow down the first command of the client that has
/// just taken a sandbox.
const REFILL_DELAY: Duration = Duration::from_millis(30);

/// A sandbox without an owner: one of the warm pool, or one that is not started yet.
#[derive(Debug)]
pub(crate) struct UnassignedSandbox {
    pub(crate) handle: Arc<SandboxHandle>,
    /// Token that authenticates the guest agent.
    pub(crate) token: Token,
    /// Template, and limits that could not be applied; `None` if it is not started yet.
    pub(super) started: Option<(String, Vec<String>)>,
}

/// The sandboxes of the warm pool. No other lock is taken while this one is held.
#[derive(Debug, Default)]
pub(crate) struct Pool(LeafMutex<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Sandboxes that a request can take, by template.
    pub(super) ready: HashMap<String, Vec<UnassignedSandbox>>,
    /// Recent demand, by template.
    pub(super) demand: HashMap<String, Demand>,
    /// Ids of all sandboxes that are in the pool, being started for it, or being assigned to an owner.
    pub(super) ids: BTreeSet<String>,
    /// True while a task fills the pool.
    pub(super) filling: bool,
    /// Template of the sandbox that the task starts; `None` if none is being started, or the template was
    /// removed in the meantime.
    pub(super) starting: Option<String>,
    /// True once the service is closed: no more sandboxes are started for the pool.
    pub(super) closed: bool,
    /// Time until which the pool is not filled, after a failure to start a sandbox.
    pub(super) paused_until: Option<Instant>,
    /// Time at which a sandbox was taken last.
    pub(super) last_taken: Option<Instant>,
}

/// Recent demand for a template: number of requests, halved after each half-life.
#[derive(Debug)]
pub(super) struct Demand {
    /// Weighted number of requests at `updated_at`.
    pub(super) count: f64,
    pub(super) updated_at: Instant,
}

impl Inner {
    /// Removes all sandboxes that are ready.
    pub(super) fn take_all(&mut self) -> Vec<UnassignedSandbox> {
        self.ready.drain().flat_map(|(_, ready)| ready).collect()
    }

    /// Returns a template of which fewer sandboxes are ready than there is demand for; `None` if there is none, or the
    /// pool is full, paused or closed.
    fn next_template(&self, max_size: u32) -> Option<String> {
        let paused = self.paused_until.is_some_and(|until| until > Instant::now());
        let count: usize = self.ready.values().map(Vec::len).sum();
        if self.closed || paused || count >= max_size as usize {
            return None;
        }
        let below_target = |(template, demand): (&String, &Demand)| {
            // At least one of each template that was requested, and as many as were requested in the last
            // minute.
            let target = demand.current().ceil().max(1.0) as usize;
            let ready = self.ready.get(template).map_or(0, Vec::len);
            (ready < target).then(|| template.clone())
        };
        self.demand.iter().find_map(below_target)
    }
}

impl Demand {
    pub(super) fn new() -> Self {
        Self { count: 0.0, updated_at: Instant::now() }
    }

    /// Returns the number of recent requests, decayed until now.
    fn current(&self) -> f64 {
        self.count * 0.5_f64.powf(self.updated_at.elapsed().as_secs_f64() / DEMAND_HALF_LIFE.as_secs_f64())
    }

    pub(super) fn grow(&mut self) {
        (self.count, self.updated_at) = (self.current() + 1.0, Instant::now());
    }
}

impl Pool {
    pub(super) fn lock(&self) -> LeafGuard<'_, Inner> {
        self.0.lock()
    }

    /// Returns the ids of the sandboxes that belong to the pool. Most are not in the catalog.
    pub(crate) fn ids(&self) -> BTreeSet<String> {
        self.lock().ids.clone()
    }

    /// Removes the id of a sandbox that is in the catalog now.
    pub(crate) fn release(&self, id: &str) {
        self.lock().ids.remove(id);
    }

    /// Removes a sandbox from the pool, and returns it. `None` if a request has taken it: until it is in the
    /// catalog, its id must stay here, or it would be removed as an orphan.
    pub(super) fn forget(&self, id: &str) -> Option<UnassignedSandbox> {
        let mut inner = self.lock();
        let forgotten = inner.ready.values_mut().find_map(|ready| {
            let index = ready.iter().position(|one| one.handle.id == id)?;
            Some(ready.swap_remove(index))
        })?;
        inner.ids.remove(id);
        Some(forgotten)
    }

    /// Waits until no sandbox has been taken for [`REFILL_DELAY`]. Returns at once if no sandbox of the
    /// template is ready.
    pub(super) async fn wait_until_quiet(&self, template: &str) {
        loop {
            let wait = {
                let inner = self.lock();
                let has_ready = inner.ready.get(template).is_some_and(|ready| !ready.is_empty());
                let since =
                    inner.last_taken.map(|taken| taken.elapsed()).filter(|_| has_ready && !inner.closed);
                since.and_then(|since| REFILL_DELAY.checked_sub(since))
            };
            match wait {
                Some(wait) if !wait.is_zero() => sleep(wait).await,
                _ => return,
            }
        }
    }

    /// Returns a template of which one more sandbox should be started. `None` if the pool is full, paused or
    /// closed: then it is no longer being filled, and a later request starts that again.
    pub(super) fn next_template(&self, max_size: u32) -> Option<String> {
        let mut inner = self.lock();
        let next = inner.next_template(max_size);
        // Under the same lock as the decision: a request that comes between them would find it being filled.
        inner.filling = next.is_some();
        inner.starting.clone_from(&next);
        next
    }

    /// Returns true if a sandbox of the template is being started, and the template was not removed in the meantime.
    pub(super) fn is_starting(&self, template: &str) -> bool {
        self.lock().starting.as_deref() == Some(template)
    }

    /// Adds a sandbox that has started to those that a request can take. Returns false, and does not add it, if
    /// the pool was closed or the template was removed in the meantime.
    pub(super) fn add_started(&self, template: &str, started: UnassignedSandbox) -> bool {
        let mut inner = self.lock();
        if inner.closed || inner.starting.take().as_deref() != Some(template) {
            return false;
        }
        inner.ready.entry(template.to_owned()).or_default().push(started);
        true
    }

    /// Forgets the demand for a template, and returns its sandboxes that are ready, to be killed. One that is
    /// being started is not added when it has started.
    pub(super) fn forget_template(&self, template: &str) -> Vec<UnassignedSandbox> {
        let mut inner = self.lock();
        inner.demand.remove(template);
        if inner.starting.as_deref() == Some(template) {
            inner.starting = None;
        }
        inner.ready.remove(template).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox_dir::SandboxDir;

    fn started(id: &str) -> UnassignedSandbox {
        let token = Token::new().unwrap();
        let dir = SandboxDir::new("/nonexistent".into());
        let handle = Arc::new(SandboxHandle::new(id, dir, &token.hash()));
        UnassignedSandbox { handle, token, started: Some(("base".to_owned(), Vec::new())) }
    }

    fn pool_of(ids: [&str; 2]) -> Pool {
        let pool = Pool::default();
        let mut inner = pool.lock();
        for id in ids {
            inner.ids.insert(id.to_owned());
            inner.ready.entry("base".to_owned()).or_default().push(started(id));
        }
        drop(inner);
        pool
    }

    #[test]
    fn a_sandbox_of_a_template_removed_during_its_start_is_not_added() {
        let pool = pool_of(["sbx-1", "sbx-2"]);
        pool.lock().demand.insert("base".to_owned(), Demand { count: 3.0, updated_at: Instant::now() });
        assert_eq!(pool.next_template(8).as_deref(), Some("base"));
        assert!(pool.forget_template("other").is_empty());
        assert!(pool.is_starting("base"));
        assert_eq!(pool.forget_template("base").len(), 2);
        // A template of the same name may be imported and requested while the former one still starts.
        pool.lock().demand.insert("base".to_owned(), Demand::new());
        assert!(!pool.add_started("base", started("sbx-3")));
        assert!(pool.forget_template("base").is_empty());
        assert_eq!(pool.next_template(8), None);

        pool.lock().demand.insert("base".to_owned(), Demand::new());
        assert_eq!(pool.next_template(8).as_deref(), Some("base"));
        assert!(pool.add_started("base", started("sbx-4")));
        assert_eq!(pool.forget_template("base").len(), 1);
    }

    #[test]
    fn a_sandbox_that_a_request_has_taken_is_not_forgotten() {
        let pool = pool_of(["sbx-1", "sbx-2"]);
        let taken = pool.lock().ready.get_mut("base").unwrap().remove(0);
        assert_eq!(taken.handle.id, "sbx-1");
        assert!(pool.forget("sbx-1").is_none());
        assert!(pool.ids().contains("sbx-1"), "it would be removed as an orphan before it is in the catalog");
        assert_eq!(pool.forget("sbx-2").unwrap().handle.id, "sbx-2");
        assert_eq!(pool.ids(), BTreeSet::from(["sbx-1".to_owned()]));
    }

    #[test]
    fn a_pool_that_needs_no_more_sandboxes_is_no_longer_being_filled() {
        let pool = Pool::default();
        pool.lock().filling = true;
        pool.lock().demand.insert("base".to_owned(), Demand::new());
        assert_eq!(pool.next_template(1).as_deref(), Some("base"));
        assert!(pool.lock().filling);
        assert_eq!(pool.next_template(0), None);
        assert!(!pool.lock().filling, "nobody would fill it again");
    }
}
