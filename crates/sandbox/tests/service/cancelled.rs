//! Operations whose request is cancelled.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `sh` runs a shell command
//! in a sandbox and returns its result.

use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::{CommandState, Filter, State};
use workspace_sandbox::{
    Fork, IfInUse, NewCommit, NewSandbox, ProviderKind, SandboxError, SandboxInfo, Scope, Service, Size,
    TerminalRequest,
};
use workspace_state::{Cancel, NewSnapshot, SnapshotId};

use crate::home::{ANY_TAG, TIMEOUT, TestHome, alice, base as new, creator, request, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        closing_the_service_cancels_operations_without_effect,
        cancelled_commit_makes_no_snapshot_and_thaws_the_sandbox,
        cancelled_changes_thaw_the_sandbox,
        cancelled_fork_makes_no_sandbox,
        cancelled_restore_leaves_the_workspace_unchanged,
        cancelled_restore_in_place_leaves_the_workspace_unchanged,
        request_waiting_for_another_operation_can_be_cancelled,
        command_whose_request_is_dropped_is_not_running_forever,
    ]
}

/// Polls a future so many times, and drops it. Returns true if it was ready.
async fn poll_times<T>(future: impl Future<Output = T>, times: usize) -> bool {
    let (mut future, mut polled) = (std::pin::pin!(future), 0);
    let ready = std::future::poll_fn(|context| {
        polled += 1;
        match future.as_mut().poll(context) {
            std::task::Poll::Ready(_) => std::task::Poll::Ready(true),
            std::task::Poll::Pending if polled >= times => std::task::Poll::Ready(false),
            std::task::Poll::Pending => std::task::Poll::Pending,
        }
    });
    ready.await
}

/// A request is dropped at each of its steps, as by a client that leaves.
async fn command_whose_request_is_dropped_is_not_running_forever(home: &TestHome) {
    let service = home.start().await;
    let info = service.create(creator(), new()).await.unwrap();
    let id = info.sandbox.id.as_str();
    let mut times = 1;
    while !poll_times(service.run(&alice(), id, request("true")), times).await {
        times += 1;
    }
    assert!(times > 1, "it was dropped {times} times");
    let size = Size { cols: 80, rows: 24 };
    let command = Some("true".to_owned());
    let terminal = || TerminalRequest {
        size,
        shell: None,
        command: command.clone(),
        cwd: None,
        envs: [].into(),
        user: None,
    };
    let mut times = 1;
    while !poll_times(service.open_terminal(&alice(), id, terminal()), times).await {
        times += 1;
    }
    wait_until("every recorded command has ended", async || {
        let commands = service.commands(&alice(), id, ANY_TAG, 1_000).await.unwrap();
        commands.iter().all(|command| command.state == CommandState::Exited)
    })
    .await;
    assert_eq!(sh(&service, &info, "echo works").await.stdout, "works\n");
}

/// Files in a snapshot that takes a while to write.
const LARGE_SNAPSHOT_FILES: usize = 6_000;

/// Last argument of [`create_with`]: the server selects the provider.
const ANY_PROVIDER: Option<ProviderKind> = None;

async fn create_with(service: &Service, snapshot: SnapshotId, provider: Option<ProviderKind>) -> SandboxInfo {
    let new = NewSandbox { snapshot: Some(snapshot), provider, ..new() };
    service.create(creator(), new).await.unwrap()
}

/// Makes a snapshot of one file.
fn small(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("old", "old\n").unwrap();
    tree.commit(NewSnapshot::default()).unwrap().id
}

/// Makes a snapshot of many files.
fn large(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    for number in 0..LARGE_SNAPSHOT_FILES {
        tree.write(format!("{}/{number}", number % 50), format!("{number}\n")).unwrap();
    }
    tree.commit(NewSnapshot::default()).unwrap().id
}

/// Fills a workspace so that reading it takes a while.
async fn fill(service: &Service, info: &SandboxInfo) {
    let ran = sh(service, info, "head -c 100000000 /dev/urandom > big && echo done").await;
    assert_eq!(ran.stdout, "done\n", "{ran:?}");
}

fn snapshots(service: &Service) -> usize {
    service.workspaces().store().snapshots().unwrap().len()
}

