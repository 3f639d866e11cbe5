//! Kills at any time: a sandbox that runs is recorded, and one that is not recorded does not run.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox. `start` (`launcher.rs`) runs a task in another process,
//! like another server; `children`, `runs` and `signal` examine and end processes by PID.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::Signal;
use workspace_host::{Process, cgroup};
use workspace_test_support::wait_until;

use crate::guest::Fixture;
use crate::launcher::{children, runs, signal, start};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_running_sandbox_is_recorded,
        a_running_sandbox_is_not_launched_again,
        a_sandbox_that_cannot_be_recorded_does_not_start,
        a_sandbox_does_not_start_without_its_helper,
        a_helper_killed_at_any_time_leaves_nothing_behind,
        a_server_killed_at_any_time_leaves_no_unrecorded_sandbox,
        a_killed_helper_server_is_replaced,
    ]
}

fn a_running_sandbox_is_recorded() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    assert_eq!(sandbox.sh("cat /proc/sys/kernel/hostname"), format!("{}\n", home.id()));
    let recorded = Process::read(&home.path("process")).unwrap();
    assert_eq!(recorded.as_ref(), Some(&sandbox.process));
    assert!(sandbox.process.is_running());
}

fn a_running_sandbox_is_not_launched_again() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let again = home.try_launch(|_| {}).unwrap_err();
    assert!(again.to_string().contains("still running"), "{again}");
    assert!(sandbox.process.is_running());
    assert!(Process::read(&home.path("process")).unwrap().is_some());
}

fn a_sandbox_that_cannot_be_recorded_does_not_start() {
    let home = Fixture::new();
    std::os::unix::fs::symlink("/dev/full", home.path("process.new")).unwrap();
    let error = home.try_launch(|_| {}).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(!home.guest_ran());
    assert_eq!(Process::read(&home.path("process")).unwrap(), None);
    assert!(!cgroup::ids().unwrap().iter().any(|id| id == home.id()), "its cgroups are left");
    // Nothing prevents the next launch.
    let sandbox = home.launch(|_| {});
    assert_eq!(sandbox.sh("echo runs"), "runs\n");
}

/// Returns the helper of a launcher, if it exists.
fn helper_of(launcher: &Child) -> Option<i32> {
    let server = *children(launcher.id() as i32).first()?;
    children(server).first().copied()
}

/// Waits for the helper of a launcher.
fn helper(launcher: &Child) -> i32 {
    let mut found = None;
    wait_until("the helper starts", || {
        found = helper_of(launcher);
        found.is_some()
    });
    found.unwrap()
}

fn a_sandbox_does_not_start_without_its_helper() {
    let home = Fixture::new();
    // Writing to a pipe without a reader blocks: the helper, after the child has built its root.
    assert!(Command::new("mkfifo").arg(home.path("process.new")).status().unwrap().success());
    let mut launcher = start("launch", &home.path(""));
    let helper = helper(&launcher);
    wait_until("the helper waits in the pipe", || {
        let call = std::fs::read_to_string(format!("/proc/{helper}/wchan"));
        call.is_ok_and(|call| call == "wait_for_partner" || call == "fifo_open")
    });
    let inside = children(helper);
    assert_eq!(inside.len(), 1);
    signal(launcher.id() as i32, Signal::KILL);
    signal(helper, Signal::KILL);
    launcher.wait().unwrap();
    wait_until("the child ends", || !runs(inside[0]));
    assert!(!home.guest_ran());
    assert_eq!(Process::read(&home.path("process")).unwrap(), None);
}

/// Starts a launch and stops its helper after a delay. Returns launcher, helper and the children that it has
/// made so far; `None` if it had finished before.
fn stopped_after(home: &Fixture, delay: Duration) -> (Child, Option<(i32, Vec<i32>)>) {
    let mut launcher = start("launch", &home.path(""));
    let began = Instant::now();
    let mut helper = None;
    while helper.is_none() && launcher.try_wait().unwrap().is_none() {
        helper = helper_of(&launcher);
    }
    std::thread::sleep(delay.saturating_sub(began.elapsed()));
    let stopped = helper.map(|helper| {
        signal(helper, Signal::STOP);
        (helper, children(helper))
    });
    (launcher, stopped)
}

/// Returns delays from before the helper starts to after it has finished.
fn moments() -> impl Iterator<Item = Duration> {
    (0..30).map(|step| Duration::from_millis(step * 2))
}

fn a_helper_killed_at_any_time_leaves_nothing_behind() {
    for delay in moments() {
        let home = Fixture::new();
        let (mut launcher, stopped) = stopped_after(&home, delay);
        if let Some((helper, _)) = stopped {
            signal(helper, Signal::KILL);
        }
        let launched = launcher.wait().unwrap().success();
        let recorded = Process::read(&home.path("process")).unwrap();
        assert_eq!(recorded.is_some(), launched, "after {delay:?}");
        for pid in stopped.into_iter().flat_map(|(_, inside)| inside) {
            if recorded.as_ref().is_none_or(|recorded| recorded.pid() != pid) {
                wait_until("the child exits", || !runs(pid));
            }
        }
        end(recorded);
    }
}

fn a_server_killed_at_any_time_leaves_no_unrecorded_sandbox() {
    for delay in moments() {
        let home = Fixture::new();
        let (mut launcher, stopped) = stopped_after(&home, delay);
        signal(launcher.id() as i32, Signal::KILL);
        launcher.wait().unwrap();
        if let Some((helper, inside)) = stopped {
            signal(helper, Signal::KILL);
            wait_until("the helper ends", || !runs(helper));
            let recorded = Process::read(&home.path("process")).unwrap();
            for pid in inside {
                if recorded.as_ref().is_none_or(|recorded| recorded.pid() != pid) {
                    wait_until("the child exits", || !runs(pid));
                    assert!(!home.guest_ran(), "after {delay:?}");
                }
            }
            end(recorded);
        } else {
            end(Process::read(&home.path("process")).unwrap());
        }
    }
}

fn a_killed_helper_server_is_replaced() {
    let home = Fixture::new();
    assert!(start("launch-without-helper-server", &home.path("")).wait().unwrap().success());
    let recorded = Process::read(&home.path("process")).unwrap();
    assert!(recorded.as_ref().is_some_and(Process::is_running));
    end(recorded);
}

fn end(process: Option<Process>) {
    if let Some(process) = process {
        process.kill();
        wait_until("the sandbox ends", || !process.is_running());
    }
}
