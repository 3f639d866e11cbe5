//! Snapshots of a sandbox's workspace: create from one, commit, restore and fork.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::runtime::WorkspaceUse;
use workspace_sandbox::{
    Fork, IfInUse, KeptWorkspace, NewCommit, NewSandbox, ProviderKind, ReclaimPolicy, ResetMode,
    ResourceRequest, SandboxError, SandboxInfo, Scope, Service, WorkspaceError,
};
use workspace_state::{NewSnapshot, Snapshot, SnapshotId};
use workspace_test_support::runs_as_root;

use crate::home::{TIMEOUT, TestHome, alice, base as new, create, creator, read, request, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        sandbox_starts_with_its_snapshot,
        commit_is_consistent,
        concurrent_commits_are_serialized,
        sandbox_without_a_base_snapshot_can_be_committed,
        changes_are_listed,
        restore_replaces_the_workspace,
        commits_and_restores_have_events,
        forced_restore_ends_processes_that_use_the_workspace,
        commands_in_the_workspace_root_continue_after_a_restore,
        forced_restore_succeeds_while_a_process_keeps_entering_directories,
        forks_have_the_present_workspace,
        fork_makes_all_sandboxes_or_none,
        refused_fork_leaves_no_snapshot,
        snapshot_is_removed_if_its_owner_cannot_be_recorded,
        owner_keeps_a_workspace_as_a_removable_snapshot,
        snapshot_quota_is_enforced,
        sandbox_stays_stopped_if_its_workspace_cannot_be_kept,
        unknown_snapshot_is_refused_without_effect,
        next_server_continues_with_the_workspace,
        interrupted_restore_is_finished,
        restore_to_a_lost_mount_is_rolled_back,
        empty_files_count_for_the_disk_limit,
        restore_that_cannot_be_written_ends_no_process,
        sandbox_that_fills_the_disk_is_stopped_in_time,
        sandbox_that_fills_the_disk_at_once_is_stopped,
        deleted_open_files_count_for_the_disk_limit,
        unreadable_directories_count_for_the_disk_limit,
        former_files_are_removed_after_a_restore,
        former_files_cannot_be_written_after_a_restore,
        unforced_restore_ends_no_process,
        restores_and_commits_are_serialized,
    ]
}

/// Makes a snapshot with a few files.
fn snapshot(service: &Service) -> Snapshot {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("src/main", "first\n").unwrap();
    tree.write("read me", "please\n").unwrap();
    tree.symlink("link", "src/main").unwrap();
    tree.commit(NewSnapshot::default()).unwrap()
}

fn from(snapshot: SnapshotId) -> NewSandbox {
    NewSandbox { snapshot: Some(snapshot), ..new() }
}

async fn create_from(service: &Service, snapshot: SnapshotId) -> SandboxInfo {
    service.create(creator(), from(snapshot)).await.unwrap()
}

async fn commit(service: &Service, info: &SandboxInfo) -> Snapshot {
    let taken = service.commit(&alice(), &info.sandbox.id, NewCommit::default()).await.unwrap();
    taken.committed.snapshot
}

fn content(service: &Service, snapshot: &Snapshot, path: &str) -> String {
    let tree = service.workspaces().store().restore(&snapshot.id).unwrap();
    String::from_utf8(tree.read(path).unwrap()).unwrap()
}

async fn sandbox_starts_with_its_snapshot(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    let ran =
        sh(&service, &info, "cat src/main link 'read me'; echo own > own && rm link && mv src to; ls").await;
    assert_eq!(ran.stdout, "first\nfirst\nplease\nown\nread me\nto\n", "{ran:?}");
    // Another sandbox does not see that.
    let other = create_from(&service, info.config.snapshot.unwrap()).await;
    assert_eq!(sh(&service, &other, "ls").await.stdout, "link\nread me\nsrc\n");
    for id in [&info.sandbox.id, &other.sandbox.id] {
        service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
        assert!(service.wait_for_removed_files(TIMEOUT).await);
    }
    assert!(service.workspaces().list().unwrap().is_empty());
    assert!(service.workspaces().store().pins().unwrap().is_empty());
}

