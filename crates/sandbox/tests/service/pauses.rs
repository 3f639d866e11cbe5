//! Pausing and resuming sandboxes.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::{Change, CommandState, Filter, PauseStep, VisibleState};
use workspace_sandbox::{
    AfterInput, Creator, Expiry, FilePath, Fork, IfInUse, KeptWorkspace, NewCommit, NewSandbox, OnTimeout,
    PauseMode, ReclaimPolicy, RunRequest, SandboxError, SandboxInfo, Scope, Service, Size, TerminalRequest,
    paused_sandbox_of_reference,
};
use workspace_state::SnapshotId;

use crate::home::{
    ANY_TAG, DEFAULT_LIFETIME, FOLLOW, TIMEOUT, TestHome, alice, base, create, creator, read, request, sh,
    wait_until,
};
use crate::snapshots::small_disk;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        files_survive_a_pause_to_disk,
        repeated_pauses_keep_one_snapshot,
        processes_survive_a_pause_in_memory,
        timeouts_do_not_advance_while_paused_in_memory,
        requests_to_a_paused_sandbox_are_refused,
        a_sandbox_paused_in_memory_can_be_committed_and_forked,
        a_sandbox_paused_in_memory_stays_so_after_a_restart,
        a_sandbox_paused_on_disk_is_resumed_after_a_restart,
        a_paused_sandbox_can_be_deleted,
        the_workspace_of_a_paused_sandbox_can_be_kept,
        a_snapshot_that_is_used_otherwise_outlives_the_pause,
        an_expired_sandbox_is_paused,
        a_stopped_sandbox_is_paused_when_it_expires,
        a_paused_sandbox_is_deleted_after_a_while,
        limits_of_paused_and_running_sandboxes_hold,
        a_full_disk_leaves_the_sandbox_running,
        pauses_have_events,
    ]
}

pub(crate) async fn state(service: &Service, id: &str) -> VisibleState {
    service.get(&alice(), id).await.unwrap().sandbox.visible_state()
}

/// Pauses a sandbox, in memory or to disk.
pub(crate) async fn pause(service: &Service, id: &str, mode: PauseMode) -> SandboxInfo {
    let paused = service.pause(&alice(), id, mode).await.unwrap();
    assert_eq!(paused.sandbox.visible_state(), VisibleState::Paused);
    paused
}

pub(crate) async fn resume(service: &Service, id: &str) -> SandboxInfo {
    let resumed = service.resume(&alice(), id, creator(), DEFAULT_LIFETIME).await.unwrap();
    assert_eq!(resumed.sandbox.visible_state(), VisibleState::Running);
    assert!(resumed.agent_connected);
    resumed
}

async fn restart(home: &TestHome, service: Service) -> Service {
    service.close().await;
    drop(service);
    home.start().await
}

/// Returns the snapshots of pauses of all sandboxes that the store has.
pub(crate) fn pause_snapshots(service: &Service) -> Vec<SnapshotId> {
    let references = service.workspaces().store().references().unwrap();
    let of_pauses = references.into_iter().filter(|(name, _)| paused_sandbox_of_reference(name).is_some());
    of_pauses.map(|(_, snapshot)| snapshot).collect()
}

