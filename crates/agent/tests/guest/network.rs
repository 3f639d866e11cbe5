//! Tests of an agent that connects over TCP with TLS.
//!
//! `start_parameters::send_parameters` passes the addresses and certificates to the agent, and
//! `TestServer::start_custom` starts a custom server and guest. The *home* of an agent is its directory, with `output`
//! and `sockets`.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_stream::wrappers::ReceiverStream;
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::start_parameters::StartParameters;
use workspace_agent_protocol::v1::agent_service_server::AgentServiceServer;

use crate::plain::{Agent, assert_soon, command};
use crate::server::{Guest, SANDBOX, Service, TOKEN, TestServer, home};
use crate::start_parameters::{START, send_parameters};

const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        agent_reconnects_over_tls,
        server_signed_by_a_trusted_ca_is_accepted,
        untrusted_server_never_receives_the_token,
        plaintext_server_never_receives_the_token,
        token_without_addresses_is_rejected,
    ]
}

/// Certificate with its key.
struct Pair {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Pair {
    /// Returns a new self-signed certificate for a name.
    fn of(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
        Self { certificate: certificate.der().clone(), key }
    }

    /// Returns a certificate for a name, and that of its CA.
    fn signed_by_ca(name: &str) -> (Self, CertificateDer<'static>) {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = KeyPair::generate().unwrap();
        let trusted = params.self_signed(&authority).unwrap().der().clone();
        let issuer = Issuer::new(params, authority);
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (Self { certificate: certificate.der().clone(), key }, trusted)
    }

    /// Returns the server side of TLS with this certificate.
    fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(vec![self.certificate.clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Listens on a free port of the loopback interface. Returns the listener and its address.
fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Starts an agent in the directory `home`, with the address, name and trusted certificate of a server.
fn start(home: &Path, address: SocketAddr, name: &str, trusted: &CertificateDer<'_>) -> Agent {
    let parameters = StartParameters {
        token: TOKEN.to_vec(),
        // Nothing listens on the first address.
        addresses: vec!["127.0.0.1:9".to_owned(), address.to_string()],
        server_name: name.to_owned(),
        trusted_certificates: vec![trusted.to_vec()],
    };
    let sending = send_parameters(home, &parameters.to_bytes());
    let agent = agent(home).spawn().unwrap();
    sending.join().unwrap();
    Agent(agent)
}

/// Returns the command line of an agent that receives its parameters on the socket [`START`] in `home`.
fn agent(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_workspace-agent"));
    command.args(["--sandbox", SANDBOX, "--start"]).arg(home.join(START));
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// Starts a server for guests at an address, over TLS. It stops when the runtime is dropped.
fn serve(service: &Service, address: SocketAddr, tls: TlsAcceptor) -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap();
    let (sender, receiver) = mpsc::channel(1);
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(sender.send(tls.accept(stream).await).await);
        }
    });
    let router = tonic::transport::Server::builder().add_service(AgentServiceServer::new(service.clone()));
    runtime.spawn(router.serve_with_incoming(ReceiverStream::new(receiver)));
    runtime
}

/// Starts a server with a certificate, and an agent that expects `name` and `trusted`. Waits until it is connected.
fn server(pair: Pair, name: &'static str, trusted: &CertificateDer<'static>) -> TestServer {
    let (listener, address) = listen();
    drop(listener);
    let serve = Box::new(move |service: &Service| serve(service, address, pair.acceptor()));
    let start = |home: &Path| -> Box<dyn Guest + Send> { Box::new(start(home, address, name, trusted)) };
    let server = TestServer::start_custom(home(), serve, start);
    server.wait_for_connections(1);
    server
}

fn agent_reconnects_over_tls() {
    // Name and dates of a pinned certificate do not matter.
    let pair = Pair::of("server");
    let trusted = pair.certificate.clone();
    let mut server = server(pair, "another.example", &trusted);
    let result = server.run(command("echo out; tr '\\0' '\\n' </proc/$PPID/cmdline; env; exit 3"));
    assert_eq!(result.exit_code, 3);
    let output_text = String::from_utf8_lossy(&result.output(Stream::Stdout)).into_owned();
    assert!(output_text.starts_with("out\n") && !output_text.contains(&server.token_text()), "{output_text}");
    let id = server.begin(command("for i in $(seq 1 20); do echo $i; sleep 0.05; done"));
    // A request that is still queued in the server is lost with it.
    assert_soon("the command never started", || {
        server.progress(&id).is_some_and(|progress| progress.written > 0)
    });
    server.restart_server(Duration::from_millis(200));
    let expected: String = (1..=20).map(|n| format!("{n}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&server.wait(&id).output(Stream::Stdout)), expected);
    assert_eq!(server.run(command("echo again")).output(Stream::Stdout), b"again\n");
}

fn server_signed_by_a_trusted_ca_is_accepted() {
    let (pair, trusted) = Pair::signed_by_ca("server.example");
    let server = server(pair, "server.example", &trusted);
    assert_eq!(server.run(command("echo out")).output(Stream::Stdout), b"out\n");
}

/// Checks that a guest which expects another server rejects this one during the handshake.
fn assert_rejects_server(pair: &Pair, name: &str, trusted: &CertificateDer<'_>) {
    let (listener, address) = listen();
    let home = home();
    let _agent = start(home.path(), address, name, trusted);
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        // Later attempts are verified just as strictly.
        for _ in 0..3 {
            let (stream, _) = tokio::time::timeout(TIMEOUT, listener.accept()).await.unwrap().unwrap();
            let refused = tokio::time::timeout(TIMEOUT, pair.acceptor().accept(stream)).await.unwrap();
            let refused = refused.expect_err("the guest trusts another server").to_string();
            assert!(refused.contains("alert"), "{refused}");
        }
    });
}

fn untrusted_server_never_receives_the_token() {
    let (right, other) = (Pair::of("server"), Pair::of("server"));
    assert_rejects_server(&other, "server", &right.certificate);
    let (signed_by_ca, trusted) = Pair::signed_by_ca("server.example");
    assert_rejects_server(&signed_by_ca, "another.example", &trusted);
}

fn plaintext_server_never_receives_the_token() {
    let (listener, address) = listen();
    let home = home();
    let pair = Pair::of("server");
    let _agent = start(home.path(), address, "server", &pair.certificate);
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(!received.is_empty() && !received.windows(TOKEN.len()).any(|bytes| bytes == TOKEN));
    }
}

fn token_without_addresses_is_rejected() {
    let home = home();
    // The parameters are a token alone, which is enough only for an agent that connects to a Unix socket.
    let sending = send_parameters(home.path(), TOKEN);
    let agent = agent(home.path()).stderr(Stdio::piped()).spawn().unwrap();
    sending.join().unwrap();
    assert_eq!(agent.wait_with_output().unwrap().status.code(), Some(1));
}
