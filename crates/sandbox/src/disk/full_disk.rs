//! Freeing space when the disk of the workspaces is nearly full.
//!
//! Each step is taken only while less space is free than [`Settings::disk_reserve_bytes`](crate::Settings):
//!
//! 1. Layers that no workspace uses are dropped, and garbage is collected.
//! 2. Of the owner with the largest usage, the sandbox is removed that was stopped on a full disk the longest
//!    ago, if that was [`Settings::stopped_retention`](crate::Settings) ago.
//! 3. If any sandbox keeps writing, a sandbox of that owner is stopped: the one that has grown most. If none
//!    of that owner's sandboxes has grown, the largest one is stopped, unless another one of them was stopped
//!    before and its workspace is still kept.
//!
//! Below half of the reserve, step 3 is another one and comes before step 2: sandboxes that keep writing are stopped,
//! those of the owner with the largest usage first.
//!
//! The usage of an owner is the size of its workspaces, of stopped sandboxes too, with the output of running
//! ones, and of layers that no other owner uses.

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
use workspace_workspace::{Bounds, UnusedLayers};

use crate::blocking::blocking;
use crate::disk::scan::SCANS_AT_ONCE;
use crate::disk::workspace_usage::Growth;
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::cleanup_queue::DeletedSandbox;
use crate::lifecycle::remove::Removal;
use crate::service::Service;
use choice::{SandboxUsage, Step, choose};

/// Minimum time between two garbage collections because of a full disk.
const GC_INTERVAL: Duration = Duration::from_secs(600);
/// Minimum growth of a sandbox that counts as writing, in bytes since the disk had enough space.
const GROWTH_MIN: u64 = 1 << 20;
/// Timeout for a scan of a workspace. A scan that did not finish counts as a lower bound.
const SCAN_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number and time limit of the scans, in one round, of workspaces in which nothing runs.
const INACTIVE_SCANS: (usize, Duration) = (4, Duration::from_millis(250));
/// Time to wait for unused layers to be dropped before the next step. Dropping continues after that.
const LAYERS_WAIT: Duration = Duration::from_millis(200);

/// A scan of the workspace of a running sandbox.
struct Scan {
    handle: Arc<SandboxHandle>,
    /// Usage in bytes. If the disk has enough bytes, but too few free inodes (`Unit::Files`), each file counts as
    /// [`ENTRY_MIN`] bytes.
    used_bytes: u64,
    /// Growth of `used_bytes` since the disk last had enough space, or since the last check.
    grown: u64,
    /// The growth as it was measured, in bytes and in files.
    growth: Growth,
}

impl Service {
    /// Frees space while less than the reserve is free. Returns how many sandboxes were stopped or removed.
    pub(crate) async fn check_free_space(&self) -> Result<u64> {
        // Read before the disk is checked: a scan that ends in between may include the growth that fills the disk.
        let last_usages: Vec<_> =
            self.handles().into_iter().map(|handle| (handle.usage.last(), handle)).collect();
        let Some(short) = self.shortage().await? else {
            last_usages.iter().for_each(|(usage, handle)| handle.usage.set_baseline(*usage));
            return Ok(0);
        };
        self.start_gc();
        let layers = self.drop_layers();
        // With little space left, a writing process could fill the disk before this finishes.
        if !short.is_severe() {
            let _ = timeout(LAYERS_WAIT, layers).await;
        }
        let Some(short) = self.shortage().await? else { return Ok(0) };
        let scans = self.scan_running(&short).await;
        let usages = self.usages(&scans, &short).await;
        for scan in scans.iter().filter(|scan| scan.grown < GROWTH_MIN) {
            // The next check measures it again, so that slow growth adds up over several checks.
            scan.handle.usage.undo_growth(scan.growth);
        }
        for step in choose(&usages, short.is_severe(), self.0.settings.stopped_retention) {
            if self.execute(&step, &short).await? {
                return Ok(1);
            }
        }
        Ok(0)
    }

    /// Returns the shortage of disk space; `None` if the reserve is free.
    async fn shortage(&self) -> Result<Option<Shortage>> {
        let (path, reserve) = (self.0.settings.workspaces_dir.clone(), self.0.settings.disk_reserve_bytes);
        blocking(move || Shortage::at(&path, reserve)).await
    }

