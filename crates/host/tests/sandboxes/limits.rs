//! Resource limits of sandboxes, as far as the current user can enforce them.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it; `Sandbox::sh` runs a shell command in it
//! and returns the output. `start_after` (`launcher.rs`) runs a task in another process, after a shell command.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::fs::{Access, access};
use workspace_host::Process;
use workspace_host::cgroup;
use workspace_host::limits::{Limit, Limits};
use workspace_host::probe_host;
use workspace_test_support::{skip, wait_until};

use crate::guest::{Fixture, Sandbox};
use crate::launcher::start_after;

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        processes_are_limited,
        a_process_limit_above_the_server_limit_is_reduced,
        memory_is_limited_or_reported_missing,
        tmpfs_files_leave_memory_for_processes,
        cpu_is_limited_or_reported_missing,
        the_probe_reports_missing_limits,
        other_cgroups_are_not_visible_inside,
        usage_is_measured,
        removing_cgroups_kills_everything_and_is_idempotent,
        an_id_with_path_characters_is_rejected,
        cgroups_in_use_are_not_taken_over,
        a_server_moves_out_of_its_own_cgroup,
    ]
}

fn limited(home: &Fixture, limits: Limits) -> Sandbox<'_> {
    home.launch(|launch| launch.limits = limits)
}

/// Returns whether a limit is enforced. Otherwise there must be a reason.
fn is_enforced(sandbox: &Sandbox<'_>, limit: Limit) -> bool {
    let missing = sandbox.missing.iter().find(|missing| missing.limit == limit);
    // The reason names the obstacle.
    assert!(missing.is_none_or(|missing| missing.reason.contains("cgroup")), "{missing:?}");
    // Root has all limits where there are writable cgroups.
    let promised = cgroups_are_writable();
    assert!(missing.is_none() || !promised, "{missing:?}");
    missing.is_none()
}

/// Returns whether this is root of a host, or of a container with the cgroups of a host.
fn cgroups_are_writable() -> bool {
    let first = Path::new("/sys/fs/cgroup/pids");
    let second = Path::new("/sys/fs/cgroup");
    // With version 2 only the top cgroup of a host lacks this file; in others the processes of the test would
    // be in the way.
    let is_topmost = !second.join("cgroup.events").exists();
    let place = if first.exists() { first } else { second };
    rustix::process::geteuid().is_root() && is_topmost && access(place, Access::WRITE_OK).is_ok()
}

fn processes_are_limited() {
    let home = Fixture::new();
    let sandbox = limited(&home, Limits { processes: Some(20), ..Limits::default() });
    assert_eq!(sandbox.missing, []);
    let bomb = "for i in $(seq 40); do sleep 100 >/dev/null 2>&1 & done; ls -d /proc/[0-9]* | wc -l";
    let printed = sandbox.sh(bomb);
    assert!(printed.contains("fork"), "{printed}");
    // Processes of another sandbox do not count.
    let other = Fixture::new();
    let other = limited(&other, Limits { processes: Some(20), ..Limits::default() });
    assert_eq!(other.sh("for i in $(seq 10); do sleep 100 >/dev/null 2>&1 & done; echo enough"), "enough\n");
}

fn a_process_limit_above_the_server_limit_is_reduced() {
    let home = Fixture::new();
    // A server with few processes cannot allow more.
    let mut launcher = start_after("prlimit --nproc=4000 --pid $$", "launch-many", &home.path(""));
    assert!(launcher.wait().unwrap().success());
    Process::read(&home.path("process")).unwrap().unwrap().kill();
}

fn memory_is_limited_or_reported_missing() {
    let home = Fixture::new();
    let sandbox = limited(&home, Limits { memory_bytes: Some(48 << 20), ..Limits::default() });
    let greedy = "perl -e '$x = \"x\" x (100 << 20); print 1' || echo killed";
    let printed = sandbox.sh(greedy);
    assert!(printed.contains("killed"), "{printed}");
    // Without cgroups each process is limited separately.
    let several = "perl -e '$x = \"x\" x (18 << 20); sleep 1; print 1' & perl -e '$x = \"x\" x (18 << 20); sleep 1; print 1'; wait";
    let printed = sandbox.sh(several);
    assert_eq!(printed == "11", !is_enforced(&sandbox, Limit::Memory), "{printed}");
}

fn tmpfs_files_leave_memory_for_processes() {
    let home = Fixture::new();
    let sandbox = limited(&home, Limits { memory_bytes: Some(48 << 20), ..Limits::default() });
    for place in ["/tmp", "/home/sandbox", "/var/tmp", "/dev/shm"] {
        let printed = sandbox.sh(&format!("head -c 100M /dev/zero > {place}/x; rm {place}/x"));
        assert!(printed.contains("No space left"), "{place}: {printed}");
    }
}

fn cpu_is_limited_or_reported_missing() {
    let home = Fixture::new();
    let sandbox = limited(&home, Limits { cpu_millis: Some(100), ..Limits::default() });
    if is_enforced(&sandbox, Limit::Cpu) {
        let before = cgroup::usage(home.id()).unwrap().cpu.unwrap();
        let began = Instant::now();
        sandbox.sh("timeout 2 sh -c 'while :; do :; done'");
        let took = began.elapsed();
        let used = cgroup::usage(home.id()).unwrap().cpu.unwrap() - before;
        assert!(used < took * 3 / 10, "{used:?} of {took:?} with a tenth of a processor");
    }
}

