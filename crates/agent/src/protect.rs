//! Seccomp filter that prevents commands from changing limits and scheduling of the agent.
//!
//! Commands run as the agent's own user, because the agent has no privilege to change it. The kernel lets a
//! user change limits, affinity and priority of all their processes, PID 1 included, and a lowered limit
//! cannot be raised again: after `prlimit --pid 1 --nproc=0` no command could start. These calls do not
//! depend on the dumpable flag, so a filter rejects them.
//!
//! Calls for other processes and threads are not affected: thread libraries set the affinity of their own
//! threads by id. The filter is part of the agent rather than of the seccomp profiles of the runtimes, so
//! that it is the same in namespaces and in containers of any runtime.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// Filter compiled for one agent.
pub(crate) struct Protection(BpfProgram);

/// Values of `which` for `setpriority`: a process, a process group, or all processes of a user.
const PRIO: [u32; 3] = [libc::PRIO_PROCESS as _, libc::PRIO_PGRP as _, libc::PRIO_USER as _];
/// The same for `ioprio_set`: `IOPRIO_WHO_*`, which no crate defines.
const IOPRIO_WHO: [u32; 3] = [1, 2, 3];

impl Protection {
    /// Creates a filter that protects the process with this PID, which leads its process group. `None` on
    /// kernels without seccomp.
    pub(crate) fn of(agent: u32) -> io::Result<Option<Self>> {
        if !kernel_has_filters() {
            return Ok(None);
        }
        let program = filter(agent).and_then(BpfProgram::try_from);
        program.map(|program| Some(Self(program))).map_err(io::Error::other)
    }

    /// Applies the filter to this process and its descendants. Fails with the error of the kernel.
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
    // PIDs and `which` are 32 bits wide; pointers are 64.
    let is = |index, value: u32| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value.into())
    };
    let is_set = |index| SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let rule = |conditions| Ok::<_, BackendError>(vec![SeccompRule::new(conditions)?]);
    // Other processes cannot join the process group of the agent, but can pass its id. The agent belongs to
    // the user, too.
    let by_target = |[process, group, user]: [u32; 3]| -> Result<Vec<SeccompRule>, BackendError> {
        Ok(vec![
            SeccompRule::new(vec![is(0, process)?, is(1, agent)?])?,
            SeccompRule::new(vec![is(0, group)?, is(1, agent)?])?,
            SeccompRule::new(vec![is(0, user)?])?,
        ])
    };
    let rules = BTreeMap::from([
        // Reading limits, without setting new ones, is harmless.
        (libc::SYS_prlimit64, rule(vec![is(0, agent)?, is_set(2)?])?),
        (libc::SYS_sched_setaffinity, rule(vec![is(0, agent)?])?),
        (libc::SYS_sched_setattr, rule(vec![is(0, agent)?])?),
        (libc::SYS_sched_setparam, rule(vec![is(0, agent)?])?),
        (libc::SYS_sched_setscheduler, rule(vec![is(0, agent)?])?),
        (libc::SYS_setpriority, by_target(PRIO)?),
        (libc::SYS_ioprio_set, by_target(IOPRIO_WHO)?),
    ]);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)
}
