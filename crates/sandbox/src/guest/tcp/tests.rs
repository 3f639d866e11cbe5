//! The port as guest agents and other clients see it.

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use workspace_agent_protocol::PROTOCOL_VERSION;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::agent_service_client::AgentServiceClient;
use workspace_agent_protocol::v1::{AgentMessage, RegisterRequest};

use super::*;
use crate::guest::handle::SandboxHandle;
use crate::id::Token;
use crate::sandbox_dir::SandboxDir;

const SANDBOX: &str = "sbx-1";

/// A handler that has one sandbox.
struct OneSandbox {
    handle: Arc<SandboxHandle>,
    registered: Mutex<Vec<String>>,
}

#[tonic::async_trait]
impl GuestHandler for OneSandbox {
    fn sandbox(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        (id == self.handle.id).then(|| self.handle.clone())
    }

    async fn on_registered(&self, handle: &Arc<SandboxHandle>, _: u64, _: RegisterRequest) {
        self.registered.lock().push(handle.id.clone());
    }

    async fn on_message(&self, _: &Arc<SandboxHandle>, _: AgentPayload) {}

    async fn on_disconnected(&self, _: &Arc<SandboxHandle>) {}
}

/// An open port with the data to connect.
struct Fixture {
    address: SocketAddr,
    tls: TlsConnector,
    token: Token,
    handler: Arc<OneSandbox>,
    task: JoinHandle<()>,
}

