//! Makes room when the disk of the workspaces is nearly full.
//!
//! Each step is taken only while there is less room than [`Settings::disk_reserve`](crate::Settings):
//!
//! 1. Layers over which no workspace lies are dropped, and garbage is collected.
//! 2. Of the owner who holds most of the disk, the sandbox goes that was stopped for the disk the longest ago, if that was
//!    [`Settings::stopped_kept`](crate::Settings) ago.
//! 3. If somebody goes on writing, a sandbox of that owner is stopped: of those that write the one that has grown most,
//!    else the largest, but then no second one while the workspace of the first is still kept.
//! 4. Below half of the reserve, whoever goes on writing is stopped, those first whose owner holds most.
//!
//! Workspaces of an owner's sandboxes count, stopped ones too, with the output of those that run, and layers over which nobody
//! else's lie.

mod choice;
pub(crate) mod state;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use workspace_catalog::{Sandbox, State};
use workspace_host::disk_usage::ENTRY_MIN;
use workspace_host::free_space::{Shortage, Unit};
use workspace_workspace::{Bounds, Usage};

use crate::blocking::blocking;
use crate::disk::scan::SCANS_AT_ONCE;
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::cleanup_queue::Leftover;
use crate::lifecycle::remove::Removal;
use crate::service::Service;
use choice::{SandboxUsage, Step, choose};

/// Time between two collections of garbage because of a full disk.
const COLLECT_AGAIN: Duration = Duration::from_secs(600);
/// Bytes since there was room that make a sandbox one that goes on writing.
const GROWING: u64 = 1 << 20;
/// Time of a look at a workspace. What was found until then counts.
const SCAN_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for a sandbox in which nothing runs, and how many of those are looked at in a row.
const ENDED_SCANS: (usize, Duration) = (4, Duration::from_millis(250));
/// Time that layers may take to go before anything else is done. They go on.
const LAYERS_WAIT: Duration = Duration::from_millis(200);

/// A look at the workspace of a sandbox that runs.
struct Scan {
    handle: Arc<SandboxHandle>,
    /// Bytes that it holds, of what is short.
    held: u64,
    /// Bytes of that which it has written since there was room.
    grown: u64,
    /// The same as it was found, which says what may have been there before.
    found: Usage,
}

impl Service {
    /// Makes room while the disk has less than everybody is to leave. Returns how many sandboxes that cost.
    pub(crate) async fn check_free_space(&self) -> Result<u64> {
        // Before the disk is looked at: a look that ends meanwhile may have found what fills it.
        let seen: Vec<_> = self.handles().into_iter().map(|handle| (handle.usage.last(), handle)).collect();
        let Some(short) = self.shortage().await? else {
            seen.iter().for_each(|(found, handle)| handle.usage.set_baseline(*found));
            return Ok(0);
        };
        self.collect_for_room();
        let layers = self.drop_layers();
        // Where little is left whoever writes is faster.
        if !short.is_severe() {
            let _ = timeout(LAYERS_WAIT, layers).await;
        }
        let Some(short) = self.shortage().await? else { return Ok(0) };
        let looks = self.scan_running(&short).await;
        let held = self.usages(&looks, &short).await;
        let steps = choose(&held, short.is_severe(), self.0.settings.stopped_kept);
        let mut cost = 0;
        for step in steps {
            cost += u64::from(self.take(&step, &short).await?);
            if cost > 0 {
                break;
            }
        }
        for look in looks.iter().filter(|look| look.grown < GROWING && self.handle(&look.handle.id).is_some())
        {
            // Whoever writes slowly is noticed when it is enough.
            look.handle.usage.restore_growth(look.found);
        }
        Ok(cost)
    }

    async fn shortage(&self) -> Result<Option<Shortage>> {
        let (path, reserve) = (self.0.settings.workspaces.clone(), self.0.settings.disk_reserve);
        blocking(move || Shortage::at(&path, reserve)).await
    }

