//! Fair shares of owners in the creation and the removal of sandboxes.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service. `FakeRuntime` runs nothing;
//! each test defines its behaviour.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use libtest_mimic::Trial;
use tokio::sync::Notify;
use tokio::time::timeout;
use workspace_catalog::{NewSandbox as Row, State};
use workspace_sandbox::runtime::{RuntimeError, SandboxSpec, StartResult};
use workspace_sandbox::{Creator, NewSandbox, ReclaimPolicy, SandboxError, Scope, Service, Settings};
use workspace_state::NewSnapshot;

use crate::fake_runtime::{Behaviour, FakeRuntime};
use crate::home::{TIMEOUT, TestHome, base, creator, run, wait_until};
use crate::kind::RuntimeKind;

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! on_fake_runtime {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("fair_shares::", stringify!($name)), || {
                run(RuntimeKind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    on_fake_runtime![
        starts_of_one_owner_leave_permits_for_others,
        creating_a_workspace_takes_no_start_permit,
        workspaces_from_snapshots_are_limited_per_owner,
        unique_name_requires_a_name,
        following_needs_a_runtime_that_supports_it,
        batch_removals_of_one_owner_leave_permits_for_others,
        batch_lookup_finds_each_sandbox_once_and_only_for_its_owner,
    ]
}

/// A runtime that starts nothing; the template determines the failure.
#[derive(Debug, Default)]
struct StartsNothing {
    /// True if the first workspace never becomes ready.
    fills_slowly: bool,
    /// Number of workspaces that were filled, or begun.
    fills: AtomicUsize,
    /// Number of starts.
    starts: AtomicUsize,
    /// True if no sandbox ever ends.
    ends_slowly: bool,
    /// Number of sandboxes that were ended, or begun.
    ends: AtomicUsize,
    /// Notified when whatever waits may continue.
    release: Notify,
}

#[async_trait]
impl Behaviour for StartsNothing {
    async fn before_fill(&self) {
        if self.fills.fetch_add(1, Ordering::SeqCst) == 0 && self.fills_slowly {
            self.release.notified().await;
        }
    }

    async fn start(&self, start: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        if start.template == "slow" {
            self.release.notified().await;
        }
        Err(RuntimeError::Isolation("it got its permit".to_owned()))
    }

    async fn kill(&self, _: &str) {
        self.ends.fetch_add(1, Ordering::SeqCst);
        if self.ends_slowly {
            self.release.notified().await;
        }
    }
}

/// Starts a service that creates `at_once` sandboxes at a time.
async fn start(
    home: &TestHome,
    path: &Path,
    runtime: &Arc<FakeRuntime<StartsNothing>>,
    at_once: u32,
) -> Service {
    let settings = Settings { max_pool_size: 0, creations_at_once: at_once, ..Settings::new(path) };
    Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap()
}

fn of(owner: &str) -> Creator {
    Creator { owner: owner.to_owned(), ..creator() }
}

fn create(service: &Service, owner: &str, template: &str) -> tokio::task::JoinHandle<String> {
    create_new(service, owner, NewSandbox { template: template.to_owned(), ..base() })
}

fn create_new(service: &Service, owner: &str, new: NewSandbox) -> tokio::task::JoinHandle<String> {
    let (service, creator) = (service.clone(), of(owner));
    tokio::spawn(async move { service.create(creator, new).await.unwrap_err().to_string() })
}

async fn starts_of_one_owner_leave_permits_for_others(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime::<StartsNothing>::default());
    let service = start(home, home.path(), &runtime, 4).await;
    let slow: Vec<_> = (0..6).map(|_| create(&service, "alice", "slow")).collect();
    wait_until("two are started", async || runtime.starts.load(Ordering::SeqCst) == 2).await;
    let error = timeout(TIMEOUT, create(&service, "bob", "base")).await.unwrap().unwrap();
    assert!(error.contains("it got its permit"), "{error}");
    assert_eq!(runtime.starts.load(Ordering::SeqCst), 3, "alice has her half");
    for one in slow {
        assert!(!one.is_finished());
    }
}

async fn following_needs_a_runtime_that_supports_it(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime::<StartsNothing>::default());
    let service = start(home, home.path(), &runtime, 1).await;
    let new = NewSandbox { follow: Some("main".to_owned()), ..base() };
    let error = create_new(&service, "alice", new).await.unwrap();
    assert!(error.contains("cannot be followed here: the fake runtime"), "{error}");
    assert_eq!(runtime.starts.load(Ordering::SeqCst), 0);
}

async fn creating_a_workspace_takes_no_start_permit(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime(StartsNothing { fills_slowly: true, ..StartsNothing::default() }));
    let service = start(home, home.path(), &runtime, 1).await;
    let filled = create(&service, "alice", "base");
    wait_until("it is being filled", async || runtime.fills.load(Ordering::SeqCst) == 1).await;
    let error = timeout(TIMEOUT, create(&service, "bob", "base")).await.unwrap().unwrap();
    assert!(error.contains("it got its permit"), "{error}");
    assert!(!filled.is_finished());
    runtime.release.notify_waiters();
    let error = timeout(TIMEOUT, filled).await.unwrap().unwrap();
    assert!(error.contains("it got its permit"), "{error}");
}

