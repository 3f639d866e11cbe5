//! Restores whose helper died, or did not answer: the outcome is determined afterwards.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `sh` runs a shell command
//! in a sandbox and returns its result. `FailingRuntime` is the embedded runtime with failures that a test injects.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::runtime::Runtime as _;
use workspace_sandbox::{
    IfInUse, KeptWorkspace, NewCommit, NewSandbox, ProviderKind, ReclaimPolicy, SandboxError, SandboxInfo,
    Service, Settings,
};
use workspace_state::{NewSnapshot, SnapshotId};

use crate::failing_runtime::FailingRuntime;
use crate::home::{TestHome, alice, base, creator, run, sh, wait_until};
use crate::kind::RuntimeKind;

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! with_failures {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("unresolved_restore::", stringify!($name)), || {
                run(RuntimeKind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    with_failures![
        swap_without_an_answer_counts_if_it_was_done,
        failed_swap_is_rolled_back,
        sandbox_is_in_error_while_its_workspace_is_unknown,
        next_server_finds_the_outcome_of_a_swap,
        sandbox_is_thawed_even_if_its_restore_cannot_be_finished,
        removal_keeps_the_files_that_an_unresolved_restore_did_not_replace,
    ]
}

/// A server with a sandbox that has snapshot `old`, and can be restored to `new`.
struct Fixture {
    runtime: Arc<FailingRuntime>,
    service: Service,
    info: SandboxInfo,
    /// Snapshot of the workspace.
    old: SnapshotId,
    /// Snapshot of the restore.
    new: SnapshotId,
}

async fn start(home: &TestHome, runtime: &Arc<FailingRuntime>) -> Service {
    let settings = Settings { max_pool_size: 0, ..Settings::new(home.path()) };
    Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap()
}

impl Fixture {
    /// `None` where workspaces are changed in place.
    async fn new(home: &TestHome) -> Option<Self> {
        let runtime = Arc::new(FailingRuntime::new(home).await);
        let service = start(home, &runtime).await;
        let snapshot = |name: &str| {
            let mut tree = service.workspaces().store().empty_tree().unwrap();
            tree.write(name, "content").unwrap();
            tree.commit(NewSnapshot::default()).unwrap().id
        };
        let (old, new) = (snapshot("old"), snapshot("new"));
        let info = service.create(creator(), NewSandbox { snapshot: Some(old), ..base() }).await.unwrap();
        (info.config.provider == Some(ProviderKind::Overlay)).then_some(Self {
            runtime,
            service,
            info,
            old,
            new,
        })
    }

    /// Continues with another server.
    async fn restart(self, home: &TestHome) -> Self {
        let Self { runtime, service, info, old, new } = self;
        service.close().await;
        drop(service);
        let service = start(home, &runtime).await;
        Self { runtime, service, info, old, new }
    }

    fn id(&self) -> &str {
        &self.info.sandbox.id
    }

    async fn restore(&self) -> Result<(), SandboxError> {
        self.service.restore(&alice(), self.id(), self.new, IfInUse::KillProcesses).await.map(|_| ())
    }

    async fn now(&self) -> SandboxInfo {
        self.service.get(&alice(), self.id()).await.unwrap()
    }

    /// Asserts that the sandbox runs, has this snapshot, and reports it.
    async fn assert_holds(&self, snapshot: SnapshotId, name: &str) {
        wait_until("it runs", async || {
            let now = self.now().await;
            now.sandbox.state == State::Running && now.agent_connected
        })
        .await;
        assert_eq!(sh(&self.service, &self.info, "ls").await.stdout, format!("{name}\n"));
        assert_eq!(self.now().await.config.snapshot, Some(snapshot));
        let record = self.service.workspaces().record(self.id()).unwrap();
        assert_eq!((record.current.base, record.phase), (Some(snapshot), workspace_workspace::Phase::Ready));
    }
}

async fn swap_without_an_answer_counts_if_it_was_done(home: &TestHome) {
    let Some(fixture) = Fixture::new(home).await else { return };
    fixture.runtime.dies_after.store(true, Ordering::SeqCst);
    fixture.restore().await.unwrap();
    fixture.assert_holds(fixture.new, "new").await;
}

async fn failed_swap_is_rolled_back(home: &TestHome) {
    let Some(fixture) = Fixture::new(home).await else { return };
    fixture.runtime.dies_before.store(true, Ordering::SeqCst);
    fixture.restore().await.unwrap_err();
    fixture.assert_holds(fixture.old, "old").await;
}

async fn sandbox_is_in_error_while_its_workspace_is_unknown(home: &TestHome) {
    let Some(fixture) = Fixture::new(home).await else { return };
    for (dies_before, snapshot, name) in [(true, fixture.old, "old"), (false, fixture.new, "new")] {
        fixture.runtime.dies_before.store(dies_before, Ordering::SeqCst);
        fixture.runtime.dies_after.store(true, Ordering::SeqCst);
        fixture.runtime.is_blind.store(true, Ordering::SeqCst);
        let error = fixture.restore().await.unwrap_err().to_string();
        assert!(error.contains("it is not known whether the workspace was replaced"), "{error}");
        let now = fixture.now().await;
        assert_eq!((now.sandbox.state, now.config.snapshot), (State::Error, Some(fixture.old)));
        let reason = now.sandbox.state_reason.unwrap();
        assert!(reason.contains("does not recover, delete it"), "{reason}");
        let refused = fixture.service.commit(&alice(), fixture.id(), NewCommit::default()).await.unwrap_err();
        assert!(matches!(refused, SandboxError::NotRunning { .. }), "{refused}");
        fixture.runtime.is_blind.store(false, Ordering::SeqCst);
        fixture.assert_holds(snapshot, name).await;
    }
}

async fn next_server_finds_the_outcome_of_a_swap(home: &TestHome) {
    let Some(fixture) = Fixture::new(home).await else { return };
    fixture.runtime.dies_after.store(true, Ordering::SeqCst);
    fixture.runtime.is_blind.store(true, Ordering::SeqCst);
    fixture.restore().await.unwrap_err();
    // A server that cannot determine the outcome either does not continue with a wrong workspace.
    let fixture = fixture.restart(home).await;
    assert_eq!(fixture.now().await.sandbox.state, State::Error);
    fixture.runtime.is_blind.store(false, Ordering::SeqCst);
    let fixture = fixture.restart(home).await;
    fixture.assert_holds(fixture.new, "new").await;
}

async fn sandbox_is_thawed_even_if_its_restore_cannot_be_finished(home: &TestHome) {
    let Some(fixture) = Fixture::new(home).await else { return };
    fixture.runtime.dies_after.store(true, Ordering::SeqCst);
    fixture.runtime.is_blind.store(true, Ordering::SeqCst);
    fixture.restore().await.unwrap_err();
    fixture.service.close().await;
    // A server that is killed during a restore leaves the sandbox frozen.
    let dir = home.dir(&fixture.info);
    fixture.runtime.freeze(fixture.id(), &dir).await.unwrap();
    fixture.runtime.dies_after.store(false, Ordering::SeqCst);
    fixture.runtime.is_blind.store(false, Ordering::SeqCst);
    // A directory with the name of the temporary file: the record of the workspace cannot be written.
    let obstacle = home.path().join("workspaces").join(fixture.id()).join("record.new");
    std::fs::create_dir(&obstacle).unwrap();
    let fixture = fixture.restart(home).await;
    wait_until("it is thawed", async || !dir.freeze_record().exists()).await;
    let record = fixture.service.workspaces().record(fixture.id()).unwrap();
    assert_eq!(record.phase, workspace_workspace::Phase::Resetting);
    std::fs::remove_dir(&obstacle).unwrap();
    fixture.assert_holds(fixture.new, "new").await;
}

async fn removal_keeps_the_files_that_an_unresolved_restore_did_not_replace(home: &TestHome) {
    let Some(fixture) = Fixture::new(home).await else { return };
    sh(&fixture.service, &fixture.info, "echo work > work").await;
    fixture.runtime.dies_before.store(true, Ordering::SeqCst);
    fixture.runtime.dies_after.store(true, Ordering::SeqCst);
    fixture.runtime.is_blind.store(true, Ordering::SeqCst);
    fixture.restore().await.unwrap_err();
    assert_eq!(fixture.now().await.sandbox.state, State::Error);
    let removed = fixture.service.remove(&alice(), fixture.id(), ReclaimPolicy::Keep).await.unwrap();
    let KeptWorkspace::Snapshot(kept) = removed.kept else { panic!("{removed:?}") };
    let kept = fixture.service.workspaces().store().restore(&kept).unwrap();
    assert_eq!(kept.read("work").unwrap(), b"work\n");
    assert!(kept.exists("old").unwrap() && !kept.exists("new").unwrap());
}
