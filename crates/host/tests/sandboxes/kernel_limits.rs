//! Limits of kernel resources per sandbox, so that one does not starve others.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it; `Sandbox::sh` runs a shell command in it
//! and returns the output.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use libtest_mimic::Trial;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use workspace_host::limits::Limits;
use workspace_test_support::runs_as_root;

use crate::guest::{Fixture, KEEP_DESCRIPTORS, Sandbox};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        writable_tmpfs_directories_share_one_limit,
        tmpfs_files_are_limited,
        shared_memory_is_limited,
        inotify_instances_of_one_sandbox_do_not_starve_others,
        namespaces_cannot_be_created_inside,
        descriptors_in_flight_of_one_sandbox_do_not_starve_others,
    ]
}

fn with_memory(home: &Fixture, memory: u64) -> Sandbox<'_> {
    home.launch(|launch| launch.limits = Limits { memory_bytes: Some(memory), ..Limits::default() })
}

fn writable_tmpfs_directories_share_one_limit() {
    let home = Fixture::new();
    let sandbox = with_memory(&home, 64 << 20);
    let paths = "/tmp /var/tmp /home/sandbox /dev/shm";
    let fill = format!("for place in {paths}; do head -c 20M /dev/zero > $place/x; done; echo filled");
    let printed = sandbox.sh(&fill);
    assert!(printed.contains("No space left") && printed.ends_with("filled\n"), "{printed}");
    let used = format!("cd /; du -cm {paths} 2>/dev/null | awk '/total/ {{ print ($1 <= 33) }}'");
    assert_eq!(sandbox.sh(&used), "1\n");
    // Each is a directory of its own, and space that is freed in one can be used in another.
    let moved = sandbox.sh("rm /tmp/x && head -c 10M /dev/zero > /var/tmp/y && ls /var/tmp /tmp");
    assert_eq!(moved, "/tmp:\n\n/var/tmp:\nx\ny\n");
    let modes = sandbox.sh("stat -c '%a %n' /tmp /var/tmp /run /home/sandbox /dev/shm");
    assert_eq!(modes, "1777 /tmp\n1777 /var/tmp\n755 /run\n755 /home/sandbox\n1777 /dev/shm\n");
    assert_eq!(sandbox.sh("stat -c %U /home/sandbox"), "sandbox\n");
}

fn tmpfs_files_are_limited() {
    let home = Fixture::new();
    let sandbox = with_memory(&home, 64 << 20);
    let many = "cd /tmp && perl -e 'for (1..20000) { open(my $f, q(>), $_) or do { print qq($!\\n); exit } } print qq(all\\n)'";
    assert_eq!(sandbox.sh(many), "No space left on device\n");
}

fn shared_memory_is_limited() {
    let home = Fixture::new();
    let sandbox = with_memory(&home, 64 << 20);
    let shared =
        |megabytes: u64| sandbox.sh(&format!("ipcmk -M {} >/dev/null 2>&1 && echo made", megabytes << 20));
    assert_eq!(shared(4), "made\n");
    // Without root the sandbox may not set the limit; then the process limit applies.
    if runs_as_root("can limit shared memory") {
        assert_eq!(shared(32), "");
    }
}

/// Creates inotify instances until the limit; all are kept until the sandbox ends. Returns their number.
pub(crate) fn use_all_inotify_instances(sandbox: &Sandbox<'_>) -> u64 {
    let number = libc::SYS_inotify_init1;
    let take = format!(
        "$| = 1; my $n = 0; $n++ while syscall({number}, 0) >= 0; print qq($n\\n); close STDOUT; sleep 100"
    );
    sandbox.sh(&format!("(perl -e '{take}' 2>/dev/null &) | head -1")).trim().parse().unwrap()
}

fn inotify_instances_of_one_sandbox_do_not_starve_others() {
    let of_machine = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let bound = (of_machine.trim().parse::<u64>().unwrap() / 4).max(16);
    let homes: Vec<Fixture> = (0..5).map(|_| Fixture::new()).collect();
    let sandboxes: Vec<Sandbox<'_>> = homes.iter().map(|home| home.launch(|_| {})).collect();
    let taken: Vec<u64> = sandboxes.iter().map(use_all_inotify_instances).collect();
    assert_eq!(taken[0], bound);
    // Root gives each sandbox an owner of its own; an ordinary user has one limit for all sandboxes.
    if runs_as_root("gives each sandbox its own limit of inotify instances") {
        assert_eq!(taken, [bound; 5]);
        // SAFETY: the call takes an integer, and the descriptor is closed with this process.
        assert!(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) } >= 0, "none is left for the machine");
    }
}

fn namespaces_cannot_be_created_inside() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    let bounds =
        sandbox.sh("cd /proc/sys/user; cat max_user_namespaces max_pid_namespaces max_net_namespaces");
    assert_eq!(bounds, "0\n0\n0\n");
    assert!(sandbox.sh("unshare --user true || echo refused").ends_with("refused\n"));
}

/// Sends descriptors that nobody receives until the kernel refuses. Returns their number. They stay in flight
/// as long as this process runs.
pub(crate) fn keep_descriptors_in_flight() -> usize {
    let null = std::fs::File::open("/dev/null").unwrap();
    let many = [null.as_fd(); 250];
    let (mut sent, mut sockets): (usize, Vec<(OwnedFd, OwnedFd)>) = (0, Vec::new());
    loop {
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        sockets.push(pair);
        let socket = &sockets[sockets.len() - 1].0;
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&many));
            match sendmsg(socket, &[IoSlice::new(b"x")], &mut control, SendFlags::DONTWAIT) {
                Ok(_) => sent += many.len(),
                Err(Errno::AGAIN) => break,
                Err(Errno::TOOMANYREFS) => {
                    std::mem::forget(sockets);
                    return sent;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn descriptors_in_flight_of_one_sandbox_do_not_starve_others() {
    let homes = [Fixture::new(), Fixture::new()];
    let greedy = homes[0].launch(|_| {});
    let kept: usize = greedy.sh(KEEP_DESCRIPTORS).parse().unwrap();
    assert!(kept > 1024, "{kept}");
    let other = homes[1].launch(|_| {});
    assert_eq!(other.sh("echo runs"), "runs\n");
}