fn the_probe_reports_missing_limits() {
    let home = Fixture::new();
    let limits = Limits { cpu_millis: Some(1000), memory_bytes: Some(1 << 30), processes: Some(100) };
    let sandbox = limited(&home, limits);
    let can = probe_host(&home.holder).unwrap();
    assert_eq!(can.namespaces, Ok(()));
    for (limit, can) in
        [(Limit::Cpu, can.cpu), (Limit::Memory, can.memory), (Limit::Processes, can.processes)]
    {
        assert_eq!(can.is_ok(), is_enforced(&sandbox, limit), "{limit}: {can:?}");
    }
    let left = cgroup::ids().unwrap();
    assert!(!left.contains(&format!("probe-{}", std::process::id())), "{left:?}");
}

fn other_cgroups_are_not_visible_inside() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    assert_eq!(sandbox.sh("cut -d: -f3 /proc/self/cgroup | sort -u"), "/\n");
    assert_eq!(sandbox.sh("find /sys/fs/cgroup -name cgroup.procs"), "");
}

fn usage_is_measured() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let before = cgroup::usage(home.id()).unwrap();
    if !cgroups_are_writable() {
        assert_eq!(before.processes, None);
        return;
    }
    sandbox.sh(
        "sleep 100 >/dev/null 2>&1 & head -c 20M /dev/zero > /tmp/x; timeout 0.2 sh -c 'while :; do :; done'",
    );
    let after = cgroup::usage(home.id()).unwrap();
    assert!(after.processes > before.processes, "{before:?} {after:?}");
    assert!(after.memory_bytes.unwrap() > before.memory_bytes.unwrap() + (16 << 20), "{before:?} {after:?}");
    assert!(after.cpu.unwrap() > before.cpu.unwrap() + Duration::from_millis(20), "{before:?} {after:?}");
}

fn removing_cgroups_kills_everything_and_is_idempotent() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    sandbox.sh("sleep 100 >/dev/null 2>&1 & setsid sleep 100 >/dev/null 2>&1 &");
    let had = cgroup::ids().unwrap().iter().any(|id| id == home.id());
    assert_eq!(had, cgroups_are_writable());
    cgroup::remove(home.id()).unwrap();
    if had {
        wait_until("the sandbox ends", || !sandbox.process.is_running());
    }
    cgroup::remove(home.id()).unwrap();
    assert!(!cgroup::ids().unwrap().iter().any(|id| id == home.id()));
}

fn an_id_with_path_characters_is_rejected() {
    let home = Fixture::new();
    for id in ["", ".", "..", "../cpu", "a/b", "a b"] {
        assert!(home.try_launch(|launch| launch.id = id).is_err(), "{id}");
        assert!(cgroup::remove(id).is_err(), "{id}");
    }
}

fn cgroups_in_use_are_not_taken_over() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let other = home.path("another");
    let again = home.try_launch(|launch| launch.process_file = &other);
    if cgroups_are_writable() {
        assert!(again.unwrap_err().to_string().contains("leftover cgroup"));
        assert!(sandbox.process.is_running());
    } else {
        again.unwrap().process.kill();
    }
}

/// Returns whether there are only cgroups of version 2, with all controllers.
fn has_cgroups_v2_only() -> bool {
    cgroups_are_writable() && Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Launches several sandboxes from a server whose own processes are in its cgroup.
fn a_server_moves_out_of_its_own_cgroup() {
    if !has_cgroups_v2_only() {
        return skip("only cgroups v2 have this rule");
    }
    let parent = tempfile::tempdir().unwrap();
    let own = |_| Fixture::in_directory(tempfile::Builder::new().prefix("home").tempdir_in(&parent).unwrap());
    let homes: Vec<Fixture> = (0..8).map(own).collect();
    let top = Path::new("/sys/fs/cgroup");
    fs::write(top.join("cgroup.subtree_control"), "+cpu +memory +pids").unwrap();
    let group = top.join(format!("own-{}", std::process::id()));
    fs::create_dir(&group).unwrap();
    let enter = format!("echo $$ > {}/cgroup.procs", group.display());
    assert!(start_after(&enter, "launch-all", parent.path()).wait().unwrap().success());
    let controllers = fs::read_to_string(group.join("workspace/cgroup.subtree_control")).unwrap();
    assert_eq!(controllers, "cpu memory pids\n");
    for home in &homes {
        let process = Process::read(&home.path("process")).unwrap().unwrap();
        let inside = group.join("workspace").join(home.id());
        let processes = fs::read_to_string(inside.join("cgroup.procs")).unwrap();
        assert!(processes.lines().any(|pid| pid == process.pid().to_string()), "{processes}");
        process.kill();
        wait_until("its group can be removed", || fs::remove_dir(&inside).is_ok());
    }
    for name in ["workspace", "workspace-server", ""] {
        wait_until("a group can be removed", || fs::remove_dir(group.join(name)).is_ok());
    }
}
