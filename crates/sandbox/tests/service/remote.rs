//! Agents that share no files with the server: their output is sent over the server's TCP port.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `read` returns the result of a command. `FakeRuntime` runs nothing; each test defines its
//! behaviour.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libtest_mimic::Trial;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use workspace_agent_protocol::start_parameters::StartParameters;
use workspace_sandbox::runtime::{RuntimeError, SandboxSpec, StartResult};
use workspace_sandbox::{
    GuestPort, Identity, OutputPiece, ReclaimPolicy, RunRequest, SandboxInfo, Service, Settings, Size,
    TerminalRequest,
};
use workspace_test_support::stable_port;

use crate::fake_runtime::{Behaviour, FakeRuntime};
use crate::home::{TestHome, agent_program, alice, create, read, request, run, wait_until};
use crate::kind::RuntimeKind;

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! remote {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("remote::", stringify!($name)), || {
                run(RuntimeKind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    remote![
        output_is_sent_over_the_connection,
        no_output_is_lost_without_a_server,
        terminal_works_over_the_connection,
    ]
}

/// Starts agents as plain processes that know the server's address and none of its files.
#[derive(Debug)]
struct RemoteAgents {
    /// Start parameters of all agents, without a token.
    parameters: StartParameters,
    directory: PathBuf,
    /// Processes of the agents by sandbox.
    agents: Mutex<HashMap<String, Child>>,
}

impl RemoteAgents {
    fn end_all(&self) {
        for (_, mut agent) in self.agents.lock().drain() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

impl Drop for RemoteAgents {
    fn drop(&mut self) {
        self.end_all();
    }
}

#[async_trait]
impl Behaviour for RemoteAgents {
    async fn start(&self, start: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        let parameters = StartParameters { token: start.token.to_vec(), ..self.parameters.clone() };
        let file = self.directory.join(format!("{}.parameters", start.id));
        std::fs::write(&file, parameters.to_bytes()).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" --sandbox \"$1\" --token-fd 3 3< \"$2\""]);
        command.arg(agent_program()).arg(start.id).arg(file);
        command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).stderr(Stdio::null());
        let agent = command.spawn().unwrap();
        self.agents.lock().insert(start.id.to_owned(), agent);
        Ok(StartResult::default())
    }

    fn is_running(&self, id: &str) -> bool {
        let mut agents = self.agents.lock();
        agents.get_mut(id).is_some_and(|agent| agent.try_wait().unwrap().is_none())
    }

    async fn wait_for_exit(&self, id: &str) {
        while self.is_running(id) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn kill(&self, id: &str) {
        if let Some(mut agent) = self.agents.lock().remove(id) {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// A port with servers that start and stop, and the agents that connect to it.
struct Fixture {
    runtime: Arc<FakeRuntime<RemoteAgents>>,
    /// Certificate and key of the server.
    pem: String,
    /// Port of the servers.
    port: u16,
}

impl Fixture {
    async fn new(home: &TestHome) -> Self {
        let pem = Identity::generate_pem().unwrap();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], stable_port()));
        let trusted = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
        let parameters = StartParameters {
            addresses: vec![address.to_string()],
            server_name: "server".to_owned(),
            trusted_certificates: vec![trusted],
            ..StartParameters::default()
        };
        let (directory, agents) = (home.path().to_owned(), Mutex::default());
        let runtime = Arc::new(FakeRuntime(RemoteAgents { parameters, directory, agents }));
        Self { runtime, pem, port: address.port() }
    }

    async fn start(&self, home: &TestHome) -> Service {
        let mut settings = Settings::new(home.path());
        settings.max_pool_size = 0;
        let pem = self.pem.as_bytes();
        let identity = Identity::new(pem, pem, pem).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        let port = GuestPort::new(listener, identity, None).unwrap();
        let (catalog, runtime) = (home.catalog().await, self.runtime.clone());
        Service::start_with(settings, catalog, runtime, Some(port)).await.unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.runtime.end_all();
    }
}

fn in_tmp(command: &str) -> RunRequest {
    RunRequest { cwd: Some("/tmp".to_owned()), ..request(command) }
}

fn numbers(most: u32) -> String {
    (1..=most).map(|n| format!("{n}\n")).collect()
}

async fn wait_until_connected(service: &Service, info: &SandboxInfo) {
    let id = &info.sandbox.id;
    wait_until("the agent is connected", async || service.get(&alice(), id).await.unwrap().agent_connected)
        .await;
}

async fn output_is_sent_over_the_connection(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    let service = fixture.start(home).await;
    let info = create(&service).await;
    let run = async |command: &str| {
        read(&service.run(&alice(), &info.sandbox.id, in_tmp(command)).await.unwrap(), 0).await
    };
    let ran = run("echo out; echo err >&2; exit 3").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.exit.exit_code), ("out\n", "err\n", 3));
    let ran = run("seq 1 500000").await;
    assert_eq!((ran.stdout == numbers(500_000), ran.gaps), (true, Vec::new()));
    let quiet = service.run(&alice(), &info.sandbox.id, in_tmp("true")).await.unwrap();
    assert_eq!(read(&quiet, 0).await.exit.exit_code, 0);
    // From any offset, when it has ended and the agent has forgotten it.
    let handle = service.run(&alice(), &info.sandbox.id, in_tmp("seq 1 100")).await.unwrap();
    read(&handle, 0).await;
    let again = service.command(&alice(), &info.sandbox.id, &handle.id).await.unwrap();
    assert_eq!(read(&again, 10).await.stdout, numbers(100)[10..]);
    let short = RunRequest { timeout: Some(Duration::from_millis(200)), ..in_tmp("echo begun; sleep 100") };
    let slow = service.run(&alice(), &info.sandbox.id, short).await.unwrap();
    let ran = read(&slow, 0).await;
    assert!(ran.stdout == "begun\n" && ran.exit.timed_out);
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
}

