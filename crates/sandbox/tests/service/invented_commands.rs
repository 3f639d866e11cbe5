//! Agents that report commands which no server started.

use std::io;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use libtest_mimic::Trial;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use workspace_agent_protocol::PROTOCOL_VERSION;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::agent_service_client::AgentServiceClient;
use workspace_agent_protocol::v1::{AgentMessage, CommandEnd, CommandProgress, RegisterRequest};
use workspace_sandbox::runtime::{RuntimeError, Start, StartResult};
use workspace_sandbox::{SandboxError, Service, Settings};

use crate::fake_runtime::{Behaviour, FakeRuntime};
use crate::home::{TIMEOUT, TestHome, alice, create, request, run};
use crate::kind::Kind;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("invented_commands::commands_invented_by_an_agent_are_ignored", || {
        run(Kind::Embedded, |home| Box::pin(commands_invented_by_an_agent_are_ignored(home)));
        Ok(())
    })]
}

/// An agent that runs nothing, and sends the messages of the test.
#[derive(Debug, Default)]
struct ScriptedAgent {
    messages: Mutex<Option<UnboundedSender<AgentMessage>>>,
}

fn progress(id: &str, end: Option<CommandEnd>) -> CommandProgress {
    CommandProgress { command_id: id.to_owned(), end, ..CommandProgress::default() }
}

impl ScriptedAgent {
    fn send(&self, payload: AgentPayload) {
        let message = AgentMessage { payload: Some(payload), ..AgentMessage::default() };
        self.messages.lock().unwrap().as_ref().unwrap().send(message).unwrap();
    }
}

#[async_trait]
impl Behaviour for ScriptedAgent {
    async fn start(&self, start: &Start<'_>) -> Result<StartResult, RuntimeError> {
        let (messages, queued) = unbounded_channel();
        *self.messages.lock().unwrap() = Some(messages);
        self.send(AgentPayload::Register(RegisterRequest {
            sandbox_id: start.id.to_owned(),
            token: start.token.to_vec(),
            generation: PROTOCOL_VERSION,
            commands: vec![progress("cmd-made-up", None)],
            ..RegisterRequest::default()
        }));
        let socket = start.dir.sockets().join("agent.sock");
        tokio::spawn(async move {
            let connector = tower::service_fn(move |_| {
                let socket = socket.clone();
                async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
            });
            let channel =
                Endpoint::from_static("http://server").connect_with_connector(connector).await.unwrap();
            let mut client = AgentServiceClient::new(channel);
            let mut requests =
                client.connect(UnboundedReceiverStream::new(queued)).await.unwrap().into_inner();
            while let Ok(Some(_)) = requests.message().await {}
        });
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
    let runtime = Arc::new(FakeRuntime::<ScriptedAgent>::default());
    let settings = Settings { pool: 0, commands: 1, ..Settings::new(home.path()) };
    let service = Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap();
    let view = create(&service).await;
    let id = view.sandbox.id.as_str();
    // It does not count as running.
    let mut handle = service.run(&alice(), id, request("true")).await.unwrap();
    runtime.send(AgentPayload::CommandProgress(progress("cmd-more", None)));
    runtime.send(AgentPayload::CommandProgress(progress(&handle.id, Some(CommandEnd::default()))));
    timeout(TIMEOUT, handle.wait()).await.unwrap().unwrap();
    for made_up in ["cmd-made-up", "cmd-more"] {
        let unknown = service.command(&alice(), id, made_up).await.map(|_| ()).unwrap_err();
        assert!(matches!(unknown, SandboxError::NoCommand { .. }), "{unknown}");
    }
}