async fn workspaces_from_snapshots_are_limited_per_owner(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime(StartsNothing { fills_slowly: true, ..StartsNothing::default() }));
    // One permit for each owner.
    let service = start(home, home.path(), &runtime, 2).await;
    let snapshot = service.workspaces().store().empty_tree().unwrap().commit(NewSnapshot::default()).unwrap();
    let from = || NewSandbox { snapshot: Some(snapshot.id), ..base() };
    let fills = || runtime.fills.load(Ordering::SeqCst);
    let first = create_new(&service, "alice", from());
    wait_until("it is being filled", async || fills() == 1).await;
    let second = create_new(&service, "alice", from());
    for (owner, new) in [("bob", from()), ("alice", base())] {
        let error = timeout(TIMEOUT, create_new(&service, owner, new)).await.unwrap().unwrap();
        assert!(error.contains("it got its permit"), "{error}");
    }
    assert_eq!(fills(), 3, "alice has one permit");
    assert!(!first.is_finished() && !second.is_finished());
    runtime.release.notify_waiters();
    for one in [first, second] {
        let error = timeout(TIMEOUT, one).await.unwrap().unwrap();
        assert!(error.contains("it got its permit"), "{error}");
    }
}

async fn unique_name_requires_a_name(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime::<StartsNothing>::default());
    let service = start(home, home.path(), &runtime, 1).await;
    let new = NewSandbox { unique_name: true, ..base() };
    let refused = service.create(creator(), new).await.unwrap_err().to_string();
    assert!(refused.contains("uniqueName") && refused.contains("give the sandbox a name"), "{refused}");
}

/// Inserts `count` rows of running sandboxes of an owner into the catalog.
async fn insert_rows(home: &TestHome, server: &str, owner: &str, count: usize) -> Vec<String> {
    let catalog = home.catalog().await;
    let mut ids = Vec::new();
    for number in 0..count {
        let row = Row {
            id: format!("sbx-{owner}-{number}"),
            server: server.to_owned(),
            state: State::Running,
            name: None,
            unique_name: false,
            owner: owner.to_owned(),
            template: "base".to_owned(),
            runtime: "fake".to_owned(),
            network: "none".to_owned(),
            workspace_path: String::new(),
            token_hash: String::new(),
            labels: [].into(),
            config: serde_json::json!({}),
            created_at: 0,
            expires_at: i64::MAX,
        };
        ids.push(catalog.sandboxes().insert(&row, &[]).await.unwrap().id);
    }
    ids
}

fn remove(service: &Service, owner: &str, ids: Vec<String>) -> tokio::task::JoinHandle<()> {
    let (service, scope) = (service.clone(), Scope::Owner(owner.to_owned()));
    tokio::spawn(async move {
        let found = service.find_many(&scope, ids).await.unwrap();
        for (id, removed) in service.remove_many(&scope, found, ReclaimPolicy::Delete.into()).await {
            assert!(removed.is_ok(), "{id}: {removed:?}");
        }
    })
}

async fn batch_removals_of_one_owner_leave_permits_for_others(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime(StartsNothing { ends_slowly: true, ..StartsNothing::default() }));
    let service = start(home, home.path(), &runtime, 1).await;
    let server = service.settings().server.clone();
    let many = insert_rows(home, &server, "alice", 20).await;
    let few = insert_rows(home, &server, "bob", 1).await;
    let _batches: Vec<_> = many.chunks(10).map(|ids| remove(&service, "alice", ids.to_vec())).collect();
    wait_until("eight end", async || runtime.ends.load(Ordering::SeqCst) == 8).await;
    let _batch = remove(&service, "bob", few);
    wait_until("one of another owner's ends", async || runtime.ends.load(Ordering::SeqCst) == 9).await;
}

async fn batch_lookup_finds_each_sandbox_once_and_only_for_its_owner(home: &TestHome) {
    let runtime = Arc::new(FakeRuntime::<StartsNothing>::default());
    let service = start(home, home.path(), &runtime, 1).await;
    let here = insert_rows(home, &service.settings().server, "alice", 2).await;
    let theirs = insert_rows(home, &service.settings().server, "bob", 1).await;
    let away = insert_rows(home, "elsewhere", "carol", 1).await;
    let ids = [&here[..], &here[..1], &theirs, &away, &["a\0b".to_owned()]].concat();
    let found = async |scope: &Scope| {
        let found = service.find_many(scope, ids.clone()).await.unwrap();
        assert!(found.iter().map(|(id, _)| id).eq(&ids));
        let short = |found: &Result<(), SandboxError>| match found {
            Ok(()) => "here",
            Err(SandboxError::NotFound { .. }) => "none",
            Err(SandboxError::Elsewhere { .. }) => "elsewhere",
            Err(_) => "error",
        };
        found.iter().map(|(_, found)| short(found)).collect::<Vec<_>>()
    };
    let alice = Scope::Owner("alice".to_owned());
    assert_eq!(found(&alice).await, ["here", "here", "none", "none", "none", "none"]);
    assert_eq!(found(&Scope::All).await, ["here", "here", "none", "here", "elsewhere", "none"]);
}
