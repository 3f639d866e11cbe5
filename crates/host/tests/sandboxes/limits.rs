//! What a sandbox may use, as far as the machine lets whoever runs this limit it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::fs::{Access, access};
use workspace_host::Process;
use workspace_host::cgroup;
use workspace_host::limits::{Limit, Limits};
use workspace_host::probe;

use crate::guest::{Home, Sandbox, soon};
use crate::launcher::start_after;

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        processes_are_limited,
        more_processes_than_allowed_are_as_many_as_allowed,
        memory_of_a_process_is_limited_and_of_all_or_said_not_to_be,
        files_in_memory_leave_room_for_processes,
        cpu_is_limited_or_said_not_to_be,
        what_is_not_limited_was_foreseen,
        groups_of_others_are_not_seen_inside,
        what_is_used_is_counted,
        removing_ends_everything_and_may_be_repeated,
        an_id_that_leads_elsewhere_is_refused,
        groups_in_use_are_not_taken_over,
        a_server_makes_room_in_its_own_group,
    ]
}

fn limited(home: &Home, limits: Limits) -> Sandbox<'_> {
    home.launch(|launch| launch.limits = limits)
}

/// Whether a limit is kept; if not, there is a reason.
fn is_kept(sandbox: &Sandbox<'_>, limit: Limit) -> bool {
    let missing = sandbox.missing.iter().find(|missing| missing.limit == limit);
    // It names what was in the way.
    assert!(missing.is_none_or(|missing| missing.reason.contains("cgroup")), "{missing:?}");
    // The superuser can have everything where there are cgroups that he may write to.
    let promised = cgroups_are_writable();
    assert!(missing.is_none() || !promised, "{missing:?}");
    missing.is_none()
}

/// Whether this is the superuser of a machine, or of something that has cgroups as a machine has.
fn cgroups_are_writable() -> bool {
    let first = Path::new("/sys/fs/cgroup/pids");
    let second = Path::new("/sys/fs/cgroup");
    // In the second version only a machine's topmost group has no such file; in others processes are in the way.
    let is_topmost = !second.join("cgroup.events").exists();
    let place = if first.exists() { first } else { second };
    rustix::process::geteuid().is_root() && is_topmost && access(place, Access::WRITE_OK).is_ok()
}

fn processes_are_limited() {
    let home = Home::new();
    let sandbox = limited(&home, Limits { processes: Some(20), ..Limits::default() });
    assert_eq!(sandbox.missing, []);
    let bomb = "for i in $(seq 40); do sleep 100 >/dev/null 2>&1 & done; ls -d /proc/[0-9]* | wc -l";
    let printed = sandbox.sh(bomb);
    assert!(printed.contains("fork"), "{printed}");
    // Another's processes do not count.
    let other = Home::new();
    let other = limited(&other, Limits { processes: Some(20), ..Limits::default() });
    assert_eq!(other.sh("for i in $(seq 10); do sleep 100 >/dev/null 2>&1 & done; echo enough"), "enough\n");
}

fn more_processes_than_allowed_are_as_many_as_allowed() {
    let home = Home::new();
    // Whoever may have few processes himself cannot give more.
    let mut launcher = start_after("prlimit --nproc=4000 --pid $$", "launch-many", &home.path(""));
    assert!(launcher.wait().unwrap().success());
    Process::read(&home.path("process")).unwrap().unwrap().kill();
}

fn memory_of_a_process_is_limited_and_of_all_or_said_not_to_be() {
    let home = Home::new();
    let sandbox = limited(&home, Limits { memory_bytes: Some(48 << 20), ..Limits::default() });
    let greedy = "perl -e '$x = \"x\" x (100 << 20); print 1' || echo killed";
    let printed = sandbox.sh(greedy);
    assert!(printed.contains("killed"), "{printed}");
    // Where there are no groups, each process by itself is limited.
    let several = "perl -e '$x = \"x\" x (18 << 20); sleep 1; print 1' & perl -e '$x = \"x\" x (18 << 20); sleep 1; print 1'; wait";
    let printed = sandbox.sh(several);
    assert_eq!(printed == "11", !is_kept(&sandbox, Limit::Memory), "{printed}");
}

