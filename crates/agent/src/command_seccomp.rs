//! Seccomp filter that prevents commands from changing the limits and scheduling of the agent.
//!
//! Commands run as the agent's own user, or, where the root filesystem is kept, as any user including root. Either way
//! the kernel lets them change the limits, affinity and priority of the agent, PID 1: a user may change all their
//! processes. A lowered limit cannot be raised again: after `prlimit --pid 1 --nproc=0` no command could start. The
//! kernel does not check the dumpable flag in these calls, so a filter rejects them.
//!
//! Calls that target other processes and threads are not affected: thread libraries set the affinity of their
//! own threads by id. The filter is part of the agent rather than of the seccomp profiles of the runtimes, so
//! that it is the same in every runtime.

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// Compiled filter for the commands of one agent.
pub(crate) struct CommandSeccompFilter(BpfProgram);

/// Values of `which` for `setpriority`: a process, a process group, or all processes of a user.
const PRIO: [u32; 3] = [libc::PRIO_PROCESS as _, libc::PRIO_PGRP as _, libc::PRIO_USER as _];
/// Values of `which` for `ioprio_set` (`IOPRIO_WHO_*`), which no crate defines.
const IOPRIO_WHO: [u32; 3] = [1, 2, 3];

impl CommandSeccompFilter {
    /// Returns the filter that protects this process, which is compiled once. `None` on kernels without seccomp.
    pub(crate) fn of_commands() -> io::Result<Option<&'static Self>> {
        static FILTER: OnceLock<Option<CommandSeccompFilter>> = OnceLock::new();
        if let Some(filter) = FILTER.get() {
            return Ok(filter.as_ref());
        }
        let filter = Self::protecting(std::process::id())?;
        Ok(FILTER.get_or_init(|| filter).as_ref())
    }

    /// Creates a filter that protects the process with this PID, which must be the leader of its process
    /// group. `None` on kernels without seccomp.
    fn protecting(agent: u32) -> io::Result<Option<Self>> {
        if !kernel_has_filters() {
            return Ok(None);
        }
        let program = filter(agent).and_then(BpfProgram::try_from);
        program.map(|program| Some(Self(program))).map_err(io::Error::other)
    }

    /// Applies the filter to this process and its descendants.
    pub(crate) fn apply(&self) -> io::Result<()> {
        apply_filter(&self.0).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            other => io::Error::other(other),
        })
    }
}

fn kernel_has_filters() -> bool {
    // SAFETY: all arguments are integers.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 }
}

fn filter(agent: u32) -> Result<SeccompFilter, BackendError> {
    // PIDs and `which` are 32 bits wide; pointers are 64.
    let equals = |index, value: u32| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value.into())
    };
    let is_non_null = |index| SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let rule = |conditions| Ok::<_, BackendError>(vec![SeccompRule::new(conditions)?]);
    // Other processes cannot join the agent's process group, but can target it by id. A call that targets all
    // processes of the user would include the agent.
    let by_target = |[process, group, user]: [u32; 3]| -> Result<Vec<SeccompRule>, BackendError> {
        Ok(vec![
            SeccompRule::new(vec![equals(0, process)?, equals(1, agent)?])?,
            SeccompRule::new(vec![equals(0, group)?, equals(1, agent)?])?,
            SeccompRule::new(vec![equals(0, user)?])?,
        ])
    };
    let rules = BTreeMap::from([
        // A null pointer reads the limits without setting new ones.
        (libc::SYS_prlimit64, rule(vec![equals(0, agent)?, is_non_null(2)?])?),
        (libc::SYS_sched_setaffinity, rule(vec![equals(0, agent)?])?),
        (libc::SYS_sched_setattr, rule(vec![equals(0, agent)?])?),
        (libc::SYS_sched_setparam, rule(vec![equals(0, agent)?])?),
        (libc::SYS_sched_setscheduler, rule(vec![equals(0, agent)?])?),
        (libc::SYS_setpriority, by_target(PRIO)?),
        (libc::SYS_ioprio_set, by_target(IOPRIO_WHO)?),
    ]);
    let deny = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, deny, std::env::consts::ARCH.try_into()?)
}
