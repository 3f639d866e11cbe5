//! Operations that nobody waits for any more.

use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::{Filter, State};
use workspace_sandbox::{Fork, Kind as Provider, NewCommit, NewSandbox, SandboxError, Scope, Service, View};
use workspace_state::{Cancel, NewSnapshot, SnapshotId};

use crate::home::{Home, PATIENCE, alice, base as new, sh, soon, wanted};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        operations_of_a_service_that_stops_change_nothing,
        a_commit_whose_client_leaves_stops_and_lets_the_sandbox_go_on,
        changes_whose_client_leaves_let_the_sandbox_go_on,
        a_fork_whose_client_leaves_makes_nothing,
        a_restore_whose_client_leaves_changes_nothing,
        a_restore_in_place_whose_client_leaves_changes_nothing,
        whoever_waits_for_another_operation_may_leave,
    ]
}

/// Files in a snapshot that takes a while to write.
const MANY: usize = 6_000;

async fn create_with(service: &Service, snapshot: SnapshotId, provider: Option<Provider>) -> View {
    let new = NewSandbox { snapshot: Some(snapshot), provider, ..new() };
    service.create(wanted(), new).await.unwrap()
}

/// A snapshot of one file.
fn small(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("old", "old\n").unwrap();
    tree.commit(NewSnapshot::default()).unwrap().id
}

/// A snapshot of many files.
fn large(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    for number in 0..MANY {
        tree.write(format!("{}/{number}", number % 50), format!("{number}\n")).unwrap();
    }
    tree.commit(NewSnapshot::default()).unwrap().id
}

/// Gives a workspace so much that reading it takes a while.
async fn fill(service: &Service, view: &View) {
    let ran = sh(service, view, "head -c 100000000 /dev/urandom > big && echo done").await;
    assert_eq!(ran.stdout, "done\n", "{ran:?}");
}

fn snapshots(service: &Service) -> usize {
    service.workspaces().store().snapshots().unwrap().len()
}

/// Waits until an operation has come so far, and leaves it. It must not be over before.
async fn leave_when<T: std::fmt::Debug>(
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
        () = tokio::time::sleep(PATIENCE) => panic!("it did not come so far"),
    }
}

/// It stands no longer still, and answers.
async fn is_usable(home: &Home, service: &Service, view: &View) {
    soon("it goes on", async || !home.dir(view).frozen().exists()).await;
    assert_eq!(sh(service, view, "echo works").await.stdout, "works\n");
    let now = service.get(&alice(), &view.sandbox.id).await.unwrap();
    assert_eq!(now.sandbox.state, State::Running);
}

async fn operations_of_a_service_that_stops_change_nothing(home: &Home) {
    let cancel = Cancel::new();
    let service = home.start_with(|settings| settings.cancel = cancel.clone()).await;
    let (first, other) = (small(&service), large(&service));
    let views =
        [create_with(&service, first, None).await, create_with(&service, first, Some(Provider::Copy)).await];
    for view in &views {
        sh(&service, view, "echo new > new").await;
    }
    let before = snapshots(&service);
    cancel.cancel();
    for view in &views {
        let id = view.sandbox.id.as_str();
        let fork = Fork { count: 2, ..Fork::default() };
        let outcomes = [
            service.commit(&alice(), id, NewCommit::default()).await.map(drop),
            service.changes(&alice(), id).await.map(drop),
            service.fork(&alice(), id, wanted(), fork).await.map(drop),
            service.restore(&alice(), id, other, true).await.map(drop),
            service.collect().await.map(drop),
            service.create(wanted(), NewSandbox { snapshot: Some(other), ..new() }).await.map(drop),
        ];
        for outcome in outcomes {
            assert!(matches!(outcome, Err(SandboxError::Cancelled)), "{outcome:?}");
        }
        assert_eq!(sh(&service, view, "ls").await.stdout, "new\nold\n");
        is_usable(home, &service, view).await;
    }
    assert_eq!(snapshots(&service), before);
    let (all, _) = service.list(&Scope::All, Filter::default()).await.unwrap();
    assert_eq!(all.len(), views.len(), "{all:?}");
}

async fn a_commit_whose_client_leaves_stops_and_lets_the_sandbox_go_on(home: &Home) {
    let service = home.start().await;
    let view = create_with(&service, small(&service), None).await;
    fill(&service, &view).await;
    let before = snapshots(&service);
    let dir = home.dir(&view);
    let (alice, id) = (alice(), view.sandbox.id.as_str());
    leave_when(service.commit(&alice, id, NewCommit::default()), async || dir.frozen().exists()).await;
    is_usable(home, &service, &view).await;
    soon("its snapshot is gone", async || snapshots(&service) == before).await;
    // Nothing is in the way of the next, which has the parent that it would have had.
    let taken = service.commit(&alice, id, NewCommit::default()).await.unwrap();
    let tree = service.workspaces().store().restore(&taken.committed.snapshot.id).unwrap();
    assert!(tree.exists("big").unwrap());
    assert_eq!(taken.committed.snapshot.parents, Vec::from_iter(view.config.snapshot));
}

