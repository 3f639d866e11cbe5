//! Freezing sandboxes.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it; `Sandbox::sh` runs a shell command in it
//! and returns the output. `start` (`launcher.rs`) runs a task in another process, like another server; `children`,
//! `runs` and `signal` examine and end processes by PID.

use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::Trial;
use rustix::process::Signal;
use workspace_host::freeze::{FreezeMethod, Frozen, freeze, thaw};
use workspace_host::{Process, cgroup};
use workspace_test_support::wait_until;

use crate::guest::{Fixture, Sandbox};
use crate::launcher::{children, runs, signal, start};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        processes_do_not_run_while_frozen,
        stopped_processes_stay_stopped_after_a_thaw,
        a_shell_never_sees_its_children_stopped,
        many_processes_are_frozen,
        a_forking_program_is_frozen,
        processes_run_again_after_a_failed_freeze,
        forking_in_another_sandbox_does_not_prevent_a_freeze,
        a_program_in_vfork_is_frozen,
        a_program_whose_first_thread_ended_is_frozen,
        a_program_with_a_strange_name_is_frozen,
        a_killed_freeze_leaves_a_record,
        a_frozen_sandbox_can_be_removed,
        freezing_an_ended_sandbox_fails,
    ]
}

/// Starts a command inside that continues in the background.
fn start_inside(sandbox: &Sandbox<'_>, text: &str) {
    let printed = sandbox.sh(&format!("({text}) >/dev/null 2>/workspace/errors &"));
    assert_eq!(printed, "");
}

/// Returns the path of the record of stopped processes, which a freeze writes and a thaw removes.
fn record_path(home: &Fixture) -> PathBuf {
    home.path("frozen")
}

#[track_caller]
fn freeze_sandbox(home: &Fixture, sandbox: &Sandbox<'_>) -> Frozen {
    freeze(home.id(), &sandbox.process, &record_path(home)).unwrap()
}

fn size(home: &Fixture, name: &str) -> u64 {
    std::fs::metadata(home.path("workspace").join(name)).map_or(0, |found| found.len())
}

fn exists(home: &Fixture, name: &str) -> bool {
    home.path("workspace").join(name).exists()
}

/// Returns whether a file grows.
fn grows(home: &Fixture, name: &str) -> bool {
    let before = size(home, name);
    std::thread::sleep(Duration::from_millis(50));
    size(home, name) > before
}

/// Command that appends to the file `count` until it is killed.
const COUNT: &str = "while :; do echo x >> /workspace/count; done";

fn processes_do_not_run_while_frozen() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, COUNT);
    wait_until("the program counts", || size(&home, "count") > 0);
    for _ in 0..5 {
        let frozen = freeze_sandbox(&home, &sandbox);
        assert!(frozen.processes.unwrap() > 0, "{frozen:?}");
        assert!(!grows(&home, "count"));
        let again = freeze(home.id(), &sandbox.process, &record_path(&home)).unwrap_err();
        assert!(again.to_string().contains("already"), "{again}");
        assert!(!grows(&home, "count"));
        thaw(&record_path(&home)).unwrap();
        thaw(&record_path(&home)).unwrap();
        assert!(!record_path(&home).exists());
        wait_until("the program counts again", || grows(&home, "count"));
    }
    assert_eq!(sandbox.sh("echo works"), "works\n");
}

fn stopped_processes_stay_stopped_after_a_thaw() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let printed = sandbox
        .sh("sleep 100 >/dev/null 2>&1 & sleep 0.2; kill -STOP $!; sleep 100 >/dev/null 2>&1 & echo up");
    assert_eq!(printed, "up\n");
    let states = || sandbox.sh("grep -h State /proc/[0-9]*/status | sort | cut -c8");
    wait_until("a process is stopped", || states().contains('T'));
    for _ in 0..3 {
        freeze_sandbox(&home, &sandbox);
        thaw(&record_path(&home)).unwrap();
        let states = states();
        assert_eq!(states.matches('T').count(), 1, "{states}");
    }
}

/// Reports every child that it sees stopped.
const SHELL: &str = r#"exec python3 -c '
import os, signal, time
signal.signal(signal.SIGCHLD, lambda *_: None)
children = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        while True:
            time.sleep(0.001)
    children.append(child)
open("/workspace/ready", "w")
while True:
    pid, status = os.waitpid(-1, os.WUNTRACED)
    open("/workspace/seen", "a").write(f"{pid} {status}\n")
'"#;

fn a_shell_never_sees_its_children_stopped() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, SHELL);
    wait_until("the shell waits", || exists(&home, "ready"));
    for _ in 0..30 {
        freeze_sandbox(&home, &sandbox);
        thaw(&record_path(&home)).unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
    let seen = std::fs::read_to_string(home.path("workspace/seen")).unwrap_or_default();
    assert_eq!(seen, "");
    assert_eq!(sandbox.sh("cat /workspace/errors"), "");
    // The program does report a stopped child.
    sandbox.sh("kill -STOP $(pgrep -n python3)");
    wait_until("a stopped child is reported", || size(&home, "seen") > 0);
}

fn many_processes_are_frozen() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, "for i in $(seq 200); do sleep 100 & done; touch /workspace/ready; wait");
    wait_until("all run", || exists(&home, "ready"));
    let frozen = freeze_sandbox(&home, &sandbox);
    assert!(frozen.processes.unwrap() >= 201, "{frozen:?}");
    thaw(&record_path(&home)).unwrap();
    assert_eq!(sandbox.sh("grep -ls 'State:.T' /proc/[0-9]*/status"), "");
}

