//! Sandboxes that were started before anybody wanted them.
//!
//! Each is new and has run nothing: it has an id, a token and a guest that is connected, but neither an owner nor a
//! workspace. Whoever wants a sandbox like it gets it in the time it takes to attach a workspace. It is never
//! used twice, and never put back once it was somebody's. How many there are follows how many were wanted lately.

pub(crate) mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::{Config, NewSandbox};
use crate::error::{Context as _, Result};
use crate::guest::handle::SandboxHandle;
use crate::id::{self, Token};
use crate::runtime::{Limits, Network, Start};
use crate::service::Service;
use state::{Demand, Ready};

/// What is started ahead from the beginning.
const FIRST: &str = "base";
/// After a failure nothing is started ahead for so long.
const PAUSE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

impl Service {
    /// How many are there for whoever wants one.
    pub fn started_ahead(&self) -> usize {
        self.0.pool.lock().ready.values().map(Vec::len).sum()
    }

    /// One that has a name only.
    pub(crate) fn unmade(&self) -> Result<Ready> {
        let token = Token::new().context(|| "make a token".to_owned())?;
        let id = id::new("sbx");
        let handle = Arc::new(SandboxHandle::new(&id, self.dir(&id), &token.hash()));
        Ok(Ready { handle, token, started: None })
    }

    /// One that was started ahead and is like the one that is wanted.
    pub(crate) fn take_ready(&self, new: &NewSandbox, config: &Config) -> Option<Ready> {
        if new.network != Network::None || config.limits != self.usual_limits() {
            return None;
        }
        let mut inner = self.0.pool.lock();
        let ready = inner.ready.get_mut(&new.template)?;
        let at = ready.iter().position(|one| one.handle.guest.is_connected())?;
        let taken = ready.remove(at);
        inner.taken = Some(Instant::now());
        Some(taken)
    }

    /// One was made that could have been started ahead.
    pub(crate) fn was_wanted(&self, new: &NewSandbox, config: &Config) {
        if new.network != Network::None || config.limits != self.usual_limits() {
            return;
        }
        let fresh = || Demand { recent: 0.0, at: Instant::now() };
        self.0.pool.lock().demand.entry(new.template.clone()).or_insert_with(fresh).grow();
    }

    /// What those in the pool may use: what everybody gets who does not say.
    fn usual_limits(&self) -> Limits {
        let resources = &self.0.settings.default_resources;
        Limits {
            cpu_millis: Some(resources.cpu_millis),
            memory_bytes: Some(resources.memory),
            processes: Some(resources.processes),
        }
    }

    /// Attaches a workspace to one that was started ahead; what is missing of it. None if it is not usable any more.
    pub(crate) async fn attach(&self, ready: &Ready, workspace: &std::path::Path) -> Option<Vec<String>> {
        let (_, missing) = ready.started.as_ref()?;
        let (id, dir) = (&ready.handle.id, &ready.handle.dir);
        let attached = match self.0.runtime.attach(id, dir, workspace).await {
            // One that was just killed can be attached to, and is connected until that is noticed.
            Ok(()) => self.0.runtime.is_running(id, dir).await,
            Err(error) => Err(error),
        };
        match attached {
            Ok(true) if ready.handle.guest.is_connected() => Some(missing.clone()),
            attached => {
                tracing::warn!(sandbox = id, ?attached, "one that was started ahead is of no use");
                None
            }
        }
    }

    /// Starts as many as were wanted lately, one after another.
    pub(crate) fn fill_pool(&self) {
        let most = self.0.settings.pool;
        if most == 0 || !self.0.runtime.starts_ahead() {
            return;
        }
        {
            let mut inner = self.0.pool.lock();
            let fresh = || Demand { recent: 0.0, at: Instant::now() };
            inner.demand.entry(FIRST.to_owned()).or_insert_with(fresh);
            if std::mem::replace(&mut inner.filling, true) {
                return;
            }
        }
        let service = self.clone();
        tokio::spawn(async move {
            while let Some(template) = service.0.pool.wants(most) {
                service.0.pool.quiet(&template).await;
                if let Err(error) = service.start_ahead(&template).await {
                    tracing::warn!(template, %error, "no sandbox could be started ahead");
                    let mut inner = service.0.pool.lock();
                    inner.pause = Some(Instant::now() + PAUSE);
                    // What cannot be started is not tried again until somebody wants it.
                    inner.demand.remove(&template);
                }
            }
            service.0.pool.lock().filling = false;
        });
    }

