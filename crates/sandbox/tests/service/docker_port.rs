//! Agents in containers that connect to the server's port over a bridge.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use workspace_sandbox::runtime::{Docker, Network};
use workspace_sandbox::{
    Bytes, GuestPort, Identity, NewSandbox, ReclaimPolicy, SandboxInfo, Service, Settings,
};
use workspace_test_support::stable_port;

use crate::docker;
use crate::escape::assert_no_token;
use crate::files;
use crate::home::{
    TO_THE_END, TestHome, agent_program, alice, base, create, creator, request, run, sh, wait_until,
};
use crate::kind::RuntimeKind;
use crate::restart::{LongWork, wait_for_agent};

pub(crate) fn trials() -> Vec<Trial> {
    if !RuntimeKind::available().contains(&RuntimeKind::Docker) {
        return Vec::new();
    }
    macro_rules! on_docker {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("docker::port::", stringify!($name)), || {
                run(RuntimeKind::Docker, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    on_docker![
        agent_with_a_network_connects_to_the_port,
        agent_reconnects_to_the_next_server,
        agent_refuses_a_server_with_another_certificate,
        sandbox_that_floods_the_port_affects_no_other,
        advertised_address_is_preferred_over_the_gateway,
        files_watches_and_ports_work_over_tls,
        io_worker_reconnects_to_the_next_server,
    ]
}

/// A bridge with a server's port, for as long as a test runs.
struct Bridge {
    /// Name of the docker network.
    network: String,
    /// Certificate and key of the server.
    pem: String,
    port: u16,
}

impl Bridge {
    async fn new(name: &str) -> Self {
        let network = format!("port{}{name}", std::process::id());
        docker::host();
        docker::run(&["network", "create", &network]);
        Self { network, pem: Identity::generate_pem().unwrap(), port: stable_port() }
    }

    async fn listen(&self) -> TcpListener {
        TcpListener::bind(("0.0.0.0", self.port)).await.unwrap()
    }

    async fn start(&self, home: &TestHome) -> Service {
        self.start_as(home, None).await
    }

    /// Starts a service. `advertised` is the host and port that agents connect to; `None` for those that docker finds.
    async fn start_as(&self, home: &TestHome, advertised: Option<(String, u16)>) -> Service {
        let sandboxes = home.path().join("sandboxes");
        let (host, agent) = (docker::host(), agent_program());
        let runtime = Docker::connect(&host, Some(&self.network), &agent, &sandboxes).await.unwrap();
        let mut settings = Settings::new(home.path());
        settings.start_timeout = Duration::from_secs(10);
        let pem = self.pem.as_bytes();
        let identity = Identity::new(pem, pem, pem).unwrap();
        let port = GuestPort::new(self.listen().await, identity, advertised).unwrap();
        let runtime = Arc::new(runtime);
        Service::start_with(settings, home.catalog().await, runtime, Some(port)).await.unwrap()
    }

    fn gateway(&self) -> String {
        let format = "{{(index .IPAM.Config 0).Gateway}}";
        docker::run(&["network", "inspect", "--format", format, &self.network]).trim().to_owned()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let containers =
            docker::run(&["ps", "--all", "--quiet", "--filter", &format!("network={}", self.network)]);
        for container in containers.lines() {
            docker::run(&["rm", "--force", container]);
        }
        docker::run(&["network", "rm", &self.network]);
    }
}

async fn create_with_egress(service: &Service) -> SandboxInfo {
    service
        .create(creator(), NewSandbox { network: Network::Egress { allow: None }, ..base() })
        .await
        .unwrap()
}

/// Returns true if the agent was started with its socket.
fn uses_socket(info: &SandboxInfo) -> bool {
    let words = docker::run(&["inspect", "--format", "{{json .Args}}", &info.sandbox.id]);
    assert!(words.contains("--start"), "{words}");
    words.contains("--socket")
}

async fn agent_with_a_network_connects_to_the_port(home: &TestHome) {
    let bridge = Bridge::new("dials").await;
    let service = bridge.start(home).await;
    let info = create_with_egress(&service).await;
    assert!(!uses_socket(&info) && info.agent_connected);
    let ran = sh(&service, &info, "echo out; echo err >&2; exit 3").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.exit.exit_code), ("out\n", "err\n", 3));
    let much = sh(&service, &info, "head -c 3000000 /dev/zero | tr '\\0' x").await;
    assert_eq!(much.stdout.len(), 3_000_000);
    // Neither the certificate nor an address is visible inside.
    let shown = sh(&service, &info, "cat /proc/1/environ /proc/1/cmdline; ls -A /run/workspace /tmp").await;
    assert!(!shown.stdout.contains(&bridge.gateway()), "{}", shown.stdout);
    assert_no_token(home, &service, &info).await;
    // One without a network cannot connect to the port.
    let alone = create(&service).await;
    assert!(uses_socket(&alone) && alone.agent_connected);
    assert_eq!(sh(&service, &alone, "echo out").await.stdout, "out\n");
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    assert_eq!(sh(&service, &alone, "echo out").await.stdout, "out\n");
}

async fn agent_reconnects_to_the_next_server(home: &TestHome) {
    let bridge = Bridge::new("next").await;
    let service = bridge.start(home).await;
    let info = create_with_egress(&service).await;
    let work = LongWork::begin(&service, &info.sandbox.id).await;
    service.close().await;
    drop(service);
    let service = bridge.start(home).await;
    work.check(&service).await;
}

async fn agent_refuses_a_server_with_another_certificate(home: &TestHome) {
    let bridge = Bridge::new("other").await;
    let service = bridge.start(home).await;
    let info = create_with_egress(&service).await;
    service.close().await;
    drop(service);
    {
        let (listener, other) = (bridge.listen().await, acceptor(&Identity::generate_pem().unwrap()));
        for _ in 0..3 {
            let (stream, _) = listener.accept().await.unwrap();
            let refused = other.accept(stream).await;
            // The agent closes the connection before it has sent anything.
            assert!(refused.unwrap_err().to_string().contains("alert"));
        }
    }
    let service = bridge.start(home).await;
    wait_for_agent(&service, &info.sandbox.id).await;
    assert_eq!(sh(&service, &info, "echo out").await.stdout, "out\n");
}

fn acceptor(pem: &str) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()))
}

