//! Life of a sandbox, from its creation to its end.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::{EventKind, Filter, State};
use workspace_sandbox::{
    Creator, Expiry, KeptWorkspace, NewSandbox, ReclaimPolicy, ResourceRequest, SandboxError, Scope,
};
use workspace_test_support::skip;

use crate::home::{ANY_TAG, TIMEOUT, TestHome, alice, base, create, creator, request, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        sandbox_is_created_used_and_removed,
        sandbox_of_another_owner_is_not_found,
        invalid_requests_are_refused_before_anything_is_created,
        sandbox_quotas_are_enforced,
        repeated_request_creates_one_sandbox,
        many_sandboxes_are_created_concurrently,
        failed_creation_leaves_nothing,
        a_sandbox_whose_processes_are_killed_is_in_error,
        sandbox_can_be_removed_while_it_is_created,
        sandbox_expires_and_can_be_extended,
        expiry_can_be_set_earlier_and_later,
        start_time_does_not_count_for_the_lifetime,
        full_workspace_stops_the_sandbox_and_is_kept,
        a_kept_workspace_outlives_its_sandbox,
        every_state_change_has_an_event,
        stats_report_resource_usage,
        logs_contain_command_output,
    ]
}

async fn sandbox_is_created_used_and_removed(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    assert!(info.sandbox.id.starts_with("sbx-"));
    assert_eq!((info.sandbox.state, info.agent_connected), (State::Running, true));
    let ran = sh(&service, &info, "echo hello > greeting; cat greeting; pwd").await;
    assert_eq!(ran.stdout, "hello\n/workspace\n");
    assert_eq!(std::fs::read_to_string(home.workspace(&info).join("greeting")).unwrap(), "hello\n");
    let id = &info.sandbox.id;
    assert_eq!(service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap().kept, KeptWorkspace::None);
    assert!(matches!(service.get(&alice(), id).await, Err(SandboxError::NotFound { .. })));
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(!home.workspace(&info).exists() && !home.path().join("sandboxes").join(id).exists());
    assert!(matches!(
        service.remove(&alice(), id, ReclaimPolicy::Delete).await,
        Err(SandboxError::NotFound { .. })
    ));
}

async fn sandbox_of_another_owner_is_not_found(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let bob = Scope::Owner("bob".to_owned());
    let handle = service.run(&alice(), id, request("sleep 100")).await.unwrap();
    let refusals = [
        service.get(&bob, id).await.err(),
        service.remove(&bob, id, ReclaimPolicy::Delete).await.err(),
        service.run(&bob, id, request("true")).await.err(),
        service.command(&bob, id, &handle.id).await.err(),
        service.kill(&bob, id, &handle.id, 9).await.err(),
        service.extend(&bob, id, 10).await.err(),
        service.commands(&bob, id, ANY_TAG, 10).await.err(),
        service.relabel(&bob, id, [].into()).await.err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Some(SandboxError::NotFound { .. })), "{refusal:?}");
    }
    assert_eq!(service.list(&bob, Filter::default()).await.unwrap().1, 0);
    assert_eq!(service.list(&Scope::All, Filter::default()).await.unwrap().1, 1);
}

async fn invalid_requests_are_refused_before_anything_is_created(home: &TestHome) {
    let service = home.start().await;
    let resources = |resources| NewSandbox { resources, ..base() };
    let wrong = [
        NewSandbox { template: String::new(), ..base() },
        NewSandbox { name: Some("a\nb".to_owned()), ..base() },
        NewSandbox { envs: [("A=B".to_owned(), String::new())].into(), ..base() },
        NewSandbox { envs: [("A".to_owned(), "\0".to_owned())].into(), ..base() },
        NewSandbox { timeout: Some(Duration::ZERO), ..base() },
        NewSandbox { labels: [(String::new(), String::new())].into(), ..base() },
        resources(ResourceRequest { cpu_millis: Some(2_001), ..ResourceRequest::default() }),
        resources(ResourceRequest { memory: Some(1), ..ResourceRequest::default() }),
        resources(ResourceRequest { disk: Some(u64::MAX), ..ResourceRequest::default() }),
    ];
    for new in wrong {
        let refused = service.create(creator(), new.clone()).await.unwrap_err();
        assert!(matches!(refused, SandboxError::Invalid { .. }), "{new:?}: {refused}");
    }
    let longer_than_a_day = NewSandbox { timeout: Some(Duration::from_secs(86_401)), ..base() };
    let refused = service.create(creator(), longer_than_a_day).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Lifetime { limit: 86_400, left: 86_400 }), "{refused}");
    assert_eq!(service.list(&Scope::All, Filter::default()).await.unwrap().1, 0);
}