/// Waits until a sandbox that is paused on disk has no workspace.
pub(crate) async fn wait_until_freed(home: &TestHome, id: &str) {
    let workspace = home.path().join("workspaces").join(id);
    wait_until("its workspace is removed", async || !workspace.exists()).await;
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Returns whether a file grows within a moment in which a loop would have appended to it many times.
async fn grows(path: &Path) -> bool {
    let before = size(path);
    tokio::time::sleep(Duration::from_millis(200)).await;
    size(path) > before
}

#[track_caller]
fn assert_paused<T: std::fmt::Debug>(result: Result<T, SandboxError>) {
    let refused = result.expect_err("it is paused");
    assert!(matches!(refused, SandboxError::Paused { .. }), "{refused:?}");
    assert!(refused.to_string().contains("paused; resume it"), "{refused}");
}

async fn files_survive_a_pause_to_disk(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "mkdir a; echo kept > a/file; chmod 700 a/file; ln -s a/file link").await;
    let mut command = service.run(&alice(), id, request("echo begun; sleep 1000")).await.unwrap();
    command.output(0).await.unwrap().next().await.unwrap();
    let process = home.process(id);
    let paused = pause(&service, id, PauseMode::Disk).await;
    assert!(!process.is_running() && !paused.agent_connected);
    assert!(paused.sandbox.expires_at > info.sandbox.expires_at);
    assert!(command.wait().await.unwrap().failure_reason.unwrap().contains("paused"));
    wait_until_freed(home, id).await;
    // Its commands, with their output, and its labels stay.
    let commands = service.commands(&alice(), id, ANY_TAG, 10).await.unwrap();
    assert_eq!(commands[0].state, CommandState::Failed);
    let ended = service.command(&alice(), id, &command.id).await.unwrap();
    assert_eq!(read(&ended, 0).await.stdout, "begun\n");
    let resumed = resume(&service, id).await;
    assert!(resumed.sandbox.expires_at <= info.sandbox.expires_at + 60_000);
    assert_eq!((&resumed.sandbox.pause, resumed.sandbox.remaining_ms), (&None, None));
    let list = "cat link; stat -c %a a/file; ls | tr '\\n' ' '";
    assert_eq!(sh(&service, &info, list).await.stdout, "kept\n700\na link ");
    let (changes, _) = service.changes(&alice(), id).await.unwrap();
    assert_eq!(changes.base, resumed.config.snapshot);
    assert_eq!(changes.differences().unwrap().len(), 0, "nothing changed since the pause");
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
}

async fn repeated_pauses_keep_one_snapshot(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let mut snapshots = Vec::new();
    for round in 0..3 {
        sh(&service, &info, &format!("echo {round} >> rounds; touch file-{round}; rm -f file-{}", round - 1))
            .await;
        let paused = pause(&service, id, PauseMode::Disk).await;
        let again = service.pause(&alice(), id, PauseMode::Disk).await.unwrap();
        assert_eq!(
            again.sandbox.pause_snapshot, paused.sandbox.pause_snapshot,
            "a repeated request does nothing"
        );
        resume(&service, id).await;
        assert_eq!(resume(&service, id).await.sandbox.pause_snapshot, paused.sandbox.pause_snapshot);
        snapshots.push(paused.sandbox.pause_snapshot.unwrap());
        assert_eq!(
            pause_snapshots(&service).iter().map(ToString::to_string).collect::<Vec<_>>(),
            [snapshots[round as usize].clone()]
        );
    }
    assert_eq!(sh(&service, &info, "cat rounds; ls").await.stdout, "0\n1\n2\nfile-2\nrounds\n");
    // Each continues the history of the one before, and only the last one is left.
    let catalog = home.catalog().await;
    assert_eq!(catalog.snapshots().count("alice").await.unwrap(), 1);
    assert!(catalog.snapshots().owns("alice", &snapshots[2]).await.unwrap());
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert_eq!(catalog.snapshots().count("alice").await.unwrap(), 0);
    assert!(pause_snapshots(&service).is_empty());
    assert!(service.workspaces().store().snapshots().unwrap().is_empty());
}

async fn processes_survive_a_pause_in_memory(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let line = "x=kept; while [ ! -e end ]; do echo x >> count; sleep 0.01; done; echo $x; exit 7";
    let command = service.run(&alice(), id, request(line)).await.unwrap();
    let count = home.workspace(&info).join("count");
    wait_until("it counts", async || size(&count) > 0).await;
    for _ in 0..3 {
        let paused = pause(&service, id, PauseMode::Memory).await;
        assert_eq!(paused.sandbox.pause, Some(PauseStep::Memory));
        let again = service.pause(&alice(), id, PauseMode::Memory).await.unwrap();
        assert_eq!(again.sandbox.version, paused.sandbox.version, "a repeated request does nothing");
        assert!(!grows(&count).await);
        assert_paused(service.pause(&alice(), id, PauseMode::Disk).await);
        resume(&service, id).await;
        wait_until("it counts again", async || grows(&count).await).await;
    }
    sh(&service, &info, "touch end").await;
    let ran = read(&command, 0).await;
    assert_eq!((ran.stdout.as_str(), ran.exit.exit_code), ("kept\n", 7));
}

