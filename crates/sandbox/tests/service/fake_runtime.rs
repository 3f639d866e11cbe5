//! A runtime without isolation, whose behaviour each test defines.

use std::fmt::Debug;
use std::ops::Deref;

use async_trait::async_trait;
use workspace_sandbox::SandboxDir;
use workspace_sandbox::runtime::{
    Frozen, ResourceUsage, Runtime, RuntimeError, SandboxSpec, StartResult, Template,
};

/// Behaviour of a [`FakeRuntime`]. By default its sandboxes have no process, and end at once.
#[async_trait]
pub(crate) trait Behaviour: Debug + Send + Sync {
    /// Starts a sandbox.
    async fn start(&self, start: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError>;

    /// Called when the workspace of a sandbox is about to be filled.
    async fn before_fill(&self) {}

    /// Returns true if the sandbox with this id has a process.
    fn is_running(&self, id: &str) -> bool {
        let _ = id;
        false
    }

    /// Waits until a sandbox has exited.
    async fn wait_for_exit(&self, id: &str) {
        let _ = id;
    }

    /// Kills the sandbox with this id.
    async fn kill(&self, id: &str) {
        let _ = id;
    }

    /// Freezes a sandbox.
    async fn freeze(&self) -> Result<Frozen, RuntimeError> {
        let reason = "its sandboxes have no processes".to_owned();
        Err(RuntimeError::Failed { runtime: "fake", action: "freeze a sandbox", reason })
    }

    /// Returns true if the service may start sandboxes in advance.
    fn supports_warm_pool(&self) -> bool {
        false
    }
}

/// A runtime that runs nothing by itself.
#[derive(Debug, Default)]
pub(crate) struct FakeRuntime<B>(pub(crate) B);

impl<B> Deref for FakeRuntime<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.0
    }
}

#[async_trait]
impl<B: Behaviour> Runtime for FakeRuntime<B> {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn dedicated_uid(&self, _: &str, _: &SandboxDir) -> Result<Option<u32>, RuntimeError> {
        self.0.before_fill().await;
        Ok(None)
    }

    async fn start(&self, start: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        self.0.start(start).await
    }

    async fn is_running(&self, id: &str, _: &SandboxDir) -> Result<bool, RuntimeError> {
        Ok(self.0.is_running(id))
    }

    async fn wait_for_exit(&self, id: &str, _: &SandboxDir) -> Result<(), RuntimeError> {
        self.0.wait_for_exit(id).await;
        Ok(())
    }

    async fn kill(&self, id: &str, _: &SandboxDir) -> Result<(), RuntimeError> {
        self.0.kill(id).await;
        Ok(())
    }

    async fn freeze(&self, _: &str, _: &SandboxDir) -> Result<Frozen, RuntimeError> {
        self.0.freeze().await
    }

    fn supports_warm_pool(&self) -> bool {
        self.0.supports_warm_pool()
    }

    async fn usage(&self, _: &str, _: &SandboxDir) -> Result<ResourceUsage, RuntimeError> {
        Ok(ResourceUsage::default())
    }

    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        Ok(Vec::new())
    }
}