/// Waits until an operation has reached a point, and drops it. It must not have ended before.
async fn drop_when<T: std::fmt::Debug>(
    operation: impl Future<Output = Result<T, SandboxError>>,
    far: impl AsyncFn() -> bool,
) {
    let far = async {
        while !far().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        () = far => {}
        over = operation => panic!("it was over too early: {over:?}"),
        () = tokio::time::sleep(TIMEOUT) => panic!("it did not come so far"),
    }
}

/// Asserts that the sandbox is not frozen, and answers.
async fn assert_usable(home: &TestHome, service: &Service, info: &SandboxInfo) {
    wait_until("it goes on", async || !home.dir(info).freeze_record().exists()).await;
    assert_eq!(sh(service, info, "echo works").await.stdout, "works\n");
    let now = service.get(&alice(), &info.sandbox.id).await.unwrap();
    assert_eq!(now.sandbox.state, State::Running);
}

async fn closing_the_service_cancels_operations_without_effect(home: &TestHome) {
    let cancel = Cancel::new();
    let service = home.start_with(|settings| settings.cancel = cancel.clone()).await;
    let (first, other) = (small(&service), large(&service));
    let infos = [
        create_with(&service, first, ANY_PROVIDER).await,
        create_with(&service, first, Some(ProviderKind::Copy)).await,
    ];
    for info in &infos {
        sh(&service, info, "echo new > new").await;
    }
    let before = snapshots(&service);
    cancel.cancel();
    for info in &infos {
        let id = info.sandbox.id.as_str();
        let fork = Fork { count: 2, ..Fork::default() };
        let outcomes = [
            service.commit(&alice(), id, NewCommit::default()).await.map(drop),
            service.changes(&alice(), id).await.map(drop),
            service.fork(&alice(), id, creator(), fork).await.map(drop),
            service.restore(&alice(), id, other, IfInUse::KillProcesses).await.map(drop),
            service.collect().await.map(drop),
            service.create(creator(), NewSandbox { snapshot: Some(other), ..new() }).await.map(drop),
        ];
        for outcome in outcomes {
            assert!(matches!(outcome, Err(SandboxError::Cancelled)), "{outcome:?}");
        }
        assert_eq!(sh(&service, info, "ls").await.stdout, "new\nold\n");
        assert_usable(home, &service, info).await;
    }
    assert_eq!(snapshots(&service), before);
    let (all, _) = service.list(&Scope::All, Filter::default()).await.unwrap();
    assert_eq!(all.len(), infos.len(), "{all:?}");
}

async fn cancelled_commit_makes_no_snapshot_and_thaws_the_sandbox(home: &TestHome) {
    let service = home.start().await;
    let info = create_with(&service, small(&service), ANY_PROVIDER).await;
    fill(&service, &info).await;
    let before = snapshots(&service);
    let dir = home.dir(&info);
    let (alice, id) = (alice(), info.sandbox.id.as_str());
    drop_when(service.commit(&alice, id, NewCommit::default()), async || dir.freeze_record().exists()).await;
    assert_usable(home, &service, &info).await;
    wait_until("its snapshot is gone", async || snapshots(&service) == before).await;
    // The next one succeeds, with the same parent.
    let taken = service.commit(&alice, id, NewCommit::default()).await.unwrap();
    let tree = service.workspaces().store().restore(&taken.committed.snapshot.id).unwrap();
    assert!(tree.exists("big").unwrap());
    assert_eq!(taken.committed.snapshot.parents, Vec::from_iter(info.config.snapshot));
}

async fn cancelled_changes_thaw_the_sandbox(home: &TestHome) {
    let service = home.start().await;
    let info = create_with(&service, small(&service), ANY_PROVIDER).await;
    fill(&service, &info).await;
    let dir = home.dir(&info);
    drop_when(async { service.changes(&alice(), &info.sandbox.id).await.map(drop) }, async || {
        dir.freeze_record().exists()
    })
    .await;
    assert_usable(home, &service, &info).await;
    let (changes, _) = service.changes(&alice(), &info.sandbox.id).await.unwrap();
    assert_eq!(changes.differences().unwrap().len(), 1);
}