fn a_forking_program_is_frozen() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let forks = "while :; do /bin/true; (:); (sleep 0.01 &); echo x >> /workspace/count; done";
    start_inside(&sandbox, &format!("{forks} & {forks}"));
    wait_until("the program counts", || size(&home, "count") > 0);
    for _ in 0..10 {
        freeze_sandbox(&home, &sandbox);
        assert!(!grows(&home, "count"));
        thaw(&record_path(&home)).unwrap();
        wait_until("the program counts again", || grows(&home, "count"));
    }
}

/// A program that forks and exits all the time, so that its parent has always ended.
const CHAIN: &str = r#"exec perl -e '
$SIG{CHLD} = "IGNORE";
while (1) { if (fork) { exit } else { open F, ">>/workspace/count"; print F "x"; close F } }
'"#;

fn processes_run_again_after_a_failed_freeze() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, &[CHAIN; 4].map(|chain| format!("({chain})")).join(" & "));
    wait_until("the program counts", || size(&home, "count") > 0);
    match freeze(home.id(), &sandbox.process, &record_path(&home)) {
        Ok(_) => {
            assert!(!grows(&home, "count"));
            thaw(&record_path(&home)).unwrap();
        }
        Err(error) => assert!(error.to_string().contains("could not all be stopped"), "{error}"),
    }
    assert!(!record_path(&home).exists());
    wait_until("the program counts again", || grows(&home, "count"));
}

fn forking_in_another_sandbox_does_not_prevent_a_freeze() {
    let (home, other) = (Fixture::new(), Fixture::new());
    let (sandbox, neighbour) = (home.launch(|_| {}), other.launch(|_| {}));
    start_inside(&neighbour, &format!("({CHAIN}) & while :; do /bin/true; (:); (sleep 0.01 &); done"));
    start_inside(&sandbox, COUNT);
    wait_until("both count", || size(&home, "count") > 0 && size(&other, "count") > 0);
    for _ in 0..10 {
        freeze_sandbox(&home, &sandbox);
        assert!(!grows(&home, "count"));
        wait_until("the other sandbox still counts", || grows(&other, "count"));
        thaw(&record_path(&home)).unwrap();
    }
}

fn a_program_in_vfork_is_frozen() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    // It starts programs by `vfork`, and sleeps in the kernel until the child calls `exec`.
    let spawn = "exec python3 -c 'import os\nwhile True: os.waitpid(os.posix_spawn(\"/bin/true\", [\"true\"], {}), 0); open(\"/workspace/count\", \"a\").write(\"x\")'";
    start_inside(&sandbox, spawn);
    wait_until("the program counts", || size(&home, "count") > 0);
    for _ in 0..40 {
        freeze_sandbox(&home, &sandbox);
        thaw(&record_path(&home)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    wait_until("the program counts again", || grows(&home, "count"));
}

fn a_program_whose_first_thread_ended_is_frozen() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    // From outside the process looks like a zombie.
    let threads = r#"exec python3 -c '
import ctypes, threading
def count():
    while True: open("/workspace/count", "a").write("x")
threading.Thread(target=count).start()
ctypes.CDLL(None).syscall(60, 0)
'"#;
    start_inside(&sandbox, threads);
    wait_until("the program counts", || size(&home, "count") > 0);
    freeze_sandbox(&home, &sandbox);
    assert!(!grows(&home, "count"));
    thaw(&record_path(&home)).unwrap();
    wait_until("the program counts again", || grows(&home, "count"));
}

fn a_program_with_a_strange_name_is_frozen() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let named = r#"exec perl -e '$0 = "\xff) T 1 (\xfe\n"; while (1) { open F, ">>/workspace/count"; print F "x"; close F }'"#;
    start_inside(&sandbox, named);
    wait_until("the program counts", || size(&home, "count") > 0);
    freeze_sandbox(&home, &sandbox);
    assert!(!grows(&home, "count"));
    thaw(&record_path(&home)).unwrap();
    wait_until("the program counts again", || grows(&home, "count"));
}

fn a_killed_freeze_leaves_a_record() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, "for i in $(seq 50); do sleep 100 & done; touch /workspace/ready; wait");
    start_inside(&sandbox, COUNT);
    wait_until("all run", || exists(&home, "ready") && size(&home, "count") > 0);
    for step in 0..20 {
        let mut freezer = start("freeze", &home.path(""));
        std::thread::sleep(Duration::from_millis(2 * step));
        signal(freezer.id() as i32, Signal::KILL);
        freezer.wait().unwrap();
        thaw(&record_path(&home)).unwrap();
        wait_until("the program counts again", || grows(&home, "count"));
        assert_eq!(sandbox.sh("grep -ls 'State:.T' /proc/[0-9]*/status"), "", "after {step} steps");
    }
}

fn a_frozen_sandbox_can_be_removed() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, COUNT);
    wait_until("the program counts", || size(&home, "count") > 0);
    let frozen = freeze_sandbox(&home, &sandbox);
    let inside = children(sandbox.process.pid());
    sandbox.process.kill();
    cgroup::remove(home.id()).unwrap();
    wait_until("the sandbox exits", || !sandbox.process.is_running() && !inside.iter().any(|pid| runs(*pid)));
    assert_eq!(frozen.method == FreezeMethod::Cgroup, rustix::process::geteuid().is_root(), "{frozen:?}");
    thaw(&record_path(&home)).unwrap();
    assert!(!record_path(&home).exists());
}

fn freezing_an_ended_sandbox_fails() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let process: &Process = &sandbox.process;
    process.kill();
    wait_until("the sandbox exits", || !process.is_running());
    let error = freeze(home.id(), process, &record_path(&home)).unwrap_err();
    assert!(error.to_string().contains("ended"), "{error}");
    assert!(!record_path(&home).exists());
}
