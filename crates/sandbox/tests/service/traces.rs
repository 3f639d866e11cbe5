//! Traces: a snapshot after each command that changed files; and notes.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `read` returns the result of a command.

use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::{CommandState, NoteFilter};
use workspace_sandbox::{
    CommandHandle, FilePath, Fork, IfInUse, Lineage, NewCommit, NewFile, NewNote, NewSandbox, ProviderKind,
    ReclaimPolicy, SandboxError, SandboxInfo, Scope, Service, Settings, TRACE_COMMAND_LABEL, TRACE_PENDING,
    TRACE_SHARED_LABEL, Trace, TraceOutcome,
};
use workspace_state::{Durability, Expect, NewSnapshot, Snapshot, SnapshotId};
use workspace_workspace::Writers;

use crate::home::{CommandResult, TestHome, alice, base, create, creator, read, request, wait_until};
use crate::restart::wait_for_agent;
use crate::snapshots::{allow_writes, fail_writes_to};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        command_that_changed_files_has_a_snapshot,
        copied_workspace_is_traced,
        untraced_sandbox_has_no_snapshots,
        terminal_session_is_traced,
        changes_of_overlapping_commands_are_traced,
        changes_from_outside_are_marked,
        command_is_traced_by_the_next_server,
        snapshot_of_a_killed_server_is_found,
        exit_is_reported_if_the_snapshot_cannot_be_recorded,
        quota_of_snapshots_limits_traces,
        old_traces_are_removed_unless_they_are_used,
        removal_leaves_no_snapshot_without_an_owner,
        restored_workspace_has_no_trace_until_it_changes,
        fork_inherits_its_lineage,
        notes_belong_to_the_next_snapshot,
        notes_of_other_sandboxes_and_unknown_commands_are_refused,
    ]
}

/// Returns a sandbox with traces: snapshots after commands that changed files.
fn traced() -> NewSandbox {
    NewSandbox { trace: Trace::Command, ..base() }
}

async fn create_traced(service: &Service) -> SandboxInfo {
    service.create(creator(), traced()).await.unwrap()
}

/// Waits for a command and, on a slow machine, for its trace.
async fn finish(service: &Service, info: &SandboxInfo, handle: &CommandHandle) -> CommandResult {
    let mut ran = read(handle, 0).await;
    if ran.exit.trace == TraceOutcome::Pending {
        let record = async || service.command_record(&alice(), &info.sandbox.id, &handle.id).await.unwrap().0;
        wait_until("it is traced", async || {
            let record = record().await;
            record.state == CommandState::Exited && record.trace_error.as_deref() != Some(TRACE_PENDING)
        })
        .await;
        let record = record().await;
        ran.exit.trace = match (record.snapshot, record.trace_error) {
            (Some(id), _) => TraceOutcome::Snapshot(id),
            (None, Some(reason)) => TraceOutcome::Failed(reason),
            (None, None) => TraceOutcome::None,
        };
    }
    ran
}

async fn sh(service: &Service, info: &SandboxInfo, command: &str) -> CommandResult {
    let handle = service.run(&alice(), &info.sandbox.id, request(command)).await.unwrap();
    finish(service, info, &handle).await
}

/// Returns the snapshot of a command that has one.
#[track_caller]
fn snapshot_of(service: &Service, ran: &CommandResult) -> Snapshot {
    let TraceOutcome::Snapshot(id) = &ran.exit.trace else { panic!("no snapshot: {ran:?}") };
    service.workspaces().store().snapshot(&id.parse().unwrap()).unwrap()
}

fn content(service: &Service, snapshot: &Snapshot, path: &str) -> String {
    let tree = service.workspaces().store().restore(&snapshot.id).unwrap();
    String::from_utf8(tree.read(path).unwrap()).unwrap()
}

fn snapshots(service: &Service) -> Vec<Snapshot> {
    service.workspaces().store().snapshots().unwrap()
}

