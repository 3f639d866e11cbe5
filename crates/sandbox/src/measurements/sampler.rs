//! Measuring running sandboxes at regular intervals.
//!
//! Every sandbox is measured in a task of its own, a few at a time and fewer of one owner. A sandbox whose
//! runtime or guest agent does not respond does not block others: after [`SAMPLE_TIMEOUT`] its task no longer
//! counts, and the sandbox is not measured again before that task has ended.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::ring::{self, Measurement};
use crate::blocking::blocking;
use crate::clock::now;
use crate::error::{Context as _, Result};
use crate::fair_semaphore::FairSemaphore;
use crate::guest::handle::SandboxHandle;
use crate::guest::resource_usage::complete_from_agent;
use crate::runtime::{ResourceUsage, Runtime};
use crate::sandbox_dir::SandboxDir;

/// Maximum number of sandboxes that are measured at the same time.
const SAMPLES_AT_ONCE: u32 = 8;
/// Time after which a measurement in progress no longer counts for [`SAMPLES_AT_ONCE`].
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Measures sandboxes and writes the results to their files.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Time between two measurements of a sandbox.
    interval: Duration,
    /// Permits for concurrent measurements.
    permits: FairSemaphore,
    /// Number of failed measurements.
    failures: AtomicU64,
}

/// Sandbox to measure. It does not keep the handle of a sandbox that is removed meanwhile.
struct Target {
    id: String,
    owner: String,
    dir: SandboxDir,
    handle: Weak<SandboxHandle>,
}

/// Guard of a measurement in progress.
struct InProgress(Arc<AtomicBool>);

