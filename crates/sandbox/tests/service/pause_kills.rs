//! A server that is killed at each step of a pause or resume: the next one undoes or continues it.
//!
//! The call of the runtime at which the server is "killed" never returns. What the server does between two such calls
//! is written to the catalog and the store by hand.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result. `FailingRuntime` is the
//! embedded runtime with failures that a test injects.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use rustix::process::Signal;
use workspace_catalog::{Change, PauseStep, State, VisibleState};
use workspace_sandbox::{NewCommit, PauseMode, RunRequest, SandboxError, SandboxInfo, Service, Settings};
use workspace_state::{Durability, Expect};

use crate::failing_runtime::{FailingRuntime, Step};
use crate::home::{DEFAULT_LIFETIME, TestHome, alice, create, creator, read, request, run, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::pauses::{pause, pause_snapshots, resume, state, wait_until_freed};

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! on_embedded {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("pause_kills::", stringify!($name)), || {
                run(RuntimeKind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    on_embedded![
        killed_before_the_freeze_of_a_pause_in_memory,
        killed_before_a_pause_in_memory_is_recorded,
        killed_before_the_thaw_of_a_resume,
        killed_before_the_freeze_of_a_pause_to_disk,
        killed_after_the_freeze_of_a_pause_to_disk,
        killed_before_the_snapshot_of_a_pause_is_recorded,
        killed_before_the_processes_of_a_paused_sandbox_are_killed,
        killed_before_a_pause_to_disk_is_recorded,
        killed_before_the_workspace_of_a_paused_sandbox_is_removed,
        killed_before_the_workspace_of_a_resume_is_made,
        killed_before_a_resumed_sandbox_starts,
        killed_before_a_resume_is_recorded,
        processes_of_a_paused_sandbox_die_with_the_machine,
        a_kill_that_fails_is_tried_again,
    ]
}

/// A server whose runtime can hang, with a sandbox that has a file and a running command.
struct Fixture<'a> {
    home: &'a TestHome,
    runtime: Arc<FailingRuntime>,
    service: Service,
    info: SandboxInfo,
    command: String,
}

async fn start(home: &TestHome) -> (Arc<FailingRuntime>, Service) {
    let runtime = Arc::new(FailingRuntime::new(home).await);
    let settings = Settings { max_pool_size: 0, ..Settings::new(home.path()) };
    let service = Service::start(settings, home.catalog().await, runtime.clone()).await.unwrap();
    (runtime, service)
}

impl<'a> Fixture<'a> {
    async fn new(home: &'a TestHome) -> Self {
        let (runtime, service) = start(home).await;
        let info = create(&service).await;
        sh(&service, &info, "echo kept > file").await;
        let waiting = "while [ ! -e end ]; do sleep 0.01; done; echo ended";
        let waiting = RunRequest { timeout: Some(Duration::from_secs(600)), ..request(waiting) };
        let command = service.run(&alice(), &info.sandbox.id, waiting).await.unwrap().id;
        Self { home, runtime, service, info, command }
    }

    fn id(&self) -> &str {
        &self.info.sandbox.id
    }

    /// Begins a pause, or without `mode` a resume, and kills the server when it reaches a step. Continues with the next
    /// server.
    async fn killed_at(self, step: Step, mode: Option<PauseMode>) -> Self {
        self.runtime.hang_at(step);
        let (service, id) = (self.service.clone(), self.id().to_owned());
        tokio::spawn(async move {
            match mode {
                Some(mode) => service.pause(&alice(), &id, mode).await,
                None => service.resume(&alice(), &id, creator(), DEFAULT_LIFETIME).await,
            }
        });
        self.runtime.wait_until_it_hangs().await;
        self.restart().await
    }

    async fn restart(self) -> Self {
        let Self { home, service, info, command, .. } = self;
        service.close().await;
        drop(service);
        let (runtime, service) = start(home).await;
        Self { home, runtime, service, info, command }
    }

    async fn step(&self) -> Option<PauseStep> {
        self.service.get(&alice(), self.id()).await.unwrap().sandbox.pause
    }

    /// Asserts that the sandbox runs as if nothing had happened, and can be paused.
    async fn assert_unaffected(&self) {
        assert_eq!((state(&self.service, self.id()).await, self.step().await), (VisibleState::Running, None));
        assert!(pause_snapshots(&self.service).is_empty());
        assert_eq!(self.home.catalog().await.snapshots().count("alice").await.unwrap(), 0);
        sh(&self.service, &self.info, "touch end").await;
        let command = self.service.command(&alice(), self.id(), &self.command).await.unwrap();
        let ran = read(&command, 0).await;
        assert_eq!((ran.stdout.as_str(), ran.exit.exit_code), ("ended\n", 0));
        pause(&self.service, self.id(), PauseMode::Disk).await;
        self.assert_resumes().await;
    }

    /// Asserts that the sandbox is paused on disk with all its files, and nothing else of it is left.
    async fn assert_on_disk(&self) {
        assert_eq!(
            (state(&self.service, self.id()).await, self.step().await),
            (VisibleState::Paused, Some(PauseStep::Disk))
        );
        wait_until_freed(self.home, self.id()).await;
        assert!(!self.home.process(self.id()).is_running());
        assert_eq!(pause_snapshots(&self.service).len(), 1);
        self.assert_resumes().await;
    }

    async fn assert_resumes(&self) {
        resume(&self.service, self.id()).await;
        assert_eq!(sh(&self.service, &self.info, "cat file").await.stdout, "kept\n");
        // It can be committed, so nothing of the interrupted operation is left.
        self.service.commit(&alice(), self.id(), NewCommit::default()).await.unwrap();
    }
}

async fn killed_before_the_freeze_of_a_pause_in_memory(home: &TestHome) {
    let fixture = Fixture::new(home).await.killed_at(Step::BeforeFreeze, Some(PauseMode::Memory)).await;
    fixture.assert_unaffected().await;
}

async fn killed_before_a_pause_in_memory_is_recorded(home: &TestHome) {
    let fixture = Fixture::new(home).await.killed_at(Step::AfterFreeze, Some(PauseMode::Memory)).await;
    fixture.assert_unaffected().await;
}

async fn killed_before_the_thaw_of_a_resume(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    pause(&fixture.service, fixture.id(), PauseMode::Memory).await;
    let fixture = fixture.killed_at(Step::BeforeThaw, None).await;
    // The resume was recorded.
    fixture.assert_unaffected().await;
}

async fn killed_before_the_freeze_of_a_pause_to_disk(home: &TestHome) {
    let fixture = Fixture::new(home).await.killed_at(Step::BeforeFreeze, Some(PauseMode::Disk)).await;
    fixture.assert_unaffected().await;
}

async fn killed_after_the_freeze_of_a_pause_to_disk(home: &TestHome) {
    let fixture = Fixture::new(home).await.killed_at(Step::AfterFreeze, Some(PauseMode::Disk)).await;
    fixture.assert_unaffected().await;
}

async fn killed_before_the_snapshot_of_a_pause_is_recorded(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    let id = fixture.id();
    let commit = fixture.service.commit(&alice(), id, NewCommit::default()).await.unwrap();
    let (snapshot, store) = (commit.committed.snapshot.id, fixture.service.workspaces().store());
    // The name after the id is arbitrary. The reference tells the next server that a pause was interrupted.
    let name = format!("pauses/{id}/pause-1");
    store.set_reference(&name, Expect::Absent, snapshot, Durability::Synced).unwrap();
    let row = fixture.service.get(&alice(), id).await.unwrap().sandbox;
    let pausing = Change { pause: Some(Some(PauseStep::Pausing)), ..Change::default() };
    let no_events = &[];
    home.catalog().await.sandboxes().change(id, row.version, pausing, no_events).await.unwrap();
    fixture.service.runtime().freeze(id, &home.dir(&fixture.info)).await.unwrap();
    let fixture = fixture.restart().await;
    assert_eq!(fixture.service.workspaces().store().find_snapshot(&snapshot).unwrap(), None);
    fixture.assert_unaffected().await;
}

async fn killed_before_the_processes_of_a_paused_sandbox_are_killed(home: &TestHome) {
    let fixture = Fixture::new(home).await.killed_at(Step::BeforeKill, Some(PauseMode::Disk)).await;
    fixture.assert_on_disk().await;
}

async fn killed_before_a_pause_to_disk_is_recorded(home: &TestHome) {
    let fixture = Fixture::new(home).await.killed_at(Step::AfterKill, Some(PauseMode::Disk)).await;
    fixture.assert_on_disk().await;
}

async fn killed_before_the_workspace_of_a_paused_sandbox_is_removed(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    pause(&fixture.service, fixture.id(), PauseMode::Disk).await;
    wait_until_freed(home, fixture.id()).await;
    // The service forgets the workspace a moment after it has removed the directory.
    let create = || fixture.service.workspaces().create(fixture.id(), &Default::default());
    wait_until("the workspace can be created again", async || create().is_ok()).await;
    let fixture = fixture.restart().await;
    fixture.assert_on_disk().await;
}

async fn killed_before_the_workspace_of_a_resume_is_made(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    pause(&fixture.service, fixture.id(), PauseMode::Disk).await;
    let fixture = fixture.killed_at(Step::BeforeWorkspace, None).await;
    fixture.assert_on_disk().await;
}

async fn killed_before_a_resumed_sandbox_starts(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    pause(&fixture.service, fixture.id(), PauseMode::Disk).await;
    let fixture = fixture.killed_at(Step::BeforeStart, None).await;
    fixture.assert_on_disk().await;
}

async fn killed_before_a_resume_is_recorded(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    pause(&fixture.service, fixture.id(), PauseMode::Disk).await;
    let fixture = fixture.killed_at(Step::AfterStart, None).await;
    fixture.assert_on_disk().await;
}

async fn processes_of_a_paused_sandbox_die_with_the_machine(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    let id = fixture.id().to_owned();
    let before = pause(&fixture.service, &id, PauseMode::Memory).await;
    let process = home.process(&id);
    fixture.service.close().await;
    process.signal(Signal::KILL);
    fixture.service.runtime().thaw(&id, &home.dir(&fixture.info)).await.unwrap();
    wait_until("it ended", async || !process.is_running()).await;
    let fixture = fixture.restart().await;
    let sandbox = fixture.service.get(&alice(), &id).await.unwrap().sandbox;
    assert_eq!((sandbox.state, sandbox.pause), (State::Stopped, None));
    // While it was paused, it had the later expiry time of paused sandboxes.
    assert!(sandbox.expires_at < before.sandbox.expires_at, "the rest of its lifetime continues");
    let refused = fixture.service.resume(&alice(), &id, creator(), DEFAULT_LIFETIME).await.unwrap_err();
    assert!(matches!(refused, SandboxError::NotRunning { .. }), "{refused}");
}

async fn a_kill_that_fails_is_tried_again(home: &TestHome) {
    let fixture = Fixture::new(home).await;
    fixture.runtime.failing_ends.store(2, std::sync::atomic::Ordering::SeqCst);
    let failed = fixture.service.pause(&alice(), fixture.id(), PauseMode::Disk).await.unwrap_err();
    assert!(matches!(failed, SandboxError::Operation { .. }), "{failed}");
    wait_until("it is paused", async || state(&fixture.service, fixture.id()).await == VisibleState::Paused)
        .await;
    fixture.assert_on_disk().await;
}
