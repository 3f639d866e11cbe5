//! A runtime with failures that a test injects.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use libtest_mimic::Trial;
use parking_lot::Mutex;
use tokio::sync::watch;
use workspace_catalog::State;
use workspace_sandbox::runtime::{
    Frozen, LazyMount, NamespaceHolder, ProcessScope, ResourceUsage, Runtime, RuntimeError, SandboxSpec,
    StartResult, Template, WorkspaceProcess,
};
use workspace_sandbox::{NewSandbox, ReclaimPolicy, ResourceRequest, SandboxDir, Service, Settings};
use workspace_test_support::skip;

use crate::home::{TIMEOUT, TestHome, alice, base, creator, request, run, wait_until};
use crate::kind::RuntimeKind;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test(
        "failing_runtime::sandbox_over_its_disk_limit_is_stopped_even_if_ending_it_fails_at_first",
        || {
            run(RuntimeKind::Embedded, |home| {
                Box::pin(sandbox_is_stopped_even_if_ending_it_fails_at_first(home))
            });
            Ok(())
        },
    )]
}

/// The embedded runtime with injected failures.
#[derive(Debug)]
pub(crate) struct FailingRuntime {
    inner: Arc<dyn Runtime>,
    /// Lets the helper of a swap die after its work.
    pub(crate) dies_after: AtomicBool,
    /// Lets the helper of a swap die before its work.
    pub(crate) dies_before: AtomicBool,
    /// Makes the outcome of a swap unknown.
    pub(crate) is_blind: AtomicBool,
    /// Number of attempts to kill a sandbox that will fail.
    pub(crate) failing_ends: AtomicU32,
    /// Step at which the next call never returns, like that of a server that was killed there.
    hangs_at: Mutex<Option<Step>>,
    /// True once a call hangs.
    hangs: watch::Sender<bool>,
}

/// Step of a call to the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    BeforeFreeze,
    AfterFreeze,
    BeforeThaw,
    BeforeKill,
    AfterKill,
    BeforeWorkspace,
    BeforeStart,
    AfterStart,
}

impl FailingRuntime {
    /// Starts the runtime of a home, without failures at first.
    pub(crate) async fn new(home: &TestHome) -> Self {
        Self {
            inner: home.kind.runtime(home.path()).await,
            dies_after: AtomicBool::new(false),
            dies_before: AtomicBool::new(false),
            is_blind: AtomicBool::new(false),
            failing_ends: AtomicU32::new(0),
            hangs_at: Mutex::default(),
            hangs: watch::Sender::default(),
        }
    }

    /// Lets the next call that reaches this step hang.
    pub(crate) fn hang_at(&self, step: Step) {
        *self.hangs_at.lock() = Some(step);
    }

    /// Waits until a call hangs.
    pub(crate) async fn wait_until_it_hangs(&self) {
        let hangs =
            tokio::time::timeout(TIMEOUT, self.hangs.subscribe().wait_for(|hangs| *hangs)).await.is_ok();
        assert!(hangs, "no call reached {:?}", self.hangs_at.lock());
    }

    async fn reach(&self, step: Step) {
        if self.hangs_at.lock().take_if(|at| *at == step).is_some() {
            self.hangs.send_replace(true);
            std::future::pending::<()>().await;
        }
    }

    fn helper_died(&self) -> RuntimeError {
        let reason = "the helper ended without a word".to_owned();
        RuntimeError::Failed { runtime: self.name(), action: "do something to a sandbox", reason }
    }
}

#[async_trait]
impl Runtime for FailingRuntime {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError> {
        self.inner.missing_features().await
    }

    async fn start(&self, start: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        self.reach(Step::BeforeStart).await;
        let started = self.inner.start(start).await;
        self.reach(Step::AfterStart).await;
        started
    }

    async fn mount_holder(&self) -> Result<NamespaceHolder, String> {
        self.inner.mount_holder().await
    }

    fn file_owner(&self) -> Option<(u32, u32)> {
        self.inner.file_owner()
    }

