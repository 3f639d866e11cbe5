//! Concurrent operations on one sandbox: every call ends with an expected result, and nothing is left behind.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::collections::BTreeMap;
use std::time::Duration;

use libtest_mimic::Trial;
use rustix::fs::{FlockOperation, flock};
use tokio::time::{sleep, timeout};
use workspace_catalog::{Change, Filter, State};
use workspace_host::NamespaceHolder;
use workspace_host::{Process, overlay};
use workspace_sandbox::{
    Creator, Fork, IfInUse, NewCommit, NewSandbox, ReclaimPolicy, SandboxError, SandboxInfo, Scope, Service,
};
use workspace_state::{NewSnapshot, SnapshotId};

use crate::home::{TIMEOUT, TestHome, alice, base, create, creator, request, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::trials;

/// Time limit of every call. It is generous: only a call that hangs exceeds it.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let mut frozen = trials![start_does_not_wait_for_a_single_sandbox];
    // Other runtimes are thawed by a daemon, or have no such freeze record.
    frozen.retain(|trial| trial.name().starts_with("embedded::"));
    let mut trials = trials![racing_operations_leave_nothing_behind];
    trials.append(&mut frozen);
    trials
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Commit,
    Fork,
    Restore,
    Changes,
    Delete,
    Expire,
}

const STEPS: [Step; 6] = [Step::Commit, Step::Fork, Step::Restore, Step::Changes, Step::Delete, Step::Expire];

/// Number of rounds on a runtime, each of which races all steps on a sandbox of its own.
fn rounds(kind: RuntimeKind) -> usize {
    let full = std::env::var_os("WORKSPACE_TEST_FULL").is_some();
    let rounds = std::env::var("WORKSPACE_TEST_RACES").ok().and_then(|text| text.parse().ok());
    rounds.unwrap_or(match (kind, full) {
        (RuntimeKind::Embedded, false) => 48,
        (RuntimeKind::Embedded, true) => 1_500,
        (_, false) => 8,
        (_, true) => 300,
    })
}

/// Random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Returns a caller without quotas.
fn unlimited_creator() -> Creator {
    Creator { unlimited: true, ..creator() }
}

async fn racing_operations_leave_nothing_behind(home: &TestHome) {
    let change = |settings: &mut workspace_sandbox::Settings| {
        settings.expiry_interval = Duration::from_millis(10);
        settings.max_sandboxes = 1_000;
    };
    let service = home.start_with(change).await;
    let snapshot = snapshot(&service);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut answers: BTreeMap<(Step, String), usize> = BTreeMap::new();
    let mut processes = Vec::new();
    let rounds = rounds(home.kind);
    for _ in 0..rounds {
        let new = NewSandbox { snapshot: Some(snapshot), ..base() };
        let info = timeout(CALL_TIMEOUT, service.create(unlimited_creator(), new)).await.unwrap().unwrap();
        if home.kind == RuntimeKind::Embedded {
            processes.extend(Process::read(&home.dir(&info).process()).unwrap());
        }
        let busy = "while :; do echo x >> file; (sleep 0.01 &); sleep 0.005; done";
        service.run(&alice(), &info.sandbox.id, request(busy)).await.unwrap();
        let mut racing = Vec::new();
        for step in STEPS {
            // Most come at once, deletion and expiry somewhat later.
            let spread = if matches!(step, Step::Delete | Step::Expire) { 60 } else { 15 };
            let pause = Duration::from_millis(random.below(spread));
            // A step is skipped now and then, so that others last.
            if random.below(4) == 0 {
                continue;
            }
            let (service, catalog, id) = (service.clone(), home.catalog().await, info.sandbox.id.clone());
            racing.push(tokio::spawn(async move {
                sleep(pause).await;
                let done = timeout(CALL_TIMEOUT, perform(&service, &catalog, &id, step, snapshot)).await;
                (step, done.unwrap_or_else(|_| panic!("{step:?} of {id} takes longer than {CALL_TIMEOUT:?}")))
            }));
        }
        for one in racing {
            let (step, answer) = one.await.unwrap();
            *answers.entry((step, answer)).or_default() += 1;
        }
        remove_all(&service).await;
    }
    eprintln!("{rounds} rounds: {answers:#?}");
    let deleted = answers.keys().any(|(step, answer)| *step == Step::Delete && answer == "done");
    assert!(deleted, "{answers:?}");
    let ids = assert_nothing_is_left(home, &service, &processes).await;
    // The next server has nothing to wait for.
    service.close().await;
    drop(service);
    let service = timeout(CALL_TIMEOUT, home.start()).await.unwrap();
    assert_eq!(service.list(&Scope::All, Filter::default()).await.unwrap().1, 0, "{ids:?}");
}

fn snapshot(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("file", "first\n").unwrap();
    tree.commit(NewSnapshot::default()).unwrap().id
}

