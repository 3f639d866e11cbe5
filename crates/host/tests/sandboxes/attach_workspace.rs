//! Sandboxes that are started without a workspace. `home.holder` is the holder of the namespaces in which they are
//! created.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it; `Sandbox::sh` runs a shell command in it
//! and returns the output.

use libtest_mimic::Trial;
use rustix::fs::{FlockOperation, flock};
use workspace_host::attach_workspace;
use workspace_test_support::wait_until;

use crate::guest::Fixture;

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_workspace_is_attached_to_a_running_sandbox,
        an_attached_workspace_stays_mounted,
        a_workspace_is_attached_once,
        concurrent_attaches_exclude_each_other,
        attaching_to_an_ended_sandbox_fails,
        one_workspace_can_be_in_two_sandboxes,
    ]
}

fn a_workspace_is_attached_to_a_running_sandbox() {
    let home = Fixture::new();
    let sandbox = home.launch(|launch| launch.workspace = None);
    assert_eq!(
        sandbox.sh("ls -A /workspace; touch /workspace/x"),
        "touch: cannot touch '/workspace/x': Read-only file system\n"
    );
    std::fs::write(home.path("workspace/file"), "mine\n").unwrap();
    attach_workspace(&home.holder, &sandbox.process, &home.path("workspace")).unwrap();
    assert_eq!(sandbox.sh("cat /workspace/file; echo new > /workspace/new"), "mine\n");
    assert_eq!(std::fs::read_to_string(home.path("workspace/new")).unwrap(), "new\n");
    let mounts = sandbox.sh("grep ' /workspace ' /proc/self/mounts");
    assert!(mounts.contains("nosuid") && mounts.contains("nodev"), "{mounts}");
}

fn an_attached_workspace_stays_mounted() {
    let home = Fixture::new();
    let sandbox = home.launch(|launch| launch.workspace = None);
    attach_workspace(&home.holder, &sandbox.process, &home.path("workspace")).unwrap();
    for attempt in ["umount /workspace", "umount -l /workspace", "mount -t tmpfs none /workspace"] {
        assert_eq!(sandbox.sh(&format!("{attempt} >/dev/null 2>&1 && echo done")), "", "{attempt}");
    }
    assert_eq!(sandbox.sh("grep -c ' /workspace ' /proc/self/mounts"), "1\n");
}

fn a_workspace_is_attached_once() {
    let home = Fixture::new();
    std::fs::create_dir(home.path("other")).unwrap();
    // Whether it was attached at launch or later.
    let sandbox = home.launch(|_| {});
    let error = attach_workspace(&home.holder, &sandbox.process, &home.path("other")).unwrap_err();
    assert!(error.to_string().contains("has a workspace"), "{error}");
    drop(sandbox);
    wait_until("its cgroups can be removed", || workspace_host::cgroup::remove(home.id()).is_ok());
    let sandbox = home.launch(|launch| launch.workspace = None);
    attach_workspace(&home.holder, &sandbox.process, &home.path("workspace")).unwrap();
    let error = attach_workspace(&home.holder, &sandbox.process, &home.path("other")).unwrap_err();
    assert!(error.to_string().contains("has a workspace"), "{error}");
}

fn concurrent_attaches_exclude_each_other() {
    let home = Fixture::new();
    let sandbox = home.launch(|launch| launch.workspace = None);
    let mounts = std::fs::File::open(format!("/proc/{}/ns/mnt", sandbox.process.pid())).unwrap();
    flock(&mounts, FlockOperation::LockExclusive).unwrap();
    let error = attach_workspace(&home.holder, &sandbox.process, &home.path("workspace")).unwrap_err();
    assert!(error.to_string().contains("is being attached"), "{error}");
    // Closing is not enough: a process that another test has just started may hold a copy.
    flock(&mounts, FlockOperation::Unlock).unwrap();
    attach_workspace(&home.holder, &sandbox.process, &home.path("workspace")).unwrap();
    assert_eq!(sandbox.sh("grep -c ' /workspace ' /proc/self/mounts"), "1\n");
}

fn attaching_to_an_ended_sandbox_fails() {
    let home = Fixture::new();
    let sandbox = home.launch(|launch| launch.workspace = None);
    sandbox.process.kill();
    wait_until("the sandbox exits", || !sandbox.process.is_running());
    let error = attach_workspace(&home.holder, &sandbox.process, &home.path("workspace")).unwrap_err();
    assert!(error.to_string().contains("ended"), "{error}");
}

fn one_workspace_can_be_in_two_sandboxes() {
    let (home, other) = (Fixture::new(), Fixture::new());
    let sandboxes =
        [home.launch(|launch| launch.workspace = None), other.launch(|launch| launch.workspace = None)];
    attach_workspace(&home.holder, &sandboxes[0].process, &home.path("workspace")).unwrap();
    attach_workspace(&other.holder, &sandboxes[1].process, &home.path("workspace")).unwrap();
    sandboxes[0].sh("echo hello > /workspace/greeting");
    assert_eq!(sandboxes[1].sh("cat /workspace/greeting"), "hello\n");
}
