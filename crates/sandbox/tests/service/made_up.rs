//! Guests that tell of commands which nobody started.

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
use workspace_agent_protocol::GENERATION;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::agent_service_client::AgentServiceClient;
use workspace_agent_protocol::v1::{AgentMessage, CommandEnd, CommandProgress, RegisterRequest};
use workspace_sandbox::runtime::{Runtime, RuntimeError, Start, Started, Template, Usage};
use workspace_sandbox::{SandboxDir, SandboxError, Service, Settings};

use crate::home::{Home, PATIENCE, alice, create, request, run};
use crate::kind::Kind;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("made_up::commands_that_a_guest_makes_up_are_ignored", || {
        run(Kind::Embedded, |home| Box::pin(commands_that_a_guest_makes_up_are_ignored(home)));
        Ok(())
    })]
}

/// A guest that runs nothing, and says what the test wants.
#[derive(Debug, Default)]
struct Scripted {
    says: Mutex<Option<UnboundedSender<AgentMessage>>>,
}

fn progress(id: &str, end: Option<CommandEnd>) -> CommandProgress {
    CommandProgress { command_id: id.to_owned(), end, ..CommandProgress::default() }
}

impl Scripted {
    fn say(&self, said: AgentPayload) {
        let message = AgentMessage { payload: Some(said), ..AgentMessage::default() };
        self.says.lock().unwrap().as_ref().unwrap().send(message).unwrap();
    }
}

#[async_trait]
impl Runtime for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn lacks(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn start(&self, order: &Start<'_>) -> Result<Started, RuntimeError> {
        let (says, said) = unbounded_channel();
        *self.says.lock().unwrap() = Some(says);
        self.say(AgentPayload::Register(RegisterRequest {
            sandbox_id: order.id.to_owned(),
            token: order.token.to_vec(),
            generation: GENERATION,
            commands: vec![progress("cmd-made-up", None)],
            ..RegisterRequest::default()
        }));
        let socket = order.dir.sockets().join("agent.sock");
        tokio::spawn(async move {
            let connector = tower::service_fn(move |_| {
                let socket = socket.clone();
                async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
            });
            let channel =
                Endpoint::from_static("http://server").connect_with_connector(connector).await.unwrap();
            let mut client = AgentServiceClient::new(channel);
            let mut heard = client.connect(UnboundedReceiverStream::new(said)).await.unwrap().into_inner();
            while let Ok(Some(_)) = heard.message().await {}
        });
        Ok(Started::default())
    }

    async fn is_running(&self, _: &str, _: &SandboxDir) -> Result<bool, RuntimeError> {
        Ok(true)
    }

    async fn ended(&self, _: &str, _: &SandboxDir) -> Result<(), RuntimeError> {
        std::future::pending().await
    }

    async fn end(&self, _: &str, _: &SandboxDir) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn usage(&self, _: &str) -> Result<Usage, RuntimeError> {
        Ok(Usage::default())
    }

    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        Ok(Vec::new())
    }
}

async fn commands_that_a_guest_makes_up_are_ignored(home: &Home) {
    let runtime = Arc::new(Scripted::default());
    let settings = Settings { pool: 0, commands: 1, ..Settings::new(home.path()) };
    let service = Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap();
    let view = create(&service).await;
    let id = view.sandbox.id.as_str();
    // It does not count among those that run.
    let mut handle = service.run(&alice(), id, request("true")).await.unwrap();
    runtime.say(AgentPayload::CommandProgress(progress("cmd-more", None)));
    runtime.say(AgentPayload::CommandProgress(progress(&handle.id, Some(CommandEnd::default()))));
    timeout(PATIENCE, handle.wait()).await.unwrap().unwrap();
    for made_up in ["cmd-made-up", "cmd-more"] {
        let unknown = service.command(&alice(), id, made_up).await.map(|_| ()).unwrap_err();
        assert!(matches!(unknown, SandboxError::NoCommand { .. }), "{unknown}");
    }
}