impl Fixture {
    async fn new() -> Self {
        let pem = Identity::generate_pem().unwrap();
        let identity = Identity::new(pem.as_bytes(), pem.as_bytes(), pem.as_bytes()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let token = Token::new().unwrap();
        let handle = Arc::new(SandboxHandle::new(SANDBOX, SandboxDir::new("/nowhere".into()), &token.hash()));
        handle.is_being_created.store(false, std::sync::atomic::Ordering::SeqCst);
        let handler = Arc::new(OneSandbox { handle, registered: Mutex::default() });
        let port = GuestPort::new(listener, identity, None).unwrap();
        assert_eq!((port.endpoint().port, port.endpoint().trusted.len()), (address.port(), 1));
        let task = port.open(handler.clone());
        Self { address, tls: connector(&pem), token, handler, task }
    }

    /// Connects from that address.
    async fn dial(&self, from: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn channel(&self, from: &str) -> Result<Channel, tonic::transport::Error> {
        let stream = self.dial(from).await;
        let (tls, stream) = (self.tls.clone(), Mutex::new(Some(stream)));
        let connector = tower::service_fn(move |_| {
            let stream = stream.lock().take();
            let tls = tls.clone();
            async move {
                let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
                let name = ServerName::try_from("workspace-server").unwrap();
                Ok::<_, io::Error>(TokioIo::new(tls.connect(name, stream).await?))
            }
        });
        Endpoint::from_static("http://server").connect_with_connector(connector).await
    }

    /// Registers a guest agent from that address, and returns its connection or the error.
    async fn register(&self, from: &str, sandbox: &str, token: &[u8]) -> Result<Channel, Status> {
        let channel = self.channel(from).await.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = RegisterRequest {
            sandbox_id: sandbox.to_owned(),
            token: token.to_vec(),
            generation: PROTOCOL_VERSION,
            ..RegisterRequest::default()
        };
        let first =
            AgentMessage { sandbox_id: sandbox.to_owned(), payload: Some(AgentPayload::Register(request)) };
        let mut client = AgentServiceClient::new(channel.clone());
        let mut messages = client.connect(tokio_stream::once(first)).await?.into_inner();
        messages
            .message()
            .await?
            .map(|_| channel)
            .ok_or_else(|| Status::unavailable("the server sent no response"))
    }
}

fn connector(pem: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Returns true if a connection is closed within that time.
async fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    let mut bytes = Vec::new();
    // Both end of file and an error mean that it is closed.
    timeout(within, stream.read_to_end(&mut bytes)).await.is_ok()
}

#[tokio::test]
async fn agent_with_its_token_is_accepted() {
    let fixture = Fixture::new().await;
    fixture.register("127.0.0.1", SANDBOX, fixture.token.as_bytes()).await.unwrap();
    assert_eq!(*fixture.handler.registered.lock(), [SANDBOX]);
    fixture.task.abort();
    assert!(fixture.task.await.unwrap_err().is_cancelled());
    TcpListener::bind(fixture.address).await.unwrap();
}

#[tokio::test]
async fn too_large_registration_is_refused() {
    let fixture = Fixture::new().await;
    let large = vec![0; crate::guest::listener::MESSAGE_MAX];
    let refused = fixture.register("127.0.0.1", SANDBOX, &large).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let small = &large[..large.len() - 1_000];
    let refused = fixture.register("127.0.0.1", SANDBOX, small).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
}

#[tokio::test]
async fn unknown_sandbox_and_wrong_token_get_the_same_answer() {
    let fixture = Fixture::new().await;
    let other = Token::new().unwrap();
    let mut answers = Vec::new();
    for (sandbox, token) in [(SANDBOX, other.as_bytes()), ("sbx-2", fixture.token.as_bytes()), (SANDBOX, b"")]
    {
        let refused = fixture.register("127.0.0.1", sandbox, token).await.unwrap_err();
        answers.push((refused.code(), refused.message().to_owned()));
    }
    assert_eq!(answers[0].0, Code::Unauthenticated);
    assert!(answers.iter().all(|one| *one == answers[0]), "{answers:?}");
    assert!(fixture.handler.registered.lock().is_empty());
}

#[tokio::test]
async fn connection_without_tls_is_closed() {
    let fixture = Fixture::new().await;
    let mut stream = fixture.dial("127.0.0.1").await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert!(is_closed(&mut stream, Duration::from_secs(2)).await);
}

#[tokio::test]
async fn flooding_address_affects_no_other_and_is_closed_in_time() {
    let fixture = Fixture::new().await;
    let mut idle = Vec::new();
    for _ in 0..PER_ADDRESS_MAX * 4 {
        idle.push(fixture.dial("127.0.0.2").await);
    }
    let refused = fixture.register("127.0.0.2", SANDBOX, fixture.token.as_bytes()).await;
    assert!(refused.is_err(), "it has as many connections as one address may have");
    fixture.register("127.0.0.3", SANDBOX, fixture.token.as_bytes()).await.unwrap();
    let began = Instant::now();
    for stream in &mut idle {
        assert!(is_closed(stream, REGISTER_TIMEOUT + Duration::from_secs(2)).await);
    }
    assert!(began.elapsed() <= REGISTER_TIMEOUT + Duration::from_secs(2));
    fixture.register("127.0.0.2", SANDBOX, fixture.token.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn silent_tls_connection_is_closed_in_time() {
    let fixture = Fixture::new().await;
    let stream = fixture.dial("127.0.0.1").await;
    let name = ServerName::try_from("workspace-server").unwrap();
    let mut stream = fixture.tls.connect(name, stream).await.unwrap();
    let mut bytes = Vec::new();
    let closed = timeout(REGISTER_TIMEOUT + Duration::from_secs(2), stream.read_to_end(&mut bytes)).await;
    assert!(closed.is_ok(), "it is still open");
}

#[tokio::test]
async fn connections_of_a_sandbox_are_limited() {
    let fixture = Fixture::new().await;
    let register = || fixture.register("127.0.0.1", SANDBOX, fixture.token.as_bytes());
    let mut connections = Vec::new();
    for _ in 0..16 {
        connections.push(register().await.unwrap());
    }
    assert_eq!(register().await.unwrap_err().code(), Code::ResourceExhausted);
    connections.clear();
    while register().await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
}
