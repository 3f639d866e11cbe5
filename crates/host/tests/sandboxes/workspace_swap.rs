//! Swapping the workspace of a running sandbox, and the processes that use it.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it; `Sandbox::sh` runs a shell command in it
//! and returns the output.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_host::workspace_processes::{self, ProcessScope, WorkspaceProcess, WorkspaceUse};
use workspace_host::{Process, SwapStep, swap_killed, swap_stalled, swap_workspace};
use workspace_test_support::{runs_as_root, wait_until};

use crate::guest::{Fixture, Sandbox};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        processes_that_use_the_workspace_are_found,
        a_program_whose_first_thread_ended_is_found,
        a_program_in_an_overlay_is_found,
        processes_that_use_the_workspace_are_terminated,
        processes_that_ignore_sigterm_are_killed,
        without_a_workspace_no_process_is_found,
        a_workspace_is_replaced,
        a_reader_sees_the_old_or_the_new_workspace,
        a_process_in_a_subdirectory_keeps_the_old_workspace,
        a_process_at_the_root_moves_to_the_new_workspace,
        a_killed_helper_leaves_the_old_or_the_new_workspace,
        a_late_helper_changes_nothing,
        a_hanging_helper_is_killed_at_its_deadline,
        a_file_open_for_writing_prevents_a_swap,
        without_a_workspace_there_is_nothing_to_swap,
    ]
}

/// Starts a command inside that continues in the background.
fn start_inside(sandbox: &Sandbox<'_>, text: &str) {
    assert_eq!(sandbox.sh(&format!("({text}) >/dev/null 2>&1 </dev/null &")), "");
}

fn found(home: &Fixture, sandbox: &Sandbox<'_>) -> Vec<WorkspaceProcess> {
    workspace_processes::list(&home.holder, &sandbox.process).unwrap()
}

/// Waits until this many processes use the workspace.
#[track_caller]
fn wait_for(home: &Fixture, sandbox: &Sandbox<'_>, count: usize) -> Vec<WorkspaceProcess> {
    wait_until("the processes use the workspace", || found(home, sandbox).len() == count);
    found(home, sandbox)
}

fn processes_that_use_the_workspace_are_found() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    assert_eq!(found(&home, &sandbox), []);
    start_inside(&sandbox, "cd /tmp; exec sleep 100");
    // It would move along.
    start_inside(&sandbox, "cd /workspace; touch /tmp/ready; exec sleep 100");
    wait_until("the program is ready", || sandbox.sh("ls /tmp") == "ready\n");
    for (text, command, why) in [
        ("mkdir /workspace/deep; cd /workspace/deep; exec sleep 100", "sleep", WorkspaceUse::Cwd),
        ("exec 9>/workspace/file; exec sleep 100", "sleep", WorkspaceUse::Descriptor),
        ("exec 9>'/workspace/gone'; rm /workspace/gone; exec sleep 100", "sleep", WorkspaceUse::Descriptor),
        ("cp /bin/sleep '/workspace/a b'; exec '/workspace/a b' 100", "a b", WorkspaceUse::Mapping),
    ] {
        start_inside(&sandbox, text);
        // The shell that executes it may be found before.
        wait_until("the use is found", || {
            let found = found(&home, &sandbox);
            found.len() == 1 && (found[0].command.as_str(), found[0].usage) == (command, why)
        });
        let user = found(&home, &sandbox).remove(0);
        assert_eq!(sandbox.sh(&format!("cat /proc/{}/comm", user.pid)), format!("{command}\n"));
        sandbox.sh(&format!("kill -9 {}", user.pid));
        wait_for(&home, &sandbox, 0);
    }
}

fn a_program_whose_first_thread_ended_is_found() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let program = r#"mkdir /workspace/deep; cd /workspace/deep; exec python3 -c '
import ctypes, threading, time
threading.Thread(target=lambda: time.sleep(100)).start()
open("/tmp/ready", "w")
ctypes.CDLL(None).syscall(60, 0)
'"#;
    start_inside(&sandbox, program);
    wait_until("its first thread ended", || {
        sandbox.sh("cat /proc/[0-9]*/stat | grep '(python3) Z'; ls /tmp").contains("Z")
    });
    let found = found(&home, &sandbox);
    assert!(
        found.iter().any(|user| (user.command.as_str(), user.usage) == ("python3", WorkspaceUse::Cwd)),
        "{found:?}"
    );
    workspace_processes::terminate(
        &home.holder,
        &sandbox.process,
        Duration::from_secs(10),
        ProcessScope::Blocking,
    )
    .unwrap();
}

