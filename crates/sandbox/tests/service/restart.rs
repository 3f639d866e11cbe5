//! Restarts of the service.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::time::Duration;

use libtest_mimic::Trial;
use rustix::process::Signal;
use workspace_catalog::{CommandState, State};
use workspace_sandbox::{OutputPiece, ReclaimPolicy, SandboxError, Scope, Service, Size, TerminalRequest};

use crate::home::{ANY_TAG, TIMEOUT, TestHome, alice, create, read, request, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        sandboxes_keep_running_without_a_server,
        command_that_ended_without_a_server_is_reported,
        command_waits_for_the_agent_after_a_restart,
        sandbox_is_in_error_until_its_agent_reconnects,
        sandbox_that_died_without_a_server_is_stopped,
        orphans_are_removed,
        interrupted_removal_is_continued,
    ]
}

/// Closes one service and starts the next.
async fn restart(home: &TestHome, service: Service) -> Service {
    service.close().await;
    drop(service);
    home.start().await
}

pub(crate) async fn wait_for_agent(service: &Service, id: &str) {
    wait_until("the guest is back", async || service.get(&alice(), id).await.unwrap().agent_connected).await;
}

/// A command that prints numbers for two seconds, and an open terminal with a variable in its shell.
pub(crate) struct LongWork {
    sandbox: String,
    command: String,
    terminal: String,
}

impl LongWork {
    pub(crate) async fn begin(service: &Service, sandbox: &str) -> Self {
        let line = "for i in $(seq 1 40); do echo $i; sleep 0.05; done";
        let command = service.run(&alice(), sandbox, request(line)).await.unwrap();
        let size = Size { cols: 80, rows: 24 };
        let request =
            TerminalRequest { size, shell: None, command: None, cwd: None, envs: [].into(), user: None };
        let terminal = service.open_terminal(&alice(), sandbox, request).await.unwrap();
        service.write_terminal(&alice(), sandbox, &terminal.id, b"x=kept\n".to_vec()).await.unwrap();
        command.output(0).await.unwrap().next().await.unwrap();
        Self { sandbox: sandbox.to_owned(), command: command.id, terminal: terminal.id }
    }

    /// Checks, with the next server, that the command lost no output and that the terminal has the same
    /// shell.
    pub(crate) async fn check(&self, service: &Service) {
        let (id, terminal) = (&self.sandbox, &self.terminal);
        let again = service.command(&alice(), id, &self.command).await.unwrap();
        let expected: String = (1..=40).map(|n| format!("{n}\n")).collect();
        let ran = read(&again, 0).await;
        assert_eq!((ran.stdout, ran.exit.exit_code), (expected, 0));
        wait_for_agent(service, id).await;
        assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Running);
        service.write_terminal(&alice(), id, terminal, b"echo is-$x\n".to_vec()).await.unwrap();
        let mut output = service.terminal(&alice(), id, terminal).await.unwrap().output(0).await.unwrap();
        let mut shown = String::new();
        while !shown.contains("is-kept") {
            for piece in output.next().await.unwrap().unwrap() {
                if let OutputPiece::Data { data, .. } = piece {
                    shown.push_str(&String::from_utf8_lossy(&data));
                }
            }
        }
    }
}

async fn sandboxes_keep_running_without_a_server(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let work = LongWork::begin(&service, &info.sandbox.id).await;
    let service = restart(home, service).await;
    work.check(&service).await;
    assert_eq!(sh(&service, &info, "echo new").await.stdout, "new\n");
}

async fn command_that_ended_without_a_server_is_reported(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.clone();
    let handle = service.run(&alice(), &id, request("sleep 0.3; echo late; exit 7")).await.unwrap();
    service.close().await;
    drop(service);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let service = home.start().await;
    let again = service.command(&alice(), &id, &handle.id).await.unwrap();
    let ran = read(&again, 0).await;
    assert_eq!((ran.stdout.as_str(), ran.exit.exit_code), ("late\n", 7));
    wait_until("it is written down", async || {
        let commands = service.commands(&alice(), &id, ANY_TAG, 10).await.unwrap();
        commands[0].state == CommandState::Exited && commands[0].exit_code == Some(7)
    })
    .await;
}