impl InProgress {
    /// Begins a measurement; `None` if one is in progress.
    fn begin(flag: &Arc<AtomicBool>) -> Option<Self> {
        (!flag.swap(true, Ordering::SeqCst)).then(|| Self(Arc::clone(flag)))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Sampler {
    /// Creates a sampler for measurements that are `interval` apart.
    pub(crate) fn new(interval: Duration) -> Self {
        let permits = FairSemaphore::new(SAMPLES_AT_ONCE);
        Self { interval, permits, failures: AtomicU64::new(0) }
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the number of measurements that failed or took longer than [`SAMPLE_TIMEOUT`].
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Stops measurements that have not begun.
    pub(crate) fn close(&self) {
        self.permits.close();
    }

    /// Begins to measure a sandbox in the background, unless it is being created, frozen, or still being measured.
    pub(crate) fn begin(self: &Arc<Self>, runtime: &Arc<dyn Runtime>, handle: &Arc<SandboxHandle>) {
        if handle.is_being_created.load(Ordering::SeqCst) || handle.guest.is_freeze_expected() {
            return;
        }
        let Some(in_progress) = InProgress::begin(&handle.is_being_sampled) else { return };
        let target = Target {
            id: handle.id.clone(),
            owner: handle.owner().unwrap_or(&handle.id).to_owned(),
            dir: handle.dir.clone(),
            handle: Arc::downgrade(handle),
        };
        let (sampler, runtime) = (Arc::clone(self), Arc::clone(runtime));
        tokio::spawn(async move {
            let _in_progress = in_progress;
            sampler.sample(&*runtime, &target).await;
        });
    }

    async fn sample(&self, runtime: &dyn Runtime, target: &Target) {
        // Fails only when the service is closed.
        let Ok(permit) = self.permits.acquire(&target.owner).await else { return };
        let mut sampling = pin!(self.try_sample(runtime, target));
        let sampled = match timeout(SAMPLE_TIMEOUT, sampling.as_mut()).await {
            Ok(sampled) => sampled,
            Err(_) => {
                drop(permit);
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(sandbox = target.id, "failed to measure a sandbox in time");
                return drop(sampling.await);
            }
        };
        if let Err(error) = sampled {
            self.failures.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(sandbox = target.id, %error, "failed to measure a sandbox");
        }
    }

    async fn try_sample(&self, runtime: &dyn Runtime, target: &Target) -> Result<()> {
        let usage = runtime.usage(&target.id, &target.dir).await?;
        let Some(handle) = target.handle.upgrade() else { return Ok(()) };
        let usage = complete_from_agent(usage, &handle).await;
        // A frozen guest agent does not respond, so the values may be incomplete.
        if handle.guest.is_freeze_expected() || (usage.cpu.is_none() && usage.memory_bytes.is_none()) {
            return Ok(());
        }
        let measurement = measurement(&usage, &handle);
        drop(handle);
        let (path, interval) = (target.dir.measurements(), self.interval);
        let written = blocking(move || ring::write(&path, &measurement, interval)).await?;
        written.context(|| "write a measurement".to_owned())
    }
}

fn measurement(usage: &ResourceUsage, handle: &SandboxHandle) -> Measurement {
    let output = handle.output.measured_bytes();
    let workspace = handle.usage.last().map(|used| used.bytes);
    Measurement {
        time: now(),
        cpu: usage.cpu,
        memory: usage.memory_bytes,
        disk: workspace.zip(output).map(|(workspace, output)| workspace.saturating_add(output)),
        network: usage.network,
        processes: usage.processes,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use async_trait::async_trait;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::leaf_mutex::LeafMutex;
    use crate::runtime::{RuntimeError, SandboxSpec, StartResult, Template};

    const INTERVAL: Duration = Duration::from_secs(5);

    /// A runtime that reports constant usage, and does not respond for some sandboxes.
    #[derive(Debug, Default)]
    struct TestRuntime {
        /// Ids of the sandboxes that do not respond.
        hung: LeafMutex<HashSet<String>>,
        /// Ids of the sandboxes that were asked for, in order.
        asked: LeafMutex<Vec<String>>,
        /// Permits with which hung sandboxes respond; `None` if they never do.
        respond: Option<Arc<Semaphore>>,
    }

    #[async_trait]
    impl Runtime for TestRuntime {
        fn name(&self) -> &'static str {
            "test"
        }

        async fn missing_features(&self) -> std::result::Result<Vec<String>, RuntimeError> {
            Ok(Vec::new())
        }

        async fn start(&self, _: &SandboxSpec<'_>) -> std::result::Result<StartResult, RuntimeError> {
            Ok(StartResult::default())
        }

        async fn is_running(&self, _: &str, _: &SandboxDir) -> std::result::Result<bool, RuntimeError> {
            Ok(true)
        }

        async fn wait_for_exit(&self, _: &str, _: &SandboxDir) -> std::result::Result<(), RuntimeError> {
            Ok(())
        }

        async fn kill(&self, _: &str, _: &SandboxDir) -> std::result::Result<(), RuntimeError> {
            Ok(())
        }

        async fn usage(&self, id: &str, _: &SandboxDir) -> std::result::Result<ResourceUsage, RuntimeError> {
            self.asked.lock().push(id.to_owned());
            let is_hung = self.hung.lock().contains(id);
            if is_hung {
                match &self.respond {
                    Some(respond) => drop(respond.acquire().await),
                    None => std::future::pending().await,
                }
            }
            let (cpu, memory_bytes) = (Some(Duration::from_secs(1)), Some(4_096));
            Ok(ResourceUsage { cpu, memory_bytes, processes: Some(2), network: None })
        }

        async fn known_ids(&self) -> std::result::Result<Vec<String>, RuntimeError> {
            Ok(Vec::new())
        }

        async fn templates(&self) -> std::result::Result<Vec<Template>, RuntimeError> {
            Ok(Vec::new())
        }
    }

    struct Fixture {
        home: tempfile::TempDir,
        runtime: Arc<TestRuntime>,
        sampler: Arc<Sampler>,
    }

    impl Fixture {
        fn new(runtime: TestRuntime) -> Self {
            let (runtime, sampler) = (Arc::new(runtime), Arc::new(Sampler::new(INTERVAL)));
            Self { home: tempfile::tempdir().unwrap(), runtime, sampler }
        }

        fn handle(&self, id: &str) -> Arc<SandboxHandle> {
            let dir = SandboxDir::new(self.home.path().join(id));
            dir.make().unwrap();
            let handle = SandboxHandle::new(id, dir, "");
            handle.is_being_created.store(false, Ordering::SeqCst);
            Arc::new(handle)
        }

        fn begin(&self, handle: &Arc<SandboxHandle>) {
            let runtime: Arc<dyn Runtime> = self.runtime.clone();
            self.sampler.begin(&runtime, handle);
        }

        fn asked(&self) -> Vec<String> {
            self.runtime.asked.lock().clone()
        }
    }

    /// Waits until a sandbox is not being measured. Time is paused, so it passes only while nothing else can be done.
    async fn wait_until_done(handle: &SandboxHandle) {
        while handle.is_being_sampled.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn measurements(handle: &SandboxHandle) -> Vec<Measurement> {
        ring::read(&handle.dir.measurements(), INTERVAL, now()).unwrap()
    }

    #[tokio::test]
    async fn a_measurement_is_written_to_the_file_of_the_sandbox() {
        let fixture = Fixture::new(TestRuntime::default());
        let handle = fixture.handle("sbx-1");
        handle.usage.record_first(workspace_workspace::DiskUsage { bytes: 7, ..Default::default() });
        fixture.begin(&handle);
        wait_until_done(&handle).await;
        let found = measurements(&handle);
        assert_eq!(found.len(), 1);
        let expected = Measurement {
            time: found[0].time,
            cpu: Some(Duration::from_secs(1)),
            memory: Some(4_096),
            disk: Some(7),
            network: None,
            processes: Some(2),
        };
        assert_eq!((found[0], fixture.sampler.failures()), (expected, 0));
    }

    #[tokio::test]
    async fn sandboxes_that_are_frozen_or_being_created_are_not_measured() {
        let fixture = Fixture::new(TestRuntime::default());
        let (created, frozen) = (fixture.handle("created"), fixture.handle("frozen"));
        created.is_being_created.store(true, Ordering::SeqCst);
        let freeze = frozen.guest.expect_freeze();
        fixture.begin(&created);
        fixture.begin(&frozen);
        assert!(!created.is_being_sampled.load(Ordering::SeqCst));
        assert!(!frozen.is_being_sampled.load(Ordering::SeqCst));
        drop(freeze);
        fixture.begin(&frozen);
        wait_until_done(&frozen).await;
        assert_eq!((measurements(&frozen).len(), fixture.asked()), (1, vec!["frozen".to_owned()]));
    }

    #[tokio::test(start_paused = true)]
    async fn sandboxes_that_do_not_respond_block_no_other_and_are_asked_once() {
        let hung: Vec<String> = (0..2 * SAMPLES_AT_ONCE).map(|number| format!("hung-{number}")).collect();
        let runtime = TestRuntime::default();
        runtime.hung.lock().extend(hung.iter().cloned());
        let fixture = Fixture::new(runtime);
        let hung: Vec<_> = hung.iter().map(|id| fixture.handle(id)).collect();
        let other = fixture.handle("other");
        for handle in hung.iter().chain([&other]) {
            fixture.begin(handle);
        }
        wait_until_done(&other).await;
        // All hung ones get their turn, too, and none is asked a second time.
        while fixture.sampler.failures() < u64::from(2 * SAMPLES_AT_ONCE) {
            tokio::time::sleep(SAMPLE_TIMEOUT).await;
        }
        for handle in hung.iter().chain([&other]) {
            fixture.begin(handle);
        }
        wait_until_done(&other).await;
        let asked = fixture.asked();
        assert_eq!(asked.iter().filter(|id| *id == "other").count(), 2);
        assert_eq!(asked.len(), hung.len() + 2, "{asked:?}");
        assert!(hung.iter().all(|handle| measurements(handle).is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_response_is_still_written() {
        let respond = Arc::new(Semaphore::new(0));
        let runtime = TestRuntime { respond: Some(Arc::clone(&respond)), ..TestRuntime::default() };
        runtime.hung.lock().insert("sbx-1".to_owned());
        let fixture = Fixture::new(runtime);
        let handle = fixture.handle("sbx-1");
        fixture.begin(&handle);
        while fixture.sampler.failures() == 0 {
            tokio::time::sleep(SAMPLE_TIMEOUT).await;
        }
        respond.add_permits(1);
        wait_until_done(&handle).await;
        assert_eq!(measurements(&handle).len(), 1);
    }

    #[tokio::test]
    async fn nothing_is_written_for_a_sandbox_that_was_removed_meanwhile() {
        let respond = Arc::new(Semaphore::new(0));
        let runtime = TestRuntime { respond: Some(Arc::clone(&respond)), ..TestRuntime::default() };
        runtime.hung.lock().insert("sbx-1".to_owned());
        let fixture = Fixture::new(runtime);
        let handle = fixture.handle("sbx-1");
        fixture.begin(&handle);
        let (dir, in_progress) = (handle.dir.clone(), Arc::clone(&handle.is_being_sampled));
        drop(handle);
        dir.remove().unwrap();
        respond.add_permits(1);
        while in_progress.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert!(!dir.root().exists());
    }
}