async fn timeouts_do_not_advance_while_paused_in_memory(home: &TestHome) {
    let service = home.start_with(|settings| settings.command_grace = Duration::ZERO).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let timeout = Some(Duration::from_secs(5));
    let waiting = RunRequest { timeout, ..request("echo begun; while [ ! -e end ]; do sleep 0.01; done") };
    let mut command = service.run(&alice(), id, waiting).await.unwrap();
    command.output(0).await.unwrap().next().await.unwrap();
    pause(&service, id, PauseMode::Memory).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    resume(&service, id).await;
    sh(&service, &info, "touch end").await;
    let exit = command.wait().await.unwrap();
    assert_eq!((exit.exit_code, exit.timed_out, exit.failure_reason), (0, false, None));
    // It continues after the resume.
    let endless = RunRequest { timeout: Some(Duration::from_secs(1)), ..request("sleep 1000") };
    assert!(service.run(&alice(), id, endless).await.unwrap().wait().await.unwrap().timed_out);
}

async fn requests_to_a_paused_sandbox_are_refused(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let size = Size { cols: 80, rows: 24 };
    let terminal =
        || TerminalRequest { size, shell: None, command: None, cwd: None, envs: [].into(), user: None };
    let open = service.open_terminal(&alice(), id, terminal()).await.unwrap();
    let cat = RunRequest { stdin: true, ..request("cat") };
    let cat = service.run(&alice(), id, cat).await.unwrap();
    for mode in [PauseMode::Memory, PauseMode::Disk] {
        pause(&service, id, mode).await;
        let path = || FilePath::new("/workspace/file").unwrap();
        assert_paused(service.run(&alice(), id, request("true")).await);
        assert_paused(service.open_terminal(&alice(), id, terminal()).await);
        assert_paused(service.stat_file(&alice(), id, &path(), FOLLOW).await);
        assert_paused(service.list_ports(&alice(), id).await);
        assert_paused(service.processes(&alice(), id).await);
        assert_paused(service.extend(&alice(), id, 60).await);
        assert_paused(service.set_expiry(&alice(), id, Expiry::After(60)).await);
        let snapshot = SnapshotId::generate();
        assert_paused(service.restore(&alice(), id, snapshot, IfInUse::KillProcesses).await);
        if mode == PauseMode::Memory {
            assert_paused(service.write_terminal(&alice(), id, &open.id, b"x\n".to_vec()).await);
            let input = b"x\n".to_vec();
            assert_paused(service.input(&alice(), id, &cat.id, input, AfterInput::KeepOpen).await);
            assert_paused(service.kill(&alice(), id, &cat.id, 15).await);
        } else {
            assert_paused(service.commit(&alice(), id, NewCommit::default()).await);
            assert_paused(service.changes(&alice(), id).await.map(drop));
            assert_paused(service.fork(&alice(), id, creator(), Fork { count: 1, ..Fork::default() }).await);
            assert_paused(service.pause(&alice(), id, PauseMode::Memory).await);
        }
        // Other owners do not learn that the sandbox exists.
        let bob = Scope::Owner("bob".to_owned());
        for refused in [
            service.pause(&bob, id, mode).await,
            service
                .resume(&bob, id, Creator { owner: "bob".to_owned(), ..creator() }, DEFAULT_LIFETIME)
                .await,
            service.get(&bob, id).await,
        ] {
            assert!(matches!(refused, Err(SandboxError::NotFound { .. })), "{refused:?}");
        }
        assert_eq!(state(&service, id).await, VisibleState::Paused);
        resume(&service, id).await;
        assert_eq!(sh(&service, &info, "echo works").await.stdout, "works\n");
    }
}

async fn a_sandbox_paused_in_memory_can_be_committed_and_forked(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo kept > file").await;
    let process = home.process(id);
    pause(&service, id, PauseMode::Memory).await;
    let commit = service.commit(&alice(), id, NewCommit::default()).await.unwrap();
    assert!(commit.freeze.frozen.is_none(), "it was frozen already");
    let (changes, _) = service.changes(&alice(), id).await.unwrap();
    assert_eq!(changes.differences().unwrap().len(), 1);
    let forked = service.fork(&alice(), id, creator(), Fork { count: 1, ..Fork::default() }).await.unwrap();
    assert_eq!(sh(&service, &forked.infos[0], "cat file").await.stdout, "kept\n");
    assert_eq!(state(&service, id).await, VisibleState::Paused);
    assert!(home.dir(&info).freeze_record().exists() && process.is_running());
    resume(&service, id).await;
    assert_eq!(sh(&service, &info, "cat file").await.stdout, "kept\n");
}

