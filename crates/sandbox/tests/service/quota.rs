//! Workspaces on a filesystem with project quotas, which the embedded runtime of root uses.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `sh` runs a shell command
//! in a sandbox and returns its result.

use std::fs;
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_host::quota;
use workspace_sandbox::{KeptWorkspace, NewSandbox, ReclaimPolicy, ResourceRequest, Scope};
use workspace_test_support::skip;

use crate::home::{TIMEOUT, TestHome, alice, base, creator, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::trials;

const LIMIT: u64 = 4 << 20;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![a_quota_refuses_writes_beyond_the_limit, a_quota_ends_with_its_sandbox];
    // A quota applies to a container only inside a user namespace.
    trials.retain(|trial| trial.name().starts_with("embedded::"));
    trials
}

/// Returns true if workspaces of this runtime have quotas here.
pub(crate) fn has_quotas(home: &TestHome) -> bool {
    let directory = home.path().join("quota");
    fs::create_dir(&directory).unwrap();
    let limited = quota::limit(&directory, LIMIT);
    fs::remove_dir(&directory).unwrap();
    match limited {
        Ok(()) => home.kind == RuntimeKind::Embedded,
        Err(error) => {
            let promised = std::env::var_os("WORKSPACE_TEST_QUOTAS").is_some();
            assert!(!promised || !rustix::process::geteuid().is_root(), "{error}");
            false
        }
    }
}

fn small() -> NewSandbox {
    NewSandbox { resources: ResourceRequest { disk: Some(LIMIT), ..ResourceRequest::default() }, ..base() }
}

async fn a_quota_refuses_writes_beyond_the_limit(home: &TestHome) {
    if !has_quotas(home) {
        return skip("the filesystem or the runtime has no quotas");
    }
    // One that is created from scratch, and one from the warm pool.
    for pool in [0, 1] {
        let change = |settings: &mut workspace_sandbox::Settings| {
            settings.max_pool_size = pool;
            settings.disk_interval = Duration::from_millis(50);
        };
        let service = home.start_with(change).await;
        wait_until("one is ready", async || service.warm_pool_size() == pool as usize).await;
        let info = service.create(creator(), small()).await.unwrap();
        let ran = sh(&service, &info, "head -c 20000000 /dev/zero > big; sleep 0.3; echo on").await;
        // XFS reports a full project like a full disk.
        let refusals = ["Disk quota exceeded", "No space left on device"];
        assert!(refusals.iter().any(|refusal| ran.stderr.contains(refusal)), "{ran:?}");
        assert_eq!(ran.stdout, "on\n");
        wait_until("all of it is counted", async || {
            let stats = service.stats(&alice(), &info.sandbox.id).await.unwrap();
            assert!(stats.disk - stats.output <= LIMIT, "{stats:?}");
            stats.disk - stats.output >= LIMIT - (64 << 10)
        })
        .await;
        let found = service.get(&alice(), &info.sandbox.id).await.unwrap();
        assert_eq!(found.sandbox.state, State::Running);
        assert_eq!(found.config.not_applied, [""; 0]);
        service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
        assert!(service.wait_for_removed_files(TIMEOUT).await);
        assert!(!home.workspace(&info).exists());
        service.close().await;
    }
}

async fn a_quota_ends_with_its_sandbox(home: &TestHome) {
    if !has_quotas(home) {
        return skip("the filesystem or the runtime has no quotas");
    }
    let service = home.start().await;
    let info = service.create(creator(), small()).await.unwrap();
    sh(&service, &info, "echo mine > file").await;
    let kept = service.remove(&Scope::All, &info.sandbox.id, ReclaimPolicy::Keep).await.unwrap().kept;
    let KeptWorkspace::Directory(kept) = kept else { panic!("{kept:?}") };
    // Its owner may use it like any other directory.
    let owner = rustix::fs::stat(&kept).unwrap().st_uid.to_string();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", &owner, "--clear-groups", "--", "sh", "-c", "head -c 8000000 /dev/zero > more"]);
    command.current_dir(&kept);
    assert!(command.status().unwrap().success());
    assert_eq!(fs::metadata(kept.join("more")).unwrap().len(), 8_000_000);
}