async fn sandbox_quotas_are_enforced(home: &TestHome) {
    let service = home
        .start_with(|settings| {
            settings.sandboxes_per_owner = 2;
            settings.max_sandboxes = 4;
        })
        .await;
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { service.create(creator(), base()).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => assert!(matches!(error, SandboxError::TooMany { limit: 2, .. }), "{error}"),
        }
    }
    assert_eq!(made, 2);
    let admin = Creator { unlimited: true, ..creator() };
    for _ in 0..2 {
        service.create(admin.clone(), base()).await.unwrap();
    }
    let full = service.create(admin, base()).await.unwrap_err();
    assert!(full.to_string().contains("MAX_SANDBOXES"), "{full}");
}

async fn repeated_request_creates_one_sandbox(home: &TestHome) {
    let service = home.start_with(|settings| settings.sandboxes_per_owner = 1).await;
    let once = Creator { idempotency_key: Some(("k".to_owned(), "a".repeat(64))), ..creator() };
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (service, once) = (service.clone(), once.clone());
            tokio::spawn(async move { service.create(once, base()).await.unwrap().sandbox })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        let sandbox = task.await.unwrap();
        assert_eq!(sandbox.state, State::Running);
        ids.push(sandbox.id);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let other = Creator { idempotency_key: Some(("k".to_owned(), "b".repeat(64))), ..creator() };
    let refused = service.create(other, base()).await.unwrap_err();
    assert!(matches!(refused, SandboxError::IdempotencyConflict { .. }), "{refused}");
    // Another key exceeds the quota, and leaves neither row nor claim.
    let second = Creator { idempotency_key: Some(("l".to_owned(), "a".repeat(64))), ..creator() };
    let refused = service.create(second.clone(), base()).await.unwrap_err();
    assert!(matches!(refused, SandboxError::TooMany { .. }), "{refused}");
    service.remove(&alice(), &ids[0], ReclaimPolicy::Delete).await.unwrap();
    service.create(second, base()).await.unwrap();
}

async fn many_sandboxes_are_created_concurrently(home: &TestHome) {
    let service = home.start_with(|settings| settings.creations_at_once = 4).await;
    let many = Creator { unlimited: true, ..creator() };
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (service, many) = (service.clone(), many.clone());
            tokio::spawn(async move { service.create(many, base()).await.unwrap() })
        })
        .collect();
    for task in tasks {
        let info = task.await.unwrap();
        assert_eq!(sh(&service, &info, "hostname").await.stdout.trim(), info.sandbox.id);
    }
}

async fn failed_creation_leaves_nothing(home: &TestHome) {
    let service = home.start().await;
    let once = Creator { idempotency_key: Some(("k".to_owned(), "a".repeat(64))), ..creator() };
    let unknown = NewSandbox { template: "nowhere".to_owned(), ..base() };
    for _ in 0..2 {
        let refused = service.create(once.clone(), unknown.clone()).await.unwrap_err();
        assert!(refused.to_string().contains("no template `nowhere`"), "{refused}");
    }
    assert_eq!(service.list(&Scope::All, Filter::default()).await.unwrap().1, 0);
    for directory in ["sandboxes", "workspaces"] {
        assert_eq!(std::fs::read_dir(home.path().join(directory)).unwrap().count(), 0);
    }
}

async fn a_sandbox_whose_processes_are_killed_is_in_error(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let mut handle = service.run(&alice(), id, request("echo begun; sleep 100")).await.unwrap();
    let mut output = handle.output(0).await.unwrap();
    output.next().await.unwrap();
    home.process(id).signal(rustix::process::Signal::KILL);
    let failed = handle.wait().await.unwrap().failure_reason;
    assert_eq!(failed.as_deref(), Some("the sandbox ended"));
    wait_until("it is in error", async || {
        service.get(&alice(), id).await.unwrap().sandbox.state == State::Error
    })
    .await;
    let refused = service.run(&alice(), id, request("true")).await.unwrap_err();
    assert!(refused.to_string().contains("is error: its processes exited"), "{refused}");
    // Its output is kept.
    let old = service.command(&alice(), id, &handle.id).await.unwrap();
    let ran = crate::home::read(&old, 0).await;
    assert_eq!(ran.stdout, "begun\n");
    assert!(ran.exit.failure_reason.is_some());
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
}