    /// Executes a step, and returns true if it freed space. A sandbox with another operation in progress
    /// cannot be stopped now: the next step is tried.
    async fn execute(&self, step: &Step<'_>, short: &Shortage) -> Result<bool> {
        let (id, owner) = (step.usage().id.as_str(), step.usage().owner.as_str());
        let Step::Stop { usage, reason } = step else {
            if self.is_removal_retried(id) {
                return Ok(false);
            }
            return match self.remove_with_timeout(id, Removal::DiskFull, None).await {
                Ok(_) => {
                    tracing::warn!(sandbox = id, owner, %short, "removed a stopped sandbox on a full disk");
                    Ok(true)
                }
                Err(SandboxError::NotFound { .. }) => Ok(false),
                Err(error @ SandboxError::RemovalHook { .. }) => {
                    tracing::error!(sandbox = id, %error, "failed to remove a sandbox on a full disk");
                    Ok(false)
                }
                Err(error) => Err(error),
            };
        };
        let Some(handle) = self.handle(id) else { return Ok(false) };
        let stopped = self.stop(&handle, &format!("{short}; {reason}")).await;
        if let Ok(true) = stopped {
            let (used_bytes, grown) = (usage.bytes, usage.grown_bytes);
            tracing::warn!(sandbox = id, owner, %short, used_bytes, grown, reason, "stopped a sandbox on a full disk");
        } else if let Some(growth) = usage.counted_growth {
            handle.usage.undo_growth(growth);
        }
        stopped
    }

    /// Scans the workspaces of all running sandboxes, and returns those first that have grown most.
    async fn scan_running(&self, short: &Shortage) -> Vec<Scan> {
        let unit = short.unit;
        let scan = move |service: Self, handle: Arc<SandboxHandle>| async move {
            let bounds = Bounds { time: SCAN_TIMEOUT, ..Bounds::NONE };
            let used = service.measure(&handle.id, bounds).await;
            let growth = handle.usage.record_growth(used);
            // An unfinished scan does not lower the usage.
            let used_bytes = amount(used.bytes, used.files, unit).max(if unit == Unit::Bytes {
                handle.usage.bytes()
            } else {
                0
            });
            // Output of unknown size does not count: it must not make its owner the one with the largest usage.
            let output_bytes = handle.output.measured_bytes().filter(|_| unit == Unit::Bytes).unwrap_or(0);
            let used_bytes = used_bytes.saturating_add(output_bytes);
            Scan { handle, used_bytes, grown: amount(growth.bytes, growth.files, unit), growth }
        };
        let mut scans = self.scan_all(scan).await;
        let is_growing = scans.iter().any(|scan| scan.grown >= GROWTH_MIN);
        // Scans do not see files that are deleted and still open. The search for them is slow, so it is limited.
        if !is_growing && unit == Unit::Bytes && self.0.deleted_file_search.is_due(short.free) {
            scans.iter().for_each(|scan| scan.handle.usage.undo_growth(scan.growth));
            let scan = |service: Self, handle: Arc<SandboxHandle>| async move {
                let grown = service.measure_deleted(&handle).await;
                let used_bytes = handle.usage.bytes() + grown;
                Scan { handle, used_bytes, grown, growth: Growth::default() }
            };
            scans = self.scan_all(scan).await;
        }
        scans
    }

    /// Scans several sandboxes at once. It has its own semaphore, because the disk could be full before other
    /// scans finish.
    async fn scan_all<W>(&self, scan: impl Fn(Self, Arc<SandboxHandle>) -> W) -> Vec<Scan>
    where
        W: Future<Output = Scan> + Send + 'static,
    {
        let (mut scans, semaphore) = (JoinSet::new(), Arc::new(Semaphore::new(SCANS_AT_ONCE as usize)));
        for handle in self.handles() {
            let (semaphore, scan) = (Arc::clone(&semaphore), scan(self.clone(), handle));
            scans.spawn(async move {
                let _permit = semaphore.acquire().await;
                scan.await
            });
        }
        let mut scans = scans.join_all().await;
        // Growth that is only an upper bound counts only if no other sandbox has grown.
        scans.sort_by_key(|scan| Reverse((!scan.growth.is_upper_bound, scan.grown)));
        scans
    }

