//! A filter of system calls that keeps commands from changing limits and scheduling of the agent.
//!
//! Commands run as the agent's own user, because the agent has no right to become another. The kernel lets a user change
//! limits, affinity and priority of all of his processes, the first of a sandbox included, and a limit that was
//! lowered cannot be raised again: after `prlimit --pid 1 --nproc=0` no command could start any more. Whether
//! a process is dumpable makes no difference to these calls, so a filter refuses them.
//!
//! Calls for other processes and threads are not touched: thread libraries set the affinity of their own threads
//! by number. The filter is part of the agent rather than of the runtimes' lists of system calls, so that it is the same
//! in namespaces and in containers of any runtime.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// The filter, made for one agent.
pub(crate) struct Protection(BpfProgram);

/// `which` of `setpriority` and of `ioprio_set`: a process, a process group, or all processes of a user.
const PRIO: [u32; 3] = [0, 1, 2];
const IOPRIO_WHO: [u32; 3] = [1, 2, 3];

impl Protection {
    /// A filter that protects the process with this PID, which leads its process group. None on kernels without seccomp.
    pub(crate) fn of(agent: u32) -> io::Result<Option<Self>> {
        if !kernel_has_filters() {
            return Ok(None);
        }
        let program = filter(agent).and_then(BpfProgram::try_from);
        program.map(|program| Some(Self(program))).map_err(io::Error::other)
    }

    /// Applies it to this process, and to all that come of it. Fails with the kernel's error.
    pub(crate) fn apply(&self) -> io::Result<()> {
        apply_filter(&self.0).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            other => io::Error::other(other),
        })
    }
}

fn kernel_has_filters() -> bool {
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 }
}

fn filter(agent: u32) -> Result<SeccompFilter, BackendError> {
    // PIDs and kinds are 32 bits to the kernel; pointers are 64.
    let is = |index, value: u32| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value.into())
    };
    let is_set = |index| SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let one = |conditions| Ok::<_, BackendError>(vec![SeccompRule::new(conditions)?]);
    // Groups: others cannot join the agent's, but may name it. Users: the agent is among the processes of its user.
    let by_kind = |[process, group, user]: [u32; 3]| -> Result<Vec<SeccompRule>, BackendError> {
        Ok(vec![
            SeccompRule::new(vec![is(0, process)?, is(1, agent)?])?,
            SeccompRule::new(vec![is(0, group)?, is(1, agent)?])?,
            SeccompRule::new(vec![is(0, user)?])?,
        ])
    };
    let rules = BTreeMap::from([
        // To ask for limits, without new ones, is harmless.
        (libc::SYS_prlimit64, one(vec![is(0, agent)?, is_set(2)?])?),
        (libc::SYS_sched_setaffinity, one(vec![is(0, agent)?])?),
        (libc::SYS_sched_setattr, one(vec![is(0, agent)?])?),
        (libc::SYS_sched_setparam, one(vec![is(0, agent)?])?),
        (libc::SYS_sched_setscheduler, one(vec![is(0, agent)?])?),
        (libc::SYS_setpriority, by_kind(PRIO)?),
        (libc::SYS_ioprio_set, by_kind(IOPRIO_WHO)?),
    ]);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)
}