/// Takes a step, and returns a word for its result. Panics at an unexpected one.
async fn perform(
    service: &Service,
    catalog: &workspace_catalog::Catalog,
    id: &str,
    step: Step,
    snapshot: SnapshotId,
) -> String {
    let buffered = NewCommit { buffered: true, ..NewCommit::default() };
    let scope = alice();
    let done = match step {
        Step::Commit => service.commit(&scope, id, buffered).await.map(drop),
        Step::Changes => service.changes(&scope, id).await.map(drop),
        Step::Restore => service.restore(&scope, id, snapshot, IfInUse::KillProcesses).await.map(drop),
        Step::Fork => {
            let fork = Fork { count: 1, commit: buffered, ..Fork::default() };
            service.fork(&scope, id, unlimited_creator(), fork).await.map(drop)
        }
        Step::Delete => service.remove(&scope, id, ReclaimPolicy::Delete).await.map(drop),
        Step::Expire => {
            let Ok(Some(found)) = catalog.sandboxes().get(id).await else { return "not found".to_owned() };
            let change = Change { expires_at: Some(found.created_at), ..Change::default() };
            // Another step may change it at the same time.
            drop(catalog.sandboxes().change(id, found.version, change, &[]).await);
            Ok(())
        }
    };
    match done {
        Ok(()) => "done".to_owned(),
        Err(SandboxError::NotFound { .. }) => "not found".to_owned(),
        Err(SandboxError::NotRunning { state: State::Stopping, .. }) => "is stopping".to_owned(),
        Err(SandboxError::NotRunning { state: State::Error, .. }) => "is in error".to_owned(),
        Err(SandboxError::Expired { .. }) => "has expired".to_owned(),
        // Its agent was ended with it, and its row is about to be deleted.
        Err(SandboxError::AgentAway { .. }) if step == Step::Restore => "agent is away".to_owned(),
        Err(error) => panic!("{step:?} of {id}: {error} ({error:?})"),
    }
}

async fn remove_all(service: &Service) {
    loop {
        let (infos, _) = service.list(&Scope::All, Filter::default()).await.unwrap();
        if infos.is_empty() {
            return;
        }
        for SandboxInfo { sandbox, .. } in infos {
            match timeout(CALL_TIMEOUT, service.remove(&Scope::All, &sandbox.id, ReclaimPolicy::Delete))
                .await
                .unwrap()
            {
                Ok(_) | Err(SandboxError::NotFound { .. }) => {}
                Err(error) => panic!("{} stays: {error}", sandbox.id),
            }
        }
    }
}

/// Checks that no file, process, cgroup, mount or row is left, and returns the ids that were checked.
async fn assert_nothing_is_left(home: &TestHome, service: &Service, processes: &[Process]) -> Vec<String> {
    assert!(service.wait_for_removed_files(CALL_TIMEOUT).await);
    let left = |directory: &str| {
        let entries = std::fs::read_dir(home.path().join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(left("sandboxes"), [""; 0]);
    let workspaces: Vec<_> = left("workspaces").into_iter().filter(|name| name.starts_with("sbx-")).collect();
    assert_eq!(workspaces, [""; 0]);
    assert!(processes.iter().all(|process| !process.is_running()));
    let ids = home.sandbox_ids().await;
    let groups = workspace_host::cgroup::ids().unwrap();
    assert!(groups.iter().all(|group| !ids.contains(group)), "{groups:?}");
    let mounted = overlay::mounted(&NamespaceHolder::None, home.path()).unwrap();
    let of_sandboxes = mounted.iter().filter(|path| ids.iter().any(|id| path.to_string_lossy().contains(id)));
    assert_eq!(of_sandboxes.count(), 0, "{mounted:?}");
    let known = service.runtime().known_ids().await.unwrap();
    assert!(known.iter().all(|id| !ids.contains(id)), "{known:?}");
    ids
}

/// A sandbox cannot be thawed as long as its freeze record is locked.
async fn start_does_not_wait_for_a_single_sandbox(home: &TestHome) {
    let service = home.start().await;
    let (stuck, other) = (create(&service).await, create(&service).await);
    service.runtime().freeze(&stuck.sandbox.id, &home.dir(&stuck)).await.unwrap();
    service.close().await;
    drop(service);
    let record = std::fs::File::open(home.dir(&stuck).freeze_record()).unwrap();
    flock(&record, FlockOperation::LockExclusive).unwrap();
    let service = timeout(CALL_TIMEOUT, home.start()).await.expect("the server starts");
    let sandbox = service.get(&alice(), &stuck.sandbox.id).await.unwrap().sandbox;
    assert_eq!(sandbox.state, State::Error);
    let reason = sandbox.state_reason.unwrap();
    assert!(reason.contains("could not be recovered yet"), "{reason}");
    let connected =
        async |info: &SandboxInfo| service.get(&alice(), &info.sandbox.id).await.unwrap().agent_connected;
    wait_until("the other is back", async || connected(&other).await).await;
    assert_eq!(sh(&service, &other, "echo fine").await.stdout, "fine\n");
    flock(&record, FlockOperation::Unlock).unwrap();
    wait_until("it is recovered", async || connected(&stuck).await).await;
    assert_eq!(sh(&service, &stuck, "echo fine").await.stdout, "fine\n");
    for info in [&stuck, &other] {
        timeout(TIMEOUT, service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete))
            .await
            .unwrap()
            .unwrap();
    }
}
