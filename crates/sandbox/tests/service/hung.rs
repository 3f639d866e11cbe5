//! Guest agents that do not answer.

use std::time::Duration;

use libtest_mimic::Trial;
use rustix::process::Signal;
use workspace_sandbox::{RunRequest, SandboxError};

use crate::home::{Home, PATIENCE, alice, create, request, sh, soon};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        a_hung_guest_does_not_hang_its_callers,
        a_sandbox_with_a_hung_guest_is_removed,
        a_command_that_stops_everything_runs_out_of_time,
        a_command_that_ended_has_ended_also_for_a_guest_that_lists_no_processes,
    ]
}

async fn a_hung_guest_does_not_hang_its_callers(home: &Home) {
    let service = home.start_with(|settings| settings.command_grace = Duration::from_millis(500)).await;
    let view = create(&service).await;
    let id = view.sandbox.id.as_str();
    let sleeping = RunRequest { timeout: Some(Duration::from_secs(1)), ..request("sleep 100") };
    let guest = home.process(id);
    guest.signal(Signal::STOP);
    let mut handle = service.run(&alice(), id, sleeping).await.unwrap();
    let lost = |error: &SandboxError| matches!(error, SandboxError::AgentLost { .. });
    let mut output = handle.output(0).await.unwrap();
    let read = tokio::time::timeout(PATIENCE, output.next()).await.unwrap().unwrap_err();
    assert!(lost(&read), "{read}");
    let waited = tokio::time::timeout(PATIENCE, handle.wait()).await.unwrap().unwrap_err();
    assert!(lost(&waited), "{waited}");
    let (other, data) = (handle.id.clone(), b"x".to_vec());
    let bounded = async {
        // Each is refused or taken for later, soon.
        drop(service.kill(&alice(), id, &other, 15).await);
        drop(service.input(&alice(), id, &other, data, true).await);
        drop(service.stats(&alice(), id).await);
        service.commands(&alice(), id, 10).await.unwrap();
        service.logs(&alice(), id, 10, None, None).await.unwrap();
    };
    tokio::time::timeout(PATIENCE, bounded).await.unwrap();
    guest.signal(Signal::CONT);
    // A guest that goes on tells what became of it.
    soon("it works again", async || sh(&service, &view, "echo on").await.stdout == "on\n").await;
    soon("the command has ended", async || {
        let handle = service.command(&alice(), id, &handle.id).await.unwrap();
        let mut handle = handle;
        handle.wait().await.is_ok_and(|end| end.timed_out || end.exit_code != 0)
    })
    .await;
}

async fn a_sandbox_with_a_hung_guest_is_removed(home: &Home) {
    let service = home.start().await;
    let view = create(&service).await;
    let id = view.sandbox.id.as_str();
    let guest = home.process(id);
    guest.signal(Signal::STOP);
    let mut handle = service.run(&alice(), id, request("sleep 100")).await.unwrap();
    let waiting = tokio::spawn(async move { handle.wait().await });
    tokio::time::timeout(PATIENCE, service.remove(&alice(), id, false)).await.unwrap().unwrap();
    let end = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(end.failed.is_some(), "{end:?}");
    assert!(!guest.is_running());
}

/// The process that looks after the command is stopped as well.
async fn a_command_that_stops_everything_runs_out_of_time(home: &Home) {
    let service = home.start().await;
    let view = create(&service).await;
    let stop = RunRequest { timeout: Some(Duration::from_secs(1)), ..request("kill -STOP -1; sleep 100") };
    let mut handle = service.run(&alice(), &view.sandbox.id, stop).await.unwrap();
    let end = tokio::time::timeout(PATIENCE, handle.wait()).await.unwrap().unwrap();
    assert!(end.timed_out, "{end:?}");
    assert_eq!(sh(&service, &view, "echo works").await.stdout, "works\n");
}

/// As one of an older version does, a guest that stands still does not say what a command left behind.
async fn a_command_that_ended_has_ended_also_for_a_guest_that_lists_no_processes(home: &Home) {
    let service = home.start().await;
    let view = create(&service).await;
    let id = view.sandbox.id.as_str();
    let mut handle = service.run(&alice(), id, request("true")).await.unwrap();
    tokio::time::timeout(PATIENCE, handle.wait()).await.unwrap().unwrap();
    // What looked after it may be there a moment longer.
    let is_alone = async || service.processes(&alice(), id).await.is_ok_and(|left| left.is_empty());
    soon("nothing is left", is_alone).await;
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
    // It is believed again as soon as it answers.
    soon("it lists processes", async || service.processes(&alice(), id).await.is_ok()).await;
    kill().await;
}
