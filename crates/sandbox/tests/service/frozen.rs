//! Freezing and thawing sandboxes.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_sandbox::runtime::freeze::FreezeMethod;
use workspace_sandbox::runtime::{Frozen, Runtime};
use workspace_sandbox::{
    CommandHandle, NewSandbox, OutputPiece, ReclaimPolicy, ResourceRequest, SandboxInfo, Service, Size,
    TerminalRequest,
};

use crate::home::{TIMEOUT, TestHome, alice, base, create, creator, read, request, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        frozen_process_makes_no_progress,
        command_continues_after_a_thaw,
        many_processes_are_frozen,
        process_that_keeps_forking_is_frozen,
        a_shell_never_sees_its_jobs_stopped,
        next_server_thaws_a_frozen_sandbox,
        frozen_sandbox_can_be_removed,
        freezing_an_ended_sandbox_fails,
    ]
}

async fn freeze(home: &TestHome, service: &Service, info: &SandboxInfo) -> Frozen {
    service.runtime().freeze(&info.sandbox.id, &home.dir(info)).await.unwrap()
}

async fn thaw(home: &TestHome, runtime: &dyn Runtime, info: &SandboxInfo) {
    runtime.thaw(&info.sandbox.id, &home.dir(info)).await.unwrap();
    assert!(!home.dir(info).freeze_record().exists());
}

async fn start(service: &Service, info: &SandboxInfo, command: &str) -> CommandHandle {
    service.run(&alice(), &info.sandbox.id, request(command)).await.unwrap()
}

fn size(file: &Path) -> u64 {
    file.metadata().map_or(0, |found| found.len())
}

/// Returns true if a file grows.
async fn grows(file: &Path) -> bool {
    let before = size(file);
    tokio::time::sleep(Duration::from_millis(60)).await;
    size(file) > before
}

async fn frozen_process_makes_no_progress(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let _counter = start(&service, &info, "while :; do echo x >> count; done").await;
    let count = home.workspace(&info).join("count");
    wait_until("it counts", async || size(&count) > 0).await;
    for _ in 0..3 {
        let frozen = freeze(home, &service, &info).await;
        // An unprivileged user has no cgroups here, unless some were delegated.
        let by_group = rustix::process::geteuid().is_root();
        assert!(!by_group || frozen.method == FreezeMethod::Cgroup, "{frozen:?}");
        assert!(frozen.processes.is_none_or(|processes| processes > 0), "{frozen:?}");
        assert!(!grows(&count).await);
        let again = service.runtime().freeze(&info.sandbox.id, &home.dir(&info)).await.unwrap_err();
        assert!(again.to_string().contains("already"), "{again}");
        assert!(!grows(&count).await);
        thaw(home, &**service.runtime(), &info).await;
        thaw(home, &**service.runtime(), &info).await;
        wait_until("it counts again", async || grows(&count).await).await;
    }
    assert_eq!(sh(&service, &info, "echo works").await.stdout, "works\n");
}