/// Runs a command that leaves a file, and `true` commands until nothing is left to trace.
async fn trace_all_changes(service: &Service, info: &SandboxInfo) {
    wait_until("nothing has changed", async || {
        sh(service, info, "true").await.exit.trace == TraceOutcome::None
    })
    .await;
}

async fn check_trace(service: &Service, info: &SandboxInfo) {
    let id = info.sandbox.id.as_str();
    let first = service
        .run(&alice(), id, request("mkdir d && echo one > d/file && ln -s file d/link"))
        .await
        .unwrap();
    let ran = finish(service, info, &first).await;
    let one = snapshot_of(service, &ran);
    assert_eq!(content(service, &one, "d/file"), "one\n");
    assert_eq!(one.labels.get(TRACE_COMMAND_LABEL), Some(&first.id));
    assert_eq!(one.labels.get(TRACE_SHARED_LABEL), None);
    assert_eq!(
        (one.message.as_str(), one.author.as_str()),
        ("mkdir d && echo one > d/file && ln -s file d/link", "alice")
    );
    let (record, _) = service.command_record(&alice(), id, &first.id).await.unwrap();
    assert_eq!((record.snapshot, record.trace_error), (Some(one.id.to_string()), None));
    assert_eq!(record.state, CommandState::Exited);

    for unchanged in ["true", "cat d/file", "touch d/file", "echo x > /tmp/x", "echo a > b && rm b", "exit 3"]
    {
        let ran = sh(service, info, unchanged).await;
        assert_eq!(ran.exit.trace, TraceOutcome::None, "{unchanged}");
    }
    trace_all_changes(service, info).await;
    for (change, path) in [
        ("echo two > d/file", "d/file"),
        ("chmod 600 d/file", "d/file"),
        ("rm d/link && ln -s other d/link", "d/link"),
        ("mv d e", "e/file"),
        ("rm e/link", "e/file"),
        ("mkdir empty", "e/file"),
        ("printf 'tw0\\n' > e/file; exit 7", "e/file"),
    ] {
        let (parent, ran) = (snapshots(service).pop().unwrap(), sh(service, info, change).await);
        let made = snapshot_of(service, &ran);
        assert_eq!(made.parents, [parent.id], "{change}");
        assert_ne!(made.tree, parent.tree, "{change}");
        assert!(service.workspaces().store().restore(&made.id).unwrap().exists(path).unwrap(), "{change}");
    }
}

async fn command_that_changed_files_has_a_snapshot(home: &TestHome) {
    let service = home.start().await;
    let info = create_traced(&service).await;
    check_trace(&service, &info).await;
}

async fn copied_workspace_is_traced(home: &TestHome) {
    let service = home.start().await;
    let new = NewSandbox { provider: Some(ProviderKind::Copy), ..traced() };
    let info = service.create(creator(), new).await.unwrap();
    check_trace(&service, &info).await;
}

async fn untraced_sandbox_has_no_snapshots(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    assert_eq!(sh(&service, &info, "echo x > x").await.exit.trace, TraceOutcome::None);
    assert!(snapshots(&service).is_empty());
}

async fn terminal_session_is_traced(home: &TestHome) {
    let service = home.start().await;
    let info = create_traced(&service).await;
    let size = workspace_sandbox::Size { cols: 80, rows: 24 };
    let command = Some("echo x > x".to_owned());
    let request = workspace_sandbox::TerminalRequest {
        size,
        shell: None,
        command,
        cwd: None,
        envs: [].into(),
        user: None,
    };
    let terminal = service.open_terminal(&alice(), &info.sandbox.id, request).await.unwrap();
    let made = snapshot_of(&service, &finish(&service, &info, &terminal).await);
    assert_eq!(made.labels.get(TRACE_COMMAND_LABEL), Some(&terminal.id));
}