async fn sandbox_that_floods_the_port_affects_no_other(home: &TestHome) {
    let bridge = Bridge::new("flood").await;
    let service = bridge.start(home).await;
    let flooding = create_with_egress(&service).await;
    // Each sends nothing, and connects again as soon as it is closed.
    let dial = format!("sleep 99 | while :; do nc {} {}; sleep 0.05; done", bridge.gateway(), bridge.port);
    let flood = format!("for i in $(seq 30); do {dial} & done; wait");
    service.run(&alice(), &flooding.sandbox.id, request(&flood)).await.unwrap();
    wait_until("it floods", async || {
        let open = sh(&service, &flooding, "netstat -tn | grep -c ESTABLISHED").await.stdout;
        open.trim().parse::<u32>().unwrap() > 8
    })
    .await;
    let other = create_with_egress(&service).await;
    assert_eq!(sh(&service, &other, "echo out").await.stdout, "out\n");
    assert_eq!(sh(&service, &flooding, "echo out").await.stdout, "out\n", "it was there before");
}

async fn advertised_address_is_preferred_over_the_gateway(home: &TestHome) {
    let bridge = Bridge::new("told").await;
    let advertised = (bridge.gateway(), bridge.port);
    let service = bridge.start_as(home, Some(advertised)).await;
    let info = create_with_egress(&service).await;
    assert_eq!(sh(&service, &info, "echo out").await.stdout, "out\n");
    service.close().await;
    drop(service);
    let unknown = ("nobody.invalid".to_owned(), bridge.port);
    let service = bridge.start_as(home, Some(unknown)).await;
    let new = NewSandbox { network: Network::Egress { allow: None }, ..base() };
    let refused = service.create(creator(), new.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("GRPC_ADVERTISE") && refused.contains("nobody.invalid"), "{refused}");
    service.close().await;
    drop(service);
    // Nothing listens there, and the error has the agent's log.
    let service = bridge.start_as(home, Some((bridge.gateway(), 9))).await;
    let refused = service.create(creator(), new).await.unwrap_err().to_string();
    assert!(refused.contains("did not connect") && refused.contains("Connection refused"), "{refused}");
}

/// The I/O worker connects to the port like its agent. Each check has a sandbox of its own.
async fn files_watches_and_ports_work_over_tls(home: &TestHome) {
    let bridge = Bridge::new("files").await;
    let service = bridge.start(home).await;
    macro_rules! check {
        ($($check:ident),* $(,)?) => {
            $(
                let info = create_with_egress(&service).await;
                assert!(!uses_socket(&info));
                files::$check(&service, &info).await;
                service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
            )*
        };
    }
    check![check_entries, check_content, check_conditions, check_batch, check_tree, check_watch, check_port,];
}

async fn io_worker_reconnects_to_the_next_server(home: &TestHome) {
    let bridge = Bridge::new("worker").await;
    let service = bridge.start(home).await;
    let info = create_with_egress(&service).await;
    let (id, file) = (info.sandbox.id.as_str(), files::new_file("/workspace/file"));
    let content = Bytes::from(files::noise(300_000));
    service.write_file(&alice(), id, &file, content.clone()).await.unwrap();
    service.close().await;
    drop(service);
    let service = bridge.start(home).await;
    wait_for_agent(&service, id).await;
    let mut read = service.read_file(&alice(), id, &file.path, 0, TO_THE_END).await.unwrap();
    let mut found = Vec::new();
    while let Some(piece) = read.next().await.unwrap() {
        found.extend_from_slice(&piece);
    }
    assert!(found == content, "{} bytes", found.len());
}