async fn commit_is_consistent(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    // Two files that are always written one right after the other.
    let count = "i=0; while :; do i=$((i+1)); echo $i > a; echo $i > b; done";
    service.run(&alice(), &info.sandbox.id, request(count)).await.unwrap();
    wait_until("it counts", async || !sh(&service, &info, "cat b 2>/dev/null").await.stdout.is_empty()).await;
    for _ in 0..5 {
        let id = &info.sandbox.id;
        let taken = service.commit(&alice(), id, NewCommit { buffered: true, ..NewCommit::default() }).await;
        let taken = taken.unwrap();
        assert!(taken.freeze.frozen.is_some());
        assert!(taken.committed.skipped.is_empty(), "{:?}", taken.committed.skipped);
        let number =
            |path| content(&service, &taken.committed.snapshot, path).trim().parse().unwrap_or(0_u64);
        let (a, b) = (number("a"), number("b"));
        // One may be empty, just being written; otherwise they differ by at most one.
        assert!(a == 0 || b == 0 || a == b || a == b + 1, "{a} {b}");
    }
    // It continues.
    let before = sh(&service, &info, "cat a").await.stdout;
    wait_until("it still counts", async || sh(&service, &info, "cat a").await.stdout != before).await;
    assert!(!home.dir(&info).freeze_record().exists());
}

async fn commits_and_restores_have_events(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    let id = info.sandbox.id.as_str();
    let taken = commit(&service, &info).await;
    service.restore(&alice(), id, taken.id, IfInUse::KillProcesses).await.unwrap();
    let catalog = home.catalog().await;
    let mut events = catalog.events().after(0, 100).await.unwrap();
    events.retain(|event| ["snapshot.created", "sandbox.restored"].contains(&event.kind.as_str()));
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["snapshot.created", "sandbox.restored"]);
    for event in &events {
        assert_eq!((event.owner.as_deref(), event.sandbox_id.as_deref()), (Some("alice"), Some(id)));
        assert_eq!(event.data["snapshotId"], taken.id.to_string());
    }
}

async fn sandbox_without_a_base_snapshot_can_be_committed(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    assert_eq!((info.config.snapshot, info.config.provider), (None, Some(ProviderKind::Copy)));
    sh(&service, &info, "mkdir d; echo hello > d/file").await;
    let first = commit(&service, &info).await;
    assert!(first.parents.is_empty());
    assert_eq!(content(&service, &first, "d/file"), "hello\n");
    sh(&service, &info, "echo more >> d/file").await;
    let second = commit(&service, &info).await;
    assert_eq!(second.parents, [first.id]);
    assert_eq!(content(&service, &second, "d/file"), "hello\nmore\n");
    // The owner is recorded.
    let catalog = home.catalog().await;
    assert!(catalog.snapshots().owns("alice", &second.id.to_string()).await.unwrap());
    assert!(!catalog.snapshots().owns("bob", &second.id.to_string()).await.unwrap());
    let hidden =
        service.commit(&Scope::Owner("bob".to_owned()), &info.sandbox.id, NewCommit::default()).await;
    assert!(matches!(hidden, Err(SandboxError::NotFound { .. })));
}

async fn changes_are_listed(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo x > new; rm link; echo second > src/main; echo t > t; rm t").await;
    let (changes, _) = service.changes(&alice(), id).await.unwrap();
    let listed: Vec<String> = changes
        .differences()
        .unwrap()
        .iter()
        .map(|one| format!("{:?} {}", one.kind, String::from_utf8_lossy(&one.path)))
        .collect();
    assert_eq!(listed, ["Removed link", "Added new", "Modified src/main"]);
    assert_eq!(changes.base, info.config.snapshot);
}

async fn restore_replaces_the_workspace(home: &TestHome) {
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo changed > src/main; mkdir more; echo x > more/x").await;
    let changed = commit(&service, &info).await;
    for _ in 0..2 {
        for (to, main, names) in [
            (base.id, "first", "link\nread me\nsrc\n"),
            (changed.id, "changed", "link\nmore\nread me\nsrc\n"),
        ] {
            let restored = service.restore(&alice(), id, to, IfInUse::KillProcesses).await.unwrap();
            assert_eq!(restored.info.config.snapshot, Some(to));
            assert_eq!(sh(&service, &info, "cat src/main; ls").await.stdout, format!("{main}\n{names}"));
            let (changes, _) = service.changes(&alice(), id).await.unwrap();
            assert!(changes.differences().unwrap().is_empty());
            sh(&service, &info, "echo lost > lost").await;
        }
    }
    assert_eq!(commit(&service, &info).await.parents, [changed.id]);
}