/// The agent is stopped, so that it cannot reconnect before the command is requested.
async fn command_waits_for_the_agent_after_a_restart(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let process = home.process(&info.sandbox.id);
    process.signal(Signal::STOP);
    let service = restart(home, service).await;
    assert!(!service.get(&alice(), &info.sandbox.id).await.unwrap().agent_connected);
    // `join!` polls the request first, so it waits when the agent continues.
    let (ran, ()) = tokio::join!(sh(&service, &info, "echo back"), async { process.signal(Signal::CONT) });
    assert_eq!(ran.stdout, "back\n");
}

async fn sandbox_is_in_error_until_its_agent_reconnects(home: &TestHome) {
    let service = home.start_with(|settings| settings.agent_grace = Duration::from_millis(300)).await;
    let info = create(&service).await;
    let id = info.sandbox.id.clone();
    let process = home.process(&id);
    process.signal(Signal::STOP);
    service.close().await;
    drop(service);
    let service = home.start_with(|settings| settings.agent_grace = Duration::from_millis(300)).await;
    let info = service.get(&alice(), &id).await.unwrap();
    assert_eq!((info.sandbox.state, info.agent_connected), (State::Running, false));
    let refused = service.run(&alice(), &id, request("true")).await.unwrap_err();
    assert!(matches!(refused, SandboxError::AgentAway { .. }), "{refused}");
    wait_until("it is given up", async || {
        service.get(&alice(), &id).await.unwrap().sandbox.state == State::Error
    })
    .await;
    process.signal(Signal::CONT);
    wait_until("it is back", async || {
        service.get(&alice(), &id).await.unwrap().sandbox.state == State::Running
    })
    .await;
    assert_eq!(sh(&service, &info, "echo back").await.stdout, "back\n");
}

async fn sandbox_that_died_without_a_server_is_stopped(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.clone();
    let handle = service.run(&alice(), &id, request("echo begun; sleep 100")).await.unwrap();
    handle.output(0).await.unwrap().next().await.unwrap();
    service.close().await;
    drop(service);
    let process = home.process(&id);
    process.signal(Signal::KILL);
    wait_until("it ended", async || !process.is_running()).await;
    let service = home.start().await;
    let sandbox = service.get(&alice(), &id).await.unwrap().sandbox;
    assert_eq!(sandbox.state, State::Stopped);
    assert_eq!(sandbox.state_reason.as_deref(), Some("its processes exited while the server was down"));
    let again = service.command(&alice(), &id, &handle.id).await.unwrap();
    let ran = read(&again, 0).await;
    assert!(ran.stdout == "begun\n" && ran.exit.failure_reason.is_some());
    service.remove(&alice(), &id, ReclaimPolicy::Delete).await.unwrap();
}

async fn orphans_are_removed(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.clone();
    service.close().await;
    drop(service);
    home.catalog().await.sandboxes().delete(&id, &[]).await.unwrap();
    let process = home.process(&id);
    let service = home.start().await;
    assert!(!process.is_running());
    assert!(!home.path().join("sandboxes").join(&id).exists() && !home.workspace(&info).exists());
    // Later ones are found by a garbage collection.
    std::fs::create_dir_all(home.path().join("sandboxes/sbx-x/output")).unwrap();
    std::fs::create_dir_all(home.path().join("workspaces/sbx-x")).unwrap();
    std::fs::write(home.path().join("workspaces/sbx-x/file"), "x".repeat(10_000)).unwrap();
    let collected = service.collect().await.unwrap();
    assert_eq!((collected.sandboxes, collected.workspaces), (1, 1));
    assert!(collected.freed >= 10_000);
}

async fn interrupted_removal_is_continued(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.clone();
    service.close().await;
    drop(service);
    let catalog = home.catalog().await;
    let change =
        workspace_catalog::Change { state: Some(State::Stopping), ..workspace_catalog::Change::default() };
    catalog.sandboxes().change(&id, info.sandbox.version, change, &[]).await.unwrap();
    let service = home.start().await;
    assert!(matches!(service.get(&Scope::All, &id).await, Err(SandboxError::NotFound { .. })));
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(!home.path().join("sandboxes").join(&id).exists());
}