    /// Lists the disk usage of every sandbox: running ones in the order of the scans, then all others.
    async fn usages(&self, scans: &[Scan], short: &Shortage) -> Vec<SandboxUsage> {
        let mut all: Vec<SandboxUsage> = scans
            .iter()
            .map(|Scan { handle, used_bytes, grown, growth }| SandboxUsage {
                id: handle.id.clone(),
                owner: handle.owner().unwrap_or(&handle.id).to_owned(),
                bytes: *used_bytes,
                grown_bytes: if *grown >= GROWTH_MIN { *grown } else { 0 },
                // `check_free_space` undoes smaller growth itself.
                counted_growth: (*grown >= GROWTH_MIN).then_some(*growth),
                is_running: true,
                is_being_removed: false,
                stopped_for: None,
                layers: self.layers_below(&handle.id),
            })
            .collect();
        let inactive = self.inactive_sandboxes().await;
        if !short.is_severe() {
            self.measure_inactive(&inactive).await;
        }
        for sandbox in inactive {
            let usage = self.0.full_disk.inactive().usage.get(&sandbox.id).copied().unwrap_or_default();
            let stopped = self.0.full_disk.inactive().stopped.get(&sandbox.id).map(Instant::elapsed);
            all.push(SandboxUsage {
                bytes: amount(usage.bytes, usage.files, short.unit),
                grown_bytes: 0,
                counted_growth: None,
                is_running: false,
                is_being_removed: sandbox.state == State::Stopping,
                stopped_for: stopped.filter(|_| sandbox.state == State::Stopped),
                layers: self.layers_below(&sandbox.id),
                id: sandbox.id,
                owner: sandbox.owner,
            });
        }
        let being_removed = self.0.cleanup_queue.all().into_iter();
        all.extend(
            being_removed
                .map(|(id, DeletedSandbox { owner, bytes })| SandboxUsage::being_removed(id, owner, bytes)),
        );
        all
    }

    /// Returns the layers below the workspace and the kept root of a sandbox, with their sizes.
    fn layers_below(&self, id: &str) -> Vec<(String, u64)> {
        let mut layers = self.0.workspaces.layers_of(id);
        layers.extend(self.0.roots.layers_of(id));
        layers
    }

    /// Returns the sandboxes in which nothing runs; none if the catalog does not respond, so that others can
    /// still be stopped.
    async fn inactive_sandboxes(&self) -> Vec<Sandbox> {
        let mut inactive = match self.0.catalog.sandboxes().all(&self.0.settings.server).await {
            Ok(all) => all,
            Err(error) => {
                tracing::error!(%error, "failed to list inactive sandboxes on a full disk");
                return Vec::new();
            }
        };
        inactive.retain(|sandbox| self.handle(&sandbox.id).is_none());
        let is_inactive = |id: &String| inactive.iter().any(|sandbox| sandbox.id == *id);
        let mut recorded = self.0.full_disk.inactive();
        recorded.stopped.retain(|id, _| is_inactive(id));
        recorded.usage.retain(|id, _| is_inactive(id));
        drop(recorded);
        inactive
    }

    /// Scans the workspace of each inactive sandbox once, a few per call, because running sandboxes keep
    /// writing meanwhile.
    async fn measure_inactive(&self, inactive: &[Sandbox]) {
        let (max_scans, time) = INACTIVE_SCANS;
        let is_unknown = |sandbox: &&Sandbox| !self.0.full_disk.inactive().usage.contains_key(&sandbox.id);
        for Sandbox { id, .. } in inactive.iter().filter(is_unknown).take(max_scans) {
            let usage = self.measure(id, Bounds { time, ..Bounds::NONE }).await;
            self.0.full_disk.inactive().usage.insert(id.clone(), usage);
        }
    }

    /// Starts to drop unused layers until there is enough space. The returned future completes when that is
    /// done.
    fn drop_layers(&self) -> impl Future<Output = ()> + use<> {
        let guard = Arc::clone(&self.0.full_disk.layer_removal).try_lock_owned();
        let dropping = guard.ok().map(|guard| {
            let service = self.clone();
            tokio::spawn(async move {
                let dropped = match service.on_kept_roots(|roots| Ok(roots.drop_unused_layers())).await {
                    Ok(_) => service.on_workspaces(|workspaces| Ok(workspaces.drop_unused_layers())).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = dropped {
                    tracing::error!(%error, "failed to drop layers on a full disk");
                }
                drop(guard);
            })
        });
        async move {
            if let Some(dropping) = dropping {
                // A panic was logged.
                let _ = dropping.await;
            }
        }
    }

    /// Starts a garbage collection, unless one was started recently.
    pub(crate) fn start_gc(&self) {
        {
            let mut last = self.0.full_disk.last_gc.lock();
            if last.is_some_and(|time| time.elapsed() < GC_INTERVAL) {
                return;
            }
            *last = Some(Instant::now());
        }
        let service = self.clone();
        tokio::spawn(async move {
            match service.collect_content(UnusedLayers::Expired, &service.0.cancel).await {
                Ok(_) | Err(SandboxError::Cancelled) => {}
                Err(error) => {
                    tracing::error!(%error, "failed to collect garbage on a full disk");
                }
            }
        });
    }
}

/// Returns a usage or a growth in bytes, of the unit that is short. Files count as [`ENTRY_MIN`] bytes each,
/// because a quota counts no bytes for an empty file.
fn amount(bytes: u64, files: u64, unit: Unit) -> u64 {
    match unit {
        Unit::Bytes => bytes,
        Unit::Files => files * ENTRY_MIN,
    }
}
