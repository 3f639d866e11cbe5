//! Sandboxes with dedicated UIDs.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::path::Path;

use libtest_mimic::Trial;
use workspace_host::NamespaceHolder;
use workspace_host::{dedicated_uids, launch};
use workspace_sandbox::runtime::LazyMount;
use workspace_sandbox::{
    Fork, IfInUse, NewCommit, NewSandbox, ProviderKind, ReclaimPolicy, SandboxInfo, Service, Settings,
};
use workspace_state::{NewSnapshot, Snapshot};
use workspace_test_support::skip;

use crate::home::{TIMEOUT, TestHome, alice, base, create, creator, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![
        shared_user_ids_are_reported,
        every_sandbox_has_a_user_of_its_own,
        user_ids_survive_a_restart,
        snapshots_move_files_between_user_ids,
        sandboxes_keep_the_user_that_another_server_gave_them,
    ];
    trials.retain(|trial| trial.name().starts_with("embedded::"));
    trials
}

/// Returns true if sandboxes on this host have dedicated UIDs; otherwise checks that the reason is
/// reported.
async fn has_dedicated_uids(home: &TestHome, service: &Service) -> bool {
    let holder = if rustix::process::geteuid().is_root() { NamespaceHolder::None } else { return false };
    let missing = service.runtime().missing_features().await.unwrap().join("; ");
    match dedicated_uids::probe(&holder, home.path(), LazyMount::Unused) {
        Ok(()) => {
            assert!(!missing.contains("no dedicated UIDs"), "{missing}");
            true
        }
        Err(reason) => {
            assert!(missing.contains(&reason), "{missing}");
            false
        }
    }
}