async fn changes_of_overlapping_commands_are_traced(home: &TestHome) {
    let service = home.start().await;
    let info = create_traced(&service).await;
    let id = info.sandbox.id.as_str();
    // Two files that are always written one right after the other.
    let count = "i=0; while ! test -e end; do i=$((i+1)); echo $i > a; echo $i > b; done";
    let counting = service.run(&alice(), id, request(count)).await.unwrap();
    wait_until("it counts", async || !sh(&service, &info, "cat b 2>/dev/null").await.stdout.is_empty()).await;
    for number in 0..3 {
        let made =
            snapshot_of(&service, &sh(&service, &info, &format!("echo {number} > own-{number}")).await);
        assert_eq!(made.labels.get(TRACE_SHARED_LABEL).map(String::as_str), Some("commands"));
        assert_eq!(content(&service, &made, &format!("own-{number}")), format!("{number}\n"));
        let read = |path| content(&service, &made, path).trim().parse().unwrap_or(0_u64);
        let (a, b) = (read("a"), read("b"));
        // One may be empty, just being written; otherwise they differ by at most one.
        assert!(a == 0 || b == 0 || a == b || a == b + 1, "{a} {b}");
    }
    // Both commands end at nearly the same time. Together their snapshots have all changes.
    sh(&service, &info, "touch end").await;
    read(&counting, 0).await;
    trace_all_changes(&service, &info).await;
    let last = snapshots(&service).pop().unwrap();
    let written = sh(&service, &info, "cat a").await.stdout;
    assert_eq!(content(&service, &last, "a"), written);
    assert!(service.workspaces().store().restore(&last.id).unwrap().exists("end").unwrap());
    assert!(!home.dir(&info).freeze_record().exists());

    // A process that outlives its command.
    let ran = sh(&service, &info, "(sleep 1000 > /dev/null 2>&1 &) ; echo x > x").await;
    let shared = snapshot_of(&service, &ran).labels.remove(TRACE_SHARED_LABEL);
    assert_eq!(shared.as_deref(), Some("processes"));
}

async fn changes_from_outside_are_marked(home: &TestHome) {
    let service = home.start().await;
    let info = create_traced(&service).await;
    let path = FilePath::new("/workspace/file").unwrap();
    let file = NewFile { path, mode: None, mkdirs: false, condition: None };
    service.write_file(&alice(), &info.sandbox.id, &file, "outside\n".into()).await.unwrap();
    let made = snapshot_of(&service, &sh(&service, &info, "echo own > own").await);
    assert_eq!(content(&service, &made, "file"), "outside\n");
    assert_eq!(made.labels.get(TRACE_SHARED_LABEL).map(String::as_str), Some("files"));
    let next = snapshot_of(&service, &sh(&service, &info, "echo next > own").await);
    assert_eq!(next.labels.get(TRACE_SHARED_LABEL), None);
}

async fn command_is_traced_by_the_next_server(home: &TestHome) {
    let service = home.start().await;
    let info = create_traced(&service).await;
    let id = info.sandbox.id.clone();
    let handle = service.run(&alice(), &id, request("sleep 0.3; echo late > file; exit 7")).await.unwrap();
    service.close().await;
    drop(service);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let service = home.start().await;
    let ran = read(&service.command(&alice(), &id, &handle.id).await.unwrap(), 0).await;
    assert_eq!(ran.exit.exit_code, 7);
    let record = async || service.command_record(&alice(), &id, &handle.id).await.unwrap().0;
    wait_until("it has a snapshot", async || record().await.snapshot.is_some()).await;
    let record = record().await;
    assert_eq!((record.state, record.exit_code), (CommandState::Exited, Some(7)));
    let made: SnapshotId = record.snapshot.unwrap().parse().unwrap();
    let made = service.workspaces().store().snapshot(&made).unwrap();
    assert_eq!(content(&service, &made, "file"), "late\n");
    assert_eq!(made.labels.get(TRACE_COMMAND_LABEL), Some(&handle.id));
}

