//! Tests of registrations of guest agents.

use workspace_catalog::{CommandState, IdempotencyClaim};

use super::*;
use crate::command::run::{COMMAND_ID_PREFIX, new_command};

/// Starts a service, and adds the row of a running sandbox to its catalog.
async fn start(home: &tempfile::TempDir) -> (Service, Arc<SandboxHandle>) {
    let service = Service::start_without_runtime(home.path()).await;
    let row = service.insert_sandbox(State::Running).await;
    let handle = Arc::new(SandboxHandle::new(&row.id, service.dir(&row.id), ""));
    (service, handle)
}

#[tokio::test]
async fn a_command_that_is_about_to_start_does_not_fail_when_the_agent_registers() {
    let home = tempfile::tempdir().unwrap();
    let (service, handle) = start(&home).await;
    let commands = service.0.catalog.commands();
    // A repeated request looks up the second one.
    let ids = ["cmd-starting", "cmd-looked-up", "cmd-unsent"];
    for id in ids {
        commands.insert(&new_command(&handle, id, "true", "/workspace")).await.unwrap();
    }
    let reserve = |id| handle.commands.reserve(COMMAND_ID_PREFIX, id, 10).unwrap();
    let reservations = [reserve(ids[0]), reserve(ids[1])];
    handle.commands.get_or_add(ids[1]);
    service.on_registered(&handle, 1, RegisterRequest::default()).await;
    for (id, expected) in
        ids.into_iter().zip([CommandState::Running, CommandState::Running, CommandState::Failed])
    {
        let command = commands.get(id).await.unwrap().unwrap();
        assert_eq!(command.state, expected, "{id}");
        assert_eq!(command.exit_code, None, "a command that never started has no exit code, not even 0");
    }
    drop(reservations);
    service.close().await;
}

#[tokio::test]
async fn the_idempotency_key_of_a_command_that_ran_is_not_released() {
    let home = tempfile::tempdir().unwrap();
    let (service, handle) = start(&home).await;
    let claims = service.0.catalog.command_claims();
    let claim = IdempotencyClaim {
        key: "key".to_owned(),
        request_hash: "hash".to_owned(),
        owner: "alice".to_owned(),
    };
    claims.insert(&claim, &new_command(&handle, "cmd-1", "true", "/workspace")).await.unwrap();
    service.record_exit(&handle.id, "cmd-1", &CommandExit::default(), None).await;
    // It exited after the commands that run were listed.
    let lost = CommandExit::failed("lost");
    service.record_never_began(&handle.id, "cmd-1", &lost).await;
    assert_eq!(claims.find(&claim, &handle.id).await.unwrap().as_deref(), Some("cmd-1"));
    service.close().await;
}