async fn forced_restore_ends_processes_that_use_the_workspace(home: &TestHome) {
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let id = info.sandbox.id.as_str();
    let outside = request("cd /tmp && exec sleep 1000");
    service.run(&alice(), id, outside).await.unwrap();
    let mut inside = service.run(&alice(), id, request("cd src; exec sleep 1000")).await.unwrap();
    let seen = "for c in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $c; echo; done | grep -c 'sleep 100[0]'";
    wait_until("both run", async || sh(&service, &info, seen).await.stdout == "2\n").await;
    let refused = service.restore(&alice(), id, base.id, IfInUse::Fail).await.unwrap_err();
    let SandboxError::WorkspaceUsed { processes, .. } = &refused else { panic!("{refused}") };
    assert_eq!(
        processes.iter().map(|process| (process.command.as_str(), process.usage)).collect::<Vec<_>>(),
        [("sleep", WorkspaceUse::Cwd)]
    );
    assert!(refused.to_string().contains("1 process of sandbox"), "{refused}");
    let restored = service.restore(&alice(), id, base.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(restored.killed.len(), 1);
    inside.wait().await.unwrap();
    assert_eq!(sh(&service, &info, seen).await.stdout, "1\n");
}

async fn commands_in_the_workspace_root_continue_after_a_restore(home: &TestHome) {
    let service = home.start().await;
    let base = snapshot(&service);
    // A workspace that is replaced, and one that is changed in place.
    for provider in [None, Some(ProviderKind::Copy)] {
        let info = service.create(creator(), NewSandbox { provider, ..from(base.id) }).await.unwrap();
        let id = info.sandbox.id.as_str();
        sh(&service, &info, "echo other > src/main").await;
        let wait = "touch $HOME/ready; until [ -e $HOME/go ]; do sleep 0.01; done; pwd -P; cat src/main; echo mine > new";
        let waiting = service.run(&alice(), id, request(wait)).await.unwrap();
        wait_until("it waits", async || sh(&service, &info, "ls $HOME").await.stdout.contains("ready")).await;
        let restored = service.restore(&alice(), id, base.id, IfInUse::Fail).await.unwrap();
        assert_eq!(restored.killed, []);
        sh(&service, &info, "touch $HOME/go").await;
        let ran = read(&waiting, 0).await;
        assert_eq!((ran.stdout.as_str(), ran.exit.exit_code), ("/workspace\nfirst\n", 0), "{ran:?}");
        let (changes, _) = service.changes(&alice(), id).await.unwrap();
        assert_eq!(changes.differences().unwrap().len(), 1);
        service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
    }
}

async fn forced_restore_succeeds_while_a_process_keeps_entering_directories(home: &TestHome) {
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let id = info.sandbox.id.as_str();
    let busy = "touch $HOME/ready; while :; do (cd src && sleep 0.02); done";
    service.run(&alice(), id, request(busy)).await.unwrap();
    wait_until("it is busy", async || sh(&service, &info, "ls $HOME").await.stdout.contains("ready")).await;
    sh(&service, &info, "echo gone > gone").await;
    service.restore(&alice(), id, base.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(sh(&service, &info, "ls").await.stdout, "link\nread me\nsrc\n");
}

async fn forks_have_the_present_workspace(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    sh(&service, &info, "echo present > state").await;
    let fork = Fork { count: 3, timeout: Some(Duration::from_secs(600)), ..Fork::default() };
    let forked = service.fork(&alice(), &info.sandbox.id, creator(), fork).await.unwrap();
    assert_eq!(forked.infos.len(), 3);
    for (number, one) in forked.infos.iter().enumerate() {
        assert_eq!(one.config.snapshot, Some(forked.commit.committed.snapshot.id));
        assert_eq!(one.config.limits, info.config.limits);
        let ran = sh(&service, one, &format!("cat state; echo {number} > state; cat src/main")).await;
        assert_eq!(ran.stdout, "present\nfirst\n");
    }
    for (number, one) in forked.infos.iter().enumerate() {
        assert_eq!(sh(&service, one, "cat state").await.stdout, format!("{number}\n"));
    }
    assert_eq!(sh(&service, &info, "cat state").await.stdout, "present\n");
}

async fn fork_makes_all_sandboxes_or_none(home: &TestHome) {
    let service = home.start_with(|settings| settings.sandboxes_per_owner = 3).await;
    let info = create_from(&service, snapshot(&service).id).await;
    let id = info.sandbox.id.as_str();
    let fork = |count| Fork { count, ..Fork::default() };
    let refused = service.fork(&alice(), id, creator(), fork(3)).await.unwrap_err();
    assert!(matches!(refused, SandboxError::TooMany { .. }), "{refused}");
    let (infos, total) = service.list(&alice(), workspace_catalog::Filter::default()).await.unwrap();
    assert_eq!((infos.len(), total), (1, 1));
    assert_eq!(service.workspaces().list().unwrap().len(), 1);
    assert_eq!(service.fork(&alice(), id, creator(), fork(2)).await.unwrap().infos.len(), 2);
    for count in [0, 1_001] {
        let refused = service.fork(&alice(), id, creator(), fork(count)).await.unwrap_err();
        assert!(matches!(refused, SandboxError::Invalid { field: "count", .. }), "{refused}");
    }
}

async fn refused_fork_leaves_no_snapshot(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    let id = info.sandbox.id.as_str();
    let snapshots = || service.workspaces().store().snapshots().unwrap().len();
    let before = snapshots();
    let refused = async |timeout| {
        let fork = Fork { count: 1, timeout: Some(timeout), ..Fork::default() };
        service.fork(&alice(), id, creator(), fork).await.unwrap_err()
    };
    let zero = refused(Duration::ZERO).await;
    assert!(matches!(zero, SandboxError::Invalid { field: "timeoutSeconds", .. }), "{zero}");
    let long = refused(Duration::from_secs(i64::MAX as u64)).await;
    assert!(matches!(long, SandboxError::Lifetime { .. }), "{long}");
    // The labels of the fork and those of the sandbox are too many together.
    let labels = |from| (from..from + 40).map(|number| (format!("l{number}"), String::new())).collect();
    service.relabel(&alice(), id, labels(0)).await.unwrap();
    let fork = Fork { count: 1, labels: labels(40), ..Fork::default() };
    let refused = service.fork(&alice(), id, creator(), fork).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Invalid { field: "labels", .. }), "{refused}");
    assert_eq!(snapshots(), before);
}