async fn a_sandbox_paused_in_memory_stays_so_after_a_restart(home: &TestHome) {
    let short =
        |settings: &mut workspace_sandbox::Settings| settings.agent_grace = Duration::from_millis(200);
    let service = home.start_with(short).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let timeout = Some(Duration::from_secs(8));
    let line = "while [ ! -e end ]; do echo x >> count; sleep 0.01; done; echo ended";
    let command = service.run(&alice(), id, RunRequest { timeout, ..request(line) }).await.unwrap();
    let count = home.workspace(&info).join("count");
    wait_until("it counts", async || size(&count) > 0).await;
    pause(&service, id, PauseMode::Memory).await;
    service.close().await;
    drop(service);
    assert!(!grows(&count).await);
    let service = home.start_with(short).await;
    // Its agent does not come back within the grace period, and need not.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(state(&service, id).await, VisibleState::Paused);
    assert_paused(service.run(&alice(), id, request("true")).await);
    assert!(!grows(&count).await);
    resume(&service, id).await;
    wait_until("it counts again", async || grows(&count).await).await;
    sh(&service, &info, "touch end").await;
    let ran = read(&service.command(&alice(), id, &command.id).await.unwrap(), 0).await;
    assert_eq!((ran.stdout.as_str(), ran.exit.exit_code, ran.exit.timed_out), ("ended\n", 0, false));
}

async fn a_sandbox_paused_on_disk_is_resumed_after_a_restart(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo kept > file").await;
    pause(&service, id, PauseMode::Disk).await;
    let service = restart(home, service).await;
    assert_eq!(state(&service, id).await, VisibleState::Paused);
    assert_paused(service.run(&alice(), id, request("true")).await);
    // Its snapshot is not garbage.
    service.collect().await.unwrap();
    let info = resume(&service, id).await;
    assert_eq!(sh(&service, &info, "cat file").await.stdout, "kept\n");
    // The agent of the resumed sandbox is known to the next server, too.
    let service = restart(home, service).await;
    assert_eq!(sh(&service, &info, "cat file").await.stdout, "kept\n");
}

async fn a_paused_sandbox_can_be_deleted(home: &TestHome) {
    let service = home.start().await;
    for mode in [PauseMode::Memory, PauseMode::Disk] {
        let info = create(&service).await;
        let id = info.sandbox.id.as_str();
        sh(&service, &info, "echo gone > file").await;
        let process = home.process(id);
        pause(&service, id, mode).await;
        service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
        assert!(matches!(service.get(&alice(), id).await, Err(SandboxError::NotFound { .. })));
        assert!(!process.is_running());
        assert!(service.wait_for_removed_files(TIMEOUT).await);
        assert!(!home.dir(&info).root().exists());
        assert!(pause_snapshots(&service).is_empty());
        assert_eq!(home.catalog().await.snapshots().count("alice").await.unwrap(), 0);
    }
    assert!(service.workspaces().store().snapshots().unwrap().is_empty());
}

async fn the_workspace_of_a_paused_sandbox_can_be_kept(home: &TestHome) {
    let service = home.start().await;
    for scope in [alice(), Scope::All] {
        let info = create(&service).await;
        let id = info.sandbox.id.as_str();
        sh(&service, &info, "echo kept > file").await;
        let paused = pause(&service, id, PauseMode::Disk).await;
        let kept = service.remove(&scope, id, ReclaimPolicy::Keep).await.unwrap().kept;
        let KeptWorkspace::Snapshot(snapshot) = kept else { panic!("{kept:?}") };
        assert_eq!(paused.sandbox.pause_snapshot, Some(snapshot.to_string()));
        assert!(service.wait_for_removed_files(TIMEOUT).await && pause_snapshots(&service).is_empty());
        let new = NewSandbox { snapshot: Some(snapshot), ..base() };
        let info = service.create(creator(), new).await.unwrap();
        assert_eq!(sh(&service, &info, "cat file").await.stdout, "kept\n");
        assert!(home.catalog().await.snapshots().owns("alice", &snapshot.to_string()).await.unwrap());
        service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    }
}

