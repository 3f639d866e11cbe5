//! Replacing the workspace of a running sandbox.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_sandbox::runtime::{ProcessScope, WorkspaceProcess, WorkspaceUse};
use workspace_sandbox::{CommandHandle, RunRequest, SandboxInfo, Service};

use crate::home::{TestHome, alice, create, request, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        processes_that_use_the_workspace_are_listed_and_ended,
        frozen_processes_are_not_ended,
        workspace_of_a_running_sandbox_is_replaced,
        reader_sees_the_old_or_the_new_workspace,
    ]
}

async fn start(service: &Service, info: &SandboxInfo, command: &str) -> CommandHandle {
    service.run(&alice(), &info.sandbox.id, request(command)).await.unwrap()
}

/// Returns the processes that use the workspace; with `grace`, terminates those that block its replacement, and kills
/// them after this time.
async fn workspace_processes(
    home: &TestHome,
    service: &Service,
    info: &SandboxInfo,
    grace: Option<Duration>,
) -> Vec<WorkspaceProcess> {
    let (dir, terminate) = (home.dir(info), grace.map(|grace| (ProcessScope::Blocking, grace)));
    service.runtime().workspace_processes(&info.sandbox.id, &dir, terminate).await.unwrap()
}

async fn swap(home: &TestHome, service: &Service, info: &SandboxInfo, to: &Path) {
    service.runtime().swap(&info.sandbox.id, &home.dir(info), to).await.unwrap();
}

/// Makes a directory that can become a workspace.
fn other(home: &TestHome, name: &str) -> PathBuf {
    let path = home.path().join(name);
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("name"), format!("{name}\n")).unwrap();
    path
}

async fn processes_that_use_the_workspace_are_listed_and_ended(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    assert!(service.runtime().can_swap_workspace());
    // Neither the guest agent nor the supervisor of a command is listed.
    assert_eq!(workspace_processes(home, &service, &info, None).await, []);
    let _outside = start(&service, &info, "cd /; exec sleep 100").await;
    let _moved = start(&service, &info, "exec sleep 100").await;
    let _cwd = start(&service, &info, "mkdir deep; cd deep; exec sleep 100").await;
    let _descriptor = start(&service, &info, "exec 9>file; cd /; exec sleep 100").await;
    let _mapping = start(&service, &info, "cp -L /bin/sleep sleep; cd /; exec /workspace/sleep 100").await;
    let mut found = Vec::new();
    wait_until("they are found", async || {
        found = workspace_processes(home, &service, &info, None).await;
        let has = |why| found.iter().any(|user| user.usage == why && user.command == "sleep");
        found.len() == 3
            && has(WorkspaceUse::Cwd)
            && has(WorkspaceUse::Descriptor)
            && has(WorkspaceUse::Mapping)
    })
    .await;
    let terminated = workspace_processes(home, &service, &info, Some(Duration::from_secs(10))).await;
    assert_eq!(terminated, found);
    assert_eq!(workspace_processes(home, &service, &info, None).await, []);
    let left = sh(&service, &info, "cat /proc/[0-9]*/comm | grep -c sleep").await;
    assert_eq!(left.stdout, "2\n");
}

async fn frozen_processes_are_not_ended(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let _cwd = start(&service, &info, "mkdir deep; cd deep; exec sleep 100").await;
    wait_until("it is found", async || workspace_processes(home, &service, &info, None).await.len() == 1)
        .await;
    let (id, dir) = (info.sandbox.id.as_str(), home.dir(&info));
    service.runtime().freeze(id, &dir).await.unwrap();
    assert_eq!(workspace_processes(home, &service, &info, None).await.len(), 1);
    let refused =
        service.runtime().workspace_processes(id, &dir, Some((ProcessScope::Blocking, Duration::ZERO)));
    let refused = refused.await.unwrap_err();
    assert!(refused.to_string().contains("frozen"), "{refused}");
    service.runtime().thaw(id, &dir).await.unwrap();
    assert_eq!(workspace_processes(home, &service, &info, Some(Duration::ZERO)).await.len(), 1);
}

async fn workspace_of_a_running_sandbox_is_replaced(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let (id, dir) = (info.sandbox.id.as_str(), home.dir(&info));
    for (name, frozen) in [("one", false), ("two", true)] {
        let workspace = other(home, name);
        if frozen {
            service.runtime().freeze(id, &dir).await.unwrap();
        }
        swap(home, &service, &info, &workspace).await;
        service.runtime().thaw(id, &dir).await.unwrap();
        let ran = sh(&service, &info, "cat name; echo more > new; grep -c ' /workspace ' /proc/mounts").await;
        assert_eq!(ran.stdout, format!("{name}\n1\n"), "{ran:?}");
        assert_eq!(std::fs::read_to_string(workspace.join("new")).unwrap(), "more\n");
    }
}

async fn reader_sees_the_old_or_the_new_workspace(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let workspaces = [other(home, "one"), other(home, "two")];
    swap(home, &service, &info, &workspaces[0]).await;
    // Prints the content whenever it changes.
    let read = "until [ -e $HOME/end ]; do read -r new < /workspace/name; [ \"$new\" = \"$old\" ] || echo $new; old=$new; done";
    let read = RunRequest { cwd: Some("/".to_owned()), ..request(read) };
    let reader = service.run(&alice(), &info.sandbox.id, read).await.unwrap();
    for step in 0..20 {
        swap(home, &service, &info, &workspaces[step % 2]).await;
    }
    sh(&service, &info, "touch $HOME/end").await;
    let ran = crate::home::read(&reader, 0).await;
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.lines().all(|line| line == "one" || line == "two"));
    assert!(ran.stdout.contains("two"), "it read nothing meanwhile");
}
