//! Resource limits.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use libtest_mimic::Trial;
use workspace_sandbox::{NewSandbox, ResourceRequest, SandboxDir};
use workspace_test_support::skip;

use crate::home::{TestHome, base, create, creator, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        resource_usage_is_measured,
        processes_and_memory_are_limited,
        full_tmpfs_leaves_memory_for_processes,
        base_template_is_always_listed,
    ]
}

/// Returns true if the runtime can apply all limits here. An unprivileged user may have no cgroups.
async fn can_limit(service: &workspace_sandbox::Service) -> bool {
    let lacks = service.runtime().missing_features().await.unwrap();
    let lacks: Vec<String> = lacks.into_iter().filter(|lack| lack.starts_with("no limit")).collect();
    if !lacks.is_empty() {
        skip(lacks.join("; "));
    }
    lacks.is_empty()
}

async fn resource_usage_is_measured(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    if !can_limit(&service).await {
        return;
    }
    sh(&service, &info, "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done").await;
    wait_until("something is counted", async || {
        let usage = service.runtime().usage(&info.sandbox.id, &home.dir(&info)).await.unwrap();
        let processes = usage.processes.unwrap();
        assert!((1..100).contains(&processes), "{usage:?}");
        assert!((1 << 10..1 << 30).contains(&usage.memory_bytes.unwrap()), "{usage:?}");
        usage.cpu.unwrap().as_millis() > 10
    })
    .await;
    let none = SandboxDir::new(home.path().join("sandboxes/sbx-none"));
    let usage = service.runtime().usage("sbx-none", &none).await;
    assert!(usage.is_ok_and(|usage| usage == Default::default()));
}

async fn processes_and_memory_are_limited(home: &TestHome) {
    let service = home.start().await;
    if !can_limit(&service).await {
        return;
    }
    let resources = ResourceRequest {
        processes: Some(16),
        memory: Some(48 << 20),
        cpu_millis: Some(500),
        ..ResourceRequest::default()
    };
    let info = service.create(creator(), NewSandbox { resources, ..base() }).await.unwrap();
    assert_eq!(info.config.not_applied, [""; 0]);
    let many = "for i in $(seq 1 40); do sleep 1 & done; wait";
    let ran = sh(&service, &info, many).await;
    assert!(ran.stderr.to_lowercase().contains("fork"), "{ran:?}");
    // For the shell, and for its children.
    let room = "/bin/true && echo room";
    wait_until("there is room again", async || sh(&service, &info, room).await.stdout == "room\n").await;
    let ran = sh(&service, &info, "tail /dev/zero; echo $?").await;
    assert_eq!(ran.stdout, "137\n", "{ran:?}");
    assert_eq!(sh(&service, &info, "echo handles").await.stdout, "handles\n");
}

async fn full_tmpfs_leaves_memory_for_processes(home: &TestHome) {
    let service = home.start().await;
    let resources = ResourceRequest { memory: Some(96 << 20), ..ResourceRequest::default() };
    let info = service.create(creator(), NewSandbox { resources, ..base() }).await.unwrap();
    let places = "/tmp /var/tmp /home/sandbox /dev/shm";
    let fill = format!("for p in {places}; do head -c 96m /dev/zero > $p/x || echo full; done");
    let ran = sh(&service, &info, &fill).await;
    assert_eq!(ran.stdout, "full\nfull\nfull\nfull\n", "{ran:?}");
    // All of them together have half of the memory.
    let held = format!("du -ck {places} | tail -n 1 | cut -f 1");
    let held = sh(&service, &info, &held).await.stdout.trim().parse::<u64>().unwrap();
    assert!(held <= 49 << 10, "{held} KiB");
    assert_eq!(sh(&service, &info, "echo handles").await.stdout, "handles\n");
}

async fn base_template_is_always_listed(home: &TestHome) {
    let service = home.start().await;
    let templates = service.runtime().templates().await.unwrap();
    let base = templates.iter().find(|template| template.name == "base").unwrap();
    assert!(base.present);
    for name in ["../base", "a b", "$(id)", "/", ".", "-x", "base;id"] {
        let new = NewSandbox { template: name.to_owned(), ..crate::home::base() };
        let refused = service.create(creator(), new).await.unwrap_err();
        assert!(refused.to_string().contains("there is no template"), "{name}: {refused}");
    }
}