/// Makes writes to a table fail until [`allow_writes`].
pub(crate) async fn fail_writes_to(home: &TestHome, table: &str) {
    let trigger =
        format!("CREATE TRIGGER refuse BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END");
    home.sql(&trigger).await;
}

pub(crate) async fn allow_writes(home: &TestHome) {
    home.sql("DROP TRIGGER refuse").await;
}

async fn snapshot_is_removed_if_its_owner_cannot_be_recorded(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    let id = info.sandbox.id.as_str();
    let scope = alice();
    let fork = || service.fork(&scope, id, creator(), Fork { count: 2, ..Fork::default() });
    let snapshots = || service.workspaces().store().snapshots().unwrap().len();
    let before = snapshots();
    sh(&service, &info, "echo x > x").await;
    fail_writes_to(home, "snapshots").await;
    service.commit(&alice(), id, NewCommit::default()).await.unwrap_err();
    fork().await.unwrap_err();
    assert_eq!(snapshots(), before);
    allow_writes(home).await;
    // The snapshot of a fork that failed.
    fail_writes_to(home, "sandboxes").await;
    fork().await.unwrap_err();
    allow_writes(home).await;
    assert_eq!(snapshots(), before);
    assert_eq!(content(&service, &commit(&service, &info).await, "x"), "x\n");
}

async fn sandbox_stays_stopped_if_its_workspace_cannot_be_kept(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    let id = info.sandbox.id.as_str();
    if info.config.provider != Some(ProviderKind::Overlay) {
        return;
    }
    sh(&service, &info, "echo x > x").await;
    let snapshots = || service.workspaces().store().snapshots().unwrap().len();
    let before = snapshots();
    fail_writes_to(home, "snapshots").await;
    for _ in 0..2 {
        service.remove(&alice(), id, ReclaimPolicy::Keep).await.unwrap_err();
        let left = service.get(&alice(), id).await.unwrap().sandbox;
        assert_eq!(left.state, State::Stopped);
        assert!(left.state_reason.unwrap().contains("could not be kept"));
        assert_eq!(snapshots(), before);
    }
    allow_writes(home).await;
    let KeptWorkspace::Snapshot(kept) = service.remove(&alice(), id, ReclaimPolicy::Keep).await.unwrap().kept
    else {
        panic!()
    };
    let tree = service.workspaces().store().restore(&kept).unwrap();
    assert_eq!(tree.read("x").unwrap(), b"x\n");
    assert!(service.get(&alice(), id).await.is_err());
}

async fn owner_keeps_a_workspace_as_a_removable_snapshot(home: &TestHome) {
    let service = home.start().await;
    let catalog = home.catalog().await;
    // On layers where that is possible, and a plain directory.
    for info in [create_from(&service, snapshot(&service).id).await, create(&service).await] {
        sh(&service, &info, "echo keep me > kept").await;
        let kept = service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Keep).await.unwrap().kept;
        let KeptWorkspace::Snapshot(id) = kept else { panic!("{kept:?} of {:?}", info.config.provider) };
        let store = service.workspaces().store().clone();
        assert_eq!(store.restore(&id).unwrap().read("kept").unwrap(), b"keep me\n");
        assert!(catalog.snapshots().owns("alice", &id.to_string()).await.unwrap());
        assert!(!catalog.snapshots().remove_owner(Some("alice"), &id.to_string()).await.unwrap());
        store.remove_snapshots(&[id]).unwrap();
    }
    assert!(service.workspaces().list().unwrap().is_empty());
    assert!(!service.workspaces().directory_of("kept").exists());
}

