//! Shares of one owner in the creation and the removal of sandboxes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use libtest_mimic::Trial;
use tokio::sync::Notify;
use tokio::time::timeout;
use workspace_catalog::{NewSandbox as Row, State};
use workspace_sandbox::runtime::{Runtime, RuntimeError, Start, Started, Template, Usage};
use workspace_sandbox::{Caller, NewSandbox, SandboxDir, SandboxError, Scope, Service, Settings};
use workspace_state::NewSnapshot;

use crate::home::{Home, PATIENCE, base, run, soon, wanted};
use crate::kind::Kind;

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! shares {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("shares::", stringify!($name)), || {
                run(Kind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    shares![
        starts_of_one_owner_leave_turns_for_others,
        a_workspace_that_is_being_filled_takes_no_turn_of_a_start,
        snapshots_are_filled_in_turns_of_their_owners,
        a_unique_name_needs_a_name,
        batches_of_one_owner_leave_turns_for_others,
        a_batch_finds_every_sandbox_once_and_for_its_owner,
    ]
}

/// Starts nothing: the template says how it fails.
#[derive(Debug, Default)]
struct Never {
    /// True if the first workspace never becomes ready.
    fills_slowly: bool,
    fills: AtomicUsize,
    starts: AtomicUsize,
    /// True if no sandbox ever ends.
    ends_slowly: bool,
    ends: AtomicUsize,
    never: Notify,
}

#[async_trait]
impl Runtime for Never {
    fn name(&self) -> &'static str {
        "never"
    }

    async fn lacks(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn user(&self, _: &str, _: &SandboxDir) -> Result<Option<u32>, RuntimeError> {
        if self.fills.fetch_add(1, Ordering::SeqCst) == 0 && self.fills_slowly {
            self.never.notified().await;
        }
        Ok(None)
    }

    async fn start(&self, order: &Start<'_>) -> Result<Started, RuntimeError> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        if order.template == "slow" {
            self.never.notified().await;
        }
        Err(RuntimeError::Isolation("it had its turn".to_owned()))
    }

    async fn is_running(&self, _: &str, _: &SandboxDir) -> Result<bool, RuntimeError> {
        Ok(false)
    }

    async fn ended(&self, _: &str, _: &SandboxDir) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn end(&self, _: &str, _: &SandboxDir) -> Result<(), RuntimeError> {
        self.ends.fetch_add(1, Ordering::SeqCst);
        if self.ends_slowly {
            self.never.notified().await;
        }
        Ok(())
    }

    async fn usage(&self, _: &str) -> Result<Usage, RuntimeError> {
        Ok(Usage::default())
    }

    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        Ok(Vec::new())
    }
}

async fn start(home: &Home, path: &Path, runtime: &Arc<Never>, at_once: u32) -> Service {
    let settings = Settings { pool: 0, creations_at_once: at_once, ..Settings::new(path) };
    Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap()
}

fn of(owner: &str) -> Caller {
    Caller { owner: owner.to_owned(), ..wanted() }
}

fn make(service: &Service, owner: &str, template: &str) -> tokio::task::JoinHandle<String> {
    make_new(service, owner, NewSandbox { template: template.to_owned(), ..base() })
}

fn make_new(service: &Service, owner: &str, new: NewSandbox) -> tokio::task::JoinHandle<String> {
    let (service, wanted) = (service.clone(), of(owner));
    tokio::spawn(async move { service.create(wanted, new).await.unwrap_err().to_string() })
}

async fn starts_of_one_owner_leave_turns_for_others(home: &Home) {
    let runtime = Arc::new(Never::default());
    let service = start(home, home.path(), &runtime, 4).await;
    let slow: Vec<_> = (0..6).map(|_| make(&service, "alice", "slow")).collect();
    soon("two are started", async || runtime.starts.load(Ordering::SeqCst) == 2).await;
    let told = timeout(PATIENCE, make(&service, "bob", "base")).await.unwrap().unwrap();
    assert!(told.contains("it had its turn"), "{told}");
    assert_eq!(runtime.starts.load(Ordering::SeqCst), 3, "alice has her half");
    for one in slow {
        assert!(!one.is_finished());
    }
}