fn files_in_memory_leave_room_for_processes() {
    let home = Home::new();
    let sandbox = limited(&home, Limits { memory_bytes: Some(48 << 20), ..Limits::default() });
    for place in ["/tmp", "/home/sandbox", "/var/tmp", "/dev/shm"] {
        let printed = sandbox.sh(&format!("head -c 100M /dev/zero > {place}/x; rm {place}/x"));
        assert!(printed.contains("No space left"), "{place}: {printed}");
    }
}

fn cpu_is_limited_or_said_not_to_be() {
    let home = Home::new();
    let sandbox = limited(&home, Limits { cpu_millis: Some(100), ..Limits::default() });
    if is_kept(&sandbox, Limit::Cpu) {
        let before = cgroup::usage(home.id()).unwrap().cpu.unwrap();
        let began = Instant::now();
        sandbox.sh("timeout 2 sh -c 'while :; do :; done'");
        let took = began.elapsed();
        let used = cgroup::usage(home.id()).unwrap().cpu.unwrap() - before;
        assert!(used < took * 3 / 10, "{used:?} of {took:?} with a tenth of a processor");
    }
}

fn what_is_not_limited_was_foreseen() {
    let home = Home::new();
    let limits = Limits { cpu_millis: Some(1000), memory_bytes: Some(1 << 30), processes: Some(100) };
    let sandbox = limited(&home, limits);
    let can = probe(&home.holder).unwrap();
    assert_eq!(can.namespaces, Ok(()));
    for (limit, can) in
        [(Limit::Cpu, can.cpu), (Limit::Memory, can.memory), (Limit::Processes, can.processes)]
    {
        assert_eq!(can.is_ok(), is_kept(&sandbox, limit), "{limit}: {can:?}");
    }
    let left = cgroup::ids().unwrap();
    assert!(!left.contains(&format!("probe-{}", std::process::id())), "{left:?}");
}

fn groups_of_others_are_not_seen_inside() {
    let home = Home::new();
    let sandbox = home.launch(|_| {});
    assert_eq!(sandbox.sh("cut -d: -f3 /proc/self/cgroup | sort -u"), "/\n");
    assert_eq!(sandbox.sh("find /sys/fs/cgroup -name cgroup.procs"), "");
}

fn what_is_used_is_counted() {
    let home = Home::new();
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

fn removing_ends_everything_and_may_be_repeated() {
    let home = Home::new();
    let sandbox = home.launch(|_| {});
    sandbox.sh("sleep 100 >/dev/null 2>&1 & setsid sleep 100 >/dev/null 2>&1 &");
    let had = cgroup::ids().unwrap().iter().any(|id| id == home.id());
    assert_eq!(had, cgroups_are_writable());
    cgroup::remove(home.id()).unwrap();
    if had {
        soon("the sandbox ends", || !sandbox.process.is_running());
    }
    cgroup::remove(home.id()).unwrap();
    assert!(!cgroup::ids().unwrap().iter().any(|id| id == home.id()));
}

fn an_id_that_leads_elsewhere_is_refused() {
    let home = Home::new();
    for id in ["", ".", "..", "../cpu", "a/b", "a b"] {
        assert!(home.try_launch(|launch| launch.id = id).is_err(), "{id}");
        assert!(cgroup::remove(id).is_err(), "{id}");
    }
}

fn groups_in_use_are_not_taken_over() {
    let home = Home::new();
    let sandbox = home.launch(|_| {});
    let note = home.path("another");
    let again = home.try_launch(|launch| launch.note = &note);
    if cgroups_are_writable() {
        assert!(again.unwrap_err().to_string().contains("former"));
        assert!(sandbox.process.is_running());
    } else {
        again.unwrap().process.kill();
    }
}

/// Whether there are no cgroups but those of the second version, and all can be had.
fn has_second_version_only() -> bool {
    cgroups_are_writable() && Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Launches several at once from a server that is in a group, so that its processes are in the way.
fn a_server_makes_room_in_its_own_group() {
    if !has_second_version_only() {
        eprintln!("not tested here: only the second version of cgroups has this rule");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let own = |_| Home::in_directory(tempfile::Builder::new().prefix("home").tempdir_in(&parent).unwrap());
    let homes: Vec<Home> = (0..8).map(own).collect();
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
        soon("its group can be removed", || fs::remove_dir(&inside).is_ok());
    }
    for name in ["workspace", "workspace-server", ""] {
        soon("a group can be removed", || fs::remove_dir(group.join(name)).is_ok());
    }
}
