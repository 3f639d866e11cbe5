//! Release of resources that only sandboxes need, after the last one, and their return with the next.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_host::NamespaceHolder;
use workspace_sandbox::{IfInUse, NewSandbox, ReclaimPolicy, Service};
use workspace_state::{NewSnapshot, SnapshotId};

use crate::home::{TestHome, alice, base as new, create, creator, run, sh, wait_until};
use crate::kind::RuntimeKind;

/// For the embedded runtime only: no other has a process for sandboxes.
pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! trial {
        ($name:ident) => {
            Trial::test(concat!("embedded::", stringify!($name)), || {
                run(RuntimeKind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })
        };
    }
    vec![
        trial!(namespace_holder_is_released_after_the_last_sandbox),
        trial!(sandbox_created_during_a_release_works),
        trial!(resources_are_not_released_while_a_sandbox_exists),
    ]
}

fn snapshot(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    tree.commit(NewSnapshot::default()).unwrap().id
}

/// Returns true if a namespace holder runs. Root never has one.
async fn has_holder(service: &Service) -> bool {
    let noted = service.workspaces().namespace_holder();
    matches!(noted, NamespaceHolder::Process(held) if held.is_running())
}

async fn namespace_holder_is_released_after_the_last_sandbox(home: &TestHome) {
    let service = home
        .start_with(|settings| {
            settings.idle_release_after = Duration::from_millis(100);
            settings.max_pool_size = 1;
        })
        .await;
    let from = snapshot(&service);
    for _ in 0..2 {
        let new = NewSandbox { snapshot: Some(from), ..new() };
        let info = service.create(creator(), new).await.unwrap();
        assert_eq!(sh(&service, &info, "cat file; echo more > more").await.stdout, "content\n");
        service.restore(&alice(), &info.sandbox.id, from, IfInUse::KillProcesses).await.unwrap();
        service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
        let is_ordinary = service.runtime().has_holder();
        wait_until("it rests", async || {
            !has_holder(&service).await && (!is_ordinary || service.warm_pool_size() == 0)
        })
        .await;
        // It needs no holder.
        service.runtime().missing_features().await.unwrap();
    }
    // One without a snapshot, whose workspace is read with the privileges of the new holder.
    let info = create(&service).await;
    sh(&service, &info, "mkdir d; echo x > d/x; chmod 0 d").await;
    let (changes, _) = service.changes(&alice(), &info.sandbox.id).await.unwrap();
    assert_eq!(changes.differences().unwrap().len(), 2);
}

async fn sandbox_created_during_a_release_works(home: &TestHome) {
    let service = home.start_with(|settings| settings.max_pool_size = 1).await;
    let (from, over) = (snapshot(&service), AtomicBool::new(false));
    let resting = async {
        let mut rested = 0_u32;
        while !over.load(Ordering::Relaxed) {
            rested += u32::from(service.release_idle_resources().await.unwrap());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        rested
    };
    let making = async {
        for round in 0..20 {
            let snapshot = (round % 2 == 0).then_some(from);
            let info = service.create(creator(), NewSandbox { snapshot, ..new() }).await.unwrap();
            assert_eq!(sh(&service, &info, "echo works").await.stdout, "works\n");
            service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
            assert!(service.wait_for_removed_files(crate::home::TIMEOUT).await);
        }
        over.store(true, Ordering::Relaxed);
    };
    let (rested, ()) = tokio::join!(resting, making);
    assert!(rested > 0, "it never rested");
}

async fn resources_are_not_released_while_a_sandbox_exists(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    assert!(!service.release_idle_resources().await.unwrap());
    assert_eq!(sh(&service, &info, "echo works").await.stdout, "works\n");
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    assert!(service.wait_for_removed_files(crate::home::TIMEOUT).await);
    assert!(service.release_idle_resources().await.unwrap());
}