async fn a_snapshot_that_is_used_otherwise_outlives_the_pause(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo kept > file").await;
    let paused = pause(&service, id, PauseMode::Disk).await;
    let snapshot: SnapshotId = paused.sandbox.pause_snapshot.unwrap().parse().unwrap();
    let store = service.workspaces().store();
    store.remove_snapshots(&[snapshot]).expect_err("the paused sandbox needs it");
    let new = NewSandbox { snapshot: Some(snapshot), ..base() };
    let other = service.create(creator(), new).await.unwrap();
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(pause_snapshots(&service).is_empty() && store.find_snapshot(&snapshot).unwrap().is_some());
    sh(&service, &other, "echo more > more").await;
    service.commit(&alice(), &other.sandbox.id, NewCommit::default()).await.unwrap();
}

/// Ends the lifetime of a sandbox.
async fn expire(home: &TestHome, id: &str) {
    let catalog = home.catalog().await;
    let found = catalog.sandboxes().get(id).await.unwrap().unwrap();
    let change = Change { expires_at: Some(found.created_at), ..Change::default() };
    catalog.sandboxes().change(id, found.version, change, &[]).await.unwrap();
}

fn with_short_intervals(settings: &mut workspace_sandbox::Settings) {
    settings.expiry_interval = Duration::from_millis(50);
}

fn paused_on_timeout() -> NewSandbox {
    NewSandbox { on_timeout: OnTimeout::Pause, ..base() }
}

async fn an_expired_sandbox_is_paused(home: &TestHome) {
    let limited = |settings: &mut workspace_sandbox::Settings| {
        with_short_intervals(settings);
        settings.paused_per_owner = 1;
    };
    let service = home.start_with(limited).await;
    let first = create(&service).await;
    pause(&service, &first.sandbox.id, PauseMode::Disk).await;
    let info = service.create(creator(), paused_on_timeout()).await.unwrap();
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo kept > file").await;
    expire(home, id).await;
    // The limit is reached, so it is neither paused nor deleted, and tried again.
    let handle_expires =
        async || matches!(service.extend(&alice(), id, 60).await, Err(SandboxError::Expired { .. }));
    wait_until("it has expired", handle_expires).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(state(&service, id).await, VisibleState::Running);
    service.remove(&alice(), &first.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    wait_until("it is paused", async || state(&service, id).await == VisibleState::Paused).await;
    let paused = service.get(&alice(), id).await.unwrap().sandbox;
    assert_eq!(paused.state_reason.as_deref(), Some("its lifetime is over"));
    // It had no time left, so it gets the usual lifetime.
    let now = workspace_catalog::now();
    let resumed = resume(&service, id).await;
    assert!(resumed.sandbox.expires_at > now + 3_000_000);
    assert_eq!(sh(&service, &info, "cat file").await.stdout, "kept\n");
    let catalog = home.catalog().await;
    let kinds: Vec<_> = catalog.events().after(0, 1_000).await.unwrap();
    assert!(kinds.iter().all(|event| event.kind != "sandbox.expired"));
}

async fn a_stopped_sandbox_is_paused_when_it_expires(home: &TestHome) {
    let service = home.start_with(with_short_intervals).await;
    let info = service.create(creator(), paused_on_timeout()).await.unwrap();
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo kept > file").await;
    home.process(id).signal(rustix::process::Signal::KILL);
    wait_until("it is in error", async || state(&service, id).await == VisibleState::Error).await;
    let refused = service.pause(&alice(), id, PauseMode::Disk).await.unwrap_err();
    assert!(matches!(refused, SandboxError::NotRunning { .. }), "{refused}");
    expire(home, id).await;
    wait_until("it is paused", async || state(&service, id).await == VisibleState::Paused).await;
    resume(&service, id).await;
    assert_eq!(sh(&service, &info, "cat file").await.stdout, "kept\n");
}

async fn a_paused_sandbox_is_deleted_after_a_while(home: &TestHome) {
    let service = home.start_with(|settings| {
        with_short_intervals(settings);
        settings.paused_retention = Duration::from_secs(1);
    });
    let service = service.await;
    for mode in [PauseMode::Memory, PauseMode::Disk] {
        // Also one that is paused when it expires.
        let info = service.create(creator(), paused_on_timeout()).await.unwrap();
        let id = info.sandbox.id.as_str();
        pause(&service, id, mode).await;
        wait_until("it is deleted", async || service.get(&alice(), id).await.is_err()).await;
        assert!(service.wait_for_removed_files(TIMEOUT).await && pause_snapshots(&service).is_empty());
    }
}

async fn limits_of_paused_and_running_sandboxes_hold(home: &TestHome) {
    let limits = |settings: &mut workspace_sandbox::Settings| {
        settings.sandboxes_per_owner = 1;
        settings.paused_per_owner = 2;
    };
    let service = home.start_with(limits).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let info = create(&service).await;
        pause(&service, &info.sandbox.id, PauseMode::Disk).await;
        ids.push(info.sandbox.id);
    }
    // Paused to disk, they do not count as sandboxes. In memory they do.
    let third = create(&service).await;
    let id = third.sandbox.id.as_str();
    let refused = service.pause(&alice(), id, PauseMode::Disk).await.unwrap_err();
    assert!(matches!(refused, SandboxError::TooManyPaused { limit: 2, .. }), "{refused}");
    assert_eq!(sh(&service, &third, "echo still here").await.stdout, "still here\n");
    pause(&service, id, PauseMode::Memory).await;
    let refused = service.create(creator(), base()).await.unwrap_err();
    assert!(matches!(refused, SandboxError::TooMany { limit: 1, .. }), "{refused}");
    let refused = service.resume(&alice(), &ids[0], creator(), DEFAULT_LIFETIME).await.unwrap_err();
    assert!(matches!(refused, SandboxError::TooMany { limit: 1, .. }), "{refused}");
    assert_eq!(state(&service, &ids[0]).await, VisibleState::Paused);
    // An admin has no limits of an owner.
    let admin = Creator { owner: "admin".to_owned(), unlimited: true, ..creator() };
    service.resume(&Scope::All, &ids[0], admin, DEFAULT_LIFETIME).await.unwrap();
    let too_long = service.resume(&alice(), &ids[1], creator(), Some(Duration::from_secs(90_000))).await;
    assert!(matches!(too_long, Err(SandboxError::Lifetime { .. })), "{too_long:?}");
    let paused = Filter { state: Some(VisibleState::Paused), ..Filter::default() };
    let (found, total) = service.list(&alice(), paused).await.unwrap();
    assert_eq!((found.len(), total), (2, 2));
}

