//! The warm pool: sandboxes that are started before a client requests one.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result. `FakeRuntime` runs
//! nothing; each test defines its behaviour.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use tokio::sync::Notify;
use tokio::time::timeout;
use workspace_catalog::State;
use workspace_sandbox::runtime::{RuntimeError, SandboxSpec, StartResult};
use workspace_sandbox::{NewSandbox, ReclaimPolicy, ResourceRequest, SandboxError, Service, Settings};

use crate::fake_runtime::{Behaviour, FakeRuntime};
use crate::home::{TIMEOUT, TestHome, alice, base, create, creator, run, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![
        pooled_sandbox_is_like_any_other,
        request_with_other_limits_does_not_use_the_pool,
        killed_pooled_sandbox_is_replaced,
        refused_request_takes_no_pooled_sandbox,
        pool_is_removed_when_the_service_closes_or_is_killed,
        garbage_collection_keeps_pooled_sandboxes,
    ];
    // Containers are started with their workspace: Docker and OCI runtimes cannot mount later.
    trials.retain(|trial| trial.name().starts_with("embedded::"));
    trials.push(Trial::test("pool::closing_does_not_wait_for_a_start_that_hangs", || {
        run(RuntimeKind::Embedded, |home| Box::pin(closing_does_not_wait_for_a_start_that_hangs(home)));
        Ok(())
    }));
    trials
}

/// A runtime that never finishes a start.
#[derive(Debug, Default)]
struct HangingStart {
    /// Notified when a start begins.
    begun: Notify,
}

#[async_trait]
impl Behaviour for HangingStart {
    async fn start(&self, _: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        self.begun.notify_one();
        std::future::pending().await
    }

    fn supports_warm_pool(&self) -> bool {
        true
    }
}

async fn closing_does_not_wait_for_a_start_that_hangs(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime::<HangingStart>::default());
    let settings = Settings { max_pool_size: 1, ..Settings::new(home.path()) };
    let service = Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap();
    timeout(TIMEOUT, runtime.begun.notified()).await.unwrap();
    timeout(TIMEOUT, service.close()).await.expect("closing hangs with the start");
}

fn sandbox_dirs(home: &TestHome) -> Vec<String> {
    let entries = std::fs::read_dir(home.path().join("sandboxes")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Starts a service with one sandbox in the pool, and returns its id.
async fn start_with_one_pooled(home: &TestHome) -> (Service, String) {
    let service = home.start_with(|settings| settings.max_pool_size = 1).await;
    let ready = one_pooled(&service, home).await;
    (service, ready)
}

async fn one_pooled(service: &Service, home: &TestHome) -> String {
    wait_until("one is ready", async || service.warm_pool_size() == 1).await;
    sandbox_dirs(home).remove(0)
}

async fn pooled_sandbox_is_like_any_other(home: &TestHome) {
    let (service, ready) = start_with_one_pooled(home).await;
    let envs = [("A".to_owned(), "mine".to_owned())].into();
    let info = service.create(creator(), NewSandbox { envs, ..base() }).await.unwrap();
    assert_eq!(info.sandbox.id, ready);
    assert_eq!((info.sandbox.state, info.sandbox.owner.as_str()), (State::Running, "alice"));
    let ran = sh(&service, &info, "hostname; pwd; echo $A; echo x > file; ls -A; touch /tmp/y /x").await;
    assert_eq!(ran.stdout, format!("{ready}\n/workspace\nmine\nfile\n"));
    assert!(ran.stderr.contains("/x"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(home.workspace(&info).join("file")).unwrap(), "x\n");
    wait_until("another is there", async || service.warm_pool_size() == 1).await;
    service.close().await;
    let service = home.start().await;
    wait_until("its guest is back", async || service.get(&alice(), &ready).await.unwrap().agent_connected)
        .await;
    assert_eq!(sh(&service, &info, "cat file").await.stdout, "x\n");
    service.remove(&alice(), &ready, ReclaimPolicy::Delete).await.unwrap();
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert_eq!(sandbox_dirs(home), [] as [String; 0]);
}

async fn request_with_other_limits_does_not_use_the_pool(home: &TestHome) {
    let (service, ready) = start_with_one_pooled(home).await;
    let resources = ResourceRequest { processes: Some(100), ..ResourceRequest::default() };
    let info = service.create(creator(), NewSandbox { resources, ..base() }).await.unwrap();
    assert_ne!(info.sandbox.id, ready);
    service.close().await;
}

async fn killed_pooled_sandbox_is_replaced(home: &TestHome) {
    let (service, ready) = start_with_one_pooled(home).await;
    let process = home.process(&ready);
    process.signal(rustix::process::Signal::KILL);
    // Without a sleep, so that the server may not have noticed the lost connection yet.
    while process.is_running() {
        std::thread::yield_now();
    }
    let info = create(&service).await;
    assert_eq!(sh(&service, &info, "echo fine").await.stdout, "fine\n");
    service.close().await;
}

async fn refused_request_takes_no_pooled_sandbox(home: &TestHome) {
    let service = home
        .start_with(|settings| {
            settings.max_pool_size = 1;
            settings.sandboxes_per_owner = 0;
        })
        .await;
    let ready = one_pooled(&service, home).await;
    for _ in 0..3 {
        let refused = service.create(creator(), base()).await.unwrap_err();
        assert!(matches!(refused, SandboxError::TooMany { .. }), "{refused}");
    }
    assert_eq!(sandbox_dirs(home), [ready]);
    service.close().await;
}

async fn pool_is_removed_when_the_service_closes_or_is_killed(home: &TestHome) {
    let (service, ready) = start_with_one_pooled(home).await;
    let process = home.process(&ready);
    service.close().await;
    assert!(!process.is_running());
    assert_eq!(sandbox_dirs(home), [] as [String; 0]);

    // One that a killed server left is found by the next.
    let (service, ready) = start_with_one_pooled(home).await;
    let process = home.process(&ready);
    // Releases locks of files, as the kernel does when a process is killed.
    service.workspaces().close().unwrap();
    std::mem::forget(service);
    let next = home.start().await;
    assert!(!process.is_running());
    assert!(!sandbox_dirs(home).contains(&ready));
    next.close().await;
}

async fn garbage_collection_keeps_pooled_sandboxes(home: &TestHome) {
    let (service, ready) = start_with_one_pooled(home).await;
    assert_eq!(service.collect().await.unwrap(), workspace_sandbox::CollectionReport::default());
    let info = create(&service).await;
    assert_eq!(info.sandbox.id, ready);
    service.close().await;
}