async fn snapshot_quota_is_enforced(home: &TestHome) {
    let service = home.start_with(|settings| settings.snapshots_per_owner = 1).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    commit(&service, &info).await;
    let store = service.workspaces().store().clone();
    let before = store.snapshots().unwrap().len();
    let refusals = [
        service.commit(&alice(), id, NewCommit::default()).await.err(),
        service.fork(&alice(), id, creator(), Fork { count: 1, ..Fork::default() }).await.err(),
        service.remove(&alice(), id, ReclaimPolicy::Keep).await.err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Some(SandboxError::TooManySnapshots { limit: 1, .. })), "{refusal:?}");
    }
    assert_eq!(store.snapshots().unwrap().len(), before);
    assert_eq!(sh(&service, &info, "echo runs").await.stdout, "runs\n");
    // A caller with access to all sandboxes has no quota.
    service.commit(&Scope::All, id, NewCommit::default()).await.unwrap();
    assert_eq!(service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap().kept, KeptWorkspace::None);
}

async fn unknown_snapshot_is_refused_without_effect(home: &TestHome) {
    let service = home.start().await;
    let gone = SnapshotId::generate();
    let refused = service.create(creator(), from(gone)).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Workspace(WorkspaceError::UnknownSnapshot(id)) if id == gone));
    let (_, total) = service.list(&alice(), workspace_catalog::Filter::default()).await.unwrap();
    assert_eq!(total, 0);
    assert!(service.workspaces().list().unwrap().is_empty());
    let info = create_from(&service, snapshot(&service).id).await;
    service.run(&alice(), &info.sandbox.id, request("sleep 1000")).await.unwrap();
    // Waits until the shell has executed `sleep`.
    sh(&service, &info, "until grep -qx sleep /proc/[0-9]*/comm; do :; done").await;
    let refused =
        service.restore(&alice(), &info.sandbox.id, gone, IfInUse::KillProcesses).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Workspace(WorkspaceError::UnknownSnapshot(id)) if id == gone));
    // No process was ended for it.
    let ran = sh(&service, &info, "cat src/main; cat /proc/[0-9]*/comm | grep -c sleep").await;
    assert_eq!(ran.stdout, "first\n1\n");
}