/// As if the server had been killed after it made the snapshot, and before it recorded that.
async fn snapshot_of_a_killed_server_is_found(home: &TestHome) {
    let service = home.start().await;
    let info = create_traced(&service).await;
    let id = info.sandbox.id.clone();
    let handle = service.run(&alice(), &id, request("echo x > x; sleep 0.5")).await.unwrap();
    wait_until("it is written", async || {
        let changes = service.workspaces().changes(&id, Writers::Running).unwrap();
        changes.after.entry("x").unwrap().is_some_and(|entry| entry.node.size() == 2)
    })
    .await;
    let labels = [(TRACE_COMMAND_LABEL.to_owned(), handle.id.clone())].into();
    let new = NewSnapshot { labels, ..NewSnapshot::default() };
    let made = service.workspaces().commit(&id, new, Writers::Running).unwrap().snapshot;
    service.close().await;
    drop(service);
    tokio::time::sleep(Duration::from_millis(800)).await;
    let service = home.start().await;
    let record = async || service.command_record(&alice(), &id, &handle.id).await.unwrap().0;
    wait_until("it has ended", async || record().await.state == CommandState::Exited).await;
    assert_eq!(record().await.snapshot, Some(made.id.to_string()));
    assert_eq!(snapshots(&service).len(), 1);
    assert!(home.catalog().await.snapshots().owns("alice", &made.id.to_string()).await.unwrap());
}

async fn exit_is_reported_if_the_snapshot_cannot_be_recorded(home: &TestHome) {
    let service = home.start().await;
    let info = create_traced(&service).await;
    let id = info.sandbox.id.as_str();
    fail_writes_to(home, "snapshots").await;
    let handle = service.run(&alice(), id, request("echo x > x; echo out; exit 3")).await.unwrap();
    let ran = finish(&service, &info, &handle).await;
    assert_eq!((ran.stdout.as_str(), ran.exit.exit_code), ("out\n", 3));
    assert!(matches!(&ran.exit.trace, TraceOutcome::Failed(reason) if !reason.is_empty()), "{ran:?}");
    let record = async || service.command_record(&alice(), id, &handle.id).await.unwrap().0;
    wait_until("it is recorded", async || record().await.state == CommandState::Exited).await;
    let record = record().await;
    assert_eq!((record.exit_code, record.snapshot), (Some(3), None));
    assert!(record.trace_error.is_some());
    assert!(snapshots(&service).is_empty(), "a snapshot without an owner");
    allow_writes(home).await;
    // The changes are in the next snapshot, which says so.
    let made = snapshot_of(&service, &sh(&service, &info, "true").await);
    assert_eq!(content(&service, &made, "x"), "x\n");
    assert_eq!(made.labels.get(TRACE_SHARED_LABEL).map(String::as_str), Some("earlier"));
    trace_all_changes(&service, &info).await;
}

async fn quota_of_snapshots_limits_traces(home: &TestHome) {
    let service = home.start_with(|settings| settings.snapshots_per_owner = 1).await;
    let info = create_traced(&service).await;
    snapshot_of(&service, &sh(&service, &info, "echo 1 > x").await);
    let ran = sh(&service, &info, "echo 2 > x; exit 4").await;
    assert_eq!(ran.exit.exit_code, 4);
    assert!(
        matches!(&ran.exit.trace, TraceOutcome::Failed(reason) if reason.contains("MAX_SNAPSHOTS_PER_OWNER")),
        "{ran:?}"
    );
    assert_eq!(snapshots(&service).len(), 1);
}

