//! Sandboxes that were started before anybody wanted them.

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::{NewSandbox, ResourceRequest, SandboxError, Service};

use crate::home::{Home, PATIENCE, alice, base, create, sh, soon, wanted};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![
        one_that_was_started_ahead_is_like_any_other,
        one_of_another_size_is_started_for_itself,
        one_that_was_killed_before_it_was_taken_is_replaced,
        what_is_refused_takes_none,
        none_is_left_when_the_service_closes_or_is_killed,
        a_collection_leaves_them_alone,
    ];
    // Containers are started with their workspace: Docker and OCI runtimes mount nothing later.
    trials.retain(|trial| trial.name().starts_with("embedded::"));
    trials
}

fn places(home: &Home) -> Vec<String> {
    let entries = std::fs::read_dir(home.path().join("sandboxes")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A service with one sandbox ready, and which that is.
async fn with_one_ready(home: &Home) -> (Service, String) {
    let service = home.start_with(|settings| settings.pool = 1).await;
    let ready = one_ready(&service, home).await;
    (service, ready)
}

async fn one_ready(service: &Service, home: &Home) -> String {
    soon("one is ready", async || service.warm_pool_size() == 1).await;
    places(home).remove(0)
}

async fn one_that_was_started_ahead_is_like_any_other(home: &Home) {
    let (service, ready) = with_one_ready(home).await;
    let envs = [("A".to_owned(), "mine".to_owned())].into();
    let view = service.create(wanted(), NewSandbox { envs, ..base() }).await.unwrap();
    assert_eq!(view.sandbox.id, ready);
    assert_eq!((view.sandbox.state, view.sandbox.owner.as_str()), (State::Running, "alice"));
    let ran = sh(&service, &view, "hostname; pwd; echo $A; echo x > file; ls -A; touch /tmp/y /x").await;
    assert_eq!(ran.stdout, format!("{ready}\n/workspace\nmine\nfile\n"));
    assert!(ran.stderr.contains("/x"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(home.workspace(&view).join("file")).unwrap(), "x\n");
    soon("another is there", async || service.warm_pool_size() == 1).await;
    service.close().await;
    let service = home.start().await;
    soon("its guest is back", async || service.get(&alice(), &ready).await.unwrap().agent_connected).await;
    assert_eq!(sh(&service, &view, "cat file").await.stdout, "x\n");
    service.remove(&alice(), &ready, false).await.unwrap();
    assert!(service.files_removed(PATIENCE).await);
    assert_eq!(places(home), [] as [String; 0]);
}

async fn one_of_another_size_is_started_for_itself(home: &Home) {
    let (service, ready) = with_one_ready(home).await;
    let resources = ResourceRequest { processes: Some(100), ..ResourceRequest::default() };
    let view = service.create(wanted(), NewSandbox { resources, ..base() }).await.unwrap();
    assert_ne!(view.sandbox.id, ready);
    service.close().await;
}

async fn one_that_was_killed_before_it_was_taken_is_replaced(home: &Home) {
    let (service, ready) = with_one_ready(home).await;
    let process = home.process(&ready);
    process.signal(rustix::process::Signal::KILL);
    // No pause: that its line is lost may not have been noticed.
    while process.is_running() {
        std::thread::yield_now();
    }
    let view = create(&service).await;
    assert_eq!(sh(&service, &view, "echo fine").await.stdout, "fine\n");
    service.close().await;
}

async fn what_is_refused_takes_none(home: &Home) {
    let service = home
        .start_with(|settings| {
            settings.pool = 1;
            settings.sandboxes_per_owner = 0;
        })
        .await;
    let ready = one_ready(&service, home).await;
    for _ in 0..3 {
        let refused = service.create(wanted(), base()).await.unwrap_err();
        assert!(matches!(refused, SandboxError::TooMany { .. }), "{refused}");
    }
    assert_eq!(places(home), [ready]);
    service.close().await;
}

async fn none_is_left_when_the_service_closes_or_is_killed(home: &Home) {
    let (service, ready) = with_one_ready(home).await;
    let process = home.process(&ready);
    service.close().await;
    assert!(!process.is_running());
    assert_eq!(places(home), [] as [String; 0]);

    // One that is only forgotten, as by a server that is killed, is found by the next.
    let (service, ready) = with_one_ready(home).await;
    let process = home.process(&ready);
    // What the kernel does for one that is killed.
    service.workspaces().close().unwrap();
    std::mem::forget(service);
    let next = home.start().await;
    assert!(!process.is_running());
    assert!(!places(home).contains(&ready));
    next.close().await;
}

async fn a_collection_leaves_them_alone(home: &Home) {
    let (service, ready) = with_one_ready(home).await;
    assert_eq!(service.collect().await.unwrap(), workspace_sandbox::Collected::default());
    let view = create(&service).await;
    assert_eq!(view.sandbox.id, ready);
    service.close().await;
}