async fn changes_whose_client_leaves_let_the_sandbox_go_on(home: &Home) {
    let service = home.start().await;
    let view = create_with(&service, small(&service), None).await;
    fill(&service, &view).await;
    let dir = home.dir(&view);
    leave_when(async { service.changes(&alice(), &view.sandbox.id).await.map(drop) }, async || {
        dir.frozen().exists()
    })
    .await;
    is_usable(home, &service, &view).await;
    let (changes, _) = service.changes(&alice(), &view.sandbox.id).await.unwrap();
    assert_eq!(changes.differences().unwrap().len(), 1);
}

async fn a_fork_whose_client_leaves_makes_nothing(home: &Home) {
    let service = home
        .start_with(|settings| {
            settings.creations_at_once = 1;
            settings.sandboxes_per_owner = 50;
        })
        .await;
    let view = create_with(&service, small(&service), None).await;
    let before = snapshots(&service);
    let count = async || service.list(&Scope::All, Filter::default()).await.unwrap().0.len();
    let fork = Fork { count: 30, ..Fork::default() };
    let (alice, id) = (alice(), view.sandbox.id.as_str());
    leave_when(service.fork(&alice, id, wanted(), fork), async || count().await > 2).await;
    soon("they are gone", async || count().await == 1 && snapshots(&service) == before).await;
    is_usable(home, &service, &view).await;
    assert!(service.files_removed(PATIENCE).await);
    assert_eq!(service.workspaces().list().unwrap().len(), 1);
}

/// Number of files in a directory, and below.
fn files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| if entry.file_type().is_ok_and(|kind| kind.is_dir()) { files(&entry.path()) } else { 1 })
        .sum()
}

async fn a_restore_whose_client_leaves_changes_nothing(home: &Home) {
    let service = home.start().await;
    if !service.runtime().can_swap_workspace() {
        return;
    }
    let view = create_with(&service, small(&service), None).await;
    if view.config.provider != Some(Provider::Overlay) {
        return;
    }
    let (id, to, layers) = (view.sandbox.id.as_str(), large(&service), home.path().join("layers/layers"));
    let before = files(&layers);
    leave_when(service.restore(&alice(), id, to, true), async || files(&layers) > before + 50).await;
    soon("it goes on", async || !home.dir(&view).frozen().exists()).await;
    assert_eq!(sh(&service, &view, "ls").await.stdout, "old\n");
    soon("what it wrote is gone", async || files(&layers) == before).await;
    is_usable(home, &service, &view).await;
    assert_eq!(service.get(&alice(), id).await.unwrap().config.snapshot, view.config.snapshot);
    // Nothing is in the way of the next.
    service.restore(&alice(), id, to, true).await.unwrap();
    assert_eq!(sh(&service, &view, "find . -type f | wc -l").await.stdout.trim(), MANY.to_string());
}

async fn a_restore_in_place_whose_client_leaves_changes_nothing(home: &Home) {
    let service = home.start().await;
    let view = create_with(&service, small(&service), Some(Provider::Copy)).await;
    sh(&service, &view, "mkdir own; echo mine > own/file; ln old link").await;
    let (id, to, tree) = (view.sandbox.id.as_str(), large(&service), home.workspace(&view));
    leave_when(service.restore(&alice(), id, to, true), async || files(&tree) > 50).await;
    is_usable(home, &service, &view).await;
    let shown = sh(&service, &view, "find . -type f | sort; cat own/file link; stat -c %h old").await;
    assert_eq!(shown.stdout, "./link\n./old\n./own/file\nmine\nold\n2\n");
    service.restore(&alice(), id, to, true).await.unwrap();
    assert_eq!(sh(&service, &view, "find . -type f | wc -l").await.stdout.trim(), MANY.to_string());
}

async fn whoever_waits_for_another_operation_may_leave(home: &Home) {
    let service = home.start().await;
    let view = create_with(&service, small(&service), None).await;
    fill(&service, &view).await;
    let (dir, id, before) = (home.dir(&view), view.sandbox.id.clone(), snapshots(&service));
    let first = service.clone();
    let of_first = id.clone();
    let first = tokio::spawn(async move { first.commit(&alice(), &of_first, NewCommit::default()).await });
    soon("the first one is under way", async || dir.frozen().exists()).await;
    drop(
        tokio::time::timeout(Duration::from_millis(1), service.commit(&alice(), &id, NewCommit::default()))
            .await,
    );
    first.await.unwrap().unwrap();
    is_usable(home, &service, &view).await;
    // One that had gone on would have had its turn before this one.
    service.changes(&alice(), &id).await.unwrap();
    assert_eq!(snapshots(&service), before + 1);
}
