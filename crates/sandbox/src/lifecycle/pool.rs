//! Warm pool: sandboxes that are started before a request needs one.
//!
//! Each is new and has run nothing: it has an id, a token and a connected guest agent, but neither an owner
//! nor a workspace. A request that matches it takes only the time to attach a workspace. A sandbox of the pool
//! is never used twice, and never returned once it had an owner. The size of the pool follows recent demand.

pub(crate) mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::{Config, NewSandbox};
use crate::error::{Context as _, Result};
use crate::guest::handle::SandboxHandle;
use crate::id::{self, Token};
use crate::runtime::{Limits, Network, SandboxSpec};
use crate::service::Service;
use state::{Demand, UnassignedSandbox};

/// Template of the first sandbox in the pool, before there is any demand.
const INITIAL_TEMPLATE: &str = "base";
/// Delay after a failure to start a sandbox of the pool.
const RETRY_BACKOFF: Duration = Duration::from_secs(10);
/// Interval at which sandboxes of the pool are checked for a lost guest agent.
const HEALTH_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which closing checks whether the pool is still being filled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Service {
    /// Returns the number of sandboxes in the warm pool that are ready.
    pub fn warm_pool_size(&self) -> usize {
        self.0.pool.lock().ready.values().map(Vec::len).sum()
    }

    /// Creates id, token and handle for a sandbox that is not started yet.
    pub(crate) fn new_unassigned(&self) -> Result<UnassignedSandbox> {
        let token = Token::new().context(|| "create a token".to_owned())?;
        let id = id::new("sbx");
        let handle = Arc::new(SandboxHandle::new(&id, self.dir(&id), &token.hash()));
        Ok(UnassignedSandbox { handle, token, started: None })
    }

    /// Takes a sandbox that fits a request out of the warm pool. `None` if there is none.
    pub(crate) fn take_pooled(&self, new: &NewSandbox, config: &Config) -> Option<UnassignedSandbox> {
        if !self.is_poolable(new, config) {
            return None;
        }
        let mut inner = self.0.pool.lock();
        let ready = inner.ready.get_mut(&new.template)?;
        let index = ready.iter().position(|one| one.handle.guest.is_connected())?;
        let taken = ready.remove(index);
        inner.last_taken = Some(Instant::now());
        Some(taken)
    }

    /// Returns true if the pool can serve this request: no network, discarded root filesystem, default limits, and a
    /// workspace of its own.
    fn is_poolable(&self, new: &NewSandbox, config: &Config) -> bool {
        let is_usual = new.network == Network::None && new.root.is_discarded() && new.follow.is_none();
        is_usual && config.limits == self.default_limits()
    }

    /// Counts a request that a sandbox of the pool could have served.
    pub(crate) fn record_demand(&self, new: &NewSandbox, config: &Config) {
        if !self.is_poolable(new, config) {
            return;
        }
        self.0.pool.lock().demand.entry(new.template.clone()).or_insert_with(Demand::new).grow();
    }

    /// Returns the resource limits of sandboxes in the pool: the defaults of the settings.
    fn default_limits(&self) -> Limits {
        let resources = &self.0.settings.default_resources;
        Limits {
            cpu_millis: Some(resources.cpu_millis),
            memory_bytes: Some(resources.memory),
            processes: Some(resources.processes),
        }
    }

    /// Attaches a workspace to a sandbox of the pool, and returns the limits and isolation that could not be
    /// applied to it (`notApplied` in the API). `None` if the sandbox can no longer be used.
    pub(crate) async fn attach_pooled(
        &self,
        unassigned: &UnassignedSandbox,
        workspace: &std::path::Path,
    ) -> Option<Vec<String>> {
        let (_, not_applied) = unassigned.started.as_ref()?;
        let (id, dir) = (&unassigned.handle.id, &unassigned.handle.dir);
        let attached = match self.0.runtime.attach(id, dir, workspace).await {
            // Attaching can succeed even if the sandbox has just been killed: its guest agent still counts as
            // connected for a moment. So check the process.
            Ok(()) => self.0.runtime.is_running(id, dir).await,
            Err(error) => Err(error),
        };
        match attached {
            Ok(true) if unassigned.handle.guest.is_connected() => Some(not_applied.clone()),
            attached => {
                tracing::warn!(sandbox = id, ?attached, "failed to use a sandbox of the warm pool");
                None
            }
        }
    }

    /// Starts sandboxes until the pool matches the demand, one after another, in the background.
    pub(crate) fn fill_pool(&self) {
        let max_size = self.0.settings.max_pool_size;
        if max_size == 0 || !self.0.runtime.supports_warm_pool() {
            return;
        }
        {
            let mut inner = self.0.pool.lock();
            inner.demand.entry(INITIAL_TEMPLATE.to_owned()).or_insert_with(Demand::new);
            if std::mem::replace(&mut inner.filling, true) {
                return;
            }
        }
        let service = self.clone();
        tokio::spawn(async move {
            while let Some(template) = service.0.pool.next_template(max_size) {
                // Starting a sandbox would slow down the first command of a client that has just taken one.
                service.0.pool.wait_until_quiet(&template).await;
                if let Err(error) = service.start_pooled(&template).await {
                    tracing::warn!(template, %error, "failed to start a sandbox for the warm pool");
                    let mut inner = service.0.pool.lock();
                    inner.paused_until = Some(Instant::now() + RETRY_BACKOFF);
                    // A template that cannot be started is not tried again until it is requested, or, for the
                    // initial template, until the pool is filled again.
                    inner.demand.remove(&template);
                }
            }
        });
    }

    async fn start_pooled(&self, template: &str) -> Result<()> {
        // Without sandboxes, `idle.rs` ends the namespace holder, the process in whose namespaces sandboxes are
        // created. This lock prevents that while one starts.
        let _creation_lock = self.0.creation_lock.read().await;
        if !self.0.pool.is_starting(template) {
            return Ok(());
        }
        let unassigned = self.new_unassigned()?;
        let handle = unassigned.handle.clone();
        // It is not in the catalog: without this, it would be removed as an orphan.
        self.0.pool.lock().ids.insert(handle.id.clone());
        let started = self.start_unassigned(template, &unassigned).await;
        let not_applied = match started {
            Ok(not_applied) => not_applied,
            Err(error) => {
                self.kill_pooled(&handle).await;
                return Err(error);
            }
        };
        let started = Some((template.to_owned(), not_applied));
        if !self.0.pool.add_started(template, UnassignedSandbox { started, ..unassigned }) {
            self.kill_pooled(&handle).await;
            return Ok(());
        }
        self.watch_pooled(&handle);
        Ok(())
    }

    async fn start_unassigned(&self, template: &str, unassigned: &UnassignedSandbox) -> Result<Vec<String>> {
        self.open_guest_socket(&unassigned.handle)?;
        let start = SandboxSpec {
            id: &unassigned.handle.id,
            template,
            workspace: None,
            anchor: None,
            root: None,
            dir: &unassigned.handle.dir,
            token: unassigned.token.as_bytes(),
            limits: &self.default_limits(),
            progress: &watch::Sender::default(),
            egress: None,
            endpoint: self.endpoint(),
        };
        let started = self.0.runtime.start(&start).await?;
        self.wait_for_guest(&unassigned.handle).await?;
        Ok(started.not_applied)
    }

    /// Removes a sandbox of the pool when its guest agent is lost before a request takes it.
    fn watch_pooled(&self, handle: &Arc<SandboxHandle>) {
        let (service, handle) = (Arc::downgrade(&self.0), Arc::downgrade(handle));
        tokio::spawn(async move {
            loop {
                sleep(HEALTH_INTERVAL).await;
                let (Some(inner), Some(handle)) = (service.upgrade(), handle.upgrade()) else { return };
                let service = Service(inner);
                if handle.owner().is_some() {
                    return;
                }
                if !handle.guest.is_connected() && service.0.pool.forget(&handle.id).is_some() {
                    service.kill_pooled(&handle).await;
                    return;
                }
            }
        });
    }

    /// Kills a sandbox of the pool, also one that was taken from it and not assigned, and removes its directory.
    pub(crate) async fn kill_pooled(&self, handle: &SandboxHandle) {
        handle.close();
        let killed = self.0.runtime.kill(&handle.id, &handle.dir).await;
        if let Err(error) = match killed {
            Ok(()) => self.remove_dir(&handle.id).await,
            Err(error) => Err(error.into()),
        } {
            tracing::error!(sandbox = handle.id, %error, "failed to kill a sandbox of the warm pool");
        }
        // If it could not be killed, it is an orphan now, which the next collection removes.
        self.0.pool.lock().ids.remove(&handle.id);
    }

    async fn kill_all_pooled(&self, pooled: Vec<UnassignedSandbox>) {
        for one in pooled {
            self.kill_pooled(&one.handle).await;
        }
    }

    /// Removes the pooled sandboxes of a template, also one that is being started, and starts no more until
    /// there is demand again. For the initial template, the next creation of any sandbox is demand.
    pub(crate) async fn kill_pooled_of_template(&self, template: &str) {
        let ready = self.0.pool.forget_template(template);
        self.kill_all_pooled(ready).await;
    }

    /// Removes all pooled sandboxes, and starts no more until there is demand again: at the latest when the
    /// next sandbox is created.
    pub(crate) async fn drain_pool(&self) {
        let ready = {
            let mut inner = self.0.pool.lock();
            inner.demand.clear();
            inner.starting = None;
            inner.take_all()
        };
        self.kill_all_pooled(ready).await;
    }

    /// Removes all pooled sandboxes, and starts no more. Waits at most `max_wait` for a sandbox that is being
    /// started.
    pub(crate) async fn close_pool(&self, max_wait: Duration) {
        let ready = {
            let mut inner = self.0.pool.lock();
            inner.closed = true;
            inner.take_all()
        };
        self.kill_all_pooled(ready).await;
        // A sandbox that is being started for the pool is killed as soon as it has started.
        let started = async {
            while self.0.pool.lock().filling {
                sleep(POLL_INTERVAL).await;
            }
        };
        if timeout(max_wait, started).await.is_err() {
            tracing::warn!(
                "a sandbox of the warm pool did not start in time; the server removes it at its next start"
            );
        }
    }
}