async fn cancelled_fork_makes_no_sandbox(home: &TestHome) {
    let service = home
        .start_with(|settings| {
            settings.creations_at_once = 1;
            settings.sandboxes_per_owner = 50;
        })
        .await;
    let info = create_with(&service, small(&service), ANY_PROVIDER).await;
    let before = snapshots(&service);
    let count = async || service.list(&Scope::All, Filter::default()).await.unwrap().0.len();
    let fork = Fork { count: 30, ..Fork::default() };
    let (alice, id) = (alice(), info.sandbox.id.as_str());
    drop_when(service.fork(&alice, id, creator(), fork), async || count().await > 2).await;
    wait_until("they are gone", async || count().await == 1 && snapshots(&service) == before).await;
    assert_usable(home, &service, &info).await;
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert_eq!(service.workspaces().list().unwrap().len(), 1);
}

/// Counts the files in a directory, and below.
fn files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| if entry.file_type().is_ok_and(|kind| kind.is_dir()) { files(&entry.path()) } else { 1 })
        .sum()
}

async fn cancelled_restore_leaves_the_workspace_unchanged(home: &TestHome) {
    let service = home.start().await;
    if !service.runtime().can_swap_workspace() {
        return;
    }
    let info = create_with(&service, small(&service), ANY_PROVIDER).await;
    if info.config.provider != Some(ProviderKind::Overlay) {
        return;
    }
    let (id, to, layers) = (info.sandbox.id.as_str(), large(&service), home.path().join("layers/layers"));
    let before = files(&layers);
    drop_when(service.restore(&alice(), id, to, IfInUse::KillProcesses), async || {
        files(&layers) > before + 50
    })
    .await;
    wait_until("it goes on", async || !home.dir(&info).freeze_record().exists()).await;
    assert_eq!(sh(&service, &info, "ls").await.stdout, "old\n");
    wait_until("what it wrote is gone", async || files(&layers) == before).await;
    assert_usable(home, &service, &info).await;
    assert_eq!(service.get(&alice(), id).await.unwrap().config.snapshot, info.config.snapshot);
    // The next one succeeds.
    service.restore(&alice(), id, to, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(
        sh(&service, &info, "find . -type f | wc -l").await.stdout.trim(),
        LARGE_SNAPSHOT_FILES.to_string()
    );
}

async fn cancelled_restore_in_place_leaves_the_workspace_unchanged(home: &TestHome) {
    let service = home.start().await;
    let info = create_with(&service, small(&service), Some(ProviderKind::Copy)).await;
    sh(&service, &info, "mkdir own; echo mine > own/file; ln old link").await;
    let (id, to, tree) = (info.sandbox.id.as_str(), large(&service), home.workspace(&info));
    drop_when(service.restore(&alice(), id, to, IfInUse::KillProcesses), async || files(&tree) > 50).await;
    assert_usable(home, &service, &info).await;
    let shown = sh(&service, &info, "find . -type f | sort; cat own/file link; stat -c %h old").await;
    assert_eq!(shown.stdout, "./link\n./old\n./own/file\nmine\nold\n2\n");
    service.restore(&alice(), id, to, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(
        sh(&service, &info, "find . -type f | wc -l").await.stdout.trim(),
        LARGE_SNAPSHOT_FILES.to_string()
    );
}

async fn request_waiting_for_another_operation_can_be_cancelled(home: &TestHome) {
    let service = home.start().await;
    let info = create_with(&service, small(&service), ANY_PROVIDER).await;
    fill(&service, &info).await;
    let (dir, id, before) = (home.dir(&info), info.sandbox.id.clone(), snapshots(&service));
    let first = service.clone();
    let of_first = id.clone();
    let first = tokio::spawn(async move { first.commit(&alice(), &of_first, NewCommit::default()).await });
    wait_until("the first one is under way", async || dir.freeze_record().exists()).await;
    drop(
        tokio::time::timeout(Duration::from_millis(1), service.commit(&alice(), &id, NewCommit::default()))
            .await,
    );
    first.await.unwrap().unwrap();
    assert_usable(home, &service, &info).await;
    // If it had continued, it would have got the lock before this one.
    service.changes(&alice(), &id).await.unwrap();
    assert_eq!(snapshots(&service), before + 1);
}