async fn no_output_is_lost_without_a_server(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    let mut service = fixture.start(home).await;
    let info = create(&service).await;
    let id = info.sandbox.id.clone();
    let slow = service.run(&alice(), &id, in_tmp("for i in $(seq 1 60); do echo $i; sleep 0.05; done")).await;
    // Far more than the agent buffers: it waits for the server.
    let much = service.run(&alice(), &id, in_tmp("sleep 0.2; seq 1 1000000; echo end >&2")).await;
    let (slow, much) = (slow.unwrap().id, much.unwrap().id);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        service.close().await;
        drop(service);
        tokio::time::sleep(Duration::from_millis(300)).await;
        service = fixture.start(home).await;
        wait_until_connected(&service, &info).await;
    }
    let all = async |id: &str| {
        let handle = service.command(&alice(), &info.sandbox.id, id).await.unwrap();
        read(&handle, 0).await
    };
    let ran = all(&slow).await;
    assert_eq!((ran.stdout, ran.gaps, ran.exit.exit_code), (numbers(60), Vec::new(), 0));
    let ran = all(&much).await;
    assert_eq!(
        (ran.stdout == numbers(1_000_000), ran.stderr.as_str(), ran.gaps),
        (true, "end\n", Vec::new())
    );
}

async fn terminal_works_over_the_connection(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    let service = fixture.start(home).await;
    let info = create(&service).await;
    let size = Size { cols: 80, rows: 24 };
    let (shell, cwd) = (Some("/bin/sh".to_owned()), Some("/tmp".to_owned()));
    let request = TerminalRequest { size, shell, command: None, cwd, envs: [].into(), user: None };
    let terminal = service.open_terminal(&alice(), &info.sandbox.id, request).await.unwrap();
    let typed = b"echo is-$((40+2)); exit 3\n".to_vec();
    service.write_terminal(&alice(), &info.sandbox.id, &terminal.id, typed).await.unwrap();
    let mut output = terminal.output(0).await.unwrap();
    let (mut shown, mut code) = (String::new(), None);
    while let Some(pieces) = output.next().await.unwrap() {
        for piece in pieces {
            match piece {
                OutputPiece::Data { data, .. } => shown.push_str(&String::from_utf8_lossy(&data)),
                OutputPiece::Exit(exit) => code = Some(exit.exit_code),
                OutputPiece::Gap { .. } => panic!("a gap behind {shown:?}"),
            }
        }
    }
    assert!(shown.contains("is-42") && code == Some(3), "{shown:?} {code:?}");
}
