//! Whoever is killed at whatever moment: what runs is noted, and what is not noted does not run.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::Signal;
use workspace_host::{Process, cgroup};

use crate::guest::{Home, soon};
use crate::launcher::{children, runs, signal, start};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_sandbox_is_noted_when_it_runs,
        a_sandbox_that_runs_is_not_launched_again,
        a_sandbox_that_cannot_be_noted_does_not_run,
        without_its_helper_a_sandbox_does_not_begin,
        a_helper_killed_at_any_moment_leaves_nothing_behind,
        a_server_killed_at_any_moment_leaves_nothing_unnoted,
        a_forker_that_is_killed_is_replaced,
    ]
}

fn a_sandbox_is_noted_when_it_runs() {
    let home = Home::new();
    let sandbox = home.launch(|_| {});
    assert_eq!(sandbox.sh("cat /proc/sys/kernel/hostname"), format!("{}\n", home.id()));
    let noted = Process::read(&home.path("process")).unwrap();
    assert_eq!(noted.as_ref(), Some(&sandbox.process));
    assert!(sandbox.process.is_running());
}

fn a_sandbox_that_runs_is_not_launched_again() {
    let home = Home::new();
    let sandbox = home.launch(|_| {});
    let again = home.try_launch(|_| {}).unwrap_err();
    assert!(again.to_string().contains("still runs"), "{again}");
    assert!(sandbox.process.is_running());
    assert!(Process::read(&home.path("process")).unwrap().is_some());
}

fn a_sandbox_that_cannot_be_noted_does_not_run() {
    let home = Home::new();
    std::os::unix::fs::symlink("/dev/full", home.path("process.new")).unwrap();
    let error = home.try_launch(|_| {}).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(!home.guest_ran());
    assert_eq!(Process::read(&home.path("process")).unwrap(), None);
    assert!(!cgroup::ids().unwrap().iter().any(|id| id == home.id()), "its groups are left");
    // Nothing is in the way of the next.
    let sandbox = home.launch(|_| {});
    assert_eq!(sandbox.sh("echo runs"), "runs\n");
}

/// The helper of a launcher, made by its forker, if it is there.
fn helper_of(launcher: &Child) -> Option<i32> {
    let forker = *children(launcher.id() as i32).first()?;
    children(forker).first().copied()
}

/// The same, once it is there.
fn helper(launcher: &Child) -> i32 {
    let mut found = None;
    soon("the helper starts", || {
        found = helper_of(launcher);
        found.is_some()
    });
    found.unwrap()
}

fn without_its_helper_a_sandbox_does_not_begin() {
    let home = Home::new();
    // Who writes into a pipe that nobody reads waits: the helper, when the child has built its root.
    assert!(Command::new("mkfifo").arg(home.path("process.new")).status().unwrap().success());
    let mut launcher = start("launch", &home.path(""));
    let helper = helper(&launcher);
    soon("the helper waits in the pipe", || {
        let call = std::fs::read_to_string(format!("/proc/{helper}/wchan"));
        call.is_ok_and(|call| call == "wait_for_partner" || call == "fifo_open")
    });
    let inside = children(helper);
    assert_eq!(inside.len(), 1);
    signal(launcher.id() as i32, Signal::KILL);
    signal(helper, Signal::KILL);
    launcher.wait().unwrap();
    soon("the child ends", || !runs(inside[0]));
    assert!(!home.guest_ran());
    assert_eq!(Process::read(&home.path("process")).unwrap(), None);
}

/// Starts a launch and stops its helper some time after that; launcher, helper and what it has made so far. None if
/// it was done before.
fn stopped_after(home: &Home, delay: Duration) -> (Child, Option<(i32, Vec<i32>)>) {
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

/// From before the helper does anything to after it is done.
fn moments() -> impl Iterator<Item = Duration> {
    (0..30).map(|step| Duration::from_millis(step * 2))
}

fn a_helper_killed_at_any_moment_leaves_nothing_behind() {
    for delay in moments() {
        let home = Home::new();
        let (mut launcher, stopped) = stopped_after(&home, delay);
        if let Some((helper, _)) = stopped {
            signal(helper, Signal::KILL);
        }
        let launched = launcher.wait().unwrap().success();
        let noted = Process::read(&home.path("process")).unwrap();
        assert_eq!(noted.is_some(), launched, "after {delay:?}");
        for pid in stopped.into_iter().flat_map(|(_, inside)| inside) {
            if noted.as_ref().is_none_or(|noted| noted.pid() != pid) {
                soon("what was begun ends", || !runs(pid));
            }
        }
        end(noted);
    }
}

fn a_server_killed_at_any_moment_leaves_nothing_unnoted() {
    for delay in moments() {
        let home = Home::new();
        let (mut launcher, stopped) = stopped_after(&home, delay);
        signal(launcher.id() as i32, Signal::KILL);
        launcher.wait().unwrap();
        if let Some((helper, inside)) = stopped {
            signal(helper, Signal::KILL);
            soon("the helper ends", || !runs(helper));
            let noted = Process::read(&home.path("process")).unwrap();
            for pid in inside {
                if noted.as_ref().is_none_or(|noted| noted.pid() != pid) {
                    soon("what was begun ends", || !runs(pid));
                    assert!(!home.guest_ran(), "after {delay:?}");
                }
            }
            end(noted);
        } else {
            end(Process::read(&home.path("process")).unwrap());
        }
    }
}

fn a_forker_that_is_killed_is_replaced() {
    let home = Home::new();
    assert!(start("launch-without-forker", &home.path("")).wait().unwrap().success());
    let noted = Process::read(&home.path("process")).unwrap();
    assert!(noted.as_ref().is_some_and(Process::is_running));
    end(noted);
}

fn end(process: Option<Process>) {
    if let Some(process) = process {
        process.kill();
        soon("the sandbox ends", || !process.is_running());
    }
}