    /// Takes a step, and reports whether that made a difference. One that something else is done with cannot be ended now: another one
    /// makes room, too.
    async fn take(&self, step: &Step<'_>, short: &Shortage) -> Result<bool> {
        let (id, owner) = (step.usage().id.as_str(), step.usage().owner.as_str());
        let Step::Stop { usage, reason } = step else {
            tracing::warn!(sandbox = id, owner, %short, "removing a sandbox that was stopped for the disk");
            return match self.remove_in_time(id, Removal::All).await {
                Ok(_) => Ok(true),
                Err(SandboxError::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            };
        };
        let Some(handle) = self.handle(id) else { return Ok(false) };
        let stopped = self.stop(&handle, &format!("{short}; {reason}")).await?;
        if stopped {
            let (held, grown) = (usage.bytes, usage.grown);
            tracing::warn!(sandbox = id, owner, %short, held, grown, "stopped a sandbox: {reason}");
        } else if let Some(found) = usage.found {
            handle.usage.restore_growth(found);
        }
        Ok(stopped)
    }

    /// Looks at all workspaces in use, the one that has grown most since there was room first.
    async fn scan_running(&self, short: &Shortage) -> Vec<Scan> {
        let unit = short.unit;
        let look = move |service: Self, handle: Arc<SandboxHandle>| async move {
            let bounds = Bounds { time: SCAN_TIMEOUT, ..Bounds::NONE };
            let used = service.measure(&handle.id, bounds).await;
            let found = handle.usage.record_growth(used);
            // A look that was not finished does not lower what is known.
            let held = amount(used, unit).max(if unit == Unit::Bytes { handle.usage.bytes() } else { 0 });
            let held = held + if unit == Unit::Bytes { handle.output.found() } else { 0 };
            Scan { handle, held, grown: amount(found, unit), found }
        };
        let mut looks = self.scan_all(look).await;
        let is_growing = looks.iter().any(|look| look.grown >= GROWING);
        if !is_growing && unit == Unit::Bytes && self.0.fullness.is_search_due(short.free) {
            let look = |service: Self, handle: Arc<SandboxHandle>| async move {
                let grown = service.measure_deleted(&handle).await;
                let held = handle.usage.bytes() + grown;
                Scan { handle, held, grown, found: Usage::default() }
            };
            looks = self.scan_all(look).await;
        }
        looks
    }

    /// Looks at several sandboxes at once, in turns of their own: other looks may take longer than the disk has room.
    async fn scan_all<W>(&self, look: impl Fn(Self, Arc<SandboxHandle>) -> W) -> Vec<Scan>
    where
        W: Future<Output = Scan> + Send + 'static,
    {
        let (mut looks, turns) = (JoinSet::new(), Arc::new(Semaphore::new(SCANS_AT_ONCE as usize)));
        for handle in self.handles() {
            let (turns, look) = (Arc::clone(&turns), look(self.clone(), handle));
            looks.spawn(async move {
                let _turn = turns.acquire().await;
                look.await
            });
        }
        let mut looks = looks.join_all().await;
        // What may have been there before counts only if nobody else has grown.
        looks.sort_by_key(|look| Reverse((!look.found.at_least, look.grown)));
        looks
    }

    /// Lists the disk usage of every sandbox: those that run in the order of the looks, then all others.
    async fn usages(&self, looks: &[Scan], short: &Shortage) -> Vec<SandboxUsage> {
        let mut all: Vec<SandboxUsage> = looks
            .iter()
            .map(|Scan { handle, held, grown, found }| SandboxUsage {
                id: handle.id.clone(),
                owner: handle.owner().unwrap_or(&handle.id).to_owned(),
                bytes: *held,
                grown: if *grown >= GROWING { *grown } else { 0 },
                found: Some(*found),
                is_running: true,
                is_going: false,
                stopped_for: None,
                layers: self.0.workspaces.layers_of(&handle.id),
            })
            .collect();
        let ended = self.ended_sandboxes().await;
        if !short.is_severe() {
            self.measure_ended(&ended).await;
        }
        for sandbox in ended {
            let usage = self.0.full_disk.ended().usage.get(&sandbox.id).copied().unwrap_or_default();
            let stopped = self.0.full_disk.ended().stopped.get(&sandbox.id).map(Instant::elapsed);
            all.push(SandboxUsage {
                bytes: amount(usage, short.unit),
                grown: 0,
                found: None,
                is_running: false,
                is_going: sandbox.state == State::Stopping,
                stopped_for: stopped.filter(|_| sandbox.state == State::Stopped),
                layers: self.0.workspaces.layers_of(&sandbox.id),
                id: sandbox.id,
                owner: sandbox.owner,
            });
        }
        let going = self.0.cleanup.all().into_iter();
        all.extend(going.map(|(id, Leftover { owner, bytes })| SandboxUsage::going(id, owner, bytes)));
        all
    }

    /// Sandboxes in which nothing runs. A catalog that does not answer keeps nobody from being stopped.
    async fn ended_sandboxes(&self) -> Vec<Sandbox> {
        let mut ended = match self.0.catalog.sandboxes().all(&self.0.settings.node).await {
            Ok(all) => all,
            Err(error) => {
                tracing::error!(%error, "sandboxes that have ended are not counted on a full disk");
                return Vec::new();
            }
        };
        ended.retain(|sandbox| self.handle(&sandbox.id).is_none());
        let is_there = |id: &String| ended.iter().any(|sandbox| sandbox.id == *id);
        let mut known = self.0.full_disk.ended();
        known.stopped.retain(|id, _| is_there(id));
        known.usage.retain(|id, _| is_there(id));
        drop(known);
        ended
    }

    /// Looks once at the workspace of each sandbox in which nothing runs. A few at a time: meanwhile others write.
    async fn measure_ended(&self, ended: &[Sandbox]) {
        let (many, time) = ENDED_SCANS;
        let is_unknown = |sandbox: &&Sandbox| !self.0.full_disk.ended().usage.contains_key(&sandbox.id);
        for Sandbox { id, .. } in ended.iter().filter(is_unknown).take(many) {
            let usage = self.measure(id, Bounds { time, ..Bounds::NONE }).await;
            self.0.full_disk.ended().usage.insert(id.clone(), usage);
        }
    }

    /// Begins to drop layers over which nothing lies, until there is room. What is returned ends when that is done.
    fn drop_layers(&self) -> impl Future<Output = ()> + use<> {
        let turn = Arc::clone(&self.0.full_disk.dropping).try_lock_owned();
        let dropping = turn.ok().map(|turn| {
            let service = self.clone();
            tokio::spawn(async move {
                let dropped = service.on_workspaces(|workspaces| Ok(workspaces.drop_unused_layers())).await;
                if let Err(error) = dropped {
                    tracing::error!(%error, "failed to drop layers on a full disk");
                }
                drop(turn);
            })
        });
        async move {
            if let Some(dropping) = dropping {
                // A panic was told of.
                let _ = dropping.await;
            }
        }
    }

    /// Begins to collect garbage, unless that was done a short while ago.
    pub(crate) fn collect_for_room(&self) {
        {
            let mut last = self.0.full_disk.collected.lock();
            if last.is_some_and(|time| time.elapsed() < COLLECT_AGAIN) {
                return;
            }
            *last = Some(Instant::now());
        }
        let service = self.clone();
        tokio::spawn(async move {
            match service.collect_content(false, &service.0.cancel).await {
                Ok(_) | Err(SandboxError::Cancelled) => {}
                Err(error) => {
                    tracing::error!(%error, "the disk is nearly full, and collecting garbage failed");
                }
            }
        });
    }
}

/// Bytes of what is short. A quota counts no bytes for a file that holds nothing.
fn amount(usage: Usage, unit: Unit) -> u64 {
    match unit {
        Unit::Bytes => usage.bytes,
        Unit::Files => usage.files * ENTRY_MIN,
    }
}
