//! Agents that report commands which no server started.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `create` creates a
//! sandbox of the owner `alice`. `FakeRuntime` runs nothing; each test defines its behaviour. `ScriptedAgents` sends
//! the messages of guest agents that a test chooses.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use tokio::time::timeout;
use workspace_agent_protocol::v1::CommandEnd;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_sandbox::runtime::{RuntimeError, SandboxSpec, StartResult};
use workspace_sandbox::{CommandLine, RunRequest, SandboxError, Service, Settings};

use crate::fake_runtime::{Behaviour, FakeRuntime};
use crate::home::{ANY_TAG, TIMEOUT, TestHome, alice, create, request, run};
use crate::kind::RuntimeKind;
use crate::scripted_agent::{ScriptedAgents, progress};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("invented_commands::commands_invented_by_an_agent_are_ignored", || {
            run(RuntimeKind::Embedded, |home| Box::pin(commands_invented_by_an_agent_are_ignored(home)));
            Ok(())
        }),
        Trial::test("invented_commands::an_older_agent_gets_no_arguments", || {
            run(RuntimeKind::Embedded, |home| Box::pin(an_older_agent_gets_no_arguments(home)));
            Ok(())
        }),
    ]
}

/// A runtime whose agents report a command that no server started.
#[derive(Debug, Default)]
struct InventedCommand {
    agents: ScriptedAgents,
}

#[async_trait]
impl Behaviour for InventedCommand {
    async fn start(&self, start: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        self.agents.connect(start, vec![progress("cmd-made-up", None)]);
        Ok(StartResult::default())
    }

    fn is_running(&self, _: &str) -> bool {
        true
    }

    async fn wait_for_exit(&self, _: &str) {
        std::future::pending::<()>().await;
    }
}

async fn commands_invented_by_an_agent_are_ignored(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime::<InventedCommand>::default());
    let settings = Settings { max_pool_size: 0, max_commands: 1, ..Settings::new(home.path()) };
    let service = Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap();
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    // It does not count as running.
    let mut handle = service.run(&alice(), id, request("true")).await.unwrap();
    for (command, end) in [("cmd-more", None), (handle.id.as_str(), Some(CommandEnd::default()))] {
        runtime.agents.send(id, AgentPayload::CommandProgress(progress(command, end)));
    }
    timeout(TIMEOUT, handle.wait()).await.unwrap().unwrap();
    for made_up in ["cmd-made-up", "cmd-more"] {
        let unknown = service.command(&alice(), id, made_up).await.map(|_| ()).unwrap_err();
        assert!(matches!(unknown, SandboxError::NoCommand { .. }), "{unknown}");
    }
}

async fn an_older_agent_gets_no_arguments(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime::<InventedCommand>::default());
    let settings = Settings { max_pool_size: 0, ..Settings::new(home.path()) };
    let service = Service::start(settings, home.catalog().await, runtime).await.unwrap();
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let command = CommandLine::Arguments(vec!["true".to_owned()]);
    let refused =
        service.run(&alice(), id, RunRequest { command, ..RunRequest::default() }).await.unwrap_err();
    assert!(matches!(refused, SandboxError::GuestOutdated { .. }), "{refused}");
    assert_eq!(service.commands(&alice(), id, ANY_TAG, 10).await.unwrap(), [], "nothing was recorded");
    service.run(&alice(), id, request("true")).await.unwrap();
}