/// A mapping in an overlay is a file of a layer to the kernel.
fn a_program_in_an_overlay_is_found() {
    if !runs_as_root("can mount an overlay here") {
        return;
    }
    let home = Fixture::new();
    let path = |name: &str| home.path(name).display().to_string();
    for name in ["lower", "upper", "work"] {
        std::fs::create_dir(home.path(name)).unwrap();
    }
    std::fs::copy("/bin/sleep", home.path("lower/rest")).unwrap();
    let options = format!("lowerdir={},upperdir={},workdir={}", path("lower"), path("upper"), path("work"));
    let mount =
        |words: &[&str]| assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success());
    mount(&["mount", "-t", "overlay", "overlay", "-o", &options, &path("workspace")]);
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, "exec /workspace/rest 100");
    let found = wait_for(&home, &sandbox, 1);
    assert_eq!((found[0].command.as_str(), found[0].usage), ("rest", WorkspaceUse::Mapping));
    drop(sandbox);
    mount(&["umount", "-l", &path("workspace")]);
}

fn processes_that_use_the_workspace_are_terminated() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    sandbox.sh("mkdir /workspace/deep");
    start_inside(&sandbox, "exec sleep 100");
    start_inside(&sandbox, "cd /workspace/deep; exec sleep 100");
    start_inside(&sandbox, "exec sleep 100 9>/workspace/file");
    start_inside(&sandbox, "cd /workspace/deep; exec sh -c 'kill -STOP $$; exec sleep 100'");
    let before = wait_for(&home, &sandbox, 3);
    let began = Instant::now();
    let ended = workspace_processes::terminate(
        &home.holder,
        &sandbox.process,
        Duration::from_secs(20),
        ProcessScope::Blocking,
    )
    .unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
    let pids =
        |processes: &[WorkspaceProcess]| processes.iter().map(|process| process.pid).collect::<Vec<_>>();
    assert_eq!(pids(&ended), pids(&before));
    assert_eq!(found(&home, &sandbox), []);
    assert_eq!(sandbox.sh("cat /proc/[0-9]*/stat | grep -c '(sleep) S'"), "1\n");
}

fn processes_that_ignore_sigterm_are_killed() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let deaf = "trap '' TERM; mkdir /workspace/deep; cd /workspace/deep; touch ../ready; while :; do sleep 0.01; done";
    start_inside(&sandbox, deaf);
    wait_until("the program is ready", || home.path("workspace/ready").exists());
    let grace = Duration::from_millis(100);
    let ended = workspace_processes::terminate(&home.holder, &sandbox.process, grace, ProcessScope::Blocking)
        .unwrap();
    assert!(ended.iter().any(|user| user.command == "sh"), "{ended:?}");
    assert_eq!(found(&home, &sandbox), []);
    assert_eq!(sandbox.sh("echo works"), "works\n");
}

fn without_a_workspace_no_process_is_found() {
    let home = Fixture::new();
    let sandbox = home.launch(|launch| launch.workspace = None);
    start_inside(&sandbox, "cd /workspace; touch /tmp/ready; exec sleep 100");
    wait_until("the program is ready", || sandbox.sh("ls /tmp") == "ready\n");
    assert_eq!(found(&home, &sandbox), []);
}

/// Creates a directory that becomes a workspace.
fn other(home: &Fixture, name: &str) -> std::path::PathBuf {
    let path = home.path(name);
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("name"), format!("{name}\n")).unwrap();
    path
}

