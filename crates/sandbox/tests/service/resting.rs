//! What is there only for sandboxes ends with the last one, and comes back with the next.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_host::Holder;
use workspace_sandbox::{NewSandbox, Service};
use workspace_state::{NewSnapshot, SnapshotId};

use crate::home::{Home, alice, base as new, create, run, sh, soon, wanted};
use crate::kind::Kind;

/// For the embedded runtime alone: no other keeps a process for sandboxes.
pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! trial {
        ($name:ident) => {
            Trial::test(concat!("embedded::", stringify!($name)), || {
                run(Kind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })
        };
    }
    vec![
        trial!(the_holder_ends_some_time_after_the_last_sandbox),
        trial!(a_sandbox_that_is_made_while_the_holder_ends_works),
        trial!(a_service_with_a_sandbox_does_not_rest),
    ]
}

fn snapshot(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    tree.commit(NewSnapshot::default()).unwrap().id
}

/// Returns whether a holder runs. The superuser never has one.
async fn has_holder(service: &Service) -> bool {
    let noted = service.workspaces().holder();
    matches!(noted, Holder::Process(held) if held.is_running())
}

async fn the_holder_ends_some_time_after_the_last_sandbox(home: &Home) {
    let service = home
        .start_with(|settings| {
            settings.rest_after = Duration::from_millis(100);
            settings.pool = 1;
        })
        .await;
    let from = snapshot(&service);
    for _ in 0..2 {
        let new = NewSandbox { snapshot: Some(from), ..new() };
        let view = service.create(wanted(), new).await.unwrap();
        assert_eq!(sh(&service, &view, "cat file; echo more > more").await.stdout, "content\n");
        service.restore(&alice(), &view.sandbox.id, from, true).await.unwrap();
        service.remove(&alice(), &view.sandbox.id, false).await.unwrap();
        let is_ordinary = service.runtime().has_holder();
        soon("it rests", async || {
            !has_holder(&service).await && (!is_ordinary || service.started_ahead() == 0)
        })
        .await;
        // Nobody has to be there for that.
        service.runtime().lacks().await.unwrap();
    }
    // One without a snapshot, whose workspace is read with the rights of the new holder.
    let view = create(&service).await;
    sh(&service, &view, "mkdir d; echo x > d/x; chmod 0 d").await;
    let (changes, _) = service.changes(&alice(), &view.sandbox.id).await.unwrap();
    assert_eq!(changes.differences().unwrap().len(), 2);
}

async fn a_sandbox_that_is_made_while_the_holder_ends_works(home: &Home) {
    let service = home.start_with(|settings| settings.pool = 1).await;
    let (from, over) = (snapshot(&service), AtomicBool::new(false));
    let resting = async {
        let mut rested = 0_u32;
        while !over.load(Ordering::Relaxed) {
            rested += u32::from(service.rest().await.unwrap());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        rested
    };
    let making = async {
        for round in 0..20 {
            let snapshot = (round % 2 == 0).then_some(from);
            let view = service.create(wanted(), NewSandbox { snapshot, ..new() }).await.unwrap();
            assert_eq!(sh(&service, &view, "echo works").await.stdout, "works\n");
            service.remove(&alice(), &view.sandbox.id, false).await.unwrap();
            assert!(service.files_removed(crate::home::PATIENCE).await);
        }
        over.store(true, Ordering::Relaxed);
    };
    let (rested, ()) = tokio::join!(resting, making);
    assert!(rested > 0, "it never rested");
}

async fn a_service_with_a_sandbox_does_not_rest(home: &Home) {
    let service = home.start().await;
    let view = create(&service).await;
    assert!(!service.rest().await.unwrap());
    assert_eq!(sh(&service, &view, "echo works").await.stdout, "works\n");
    service.remove(&alice(), &view.sandbox.id, false).await.unwrap();
    assert!(service.files_removed(crate::home::PATIENCE).await);
    assert!(service.rest().await.unwrap());
}
