//! Pauses and resumes that race with other operations on the same sandbox.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::collections::BTreeMap;
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::time::{sleep, timeout};
use workspace_catalog::VisibleState;
use workspace_sandbox::{Creator, Fork, NewCommit, PauseMode, ReclaimPolicy, SandboxError, Scope, Service};

use crate::home::{DEFAULT_LIFETIME, TIMEOUT, TestHome, alice, create, creator, read, request, sh};
use crate::kind::RuntimeKind;
use crate::pauses::pause_snapshots;
use crate::trials;

/// Time limit of every call. It is generous: only a call that hangs exceeds it.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    trials![operations_that_race_with_pauses_lose_nothing]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    PauseToDisk,
    PauseInMemory,
    Resume,
    Run,
    Commit,
    Fork,
    Delete,
}

const STEPS: [Step; 8] = [
    Step::PauseToDisk,
    Step::PauseInMemory,
    Step::Resume,
    Step::Run,
    Step::Run,
    Step::Commit,
    Step::Fork,
    Step::Delete,
];

/// Returns the number of rounds, which is larger with `WORKSPACE_TEST_FULL`.
fn rounds(kind: RuntimeKind) -> u64 {
    let full = std::env::var_os("WORKSPACE_TEST_FULL").is_some();
    match (kind, full) {
        (RuntimeKind::Embedded, false) => 24,
        (RuntimeKind::Embedded, true) => 400,
        (_, false) => 6,
        (_, true) => 60,
    }
}

/// Returns a caller without quotas.
fn unlimited_creator() -> Creator {
    Creator { unlimited: true, ..creator() }
}

/// Random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Appends a line to a file, and returns whether the command succeeded.
async fn append(service: &Service, id: &str, line: u64) -> Result<bool, SandboxError> {
    let command = service.run(&alice(), id, request(&format!("echo {line} >> lines && sync lines"))).await?;
    let exit = read(&command, 0).await.exit;
    Ok(exit.failure_reason.is_none() && exit.exit_code == 0)
}

async fn operations_that_race_with_pauses_lose_nothing(home: &TestHome) {
    let service = home.start_with(|settings| settings.max_sandboxes = 1_000).await;
    let (mut random, mut answers) = (Random(3), BTreeMap::<(Step, String), usize>::new());
    for round in 0..rounds(home.kind) {
        let info = create(&service).await;
        let id = info.sandbox.id.as_str();
        let mut racing = Vec::new();
        for (number, step) in (0..).zip(STEPS) {
            let skipped = if step == Step::Delete { random.below(3) != 0 } else { random.below(4) == 0 };
            let delay = Duration::from_millis(random.below(60));
            if !skipped {
                let (service, id) = (service.clone(), id.to_owned());
                racing.push(tokio::spawn(async move {
                    sleep(delay).await;
                    let done = timeout(CALL_TIMEOUT, perform(&service, &id, step, number)).await;
                    (
                        step,
                        number,
                        done.unwrap_or_else(|_| {
                            panic!("{step:?} of {id} takes longer than {CALL_TIMEOUT:?}")
                        }),
                    )
                }));
            }
        }
        let (mut acknowledged, mut is_deleted) = (Vec::new(), false);
        for one in racing {
            let (step, number, answer) = one.await.unwrap();
            is_deleted |= step == Step::Delete;
            if step == Step::Run && answer == "done" {
                acknowledged.push(number);
            }
            *answers.entry((step, answer)).or_default() += 1;
        }
        if !is_deleted {
            assert_complete(&service, id, &acknowledged, round).await;
        }
        remove_all(&service).await;
    }
    eprintln!("{answers:#?}");
    assert!(answers.keys().any(|(step, answer)| *step == Step::PauseToDisk && answer == "done"));
    assert!(service.wait_for_removed_files(CALL_TIMEOUT).await);
    assert!(pause_snapshots(&service).is_empty());
    for directory in ["sandboxes", "workspaces"] {
        let left = std::fs::read_dir(home.path().join(directory)).unwrap().flatten();
        let left: Vec<_> =
            left.filter(|entry| entry.file_name().to_string_lossy().starts_with("sbx-")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Asserts that a sandbox runs or can be resumed, and has the changes of all commands that succeeded.
async fn assert_complete(service: &Service, id: &str, acknowledged: &[u64], round: u64) {
    let info = service.get(&alice(), id).await.unwrap();
    let state = info.sandbox.visible_state();
    assert!(matches!(state, VisibleState::Running | VisibleState::Paused), "round {round}: {state}");
    let info = service.resume(&alice(), id, unlimited_creator(), DEFAULT_LIFETIME).await.unwrap();
    let lines = sh(service, &info, "cat lines 2>/dev/null").await.stdout;
    for number in acknowledged {
        assert!(
            lines.lines().any(|line| line == number.to_string()),
            "round {round}: {number} is not in {lines:?}"
        );
    }
}

/// Takes a step, and returns a word for its result. Panics at an unexpected one.
async fn perform(service: &Service, id: &str, step: Step, number: u64) -> String {
    let scope = alice();
    let done = match step {
        Step::PauseToDisk => service.pause(&scope, id, PauseMode::Disk).await.map(drop),
        Step::PauseInMemory => service.pause(&scope, id, PauseMode::Memory).await.map(drop),
        Step::Resume => service.resume(&scope, id, unlimited_creator(), DEFAULT_LIFETIME).await.map(drop),
        Step::Run => match timeout(Duration::from_secs(5), append(service, id, number)).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => return "failed".to_owned(),
            Ok(Err(error)) => Err(error),
            // It waits for a resume.
            Err(_) => return "frozen".to_owned(),
        },
        Step::Commit => service.commit(&scope, id, NewCommit::default()).await.map(drop),
        Step::Fork => service
            .fork(&scope, id, unlimited_creator(), Fork { count: 1, ..Fork::default() })
            .await
            .map(drop),
        Step::Delete => service.remove(&scope, id, ReclaimPolicy::Delete).await.map(drop),
    };
    match done {
        Ok(()) => "done".to_owned(),
        Err(SandboxError::NotFound { .. }) => "not found".to_owned(),
        Err(SandboxError::Paused { .. }) => "is paused".to_owned(),
        Err(SandboxError::NotRunning { state, .. }) => format!("is {state}"),
        // Its agent was ended with it.
        Err(SandboxError::AgentAway { .. } | SandboxError::AgentLost { .. }) => "agent is away".to_owned(),
        Err(error) => panic!("{step:?} of {id}: {error} ({error:?})"),
    }
}

async fn remove_all(service: &Service) {
    let (infos, _) = service.list(&Scope::All, Default::default()).await.unwrap();
    for info in infos {
        let removed = service.remove(&Scope::All, &info.sandbox.id, ReclaimPolicy::Delete);
        match timeout(TIMEOUT, removed).await.unwrap() {
            Ok(_) | Err(SandboxError::NotFound { .. }) => {}
            Err(error) => panic!("{} stays: {error}", info.sandbox.id),
        }
    }
}
