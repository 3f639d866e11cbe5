//! Guest agents that run nothing, and send the messages of a test.

use std::collections::HashMap;
use std::io;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use workspace_agent_protocol::PROTOCOL_VERSION;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::agent_service_client::AgentServiceClient;
use workspace_agent_protocol::v1::{AgentMessage, CommandEnd, CommandProgress, RegisterRequest};
use workspace_sandbox::runtime::SandboxSpec;

/// The agents of a runtime.
#[derive(Debug, Default)]
pub(crate) struct ScriptedAgents {
    /// Messages to the server, by sandbox.
    messages: Mutex<HashMap<String, UnboundedSender<AgentMessage>>>,
}

/// Returns a report about the command with this id; `end` is `None` while it runs.
pub(crate) fn progress(id: &str, end: Option<CommandEnd>) -> CommandProgress {
    CommandProgress { command_id: id.to_owned(), end, ..CommandProgress::default() }
}

impl ScriptedAgents {
    /// Connects the agent of a sandbox, which registers with these commands.
    pub(crate) fn connect(&self, start: &SandboxSpec<'_>, commands: Vec<CommandProgress>) {
        let (messages, queued) = unbounded_channel();
        self.messages.lock().insert(start.id.to_owned(), messages);
        let register = RegisterRequest {
            sandbox_id: start.id.to_owned(),
            token: start.token.to_vec(),
            generation: PROTOCOL_VERSION,
            commands,
            ..RegisterRequest::default()
        };
        self.send(start.id, AgentPayload::Register(register));
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
    }

    /// Sends a message of the agent of a sandbox.
    pub(crate) fn send(&self, sandbox: &str, payload: AgentPayload) {
        let message = AgentMessage { payload: Some(payload), ..AgentMessage::default() };
        self.messages.lock()[sandbox].send(message).unwrap();
    }
}