async fn next_server_continues_with_the_workspace(home: &TestHome) {
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    sh(&service, &info, "echo before > file").await;
    service.close().await;
    drop(service);
    let service = home.start().await;
    wait_until("it is back", async || service.get(&alice(), &info.sandbox.id).await.unwrap().agent_connected)
        .await;
    assert_eq!(sh(&service, &info, "cat file; echo after > file").await.stdout, "before\n");
    let committed = commit(&service, &info).await;
    assert_eq!(content(&service, &committed, "file"), "after\n");
    service.restore(&alice(), &info.sandbox.id, base.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(sh(&service, &info, "ls").await.stdout, "link\nread me\nsrc\n");
}

async fn interrupted_restore_is_finished(home: &TestHome) {
    let service = home.start().await;
    if !service.runtime().can_swap_workspace() {
        return;
    }
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo x > x").await;
    let other = commit(&service, &info).await;
    let restored = service.restore(&alice(), id, other.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(restored.info.config.snapshot, Some(other.id));
    // State of a service that is killed right before the sandbox gets its new workspace.
    let dir = home.dir(&info);
    service.runtime().freeze(id, &dir).await.unwrap();
    let reset = service.workspaces().reset(
        id,
        Some(base.id),
        workspace_sandbox::Materialize::Auto,
        ResetMode::MayMove,
    );
    assert!(reset.unwrap().moved);
    service.close().await;
    drop(service);
    let service = home.start().await;
    wait_until("it is back", async || service.get(&alice(), id).await.unwrap().agent_connected).await;
    assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Running);
    assert_eq!(sh(&service, &info, "ls").await.stdout, "link\nread me\nsrc\n");
    assert!(!dir.freeze_record().exists());
    assert_eq!(service.get(&alice(), id).await.unwrap().config.snapshot, Some(base.id));
    wait_until("the former one is gone", async || service.workspaces().record(id).unwrap().former.is_none())
        .await;
}

async fn restore_to_a_lost_mount_is_rolled_back(home: &TestHome) {
    let service = home.start().await;
    if !service.runtime().can_swap_workspace() || !runs_as_root("can lose a mount of a sandbox") {
        return;
    }
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo x > x").await;
    let dir = home.dir(&info);
    service.runtime().freeze(id, &dir).await.unwrap();
    let reset = service.workspaces().reset(
        id,
        Some(base.id),
        workspace_sandbox::Materialize::Auto,
        ResetMode::MayMove,
    );
    // The state after the namespace holder died: its mounts are gone.
    let holder = service.workspaces().namespace_holder();
    workspace_host::overlay::unmount(&holder, &reset.unwrap().workspace.path).unwrap();
    service.close().await;
    drop(service);
    let service = home.start().await;
    wait_until("it is back", async || service.get(&alice(), id).await.unwrap().agent_connected).await;
    assert_eq!(sh(&service, &info, "ls").await.stdout, "link\nread me\nsrc\nx\n");
}

async fn restore_that_cannot_be_written_ends_no_process(home: &TestHome) {
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    if info.config.provider != Some(ProviderKind::Overlay) {
        return;
    }
    let id = info.sandbox.id.as_str();
    // Its content is nowhere on disk, so the restore has to write it.
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("alone", "other\n").unwrap();
    let other = tree.commit(NewSnapshot::default()).unwrap();
    service.run(&alice(), id, request("cd src; touch $HOME/ready; exec sleep 1000")).await.unwrap();
    wait_until("it is inside", async || sh(&service, &info, "ls $HOME").await.stdout.contains("ready")).await;
    let (layers, aside) = (home.path().join("layers/layers"), home.path().join("layers/aside"));
    std::fs::rename(&layers, &aside).unwrap();
    std::fs::write(&layers, "in the way").unwrap();
    service.restore(&alice(), id, other.id, IfInUse::KillProcesses).await.unwrap_err();
    let left = sh(&service, &info, "cat /proc/[0-9]*/comm | grep -c '^sleep$'").await;
    assert_eq!(left.stdout, "1\n", "it was ended for nothing");
    std::fs::remove_file(&layers).unwrap();
    std::fs::rename(&aside, &layers).unwrap();
    let restored = service.restore(&alice(), id, other.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(restored.killed.len(), 1);
    assert_eq!(sh(&service, &info, "ls").await.stdout, "alone\n");
}

async fn empty_files_count_for_the_disk_limit(home: &TestHome) {
    let settings = |settings: &mut workspace_sandbox::Settings| {
        settings.disk_interval = Duration::from_millis(50);
    };
    let service = home.start_with(settings).await;
    let resources = ResourceRequest { disk: Some(8 << 20), ..ResourceRequest::default() };
    let info = service.create(creator(), NewSandbox { resources, ..new() }).await.unwrap();
    let id = info.sandbox.id.as_str();
    let fill = "i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); : > $i; done";
    sh(&service, &info, fill).await;
    wait_until("they are counted", async || {
        service.stats(&alice(), id).await.is_ok_and(|stats| stats.disk >= 1_000 * 4_096)
    })
    .await;
    let fill = "i=0; while :; do i=$((i + 1)); : > more-$i; done";
    service.run(&alice(), id, request(fill)).await.unwrap();
    wait_until("it is ended", async || {
        service.get(&alice(), id).await.unwrap().sandbox.state == State::Stopped
    })
    .await;
}

/// Mounts a filesystem of its own, which is removed with the home; `None` where this user may not mount.
pub(crate) fn small_disk(home: &TestHome, options: &str) -> Option<std::path::PathBuf> {
    if !runs_as_root("can mount a small disk") {
        return None;
    }
    let small = home.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&small);
    assert!(mount.status().unwrap().success());
    Some(small)
}

async fn sandbox_that_fills_the_disk_is_stopped_in_time(home: &TestHome) {
    let Some(small) = small_disk(home, "size=200m") else { return };
    let change =
        |settings: &mut workspace_sandbox::Settings| settings.workspaces_dir = small.join("workspaces");
    let service = home.start_with(change).await;
    let base = snapshot(&service);
    let neighbour = create_from(&service, base.id).await;
    let greedy = create_from(&service, base.id).await;
    sh(&service, &neighbour, "head -c 20000000 /dev/zero > mine").await;
    // The file has no name in its directory.
    let nameless = create_from(&service, base.id).await;
    let fill = "exec 3> late; rm late; while :; do head -c 2000000 /dev/zero >&3; sleep 0.02; done";
    service.run(&alice(), &nameless.sandbox.id, request(fill)).await.unwrap();
    let is_stopped = async |info: &SandboxInfo| {
        service.get(&alice(), &info.sandbox.id).await.unwrap().sandbox.state == State::Stopped
    };
    wait_until("it is ended", async || is_stopped(&nameless).await).await;
    service.remove(&alice(), &nameless.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    let fill = "while :; do head -c 2000000 /dev/zero; sleep 0.02; done > all";
    service.run(&alice(), &greedy.sandbox.id, request(fill)).await.unwrap();
    let state = async |info: &SandboxInfo| service.get(&alice(), &info.sandbox.id).await.unwrap().sandbox;
    wait_until("it is ended", async || state(&greedy).await.state == State::Stopped).await;
    assert!(state(&greedy).await.state_reason.unwrap().contains("must stay free"));
    let ran = sh(&service, &neighbour, "echo more >> mine && echo well").await;
    assert_eq!(ran.stdout, "well\n", "{ran:?}");
    assert_eq!(state(&neighbour).await.state, State::Running);
    // Its files are kept.
    let left = service.commit(&alice(), &greedy.sandbox.id, NewCommit::default()).await.unwrap();
    assert!(left.freeze.frozen.is_none());
    for info in [&greedy, &neighbour] {
        service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    }
}

/// Everything is written before the first check, and nothing after.
async fn sandbox_that_fills_the_disk_at_once_is_stopped(home: &TestHome) {
    let Some(small) = small_disk(home, "size=200m,nr_inodes=20000") else { return };
    let change = |settings: &mut workspace_sandbox::Settings| {
        settings.workspaces_dir = small.join("workspaces");
        settings.disk_interval = Duration::from_secs(3_600);
    };
    let service = home.start_with(change).await;
    let base = snapshot(&service);
    let neighbour = create_from(&service, base.id).await;
    let fills =
        [("fallocate -l 190m all", "bytes left"), ("seq 1 20000 | xargs touch 2>/dev/null", "files left")];
    for (fill, reason) in fills {
        for new in [new(), NewSandbox { snapshot: Some(base.id), ..new() }] {
            let greedy = service.create(creator(), new).await.unwrap();
            let fill = format!("{fill}; sleep 1000");
            service.run(&alice(), &greedy.sandbox.id, request(&fill)).await.unwrap();
            let state =
                async |info: &SandboxInfo| service.get(&alice(), &info.sandbox.id).await.unwrap().sandbox;
            wait_until("it is ended", async || state(&greedy).await.state == State::Stopped).await;
            let found = state(&greedy).await.state_reason.unwrap();
            assert!(found.contains(reason), "{found}");
            assert_eq!(state(&neighbour).await.state, State::Running);
            service.remove(&alice(), &greedy.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
            assert!(service.wait_for_removed_files(TIMEOUT).await);
        }
    }
    service.remove(&alice(), &neighbour.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
}

async fn deleted_open_files_count_for_the_disk_limit(home: &TestHome) {
    let service = home.start_with(|settings| settings.disk_interval = Duration::from_millis(50)).await;
    let disk = Some(30 << 20);
    let small = NewSandbox { resources: ResourceRequest { disk, ..ResourceRequest::default() }, ..new() };
    let from_snapshot = NewSandbox { snapshot: Some(snapshot(&service).id), ..small.clone() };
    let fill = "exec 3> late; rm late; while :; do head -c 1000000 /dev/zero >&3; sleep 0.01; done";
    for wanted_one in [small, from_snapshot] {
        let info = service.create(creator(), wanted_one).await.unwrap();
        service.run(&alice(), &info.sandbox.id, request(fill)).await.unwrap();
        let state = async || service.get(&alice(), &info.sandbox.id).await.unwrap().sandbox;
        // Where a quota refuses the write, it is never stopped.
        let full =
            async || service.stats(&alice(), &info.sandbox.id).await.is_ok_and(|stats| stats.disk > 29 << 20);
        wait_until("it is full", async || state().await.state == State::Stopped || full().await).await;
        service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    }
}

async fn unreadable_directories_count_for_the_disk_limit(home: &TestHome) {
    let service = home.start_with(|settings| settings.disk_interval = Duration::from_millis(50)).await;
    let info = create_from(&service, snapshot(&service).id).await;
    let script = "mkdir d; exec 3> d/z; chmod 000 d; head -c 20000000 /dev/zero >&3; sync d || :";
    sh(&service, &info, script).await;
    wait_until("they are counted", async || {
        service.stats(&alice(), &info.sandbox.id).await.unwrap().disk > 19_000_000
    })
    .await;
}

async fn former_files_are_removed_after_a_restore(home: &TestHome) {
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo x > x").await;
    let other = commit(&service, &info).await;
    for to in [other.id, base.id] {
        service.restore(&alice(), id, to, IfInUse::KillProcesses).await.unwrap();
        let directory = service.workspaces().directory_of(id);
        let generations = || {
            std::fs::read_dir(&directory)
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().path().is_dir())
                .count()
        };
        wait_until("one is left", async || generations() == 1).await;
        let pinned = || {
            service.workspaces().store().pins().unwrap().iter().map(|pin| pin.snapshot).collect::<Vec<_>>()
        };
        wait_until("nothing else is kept", async || pinned() == [to]).await;
    }
}

/// A descriptor that is in no process's table is not visible; it must not be of use either.
async fn former_files_cannot_be_written_after_a_restore(home: &TestHome) {
    if home.kind != RuntimeKind::Embedded {
        return;
    }
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let script = r#"cd /tmp; exec /usr/bin/python3 -c '
import array, os, socket, time
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
fd = os.open("/workspace", os.O_RDONLY | os.O_DIRECTORY)
a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
os.close(fd)
open("/tmp/ready", "w").close()
while not os.path.exists("/tmp/go"): time.sleep(0.01)
_, anc, _, _ = b.recvmsg(10, socket.CMSG_SPACE(4))
got = array.array("i"); got.frombytes(anc[0][2][:4])
try:
    os.open("late", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=got[0])
    print("written")
except OSError as error:
    print(error.strerror)
'"#;
    let hidden = service.run(&alice(), &info.sandbox.id, request(script)).await.unwrap();
    wait_until("it is ready", async || sh(&service, &info, "ls /tmp").await.stdout.contains("ready")).await;
    service.restore(&alice(), &info.sandbox.id, base.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(
        sh(&service, &info, "touch /tmp/go; echo well > well; cat well").await.stdout,
        "well
"
    );
    let ran = read(&hidden, 0).await;
    assert_eq!(ran.stdout, "Read-only file system\n", "{ran:?}");
}

/// A process in the workspace itself, with a descriptor that is not visible, blocks the restore and stays.
async fn unforced_restore_ends_no_process(home: &TestHome) {
    if home.kind != RuntimeKind::Embedded {
        return;
    }
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let script = r#"exec /usr/bin/python3 -c '
import array, os, socket, time
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
fd = os.open("held", os.O_CREAT | os.O_WRONLY, 0o644)
a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
os.close(fd)
open("/tmp/ready", "w").close()
while not os.path.exists("/tmp/go"): time.sleep(0.01)
print("alive")
'"#;
    let held = service.run(&alice(), &info.sandbox.id, request(script)).await.unwrap();
    wait_until("it is ready", async || sh(&service, &info, "ls /tmp").await.stdout.contains("ready")).await;
    let refused = service.restore(&alice(), &info.sandbox.id, base.id, IfInUse::Fail).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Workspace(WorkspaceError::Unusable { .. })), "{refused}");
    assert_eq!(sh(&service, &info, "touch /tmp/go; ls held").await.stdout, "held\n");
    assert_eq!(read(&held, 0).await.stdout, "alive\n");
}

async fn restores_and_commits_are_serialized(home: &TestHome) {
    let service = home.start().await;
    let base = snapshot(&service);
    let info = create_from(&service, base.id).await;
    let tasks = (0..12).map(|number| {
        let (service, id) = (service.clone(), info.sandbox.id.clone());
        tokio::spawn(async move {
            match number % 3 {
                0 => service.commit(&alice(), &id, NewCommit::default()).await.map(drop),
                1 => service.restore(&alice(), &id, base.id, IfInUse::KillProcesses).await.map(drop),
                _ => service.changes(&alice(), &id).await.map(drop),
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    assert!(!home.dir(&info).freeze_record().exists());
}

async fn concurrent_commits_are_serialized(home: &TestHome) {
    let service = home.start().await;
    let info = create_from(&service, snapshot(&service).id).await;
    sh(&service, &info, "echo x > x").await;
    let asked = (0..8).map(|_| {
        let (service, id) = (service.clone(), info.sandbox.id.clone());
        tokio::spawn(async move { service.commit(&alice(), &id, NewCommit::default()).await })
    });
    for one in asked.collect::<Vec<_>>() {
        assert_eq!(content(&service, &one.await.unwrap().unwrap().committed.snapshot, "x"), "x\n");
    }
    assert!(!home.dir(&info).freeze_record().exists());
}