    async fn probe_dedicated_uids(
        &self,
        workspaces: &Path,
        sandboxes: &Path,
        lazy: LazyMount,
    ) -> Result<(), RuntimeError> {
        self.inner.probe_dedicated_uids(workspaces, sandboxes, lazy).await
    }

    async fn dedicated_uid(&self, id: &str, dir: &SandboxDir) -> Result<Option<u32>, RuntimeError> {
        self.reach(Step::BeforeWorkspace).await;
        self.inner.dedicated_uid(id, dir).await
    }

    fn supports_quotas(&self) -> bool {
        self.inner.supports_quotas()
    }

    async fn is_running(&self, id: &str, dir: &SandboxDir) -> Result<bool, RuntimeError> {
        self.inner.is_running(id, dir).await
    }

    async fn wait_for_exit(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        self.inner.wait_for_exit(id, dir).await
    }

    async fn kill(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        let fails =
            self.failing_ends.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if fails.is_ok() {
            return Err(self.helper_died());
        }
        self.reach(Step::BeforeKill).await;
        let killed = self.inner.kill(id, dir).await;
        self.reach(Step::AfterKill).await;
        killed
    }

    async fn freeze(&self, id: &str, dir: &SandboxDir) -> Result<Frozen, RuntimeError> {
        self.reach(Step::BeforeFreeze).await;
        let frozen = self.inner.freeze(id, dir).await;
        self.reach(Step::AfterFreeze).await;
        frozen
    }

    async fn thaw(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        self.reach(Step::BeforeThaw).await;
        self.inner.thaw(id, dir).await
    }

    fn can_swap_workspace(&self) -> bool {
        self.inner.can_swap_workspace()
    }

    async fn workspace_processes(
        &self,
        id: &str,
        dir: &SandboxDir,
        terminate: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>, RuntimeError> {
        self.inner.workspace_processes(id, dir, terminate).await
    }

    async fn swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        if self.dies_before.load(Ordering::SeqCst) {
            return Err(self.helper_died());
        }
        self.inner.swap(id, dir, workspace).await?;
        if self.dies_after.load(Ordering::SeqCst) { Err(self.helper_died()) } else { Ok(()) }
    }

    async fn settle_swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<bool, RuntimeError> {
        if self.is_blind.load(Ordering::SeqCst) {
            return Err(self.helper_died());
        }
        self.inner.settle_swap(id, dir, workspace).await
    }

    async fn usage(&self, id: &str, dir: &SandboxDir) -> Result<ResourceUsage, RuntimeError> {
        self.inner.usage(id, dir).await
    }

    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        self.inner.known_ids().await
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        self.inner.templates().await
    }

    async fn variables(&self, template: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
        self.inner.variables(template).await
    }
}

async fn sandbox_is_stopped_even_if_ending_it_fails_at_first(home: &TestHome) {
    if crate::quota::has_quotas(home) {
        return skip("with a quota, a full workspace ends nothing");
    }
    let runtime = Arc::new(FailingRuntime::new(home).await);
    let settings =
        Settings { max_pool_size: 0, disk_interval: Duration::from_millis(50), ..Settings::new(home.path()) };
    let service = Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap();
    let resources = ResourceRequest { disk: Some(4 << 20), ..ResourceRequest::default() };
    let info = service.create(creator(), NewSandbox { resources, ..base() }).await.unwrap();
    let id = info.sandbox.id.as_str();
    runtime.failing_ends.store(2, Ordering::SeqCst);
    let fill = "head -c 8388608 /dev/zero > big; sleep 100";
    let mut filling = service.run(&alice(), id, request(fill)).await.unwrap();
    wait_until("it is stopped", async || {
        let now = service.get(&alice(), id).await.unwrap().sandbox;
        now.state == State::Stopped
            && now.state_reason.is_some_and(|reason| reason.contains("its workspace has"))
    })
    .await;
    assert_eq!(runtime.failing_ends.load(Ordering::SeqCst), 0);
    let end = filling.wait().await.unwrap();
    assert!(end.failure_reason.is_some(), "{end:?}");
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
}
