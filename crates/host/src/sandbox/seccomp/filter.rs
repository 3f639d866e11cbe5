//! The rules of `seccomp.rs` as BPF programs for the kernel of this host.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::{ALLOWED, ALLOWED_ON_X86_64, CHECKED, DENIED, DENIED_ON_X86_64, ENOSYS, EPERM, Pattern};
use crate::error::{Context as _, HostError, Result};

/// Compiled filters of a sandbox. Prepared in advance, because compiling takes memory and time.
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Compiles two filters, because one has at most two actions. If both deny a call, the kernel uses the
    /// error of the one that was applied last.
    pub(crate) fn new() -> Result<Self> {
        let programs =
            [allow_list(), deny_list()].into_iter().map(|filter| filter.and_then(TryInto::try_into));
        let programs: std::result::Result<_, seccompiler::BackendError> = programs.collect();
        Ok(Self(
            programs
                .map_err(|error| HostError::other(format!("cannot compile the seccomp filter: {error}")))?,
        ))
    }

    /// Applies the filters to this process and its descendants, irrevocably.
    pub(crate) fn apply(&self) -> Result<()> {
        for program in &self.0 {
            apply_filter(program).map_err(io::Error::other).context("restrict system calls")?;
        }
        Ok(())
    }
}

type Filter = std::result::Result<SeccompFilter, seccompiler::BackendError>;

/// Allows the listed calls with any arguments.
fn allow_list() -> Filter {
    let checked = CHECKED.into_iter().flat_map(|(calls, _)| calls);
    let calls = ALLOWED.iter().chain(ALLOWED_ON_X86_64).chain(checked);
    let rules = calls.map(|(_, call)| (*call, Vec::new())).collect();
    SeccompFilter::new(rules, SeccompAction::Errno(ENOSYS), SeccompAction::Allow, target())
}

/// Denies calls and values of arguments.
fn deny_list() -> Filter {
    let calls = DENIED.iter().chain(DENIED_ON_X86_64);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.map(|(_, call)| (*call, Vec::new())).collect();
    for (calls, values) in CHECKED {
        let denied: std::result::Result<Vec<_>, _> =
            values.denied_patterns().into_iter().map(first_argument_rule).collect();
        let denied = denied?;
        rules.extend(calls.iter().map(|(_, call)| (*call, denied.clone())));
    }
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EPERM), target())
}

/// Returns a rule for calls whose first argument matches `pattern`. It compares 32 bits: the kernel ignores
/// the rest of the register.
fn first_argument_rule(pattern: Pattern) -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    let operation = SeccompCmpOp::MaskedEq(pattern.mask.into());
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operation, pattern.bits.into())?;
    SeccompRule::new(vec![condition])
}

fn target() -> seccompiler::TargetArch {
    if cfg!(target_arch = "aarch64") {
        seccompiler::TargetArch::aarch64
    } else {
        seccompiler::TargetArch::x86_64
    }
}

#[cfg(test)]
mod tests;