async fn a_full_disk_leaves_the_sandbox_running(home: &TestHome) {
    let Some(small) = small_disk(home, "size=48m") else { return };
    let service = home.start_with(|settings| settings.store_dir = small.join("store")).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo kept > file; head -c 64000000 /dev/urandom > large").await;
    let command =
        service.run(&alice(), id, request("while [ ! -e end ]; do sleep 0.01; done")).await.unwrap();
    let refused = service.pause(&alice(), id, PauseMode::Disk).await.unwrap_err();
    assert!(refused.is_full(), "{refused}");
    let sandbox = service.get(&alice(), id).await.unwrap().sandbox;
    assert_eq!((sandbox.visible_state(), sandbox.pause), (VisibleState::Running, None));
    assert!(pause_snapshots(&service).is_empty());
    sh(&service, &info, "rm large; touch end").await;
    assert_eq!(read(&command, 0).await.exit.exit_code, 0);
    service.collect().await.unwrap();
    pause(&service, id, PauseMode::Disk).await;
    resume(&service, id).await;
    assert_eq!(sh(&service, &info, "cat file").await.stdout, "kept\n");
}

async fn pauses_have_events(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    for mode in [PauseMode::Memory, PauseMode::Disk] {
        pause(&service, id, mode).await;
        resume(&service, id).await;
    }
    let events = home.catalog().await.events().after(0, 1_000).await.unwrap();
    let shown: Vec<_> = events
        .iter()
        .filter(|event| ["sandbox.paused", "sandbox.resumed"].contains(&event.kind.as_str()))
        .map(|event| (event.kind.as_str(), event.data["state"].as_str().unwrap(), event.owner.as_deref()))
        .collect();
    let pair = [("sandbox.paused", "paused", Some("alice")), ("sandbox.resumed", "running", Some("alice"))];
    assert_eq!(shown, [pair, pair].concat());
    let on_disk = events.iter().rfind(|event| event.kind == "sandbox.paused").unwrap();
    let snapshot = service.get(&alice(), id).await.unwrap().sandbox.pause_snapshot;
    assert_eq!(on_disk.data["snapshotId"].as_str(), snapshot.as_deref());
}
