//! Restores whose helper died, or did not answer: what it did is found out, and acted on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::{Kind as Provider, NewCommit, NewSandbox, SandboxError, Service, Settings, View};
use workspace_state::{NewSnapshot, SnapshotId};

use crate::failing::Failing;
use crate::home::{Home, alice, base, run, sh, soon, wanted};
use crate::kind::Kind;

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! undecided {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("undecided::", stringify!($name)), || {
                run(Kind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    undecided![
        a_swap_that_was_done_and_not_told_counts,
        a_swap_that_was_not_done_is_taken_back,
        a_sandbox_whose_workspace_is_not_known_is_in_error_until_it_is,
        the_next_server_finds_out_what_was_done,
    ]
}

/// A server with a sandbox that holds `old`, and may be restored to `new`.
struct Fixture {
    runtime: Arc<Failing>,
    service: Service,
    view: View,
    old: SnapshotId,
    new: SnapshotId,
}

async fn start(home: &Home, runtime: &Arc<Failing>) -> Service {
    let settings = Settings { pool: 0, ..Settings::new(home.path()) };
    Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap()
}

impl Fixture {
    /// None where workspaces are changed in place.
    async fn new(home: &Home) -> Option<Self> {
        let runtime = Arc::new(Failing::new(home).await);
        let service = start(home, &runtime).await;
        let snapshot = |name: &str| {
            let mut tree = service.workspaces().store().empty_tree().unwrap();
            tree.write(name, "content").unwrap();
            tree.commit(NewSnapshot::default()).unwrap().id
        };
        let (old, new) = (snapshot("old"), snapshot("new"));
        let view = service.create(wanted(), NewSandbox { snapshot: Some(old), ..base() }).await.unwrap();
        (view.config.provider == Some(Provider::Overlay)).then_some(Self { runtime, service, view, old, new })
    }

    /// The same with another server.
    async fn restart(self, home: &Home) -> Self {
        let Self { runtime, service, view, old, new } = self;
        service.close().await;
        drop(service);
        let service = start(home, &runtime).await;
        Self { runtime, service, view, old, new }
    }

    fn id(&self) -> &str {
        &self.view.sandbox.id
    }

    async fn restore(&self) -> Result<(), SandboxError> {
        self.service.restore(&alice(), self.id(), self.new, true).await.map(|_| ())
    }

    async fn now(&self) -> View {
        self.service.get(&alice(), self.id()).await.unwrap()
    }

    /// The sandbox runs, holds this snapshot, and says so.
    async fn assert_holds(&self, snapshot: SnapshotId, name: &str) {
        soon("it runs", async || {
            let now = self.now().await;
            now.sandbox.state == State::Running && now.agent_connected
        })
        .await;
        assert_eq!(sh(&self.service, &self.view, "ls").await.stdout, format!("{name}\n"));
        assert_eq!(self.now().await.config.snapshot, Some(snapshot));
        let record = self.service.workspaces().record(self.id()).unwrap();
        assert_eq!((record.current.base, record.phase), (Some(snapshot), workspace_workspace::Phase::Ready));
    }
}

async fn a_swap_that_was_done_and_not_told_counts(home: &Home) {
    let Some(fixture) = Fixture::new(home).await else { return };
    fixture.runtime.dies_after.store(true, Ordering::SeqCst);
    fixture.restore().await.unwrap();
    fixture.assert_holds(fixture.new, "new").await;
}

async fn a_swap_that_was_not_done_is_taken_back(home: &Home) {
    let Some(fixture) = Fixture::new(home).await else { return };
    fixture.runtime.dies_before.store(true, Ordering::SeqCst);
    fixture.restore().await.unwrap_err();
    fixture.assert_holds(fixture.old, "old").await;
}

async fn a_sandbox_whose_workspace_is_not_known_is_in_error_until_it_is(home: &Home) {
    let Some(fixture) = Fixture::new(home).await else { return };
    for (dies_before, snapshot, name) in [(true, fixture.old, "old"), (false, fixture.new, "new")] {
        fixture.runtime.dies_before.store(dies_before, Ordering::SeqCst);
        fixture.runtime.dies_after.store(true, Ordering::SeqCst);
        fixture.runtime.is_blind.store(true, Ordering::SeqCst);
        let told = fixture.restore().await.unwrap_err().to_string();
        assert!(told.contains("it is not known whether the workspace was replaced"), "{told}");
        let now = fixture.now().await;
        assert_eq!((now.sandbox.state, now.config.snapshot), (State::Error, Some(fixture.old)));
        let reason = now.sandbox.state_reason.unwrap();
        assert!(reason.contains("delete the sandbox"), "{reason}");
        let refused = fixture.service.commit(&alice(), fixture.id(), NewCommit::default()).await.unwrap_err();
        assert!(matches!(refused, SandboxError::NotRunning { .. }), "{refused}");
        fixture.runtime.is_blind.store(false, Ordering::SeqCst);
        fixture.assert_holds(snapshot, name).await;
    }
}

async fn the_next_server_finds_out_what_was_done(home: &Home) {
    let Some(fixture) = Fixture::new(home).await else { return };
    fixture.runtime.dies_after.store(true, Ordering::SeqCst);
    fixture.runtime.is_blind.store(true, Ordering::SeqCst);
    fixture.restore().await.unwrap_err();
    // One that cannot tell either does not go on with what may be wrong.
    let fixture = fixture.restart(home).await;
    assert_eq!(fixture.now().await.sandbox.state, State::Error);
    fixture.runtime.is_blind.store(false, Ordering::SeqCst);
    let fixture = fixture.restart(home).await;
    fixture.assert_holds(fixture.new, "new").await;
}
