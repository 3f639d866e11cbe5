//! Freezes that take long.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `create` creates a
//! sandbox of the owner `alice`. `FakeRuntime` runs nothing; each test defines its behaviour. `ScriptedAgents` sends
//! the messages of guest agents that a test chooses.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libtest_mimic::Trial;
use tokio::sync::Notify;
use tokio::time::timeout;
use workspace_agent_protocol::v1::CommandEnd;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_sandbox::runtime::freeze::FreezeMethod;
use workspace_sandbox::runtime::{Frozen, RuntimeError, SandboxSpec, StartResult};
use workspace_sandbox::{NewCommit, RunRequest, SandboxError, Service, Settings};

use crate::fake_runtime::{Behaviour, FakeRuntime};
use crate::home::{TIMEOUT, TestHome, alice, create, request, run};
use crate::kind::RuntimeKind;
use crate::scripted_agent::{ScriptedAgents, progress};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("slow_freeze::exit_of_a_timed_out_command_is_not_overdue_during_a_slow_freeze", || {
        run(RuntimeKind::Embedded, |home| {
            Box::pin(exit_of_a_timed_out_command_is_not_overdue_during_a_slow_freeze(home))
        });
        Ok(())
    })]
}

/// A runtime whose freezes last until the test releases them.
#[derive(Debug, Default)]
struct SlowFreeze {
    agents: ScriptedAgents,
    /// Notified when a freeze begins.
    begun: Notify,
    /// Notified when the freeze may end.
    release: Notify,
}

#[async_trait]
impl Behaviour for SlowFreeze {
    async fn start(&self, start: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        self.agents.connect(start, Vec::new());
        Ok(StartResult::default())
    }

    fn is_running(&self, _: &str) -> bool {
        true
    }

    async fn wait_for_exit(&self, _: &str) {
        std::future::pending::<()>().await;
    }

    async fn freeze(&self) -> Result<Frozen, RuntimeError> {
        self.begun.notify_one();
        self.release.notified().await;
        Ok(Frozen { method: FreezeMethod::Cgroup, processes: None })
    }
}

async fn exit_of_a_timed_out_command_is_not_overdue_during_a_slow_freeze(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime::<SlowFreeze>::default());
    let settings = Settings { max_pool_size: 0, command_grace: Duration::ZERO, ..Settings::new(home.path()) };
    let service = Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap();
    let (freezing, other) = (create(&service).await.sandbox.id, create(&service).await.sandbox.id);
    let (committer, committed) = (service.clone(), freezing.clone());
    let commit =
        tokio::spawn(async move { committer.commit(&alice(), &committed, NewCommit::default()).await });
    timeout(TIMEOUT, runtime.begun.notified()).await.unwrap();
    let short = || RunRequest { timeout: Some(Duration::from_millis(1)), ..request("sleep 100") };
    let mut command = service.run(&alice(), &freezing, short()).await.unwrap();
    let command_id = command.id.clone();
    let exit = tokio::spawn(async move { command.wait().await });
    // The second command times out later than the first.
    let mut later = service.run(&alice(), &other, short()).await.unwrap();
    let overdue = timeout(TIMEOUT, later.wait()).await.unwrap().unwrap_err();
    assert!(matches!(overdue, SandboxError::AgentLost { .. }), "{overdue}");
    let end = CommandEnd { timed_out: true, ..CommandEnd::default() };
    runtime.agents.send(&freezing, AgentPayload::CommandProgress(progress(&command_id, Some(end))));
    let exit = timeout(TIMEOUT, exit).await.unwrap().unwrap().unwrap();
    assert!(exit.timed_out, "{exit:?}");
    runtime.release.notify_one();
    timeout(TIMEOUT, commit).await.unwrap().unwrap().unwrap();
}