/// Swaps at a moment at which no process inside writes. Nothing is frozen here, as it is in the product, and even
/// reading a file writes its access time.
#[track_caller]
fn swap_between_writes(home: &Fixture, sandbox: &Sandbox<'_>, to: &Path) {
    wait_until("the workspace is swapped", || match swap_workspace(&home.holder, &sandbox.process, to) {
        Ok(()) => true,
        Err(error) => {
            assert!(error.to_string().contains("open for writing"), "{error}");
            false
        }
    });
}

fn a_workspace_is_replaced() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    for name in ["one", "two", "three"] {
        swap_workspace(&home.holder, &sandbox.process, &other(&home, name)).unwrap();
        assert_eq!(sandbox.sh("cat /workspace/name; touch /workspace/new"), format!("{name}\n"));
        assert!(home.path(name).join("new").exists());
        assert_eq!(sandbox.sh("grep -c ' /workspace ' /proc/self/mounts"), "1\n");
    }
    let mounts = sandbox.sh("grep ' /workspace ' /proc/self/mounts");
    assert!(mounts.contains("nosuid") && mounts.contains("nodev"), "{mounts}");
    for attempt in ["umount /workspace", "umount -l /workspace"] {
        assert_eq!(sandbox.sh(&format!("{attempt} >/dev/null 2>&1 && echo done")), "", "{attempt}");
    }
}

fn a_reader_sees_the_old_or_the_new_workspace() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let workspaces = [other(&home, "one"), other(&home, "two")];
    swap_workspace(&home.holder, &sandbox.process, &workspaces[0]).unwrap();
    let reader = r#"exec perl -e '
open R, ">/tmp/ready";
my %seen;
until (-e "/tmp/end") { open(F, "/workspace/name") ? $seen{<F>}++ : $seen{"$!\n"}++; close F }
open R, ">/tmp/seen"; print R sort keys %seen; close R; rename "/tmp/seen", "/tmp/told"'"#;
    start_inside(&sandbox, reader);
    wait_until("the reader is ready", || sandbox.sh("ls /tmp") == "ready\n");
    for step in 0..50 {
        swap_between_writes(&home, &sandbox, &workspaces[step % 2]);
    }
    sandbox.sh("touch /tmp/end");
    wait_until("the reader reports", || sandbox.sh("ls /tmp").contains("told"));
    assert_eq!(sandbox.sh("cat /tmp/told"), "one\ntwo\n");
}

fn a_process_in_a_subdirectory_keeps_the_old_workspace() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let count = "mkdir /workspace/deep; cd /workspace/deep; while :; do echo x >> count; sleep 0.01; done";
    start_inside(&sandbox, count);
    wait_until("the program counts", || home.path("workspace/deep/count").exists());
    let new = other(&home, "one");
    swap_between_writes(&home, &sandbox, &new);
    let size = || std::fs::metadata(home.path("workspace/deep/count")).unwrap().len();
    let before = size();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(size(), before, "the old workspace is written to");
    assert!(!home.path("one/deep").exists());
    // It does not use the new one.
    assert_eq!(found(&home, &sandbox), []);
}

fn a_process_at_the_root_moves_to_the_new_workspace() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, "cd /workspace; until [ -e /tmp/end ]; do cp name /tmp/seen; sleep 0.01; done");
    for name in ["one", "two", "three"] {
        swap_between_writes(&home, &sandbox, &other(&home, name));
        wait_until("the program is ready", || sandbox.sh("cat /tmp/seen 2>/dev/null") == format!("{name}\n"));
    }
    let all = workspace_processes::terminate(
        &home.holder,
        &sandbox.process,
        Duration::from_secs(10),
        ProcessScope::All,
    )
    .unwrap();
    assert!(all.iter().any(|user| user.usage == WorkspaceUse::Cwd && user.command == "sh"), "{all:?}");
}