    async fn start_ahead(&self, template: &str) -> Result<()> {
        // The namespaces that it is started in are not ended meanwhile.
        let _making = self.0.making.read().await;
        let ready = self.unmade()?;
        let handle = ready.handle.clone();
        self.0.pool.lock().ids.insert(handle.id.clone());
        let started = self.start_for_nobody(template, &ready).await;
        let missing = match started {
            Ok(missing) => missing,
            Err(error) => {
                self.end_ready(&handle).await;
                return Err(error);
            }
        };
        let closed = {
            let mut inner = self.0.pool.lock();
            if !inner.closed {
                let started = Some((template.to_owned(), missing));
                inner.ready.entry(template.to_owned()).or_default().push(Ready { started, ..ready });
            }
            inner.closed
        };
        if closed {
            self.end_ready(&handle).await;
            return Ok(());
        }
        self.watch_ready(&handle);
        Ok(())
    }

    async fn start_for_nobody(&self, template: &str, ready: &Ready) -> Result<Vec<String>> {
        self.open_guest_socket(&ready.handle)?;
        let start = Start {
            id: &ready.handle.id,
            template,
            workspace: None,
            dir: &ready.handle.dir,
            token: ready.token.as_bytes(),
            limits: &self.usual_limits(),
            progress: &watch::Sender::default(),
            egress: None,
            reach: self.reach(),
        };
        let started = self.0.runtime.start(&start).await?;
        self.wait_for_guest(&ready.handle).await?;
        Ok(started.missing)
    }

    /// Takes notice when one ends that nobody has taken.
    fn watch_ready(&self, handle: &Arc<SandboxHandle>) {
        let (service, handle) = (Arc::downgrade(&self.0), Arc::downgrade(handle));
        tokio::spawn(async move {
            loop {
                sleep(PAUSE).await;
                let (Some(inner), Some(handle)) = (service.upgrade(), handle.upgrade()) else { return };
                let service = Service(inner);
                if handle.owner().is_some() {
                    return;
                }
                if !handle.guest.is_connected() && service.0.pool.forget(&handle.id).is_some() {
                    service.end_ready(&handle).await;
                    return;
                }
            }
        });
    }

    pub(crate) async fn end_ready(&self, handle: &SandboxHandle) {
        handle.close();
        let ended = self.0.runtime.end(&handle.id, &handle.dir).await;
        if let Err(error) = match ended {
            Ok(()) => self.remove_dir(&handle.id).await,
            Err(error) => Err(error.into()),
        } {
            tracing::error!(sandbox = handle.id, %error, "one that was started ahead could not be ended");
        }
        self.0.pool.lock().ids.remove(&handle.id);
    }

    /// Ends those of a template that nobody has taken, and starts no more.
    pub(crate) async fn end_ready_of(&self, template: &str) {
        let ready = {
            let mut inner = self.0.pool.lock();
            inner.demand.remove(template);
            inner.ready.remove(template).unwrap_or_default()
        };
        for one in ready {
            self.end_ready(&one.handle).await;
        }
    }

    /// Ends all that nobody has taken, and starts no more until somebody wants one.
    pub(crate) async fn drain_pool(&self) {
        let ready: Vec<Ready> = {
            let mut inner = self.0.pool.lock();
            inner.demand.clear();
            inner.ready.drain().flat_map(|(_, ready)| ready).collect()
        };
        for one in ready {
            self.end_ready(&one.handle).await;
        }
    }

    /// Ends all that nobody has taken, for good.
    pub(crate) async fn empty_pool(&self) {
        let ready: Vec<Ready> = {
            let mut inner = self.0.pool.lock();
            inner.closed = true;
            inner.ready.drain().flat_map(|(_, ready)| ready).collect()
        };
        for one in ready {
            self.end_ready(&one.handle).await;
        }
        // One that is just being started ends as soon as it is.
        while self.0.pool.lock().filling {
            sleep(LOOK).await;
        }
    }
}
