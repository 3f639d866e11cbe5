//! Shares of one owner in the creation of sandboxes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use libtest_mimic::Trial;
use tokio::sync::Notify;
use tokio::time::timeout;
use workspace_sandbox::runtime::{Runtime, RuntimeError, Start, Started, Template, Usage};
use workspace_sandbox::{NewSandbox, Place, Service, Settings, Wanted};

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
        a_unique_name_needs_a_name,
    ]
}

/// Starts nothing: the template says how it fails.
#[derive(Debug, Default)]
struct Never {
    /// True if the first workspace never becomes ready.
    fills_slowly: bool,
    fills: AtomicUsize,
    starts: AtomicUsize,
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

    async fn user(&self, _: &str, _: &Place) -> Result<Option<u32>, RuntimeError> {
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

    async fn is_running(&self, _: &str, _: &Place) -> Result<bool, RuntimeError> {
        Ok(false)
    }

    async fn ended(&self, _: &str, _: &Place) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn end(&self, _: &str, _: &Place) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn usage(&self, _: &str) -> Result<Usage, RuntimeError> {
        Ok(Usage::default())
    }

    async fn known(&self) -> Result<Vec<String>, RuntimeError> {
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

fn of(owner: &str) -> Wanted {
    Wanted { owner: owner.to_owned(), ..wanted() }
}

fn make(service: &Service, owner: &str, template: &str) -> tokio::task::JoinHandle<String> {
    let new = NewSandbox { template: template.to_owned(), ..base() };
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

async fn a_unique_name_needs_a_name(home: &Home) {
    let runtime = Arc::new(Never::default());
    let service = start(home, home.path(), &runtime, 1).await;
    let new = NewSandbox { unique_name: true, ..base() };
    let refused = service.create(wanted(), new).await.unwrap_err().to_string();
    assert!(refused.contains("uniqueName") && refused.contains("give the sandbox a name"), "{refused}");
}
