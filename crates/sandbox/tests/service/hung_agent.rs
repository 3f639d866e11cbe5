//! Guest agents that do not answer.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::time::Duration;

use libtest_mimic::Trial;
use rustix::process::Signal;
use workspace_sandbox::{AfterInput, ReclaimPolicy, RunRequest, SandboxError};

use crate::home::{ANY_TAG, TIMEOUT, TestHome, alice, create, request, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        hung_agent_does_not_block_clients,
        sandbox_with_a_hung_agent_can_be_removed,
        command_that_stops_its_supervisor_times_out,
        ended_command_is_ended_even_if_the_agent_lists_no_processes,
    ]
}

async fn hung_agent_does_not_block_clients(home: &TestHome) {
    let service = home.start_with(|settings| settings.command_grace = Duration::from_millis(500)).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let sleeping = RunRequest { timeout: Some(Duration::from_secs(1)), ..request("sleep 100") };
    let guest = home.process(id);
    guest.signal(Signal::STOP);
    let mut handle = service.run(&alice(), id, sleeping).await.unwrap();
    let lost = |error: &SandboxError| matches!(error, SandboxError::AgentLost { .. });
    let mut output = handle.output(0).await.unwrap();
    let read = tokio::time::timeout(TIMEOUT, output.next()).await.unwrap().unwrap_err();
    assert!(lost(&read), "{read}");
    let waited = tokio::time::timeout(TIMEOUT, handle.wait()).await.unwrap().unwrap_err();
    assert!(lost(&waited), "{waited}");
    let (command, data) = (handle.id.clone(), b"x".to_vec());
    let bounded = async {
        // Each of these is refused or queued; none waits for the agent without a limit.
        drop(service.kill(&alice(), id, &command, 15).await);
        drop(service.input(&alice(), id, &command, data, AfterInput::Close).await);
        drop(service.stats(&alice(), id).await);
        service.commands(&alice(), id, ANY_TAG, 10).await.unwrap();
        service.logs(&alice(), id, 10, None, None).await.unwrap();
    };
    tokio::time::timeout(TIMEOUT, bounded).await.unwrap();
    guest.signal(Signal::CONT);
    // An agent that continues reports the outcome.
    wait_until("it works again", async || sh(&service, &info, "echo on").await.stdout == "on\n").await;
    wait_until("the command has ended", async || {
        let handle = service.command(&alice(), id, &handle.id).await.unwrap();
        let mut handle = handle;
        handle.wait().await.is_ok_and(|end| end.timed_out || end.exit_code != 0)
    })
    .await;
}

async fn sandbox_with_a_hung_agent_can_be_removed(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let guest = home.process(id);
    guest.signal(Signal::STOP);
    let mut handle = service.run(&alice(), id, request("sleep 100")).await.unwrap();
    let waiting = tokio::spawn(async move { handle.wait().await });
    tokio::time::timeout(TIMEOUT, service.remove(&alice(), id, ReclaimPolicy::Delete))
        .await
        .unwrap()
        .unwrap();
    let end = tokio::time::timeout(TIMEOUT, waiting).await.unwrap().unwrap().unwrap();
    assert!(end.failure_reason.is_some(), "{end:?}");
    assert!(!guest.is_running());
}

/// The supervisor of the command is stopped as well.
async fn command_that_stops_its_supervisor_times_out(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let stop = RunRequest { timeout: Some(Duration::from_secs(1)), ..request("kill -STOP -1; sleep 100") };
    let mut handle = service.run(&alice(), &info.sandbox.id, stop).await.unwrap();
    let end = tokio::time::timeout(TIMEOUT, handle.wait()).await.unwrap().unwrap();
    assert!(end.timed_out, "{end:?}");
    assert_eq!(sh(&service, &info, "echo works").await.stdout, "works\n");
}

/// Like an older agent, a stopped one does not report what a command left behind.
async fn ended_command_is_ended_even_if_the_agent_lists_no_processes(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let mut handle = service.run(&alice(), id, request("true")).await.unwrap();
    tokio::time::timeout(TIMEOUT, handle.wait()).await.unwrap().unwrap();
    // Its supervisor may exist a moment longer.
    let is_alone = async || service.processes(&alice(), id).await.is_ok_and(|left| left.is_empty());
    wait_until("nothing is left", is_alone).await;
    let kill = async || {
        let answer = service.kill(&alice(), id, &handle.id, 15).await;
        assert!(matches!(answer, Err(SandboxError::CommandEnded { .. })), "{answer:?}");
    };
    kill().await;
    let guest = home.process(id);
    guest.signal(Signal::STOP);
    for _ in 0..3 {
        kill().await;
    }
    guest.signal(Signal::CONT);
    // It is trusted again as soon as it answers.
    wait_until("it lists processes", async || service.processes(&alice(), id).await.is_ok()).await;
    kill().await;
}