async fn a_workspace_that_is_being_filled_takes_no_turn_of_a_start(home: &Home) {
    let runtime = Arc::new(Never { fills_slowly: true, ..Never::default() });
    let service = start(home, home.path(), &runtime, 1).await;
    let filled = make(&service, "alice", "base");
    soon("it is being filled", async || runtime.fills.load(Ordering::SeqCst) == 1).await;
    let told = timeout(PATIENCE, make(&service, "bob", "base")).await.unwrap().unwrap();
    assert!(told.contains("it had its turn"), "{told}");
    assert!(!filled.is_finished());
    runtime.never.notify_waiters();
    let told = timeout(PATIENCE, filled).await.unwrap().unwrap();
    assert!(told.contains("it had its turn"), "{told}");
}

async fn snapshots_are_filled_in_turns_of_their_owners(home: &Home) {
    let runtime = Arc::new(Never { fills_slowly: true, ..Never::default() });
    // One turn for each owner.
    let service = start(home, home.path(), &runtime, 2).await;
    let snapshot = service.workspaces().store().empty_tree().unwrap().commit(NewSnapshot::default()).unwrap();
    let from = || NewSandbox { snapshot: Some(snapshot.id), ..base() };
    let fills = || runtime.fills.load(Ordering::SeqCst);
    let first = make_new(&service, "alice", from());
    soon("it is being filled", async || fills() == 1).await;
    let second = make_new(&service, "alice", from());
    for (owner, new) in [("bob", from()), ("alice", base())] {
        let told = timeout(PATIENCE, make_new(&service, owner, new)).await.unwrap().unwrap();
        assert!(told.contains("it had its turn"), "{told}");
    }
    assert_eq!(fills(), 3, "alice has one turn");
    assert!(!first.is_finished() && !second.is_finished());
    runtime.never.notify_waiters();
    for one in [first, second] {
        let told = timeout(PATIENCE, one).await.unwrap().unwrap();
        assert!(told.contains("it had its turn"), "{told}");
    }
}

async fn a_unique_name_needs_a_name(home: &Home) {
    let runtime = Arc::new(Never::default());
    let service = start(home, home.path(), &runtime, 1).await;
    let new = NewSandbox { unique_name: true, ..base() };
    let refused = service.create(wanted(), new).await.unwrap_err().to_string();
    assert!(refused.contains("uniqueName") && refused.contains("give the sandbox a name"), "{refused}");
}

/// Writes down sandboxes that run, as far as the catalog knows.
async fn write_down(home: &Home, node: &str, owner: &str, count: usize) -> Vec<String> {
    let catalog = home.catalog().await;
    let mut ids = Vec::new();
    for number in 0..count {
        let row = Row {
            id: format!("sbx-{owner}-{number}"),
            node: node.to_owned(),
            state: State::Running,
            name: None,
            unique_name: false,
            owner: owner.to_owned(),
            template: "base".to_owned(),
            runtime: "never".to_owned(),
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
        for (id, removed) in service.remove_many(&scope, found, false).await {
            assert!(removed.is_ok(), "{id}: {removed:?}");
        }
    })
}

async fn batches_of_one_owner_leave_turns_for_others(home: &Home) {
    let runtime = Arc::new(Never { ends_slowly: true, ..Never::default() });
    let service = start(home, home.path(), &runtime, 1).await;
    let node = service.settings().node.clone();
    let many = write_down(home, &node, "alice", 20).await;
    let few = write_down(home, &node, "bob", 1).await;
    let _batches: Vec<_> = many.chunks(10).map(|ids| remove(&service, "alice", ids.to_vec())).collect();
    soon("eight end", async || runtime.ends.load(Ordering::SeqCst) == 8).await;
    let _batch = remove(&service, "bob", few);
    soon("one of another owner's ends", async || runtime.ends.load(Ordering::SeqCst) == 9).await;
}

async fn a_batch_finds_every_sandbox_once_and_for_its_owner(home: &Home) {
    let runtime = Arc::new(Never::default());
    let service = start(home, home.path(), &runtime, 1).await;
    let here = write_down(home, &service.settings().node, "alice", 2).await;
    let theirs = write_down(home, &service.settings().node, "bob", 1).await;
    let away = write_down(home, "elsewhere", "carol", 1).await;
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
