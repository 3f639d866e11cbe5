//! An agent that dials over TCP with TLS.

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
use workspace_agent_protocol::handover::Handover;
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::v1::agent_service_server::AgentServiceServer;

use crate::given::{START, give};
use crate::plain::{Agent, assert_soon, command};
use crate::server::{Bench, Guest, SANDBOX, Service, TOKEN, home};

const PATIENCE: Duration = Duration::from_secs(30);

/// These tests.
pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_guest_dials_over_the_network_and_finds_a_server_that_was_away,
        a_server_is_known_by_who_vouches_for_it,
        a_server_that_is_another_or_has_another_name_never_hears_the_token,
        who_speaks_no_tls_never_hears_the_token,
        without_a_socket_a_token_alone_is_not_enough,
    ]
}

/// A certificate and its key.
struct Pair {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Pair {
    fn of(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
        Self { certificate: certificate.der().clone(), key }
    }

    /// One for that name, and who vouches for it.
    fn vouched(name: &str) -> (Self, CertificateDer<'static>) {
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

    fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(vec![self.certificate.clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An agent that was given where to dial, under which name, and whom to trust.
fn start(home: &Path, address: SocketAddr, name: &str, trusted: &CertificateDer<'_>) -> Agent {
    let given = Handover {
        token: TOKEN.to_vec(),
        // The first is nobody's.
        addresses: vec!["127.0.0.1:9".to_owned(), address.to_string()],
        name: name.to_owned(),
        trusted: vec![trusted.to_vec()],
    };
    let giving = give(home, &given.to_bytes(), true);
    let agent = agent(home).spawn().unwrap();
    giving.join().unwrap();
    Agent(agent)
}

fn agent(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_workspace-agent"));
    command.args(["--sandbox", SANDBOX, "--start"]).arg(home.join(START));
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// Listens to guests at that address over TLS.
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

/// A guest that has dialled a server with that certificate.
fn bench(pair: Pair, name: &'static str, trusted: &CertificateDer<'static>) -> Bench {
    let (listener, address) = listen();
    drop(listener);
    let serve = Box::new(move |service: &Service| serve(service, address, pair.acceptor()));
    let start = |home: &Path| -> Box<dyn Guest + Send> { Box::new(start(home, address, name, trusted)) };
    let bench = Bench::of(home(), serve, start);
    bench.wait_for_guest(0);
    bench
}

fn a_guest_dials_over_the_network_and_finds_a_server_that_was_away() {
    // Neither the name nor a date of a certificate matters that was given itself.
    let pair = Pair::of("server");
    let trusted = pair.certificate.clone();
    let mut bench = bench(pair, "another.example", &trusted);
    let ended = bench.run(command("echo out; tr '\\0' '\\n' </proc/$PPID/cmdline; env; exit 3"));
    assert_eq!(ended.exit_code, 3);
    let said = String::from_utf8_lossy(&ended.of(Stream::Stdout)).into_owned();
    assert!(said.starts_with("out\n") && !said.contains(&bench.token_text()), "{said}");
    let id = bench.begin(command("for i in $(seq 1 20); do echo $i; sleep 0.05; done"));
    // An order that has not left the server ends with it.
    assert_soon("it began", || bench.progress(&id).is_some_and(|progress| progress.written > 0));
    bench.restart_server(Duration::from_millis(200));
    let expected: String = (1..=20).map(|n| format!("{n}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&bench.wait(&id).of(Stream::Stdout)), expected);
    assert_eq!(bench.run(command("echo again")).of(Stream::Stdout), b"again\n");
}

fn a_server_is_known_by_who_vouches_for_it() {
    let (pair, trusted) = Pair::vouched("server.example");
    let bench = bench(pair, "server.example", &trusted);
    assert_eq!(bench.run(command("echo out")).of(Stream::Stdout), b"out\n");
}

/// What a server with that certificate hears from a guest that looks for another.
fn assert_unheard(pair: &Pair, name: &str, trusted: &CertificateDer<'_>) {
    let (listener, address) = listen();
    let home = home();
    let _agent = start(home.path(), address, name, trusted);
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        // It tries again, and is no less careful then.
        for _ in 0..3 {
            let (stream, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
            let refused = tokio::time::timeout(PATIENCE, pair.acceptor().accept(stream)).await.unwrap();
            let refused = refused.expect_err("the guest trusts a server that is another").to_string();
            assert!(refused.contains("alert"), "{refused}");
        }
    });
}

fn a_server_that_is_another_or_has_another_name_never_hears_the_token() {
    let (right, other) = (Pair::of("server"), Pair::of("server"));
    assert_unheard(&other, "server", &right.certificate);
    let (vouched, trusted) = Pair::vouched("server.example");
    assert_unheard(&vouched, "another.example", &trusted);
}

fn who_speaks_no_tls_never_hears_the_token() {
    let (listener, address) = listen();
    let home = home();
    let pair = Pair::of("server");
    let _agent = start(home.path(), address, "server", &pair.certificate);
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert!(!heard.is_empty() && !heard.windows(TOKEN.len()).any(|bytes| bytes == TOKEN));
    }
}

fn without_a_socket_a_token_alone_is_not_enough() {
    let home = home();
    let giving = give(home.path(), TOKEN, true);
    let agent = agent(home.path()).stderr(Stdio::piped()).spawn().unwrap();
    giving.join().unwrap();
    assert_eq!(agent.wait_with_output().unwrap().status.code(), Some(1));
}