async fn old_traces_are_removed_unless_they_are_used(home: &TestHome) {
    let service = home.start_with(|settings: &mut Settings| settings.max_kept_traces = 3).await;
    let info = create_traced(&service).await;
    let named = snapshot_of(&service, &sh(&service, &info, "echo 0 > x").await);
    service.workspaces().store().set_reference("main", Expect::Absent, named.id, Durability::Synced).unwrap();
    let committed = service.commit(&alice(), &info.sandbox.id, NewCommit::default()).await.unwrap();
    let committed = committed.committed.snapshot.id;
    let mut made = Vec::new();
    for number in 1..8 {
        made.push(snapshot_of(&service, &sh(&service, &info, &format!("echo {number} > x")).await).id);
    }
    let mut expected = vec![named.id, committed];
    expected.extend(&made[4..]);
    let ids = || snapshots(&service).iter().map(|snapshot| snapshot.id).collect::<Vec<_>>();
    wait_until("the oldest are removed", async || ids() == expected).await;
    let catalog = home.catalog().await;
    wait_until("their records are removed", async || catalog.snapshots().count("alice").await.unwrap() == 5)
        .await;
    assert_eq!(sh(&service, &info, "cat x").await.stdout, "7\n");
}

async fn removal_leaves_no_snapshot_without_an_owner(home: &TestHome) {
    let service = home.start_with(|settings| settings.sandboxes_per_owner = 100).await;
    for _ in 0..5 {
        let info = create_traced(&service).await;
        let id = info.sandbox.id.clone();
        let handle = service.run(&alice(), &id, request("echo x > x; exit 5")).await.unwrap();
        let (ran, removed) = tokio::join!(read(&handle, 0), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            service.remove(&alice(), &id, ReclaimPolicy::Delete).await
        });
        removed.unwrap();
        // It exited, or was killed before.
        assert!(ran.exit.exit_code == 5 || ran.exit.failure_reason.is_some(), "{ran:?}");
    }
    let catalog = home.catalog().await;
    for snapshot in snapshots(&service) {
        assert!(catalog.snapshots().owns("alice", &snapshot.id.to_string()).await.unwrap());
    }
}