/// User ids of the first process of a sandbox.
fn users(home: &TestHome, id: &str) -> Vec<u32> {
    let pid = RuntimeKind::Embedded.pid(home.path(), id);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    line.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn user(home: &TestHome, info: &SandboxInfo) -> u32 {
    users(home, &info.sandbox.id)[0]
}

/// Like [`has_dedicated_uids`], but records the test as skipped where there are none.
async fn needs_dedicated_uids(home: &TestHome, service: &Service) -> bool {
    let has = has_dedicated_uids(home, service).await;
    if !has {
        skip("sandboxes have no dedicated UIDs on this host");
    }
    has
}

async fn shared_user_ids_are_reported(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let shared = launch::shared_sandbox_ids(&service.runtime().mount_holder().await.unwrap());
    let of_server = rustix::process::geteuid().as_raw();
    let found = user(home, &info);
    if has_dedicated_uids(home, &service).await {
        assert_ne!(Some(found), shared.map(|(user, _)| user));
        return;
    }
    assert_eq!(found, shared.map_or(of_server, |(user, _)| user));
    let missing = service.runtime().missing_features().await.unwrap().join("; ");
    assert!(missing.contains("no dedicated UIDs for sandboxes"), "{missing}");
    assert!(shared.is_some() || missing.contains("only a server that runs as root"), "{missing}");
}

async fn every_sandbox_has_a_user_of_its_own(home: &TestHome) {
    let service = home.start_with(|settings| settings.max_pool_size = 2).await;
    if !needs_dedicated_uids(home, &service).await {
        return;
    }
    wait_until("the warm pool has one", async || service.warm_pool_size() > 0).await;
    let mut found = Vec::new();
    let mut infos = Vec::new();
    for _ in 0..4 {
        let info = create(&service).await;
        let ran = sh(&service, &info, "id -u; id -G; touch file; stat -c '%u %g' file . ~").await;
        assert_eq!(ran.stdout, "1000\n1000\n1000 1000\n1000 1000\n1000 1000\n", "{ran:?}");
        found.push(user(home, &info));
        infos.push(info);
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 4);
    for info in &infos {
        service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    }
    assert!(service.wait_for_removed_files(TIMEOUT).await);
}

async fn user_ids_survive_a_restart(home: &TestHome) {
    let service = home.start().await;
    if !needs_dedicated_uids(home, &service).await {
        return;
    }
    let (first, second) = (create(&service).await, create(&service).await);
    let (snapshot, before) = (snapshot(&service), [user(home, &first), user(home, &second)]);
    service.close().await;
    drop(service);
    let service = home.start().await;
    let id = first.sandbox.id.as_str();
    wait_until("its guest is back", async || service.get(&alice(), id).await.unwrap().agent_connected).await;
    assert_eq!([user(home, &first), user(home, &second)], before);
    let asked = service.runtime().dedicated_uid(id, &home.dir(&first)).await.unwrap();
    assert_eq!(asked, Some(before[0]));
    // A new workspace is shown to the user id that it has.
    service.restore(&alice(), id, snapshot.id, IfInUse::KillProcesses).await.unwrap();
    let ran = sh(&service, &first, "cd /workspace; echo more >> file; cat file; stat -c %u file").await;
    assert_eq!(ran.stdout, "text\nmore\n1000\n", "{ran:?}");
    let third = create(&service).await;
    assert!(!before.contains(&user(home, &third)));
}

fn snapshot(service: &Service) -> Snapshot {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("file", "text\n").unwrap();
    tree.chmod("file", 0o600).unwrap();
    tree.write("d/tool", "x").unwrap();
    tree.chmod("d/tool", 0o6755).unwrap();
    tree.commit(NewSnapshot::default()).unwrap()
}

async fn snapshots_move_files_between_user_ids(home: &TestHome) {
    let service = home.start().await;
    let own = has_dedicated_uids(home, &service).await;
    let base_snapshot = snapshot(&service);
    for provider in [ProviderKind::Overlay, ProviderKind::Copy] {
        let new = NewSandbox { snapshot: Some(base_snapshot.id), provider: Some(provider), ..base() };
        let Ok(info) = service.create(creator(), new).await else { continue };
        let id = info.sandbox.id.as_str();
        // Files are not changed by being shown to another user.
        let unchanged = service.commit(&alice(), id, NewCommit::default()).await.unwrap().committed.snapshot;
        assert_eq!(unchanged.tree, base_snapshot.tree, "{provider}");
        let work = "echo more >> file; stat -c '%a %u' d/tool; mkdir made; touch made/f; chmod 2750 made; chmod 4711 made/f";
        assert_eq!(sh(&service, &info, work).await.stdout, "6755 1000\n", "{provider}");
        let forked =
            service.fork(&alice(), id, creator(), Fork { count: 2, ..Fork::default() }).await.unwrap();
        for fork in &forked.infos {
            assert_eq!(user(home, fork) != user(home, &info), own, "{provider}");
            let ran = sh(
                &service,
                fork,
                "cat file; stat -c '%a %u %g' made made/f d/tool; echo x >> file; rm -r made; ls",
            )
            .await;
            let expected = "text\nmore\n2750 1000 1000\n4711 1000 1000\n6755 1000 1000\nd\nfile\n";
            assert_eq!(ran.stdout, expected, "{provider}: {ran:?}");
        }
        let fork = &forked.infos[0].sandbox.id;
        let (changes, _) = service.changes(&alice(), fork).await.unwrap();
        assert_eq!(changes.differences().unwrap().len(), 3, "{provider}");
        service.restore(&alice(), fork, base_snapshot.id, IfInUse::KillProcesses).await.unwrap();
        let restored = service.commit(&alice(), fork, NewCommit::default()).await.unwrap().committed.snapshot;
        assert_eq!(restored.tree, base_snapshot.tree, "{provider}");
    }
}

/// Starts a service whose sandboxes share one user, because workspaces where it tried cannot be shown to
/// others.
async fn start_sharing(home: &TestHome) -> Service {
    let runtime = home.kind.runtime(home.path()).await;
    let nowhere = Path::new("/proc/self/fd");
    runtime.probe_dedicated_uids(nowhere, nowhere, LazyMount::Unused).await.unwrap();
    let mut settings = Settings::new(home.path());
    settings.max_pool_size = 0;
    Service::start(settings, home.catalog().await, runtime).await.unwrap()
}

/// Uses features of a sandbox that need mounts for its user.
async fn use_all(home: &TestHome, service: &Service, info: &SandboxInfo, snapshot: &Snapshot) {
    let (id, before) = (info.sandbox.id.as_str(), user(home, info));
    wait_until("its guest is back", async || service.get(&alice(), id).await.unwrap().agent_connected).await;
    service.restore(&alice(), id, snapshot.id, IfInUse::KillProcesses).await.unwrap();
    let ran =
        sh(service, info, "cd /workspace; stat -c %u file; echo more >> file; cat file; rm -r d; ls").await;
    assert_eq!(ran.stdout, "1000\ntext\nmore\nfile\n", "{ran:?}");
    service.restore(&alice(), id, snapshot.id, IfInUse::KillProcesses).await.unwrap();
    let restored = service.commit(&alice(), id, NewCommit::default()).await.unwrap().committed.snapshot;
    assert_eq!(restored.tree, snapshot.tree);
    assert_eq!(user(home, info), before);
}

async fn sandboxes_keep_the_user_that_another_server_gave_them(home: &TestHome) {
    let service = start_sharing(home).await;
    let missing = service.runtime().missing_features().await.unwrap().join("; ");
    assert!(missing.contains("no dedicated UIDs for sandboxes"), "{missing}");
    let snapshot = snapshot(&service);
    let new = || NewSandbox { snapshot: Some(snapshot.id), ..base() };
    let old = [create(&service).await, service.create(creator(), new()).await.unwrap()];
    assert_eq!(user(home, &old[0]), user(home, &old[1]));
    service.close().await;
    drop(service);
    let service = home.start().await;
    let own = has_dedicated_uids(home, &service).await;
    let later = [create(&service).await, service.create(creator(), new()).await.unwrap()];
    assert_eq!(user(home, &later[0]) != user(home, &later[1]), own);
    for info in old.iter().chain(&later) {
        use_all(home, &service, info, &snapshot).await;
    }
    service.close().await;
    drop(service);
    // And back again.
    let service = start_sharing(home).await;
    for info in old.iter().chain(&later) {
        use_all(home, &service, info, &snapshot).await;
        service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    }
    assert!(service.wait_for_removed_files(TIMEOUT).await);
}
