//! The list as the kernel of this machine takes it.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::{AF_VSOCK, ALLOWED, ALLOWED_HERE, ENOSYS, EPERM, NEW_NAMESPACES, PERSONALITIES};
use crate::error::{Doing as _, HostError, Result};

/// What a sandbox gets: prepared before, because making it needs memory and time.
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    pub(crate) fn new() -> Result<Self> {
        let programs =
            [allow_list(), no_clone3()].into_iter().map(|filter| filter.and_then(TryInto::try_into));
        let programs: std::result::Result<_, seccompiler::BackendError> = programs.collect();
        Ok(Self(programs.map_err(|error| HostError::Helper(format!("the list of system calls: {error}")))?))
    }

    /// From now on, and for all that come of this process.
    pub(crate) fn apply(&self) -> Result<()> {
        for program in &self.0 {
            apply_filter(program).map_err(io::Error::other).doing("restrict system calls")?;
        }
        Ok(())
    }
}

type Filter = std::result::Result<SeccompFilter, seccompiler::BackendError>;

fn allow_list() -> Filter {
    let calls = ALLOWED.iter().chain(ALLOWED_HERE);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.map(|(_, call)| (*call, Vec::new())).collect();
    let rule = |operation, value| {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, operation, value)?;
        SeccompRule::new(vec![condition])
    };
    rules.insert(libc::SYS_clone, vec![rule(SeccompCmpOp::MaskedEq(NEW_NAMESPACES), 0)?]);
    rules.insert(libc::SYS_socket, vec![rule(SeccompCmpOp::Ne, AF_VSOCK)?]);
    let personalities = PERSONALITIES.map(|value| rule(SeccompCmpOp::Eq, value));
    rules.insert(libc::SYS_personality, personalities.into_iter().collect::<std::result::Result<_, _>>()?);
    let refused = SeccompAction::Errno(EPERM);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, target())
}

/// Its flags lie in memory, where no filter sees them. Programs go back to `clone` where it does not exist.
fn no_clone3() -> Filter {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let missing = SeccompAction::Errno(ENOSYS);
    SeccompFilter::new(rules, SeccompAction::Allow, missing, target())
}

fn target() -> seccompiler::TargetArch {
    if cfg!(target_arch = "aarch64") {
        seccompiler::TargetArch::aarch64
    } else {
        seccompiler::TargetArch::x86_64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_this_kernel() {
        let namespaces = libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET;
        assert_eq!(NEW_NAMESPACES, namespaces as u64);
        assert_eq!(
            (AF_VSOCK, EPERM, ENOSYS),
            (libc::AF_VSOCK as u64, libc::EPERM as u32, libc::ENOSYS as u32)
        );
    }
}