async fn sandbox_can_be_removed_while_it_is_created(home: &TestHome) {
    let service = home.start().await;
    for wait in [0, 1, 3, 6, 10, 20] {
        let making = {
            let service = service.clone();
            tokio::spawn(async move { service.create(creator(), base()).await })
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let found = service.list(&alice(), Filter::default()).await.unwrap().0;
        for info in found {
            // The failed creation may have removed it before.
            match service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await {
                Ok(_) | Err(SandboxError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        if let Ok(info) = making.await.unwrap() {
            drop(service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await);
        }
        assert_eq!(service.list(&alice(), Filter::default()).await.unwrap().1, 0);
        assert!(service.wait_for_removed_files(TIMEOUT).await);
        assert_eq!(std::fs::read_dir(home.path().join("sandboxes")).unwrap().count(), 0);
    }
}

async fn sandbox_expires_and_can_be_extended(home: &TestHome) {
    let service = home
        .start_with(|settings| {
            settings.expiry_interval = Duration::from_millis(50);
            settings.max_lifetime = Duration::from_secs(2_000);
        })
        .await;
    let lasting = |seconds| NewSandbox { timeout: Some(Duration::from_secs(seconds)), ..base() };
    // However slow the machine is, it does not expire before it is extended.
    let stays = service.create(creator(), lasting(600)).await.unwrap();
    let longer = service.extend(&alice(), &stays.sandbox.id, 1_200).await.unwrap();
    assert_eq!(longer.sandbox.expires_at, stays.sandbox.expires_at + 1_200_000);
    let refused = service.extend(&alice(), &stays.sandbox.id, 1_200).await.unwrap_err();
    // Its start took some of the time.
    assert!(matches!(refused, SandboxError::Lifetime { limit: 2_000, left: 1..=200 }), "{refused}");
    for seconds in [0, 3_601] {
        let refused = service.extend(&alice(), &stays.sandbox.id, seconds).await.unwrap_err();
        assert!(matches!(refused, SandboxError::Invalid { .. }), "{refused}");
    }
    let ends = service.create(creator(), lasting(1)).await.unwrap();
    wait_until("it expired", async || service.get(&alice(), &ends.sandbox.id).await.is_err()).await;
    wait_until("its files are gone", async || !home.workspace(&ends).exists()).await;
    service.get(&alice(), &stays.sandbox.id).await.unwrap();
}

async fn expiry_can_be_set_earlier_and_later(home: &TestHome) {
    let service = home
        .start_with(|settings| {
            settings.expiry_interval = Duration::from_millis(50);
            settings.max_lifetime = Duration::from_secs(2_000);
        })
        .await;
    let info = create(&service).await;
    let (id, created_at) = (info.sandbox.id.as_str(), info.sandbox.created_at);
    let set = async |expiry| service.set_expiry(&alice(), id, expiry).await;
    for seconds in [1_900, 1_000, 1_000] {
        let time = created_at + seconds * 1_000;
        assert_eq!(set(Expiry::At(time)).await.unwrap().sandbox.expires_at, time);
    }
    let before = set(Expiry::After(500)).await.unwrap().sandbox.expires_at;
    assert!((created_at + 500_000..created_at + 1_000_000).contains(&before), "{before}");
    for late in [Expiry::At(created_at + 2_000_001), Expiry::After(2_001), Expiry::After(u64::MAX)] {
        let refused = set(late).await.unwrap_err();
        assert!(matches!(refused, SandboxError::Lifetime { limit: 2_000, left: 1..2_000 }), "{refused}");
    }
    for past in [Expiry::At(0), Expiry::At(created_at), Expiry::After(0)] {
        let refused = set(past).await.unwrap_err();
        assert!(matches!(refused, SandboxError::Invalid { .. }), "{refused}");
    }
    let bob = Scope::Owner("bob".to_owned());
    let foreign = service.set_expiry(&bob, id, Expiry::After(100)).await.unwrap_err();
    assert!(matches!(foreign, SandboxError::NotFound { .. }), "{foreign}");
    assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.expires_at, before, "nothing has changed");
    set(Expiry::After(1)).await.unwrap();
    wait_until("it expired", async || service.get(&alice(), id).await.is_err()).await;
}

async fn start_time_does_not_count_for_the_lifetime(home: &TestHome) {
    let service = home.start().await;
    let short = NewSandbox { timeout: Some(Duration::from_secs(60)), ..base() };
    let made = service.create(creator(), short).await.unwrap().sandbox;
    // Nothing starts within a millisecond.
    assert!(made.expires_at > made.created_at + 60_000, "{made:?}");
}

async fn full_workspace_stops_the_sandbox_and_is_kept(home: &TestHome) {
    if crate::quota::has_quotas(home) {
        return skip("with a quota, a full workspace ends nothing");
    }
    let service = home.start_with(|settings| settings.disk_interval = Duration::from_millis(50)).await;
    let resources = ResourceRequest { disk: Some(4 << 20), ..ResourceRequest::default() };
    let info = service.create(creator(), NewSandbox { resources, ..base() }).await.unwrap();
    let neighbour = create(&service).await;
    let ran = sh(&service, &info, "head -c 20000000 /dev/zero > big; sleep 100").await;
    let reason = ran.exit.failure_reason.unwrap();
    assert!(reason.contains("its workspace has"), "{reason}");
    let sandbox = service.get(&alice(), &info.sandbox.id).await.unwrap().sandbox;
    assert_eq!((sandbox.state, sandbox.state_reason), (State::Stopped, Some(reason)));
    assert!(home.workspace(&info).join("big").exists());
    assert_eq!(sh(&service, &neighbour, "echo fine").await.stdout, "fine\n");
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
}

async fn a_kept_workspace_outlives_its_sandbox(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    sh(&service, &info, "echo mine > file").await;
    let kept = service.remove(&Scope::All, &info.sandbox.id, ReclaimPolicy::Keep).await.unwrap().kept;
    let KeptWorkspace::Directory(kept) = kept else { panic!("{kept:?}") };
    assert_eq!(std::fs::read_to_string(kept.join("file")).unwrap(), "mine\n");
    let collected = service.collect().await.unwrap();
    assert_eq!(collected, workspace_sandbox::CollectionReport::default());
    assert!(kept.join("file").exists());
}

async fn every_state_change_has_an_event(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    let catalog = home.catalog().await;
    let found = catalog.events().after(0, 100).await.unwrap();
    assert!(found.iter().all(|event| event.owner.as_deref() == Some("alice")), "{found:?}");
    let found: Vec<_> = found.iter().map(|event| event.kind.as_str()).collect();
    for kind in [
        EventKind::SandboxStarting,
        EventKind::AgentConnected,
        EventKind::SandboxRunning,
        EventKind::SandboxCreated,
        EventKind::SandboxDeleted,
    ] {
        assert_eq!(found.iter().filter(|found| **found == kind.as_str()).count(), 1, "{kind}: {found:?}");
    }
}

async fn stats_report_resource_usage(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "head -c 1000000 /dev/zero > file").await;
    service.run(&alice(), id, request("while :; do :; done")).await.unwrap();
    let mut stats = service.stats(&alice(), id).await.unwrap();
    wait_until("the loop and the file are seen", async || {
        stats = service.stats(&alice(), id).await.unwrap();
        stats.cpu_percent > 10.0 && stats.disk >= 1_000_000
    })
    .await;
    assert!((1..=stats.time).contains(&stats.disk_time), "{stats:?}");
    assert!(stats.usage.processes.unwrap() >= 3, "{stats:?}");
    assert!(stats.usage.memory_bytes.unwrap() > 100_000, "{stats:?}");
    assert!((1_000_000..10_000_000).contains(&stats.disk), "{stats:?}");
}

async fn logs_contain_command_output(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    for command in ["echo one; sleep 0.1; echo two >&2", "echo three", "printf four"] {
        sh(&service, &info, command).await;
    }
    let all = service.logs(&alice(), id, 100, None, None).await.unwrap();
    assert_eq!((all.text.as_str(), all.truncated), ("one\ntwo\nthree\nfour", false));
    let last = service.logs(&alice(), id, 2, None, None).await.unwrap();
    assert_eq!((last.text.as_str(), last.truncated), ("three\nfour", true));
    let none = service.logs(&alice(), id, 100, None, Some(0)).await.unwrap();
    assert_eq!(none.text, "");
}