fn a_killed_helper_leaves_the_old_or_the_new_workspace() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let workspaces = [other(&home, "one"), other(&home, "two")];
    swap_workspace(&home.holder, &sandbox.process, &workspaces[0]).unwrap();
    start_inside(&sandbox, "cd /workspace; until [ -e /tmp/end ]; do cp name /tmp/seen; sleep 0.01; done");
    let is_seen = |name: &str| {
        wait_until("the program is ready", || sandbox.sh("cat /tmp/seen 2>/dev/null") == format!("{name}\n"));
        assert_eq!(sandbox.sh("cat /workspace/name"), format!("{name}\n"));
        assert_eq!(sandbox.sh("grep -c ' /workspace ' /proc/self/mounts"), "1\n");
        assert_eq!(sandbox.sh("touch /workspace/written && echo yes"), "yes\n");
    };
    is_seen("one");
    for step in [SwapStep::MadeReadOnly, SwapStep::Mounted, SwapStep::Pivoted, SwapStep::Detached] {
        for (name, to) in [("two", &workspaces[1]), ("one", &workspaces[0])] {
            // A process may have a file open for writing at this moment, because nothing is frozen here.
            wait_until("a helper is killed", || {
                let killed = swap_killed(&home.holder, &sandbox.process, to, step).unwrap_err().to_string();
                assert!(
                    killed.contains("without a reply") || killed.contains("open for writing"),
                    "{killed}"
                );
                killed.contains("without a reply")
            });
            // The next swap finishes it, or starts again, once the killed helper has let go of its lock.
            wait_until("the workspace is swapped", || {
                swap_workspace(&home.holder, &sandbox.process, to).is_ok()
            });
            is_seen(name);
        }
    }
    sandbox.sh("touch /tmp/end");
}

fn a_late_helper_changes_nothing() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let workspaces = [other(&home, "one"), other(&home, "two")];
    swap_workspace(&home.holder, &sandbox.process, &workspaces[0]).unwrap();
    let late = swap_stalled(&home.holder, &sandbox.process, &workspaces[1], (Duration::ZERO, None));
    let late = late.unwrap_err().to_string();
    assert!(late.contains("timed out"), "{late}");
    assert_eq!(sandbox.sh("cat /workspace/name; touch /workspace/new && echo yes"), "one\nyes\n");
}

fn a_hanging_helper_is_killed_at_its_deadline() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let workspaces = [other(&home, "one"), other(&home, "two")];
    swap_workspace(&home.holder, &sandbox.process, &workspaces[0]).unwrap();
    let limit = Duration::from_secs(1);
    for step in [SwapStep::MadeReadOnly, SwapStep::Mounted, SwapStep::Pivoted] {
        let stalled = swap_stalled(&home.holder, &sandbox.process, &workspaces[1], (limit, Some(step)));
        let stalled = stalled.unwrap_err().to_string();
        assert!(stalled.contains("without a reply"), "{stalled}");
        // The next swap finds what it left, and repairs it.
        swap_workspace(&home.holder, &sandbox.process, &workspaces[0]).unwrap();
        assert_eq!(sandbox.sh("cat /workspace/name; touch /workspace/new && echo yes"), "one\nyes\n");
        assert_eq!(sandbox.sh("grep -c ' /workspace ' /proc/self/mounts"), "1\n");
    }
}

fn a_file_open_for_writing_prevents_a_swap() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    start_inside(&sandbox, "exec 3> /workspace/open; exec sleep 1000");
    wait_until("the file is open", || home.path("workspace/open").exists());
    let error = swap_workspace(&home.holder, &sandbox.process, &other(&home, "one")).unwrap_err();
    assert!(error.to_string().contains("open for writing"), "{error}");
    // Nothing has changed.
    start_inside(&sandbox, "echo more > /workspace/more");
    wait_until("the file is written", || home.path("workspace/more").exists());
}

fn without_a_workspace_there_is_nothing_to_swap() {
    let home = Fixture::new();
    let sandbox = home.launch(|launch| launch.workspace = None);
    let error = swap_workspace(&home.holder, &sandbox.process, &home.path("workspace")).unwrap_err();
    assert!(error.to_string().contains("no workspace"), "{error}");
    let process: &Process = &sandbox.process;
    process.kill();
    wait_until("the sandbox exits", || !process.is_running());
    for error in [
        swap_workspace(&home.holder, process, &home.path("workspace")).unwrap_err(),
        workspace_processes::list(&home.holder, process).unwrap_err(),
    ] {
        assert!(error.to_string().contains("ended"), "{error}");
    }
}