async fn command_continues_after_a_thaw(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let line = "i=0; while [ $i -lt 200 ]; do i=$((i + 1)); echo $i; sleep 0.005; done; exit 7";
    let handle = start(&service, &info, line).await;
    for _ in 0..20 {
        freeze(home, &service, &info).await;
        thaw(home, &**service.runtime(), &info).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ran = read(&handle, 0).await;
    let expected: String = (1..=200).map(|n| format!("{n}\n")).collect();
    assert_eq!((ran.stdout, ran.exit.exit_code), (expected, 7));
}

async fn many_processes_are_frozen(home: &TestHome) {
    let service = home.start().await;
    let resources = ResourceRequest { processes: Some(400), ..ResourceRequest::default() };
    let info = service.create(creator(), NewSandbox { resources, ..base() }).await.unwrap();
    let many = "for i in $(seq 200); do sleep 100 & done; touch ready; wait";
    let _many = start(&service, &info, many).await;
    wait_until("all run", async || home.workspace(&info).join("ready").exists()).await;
    let frozen = freeze(home, &service, &info).await;
    assert!(frozen.processes.is_none_or(|processes| processes > 200), "{frozen:?}");
    thaw(home, &**service.runtime(), &info).await;
    let stopped = sh(&service, &info, "cat /proc/[0-9]*/status | grep -c 'State:.T'").await;
    assert_eq!(stopped.stdout, "0\n");
}

async fn process_that_keeps_forking_is_frozen(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let forks = "while :; do /bin/true; (:); (sleep 0.01 &); echo x >> count; done";
    let _forks = start(&service, &info, forks).await;
    let count = home.workspace(&info).join("count");
    wait_until("it counts", async || size(&count) > 0).await;
    for _ in 0..5 {
        freeze(home, &service, &info).await;
        assert!(!grows(&count).await);
        thaw(home, &**service.runtime(), &info).await;
        wait_until("it counts again", async || grows(&count).await).await;
    }
}

/// Runs a shell that reports every job that it sees stopped.
async fn a_shell_never_sees_its_jobs_stopped(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let size = Size { cols: 80, rows: 24 };
    let request =
        TerminalRequest { size, shell: None, command: None, cwd: None, envs: [].into(), user: None };
    let terminal = service.open_terminal(&alice(), id, request).await.unwrap();
    let typed =
        b"set -m; sleep 100 & sleep 100 | sleep 100 & touch ready; sleep 2; jobs; echo end-$((1 + 1))\n";
    service.write_terminal(&alice(), id, &terminal.id, typed.to_vec()).await.unwrap();
    wait_until("it runs", async || home.workspace(&info).join("ready").exists()).await;
    for _ in 0..20 {
        freeze(home, &service, &info).await;
        thaw(home, &**service.runtime(), &info).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let screen = service.terminal(&alice(), id, &terminal.id).await.unwrap();
    let mut output = screen.output(0).await.unwrap();
    let mut shown = String::new();
    while !shown.contains("end-2") {
        for piece in output.next().await.unwrap().unwrap() {
            if let OutputPiece::Data { data, .. } = piece {
                shown.push_str(&String::from_utf8_lossy(&data));
            }
        }
    }
    assert!(shown.contains("Running") && !shown.contains("Stopped"), "{shown}");
}

async fn next_server_thaws_a_frozen_sandbox(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let _counter = start(&service, &info, "while :; do echo x >> count; done").await;
    let count = home.workspace(&info).join("count");
    wait_until("it counts", async || size(&count) > 0).await;
    freeze(home, &service, &info).await;
    service.close().await;
    drop(service);
    assert!(!grows(&count).await);
    let runtime = home.kind.runtime(home.path()).await;
    thaw(home, &*runtime, &info).await;
    wait_until("it counts again", async || grows(&count).await).await;
}

async fn frozen_sandbox_can_be_removed(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let _counter = start(&service, &info, "while :; do echo x >> count; done").await;
    let process = home.process(&info.sandbox.id);
    freeze(home, &service, &info).await;
    let owner = alice();
    let removed = service.remove(&owner, &info.sandbox.id, ReclaimPolicy::Delete);
    tokio::time::timeout(Duration::from_secs(20), removed).await.unwrap().unwrap();
    assert!(!process.is_running());
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(!home.dir(&info).root().exists());
}

async fn freezing_an_ended_sandbox_fails(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let dir = home.dir(&info);
    service.runtime().kill(&info.sandbox.id, &dir).await.unwrap();
    let error = service.runtime().freeze(&info.sandbox.id, &dir).await.unwrap_err();
    // An OCI runtime has an error message of its own.
    let is_explained = home.kind == RuntimeKind::Oci
        || home.kind == RuntimeKind::Crun
        || error.to_string().contains("not running");
    assert!(is_explained, "{error}");
    assert!(!dir.freeze_record().exists());
    service.runtime().thaw(&info.sandbox.id, &dir).await.unwrap();
}
