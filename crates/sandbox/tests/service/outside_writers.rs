//! Writers outside a sandbox that change files of its workspace.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::time::Duration;

use libtest_mimic::Trial;
use tokio::time::timeout;
use workspace_catalog::State;
use workspace_sandbox::{
    Fork, IfInUse, KeptWorkspace, NewCommit, NewSandbox, ReclaimPolicy, SandboxError, Service,
};
use workspace_state::NewSnapshot;

use crate::home::{TIMEOUT, TestHome, alice, base, create, creator, request, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![commit_waits_for_writers_outside_the_sandbox, operations_on_a_workspace_fail_while_a_writer_stays,]
}

/// Waits until an operation waits for exclusive access: from then on, no new writer gets access.
async fn wait_for_an_operation(service: &Service, id: &str) {
    wait_until("an operation waits", async || {
        timeout(Duration::ZERO, service.shared_access(id)).await.is_err()
    })
    .await;
}

async fn commit_waits_for_writers_outside_the_sandbox(home: &TestHome) {
    let service = home.start_with(|settings| settings.exclusive_access_timeout = TIMEOUT).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let writer = service.shared_access(id).await.unwrap();
    std::fs::write(home.workspace(&info).join("first"), "1").unwrap();
    let committing = tokio::spawn({
        let (service, id) = (service.clone(), id.to_owned());
        async move { service.commit(&alice(), &id, NewCommit::default()).await }
    });
    wait_for_an_operation(&service, id).await;
    assert!(!committing.is_finished());
    std::fs::write(home.workspace(&info).join("second"), "2").unwrap();
    drop(writer);
    let snapshot = committing.await.unwrap().unwrap().committed.snapshot;
    let tree = service.workspaces().store().restore(&snapshot.id).unwrap();
    assert_eq!((tree.read("first").unwrap(), tree.read("second").unwrap()), (b"1".to_vec(), b"2".to_vec()));
    service.shared_access(id).await.unwrap();
}

async fn operations_on_a_workspace_fail_while_a_writer_stays(home: &TestHome) {
    let service =
        home.start_with(|settings| settings.exclusive_access_timeout = Duration::from_millis(50)).await;
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("src/main", "first\n").unwrap();
    let snapshot = tree.commit(NewSnapshot::default()).unwrap().id;
    let new = NewSandbox { snapshot: Some(snapshot), ..base() };
    let info = service.create(creator(), new).await.unwrap();
    let id = info.sandbox.id.as_str();
    service.run(&alice(), id, request("cd src; exec sleep 1000")).await.unwrap();
    let sleeping = "cat /proc/[0-9]*/comm | grep -cx sleep";
    wait_until("it sleeps", async || sh(&service, &info, sleeping).await.stdout == "1\n").await;
    let snapshots = || service.workspaces().store().snapshots().unwrap().len();
    let before = snapshots();
    let writer = service.shared_access(id).await.unwrap();
    let fork = Fork { count: 1, ..Fork::default() };
    let outcomes = [
        service.commit(&alice(), id, NewCommit::default()).await.map(drop),
        service.changes(&alice(), id).await.map(drop),
        service.fork(&alice(), id, creator(), fork).await.map(drop),
        service.restore(&alice(), id, snapshot, IfInUse::KillProcesses).await.map(drop),
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Err(SandboxError::WorkspaceBusy { .. })), "{outcome:?}");
    }
    // Nothing was frozen or ended for it.
    assert!(!home.dir(&info).freeze_record().exists());
    assert_eq!(sh(&service, &info, sleeping).await.stdout, "1\n");
    let refused = service.remove(&alice(), id, ReclaimPolicy::Keep).await.unwrap_err();
    assert!(matches!(refused, SandboxError::WorkspaceBusy { .. }), "{refused}");
    assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Stopped);
    assert_eq!(snapshots(), before);
    drop(writer);
    let kept = service.remove(&alice(), id, ReclaimPolicy::Keep).await.unwrap().kept;
    assert!(matches!(kept, KeptWorkspace::Snapshot(_)), "{kept:?}");
}