async fn restored_workspace_has_no_trace_until_it_changes(home: &TestHome) {
    let service = home.start().await;
    if !service.runtime().can_swap_workspace() {
        return;
    }
    let info = create_traced(&service).await;
    let one = snapshot_of(&service, &sh(&service, &info, "echo 1 > x").await);
    snapshot_of(&service, &sh(&service, &info, "echo 2 > x").await);
    service.restore(&alice(), &info.sandbox.id, one.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(sh(&service, &info, "true").await.exit.trace, TraceOutcome::None);
    let three = snapshot_of(&service, &sh(&service, &info, "echo 3 > x").await);
    assert_eq!(three.parents, [one.id]);
}

async fn fork_inherits_its_lineage(home: &TestHome) {
    let service = home.start().await;
    let name = |text: &str| Some(text.to_owned());
    let lineage =
        Lineage { created_by: name("ci"), project: name("p"), agent: name("a"), ..Lineage::default() };
    let info = service.create(creator(), NewSandbox { lineage, ..traced() }).await.unwrap();
    let fork = Fork { count: 1, created_by: name("laptop"), ..Fork::default() };
    let forked = service.fork(&alice(), &info.sandbox.id, creator(), fork).await.unwrap();
    let fork = &forked.infos[0];
    let expected = Lineage {
        forked_from: Some(info.sandbox.id.clone()),
        created_by: name("laptop"),
        project: name("p"),
        agent: name("a"),
        project_base: None,
        former_bases: Vec::new(),
    };
    assert_eq!((&fork.config.lineage, fork.config.trace), (&expected, Trace::Command));
    let made = snapshot_of(&service, &sh(&service, fork, "echo x > x").await);
    assert_eq!(made.parents, [forked.commit.committed.snapshot.id]);
    let filter =
        workspace_catalog::Filter { project_name: name("p"), agent_name: name("a"), ..Default::default() };
    assert_eq!(service.list(&alice(), filter).await.unwrap().1, 2);
    let filter = workspace_catalog::Filter { project_name: name("q"), ..Default::default() };
    assert_eq!(service.list(&alice(), filter).await.unwrap().1, 0);
    service.close().await;
    drop(service);
    let service = home.start().await;
    wait_for_agent(&service, &fork.sandbox.id).await;
    assert_eq!(service.get(&alice(), &fork.sandbox.id).await.unwrap().config.lineage, expected);
    snapshot_of(&service, &sh(&service, fork, "echo y > x").await);
}

fn note(text: &str) -> NewNote {
    NewNote { text: text.to_owned(), ..NewNote::default() }
}

/// Returns the texts of the notes of a sandbox, with their snapshots.
async fn notes(service: &Service, id: &str) -> Vec<(String, Option<String>)> {
    let filter = NoteFilter { limit: 100, bytes: 1 << 20, ..NoteFilter::default() };
    let page = service.notes(&alice(), id, &filter).await.unwrap();
    page.notes.into_iter().map(|note| (note.text, note.snapshot)).collect()
}

async fn notes_belong_to_the_next_snapshot(home: &TestHome) {
    let service = home.start().await;
    let info = create_traced(&service).await;
    let id = info.sandbox.id.as_str();
    service.add_note(&alice(), id, note("before")).await.unwrap();
    let handle = service.run(&alice(), id, request("echo x > x")).await.unwrap();
    let one = snapshot_of(&service, &finish(&service, &info, &handle).await).id.to_string();
    let about = NewNote { command: Some(handle.id.clone()), ..note("about it") };
    assert_eq!(service.add_note(&alice(), id, about).await.unwrap().snapshot, Some(one.clone()));
    service.add_note(&alice(), id, note("after")).await.unwrap();
    let committed = service.commit(&alice(), id, NewCommit::default()).await.unwrap();
    let two = committed.committed.snapshot.id.to_string();
    service.add_note(&alice(), id, note("pending")).await.unwrap();
    let expected = [
        ("before".to_owned(), Some(one.clone())),
        ("about it".to_owned(), Some(one)),
        ("after".to_owned(), Some(two.clone())),
        ("pending".to_owned(), None),
    ];
    assert_eq!(notes(&service, id).await, expected);
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
    let left = home.catalog().await.notes().of_snapshots(None, &[two], 10, 1_000).await.unwrap().0;
    assert_eq!(left.iter().map(|note| note.text.as_str()).collect::<Vec<_>>(), ["after"]);
}

async fn notes_of_other_sandboxes_and_unknown_commands_are_refused(home: &TestHome) {
    let service = home.start_with(|settings| settings.notes_per_sandbox = 2).await;
    let (info, other) = (create(&service).await, create(&service).await);
    let (id, bob) = (info.sandbox.id.as_str(), Scope::Owner("bob".to_owned()));
    let refused = service.add_note(&bob, id, note("a")).await.unwrap_err();
    assert!(matches!(refused, SandboxError::NotFound { .. }), "{refused}");
    assert!(service.notes(&bob, id, &NoteFilter::default()).await.is_err());
    let token = Scope::Sandbox { owner: "alice".to_owned(), id: other.sandbox.id.clone() };
    assert!(service.add_note(&token, id, note("a")).await.is_err());
    let handle = service.run(&alice(), &other.sandbox.id, request("true")).await.unwrap();
    for command in [handle.id.as_str(), "cmd-unknown", "", "a\0b"] {
        let about = NewNote { command: Some(command.to_owned()), ..note("a") };
        let refused = service.add_note(&alice(), id, about).await.unwrap_err();
        assert!(matches!(refused, SandboxError::NoCommand { .. }), "{refused}");
    }
    service.add_note(&alice(), id, note("a")).await.unwrap();
    service.add_note(&alice(), id, note("b")).await.unwrap();
    let full = service.add_note(&Scope::All, id, note("c")).await.unwrap_err();
    assert!(matches!(full, SandboxError::TooManyNotes { limit: 2, .. }), "{full}");
    service.add_note(&alice(), &other.sandbox.id, note("c")).await.unwrap();
}
