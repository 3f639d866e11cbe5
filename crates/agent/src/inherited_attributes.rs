//! Attributes that a process inherits from its parent and that other processes in the sandbox can change.
//!
//! The agent compares those of an idle supervisor with its own, and does not reuse a supervisor that was changed.

use std::fs;

use rustix::process::Pid;

/// Number of resource limits in Linux (`RLIM_NLIMITS`).
const LIMITS: usize = 16;
/// `IOPRIO_WHO_PROCESS`, which no crate defines.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
/// Size of a set of CPUs in bytes. The kernel supports at most 8192 CPUs.
const CPU_SET_SIZE: usize = 1024;

/// Limits, scheduling, affinity and priorities of a process. An attribute that the kernel does not have, or does not
/// show, is `None`. `oom_score` is read only with [`CommandUsers::All`]; otherwise it cannot change, and is `None`.
#[derive(PartialEq, Eq)]
pub(crate) struct InheritedAttributes {
    /// Soft and hard limit of each resource.
    limits: [Option<(libc::rlim64_t, libc::rlim64_t)>; LIMITS],
    scheduling: Option<Scheduling>,
    /// Mask of the CPUs.
    affinity: Option<[u8; CPU_SET_SIZE]>,
    /// Value of `ioprio_get`.
    io_priority: Option<libc::c_long>,
    /// Text of `/proc/PID/oom_score_adj`.
    oom_score: Option<Vec<u8>>,
}

/// Users that commands of the sandbox run as. A process can change the attributes of supervisors of the same user, and
/// one of root those of all supervisors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandUsers {
    /// Only the user of the agent.
    AgentOnly,
    /// All users, including root.
    All,
}

/// `struct sched_attr`: policy, flags, nice value, priority, slice, deadlines and utilisation clamps.
type Scheduling = [u64; 7];

impl InheritedAttributes {
    /// Returns the attributes of this process.
    pub(crate) fn own(users: CommandUsers) -> Self {
        Self::read(0, "self", users)
    }

    /// Returns the attributes of another process.
    pub(crate) fn of(pid: Pid, users: CommandUsers) -> Self {
        let pid = pid.as_raw_nonzero().get();
        Self::read(pid, &pid.to_string(), users)
    }

    /// Reads the attributes of a process: `pid` is 0 for this one, and `proc_name` its directory below `/proc`.
    fn read(pid: libc::pid_t, proc_name: &str, users: CommandUsers) -> Self {
        // Supervisors are not dumpable, so only root can change their OOM score.
        let may_change_oom_score = users == CommandUsers::All;
        Self {
            limits: std::array::from_fn(|resource| limit(pid, resource)),
            scheduling: scheduling(pid),
            affinity: affinity(pid),
            // SAFETY: the call takes integers.
            io_priority: Some(unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, pid) })
                .filter(|priority| *priority >= 0),
            oom_score: may_change_oom_score
                .then(|| fs::read(format!("/proc/{proc_name}/oom_score_adj")).ok())
                .flatten(),
        }
    }
}

fn limit(pid: libc::pid_t, resource: usize) -> Option<(libc::rlim64_t, libc::rlim64_t)> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure, and reads none.
    let done = unsafe {
        libc::syscall(libc::SYS_prlimit64, pid, resource, std::ptr::null::<libc::rlimit64>(), &raw mut limit)
    };
    (done == 0).then_some((limit.rlim_cur, limit.rlim_max))
}

fn scheduling(pid: libc::pid_t) -> Option<Scheduling> {
    let mut read: Scheduling = [0; 7];
    // SAFETY: the kernel writes at most the given size.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, pid, &raw mut read, size_of_val(&read), 0) };
    (done == 0).then_some(read)
}

fn affinity(pid: libc::pid_t) -> Option<[u8; CPU_SET_SIZE]> {
    let mut cpus = [0; CPU_SET_SIZE];
    // SAFETY: the kernel writes at most the given size.
    let written = unsafe { libc::syscall(libc::SYS_sched_getaffinity, pid, CPU_SET_SIZE, cpus.as_mut_ptr()) };
    (written > 0).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes an attribute of a process by a system call.
    type AttributeChange = fn(libc::pid_t) -> libc::c_long;

    #[test]
    fn a_child_has_the_same_attributes_until_they_change() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let changes: [(&str, AttributeChange); 5] = [
            ("limit", |pid| {
                let limit = libc::rlimit64 { rlim_cur: 11, rlim_max: 11 };
                let none = std::ptr::null_mut::<libc::rlimit64>();
                // SAFETY: the kernel reads one structure, and writes none.
                unsafe { libc::syscall(libc::SYS_prlimit64, pid, libc::RLIMIT_CORE, &raw const limit, none) }
            }),
            ("nice value", |pid| {
                // SAFETY: the call takes integers.
                unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, pid, 19) }
            }),
            ("I/O priority", |pid| {
                // SAFETY: the call takes integers.
                unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, pid, 3 << 13) }
            }),
            ("policy", |pid| {
                let none = libc::sched_param { sched_priority: 0 };
                // SAFETY: the kernel reads one structure.
                unsafe {
                    libc::syscall(libc::SYS_sched_setscheduler, pid, libc::SCHED_BATCH, &raw const none)
                }
            }),
            ("OOM score", |pid| fs::write(format!("/proc/{pid}/oom_score_adj"), "777").map_or(-1, |()| 0)),
        ];
        let read = || InheritedAttributes::of(pid, CommandUsers::All);
        assert!(read() == InheritedAttributes::own(CommandUsers::All));
        for (name, change) in changes {
            let before = read();
            assert_eq!(change(pid.as_raw_nonzero().get()), 0, "{name}");
            assert!(read() != before, "{name}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
