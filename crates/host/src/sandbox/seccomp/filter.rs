//! The rules of `seccomp.rs` as a BPF program for the kernel of this host.
//!
//! When a filter is applied, the kernel runs it for every call number in order to learn which calls are always
//! allowed. So the program finds a call by binary search: comparing it with one number after the other would be a
//! large part of the time that a sandbox takes to start.

use std::collections::BTreeMap;
use std::io;

use libc::{BPF_ABS, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};
use seccompiler::{BpfProgram, apply_filter, sock_filter};

use super::{ALLOWED, ALLOWED_ON_X86_64, Allowed, CHECKED, DENIED, DENIED_ON_X86_64, ENOSYS, EPERM};
use crate::error::{Context as _, HostError, Result};

/// Architecture of this program as the kernel numbers them (`AUDIT_ARCH_*`).
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };
/// Offsets in `struct seccomp_data`: call number, architecture, and lower half of the first argument.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
/// Maximum distance of a conditional jump, in instructions.
const JUMP_MAX: usize = u8::MAX as usize;

/// Compiled filter of a sandbox, one BPF program with all rules. Compiled before the init process is cloned, because
/// compiling takes memory and time.
pub(crate) struct Filter(BpfProgram);

/// Decision about a call.
#[derive(Debug, Clone, Copy)]
enum Verdict {
    Allow,
    /// The call fails with this errno.
    Fail(u32),
    /// Depends on the first argument; other values fail with `EPERM`.
    Check(Allowed),
}

/// Call numbers from `first` up to the next range.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: u32,
    verdict: Verdict,
}

impl Filter {
    /// Compiles the filter.
    pub(crate) fn new() -> Result<Self> {
        // A system call of another architecture kills the process: its number has another meaning.
        let mut program = vec![
            load(ARCH),
            jump(BPF_JEQ, ARCHITECTURE, 1, 0),
            stop(libc::SECCOMP_RET_KILL_PROCESS),
            load(NUMBER),
        ];
        program.extend(compile_search(&ranges(&verdicts()?)));
        Ok(Self(program))
    }

    /// Applies the filter to this process and its descendants, irrevocably.
    pub(crate) fn apply(&self) -> Result<()> {
        apply_filter(&self.0).map_err(io::Error::other).context("restrict system calls")
    }
}

/// Returns the verdicts on all listed calls, by number.
fn verdicts() -> Result<BTreeMap<u32, Verdict>> {
    let all = [
        (ALLOWED, Verdict::Allow),
        (ALLOWED_ON_X86_64, Verdict::Allow),
        (DENIED, Verdict::Fail(EPERM)),
        (DENIED_ON_X86_64, Verdict::Fail(EPERM)),
    ];
    let checked = CHECKED.into_iter().map(|(calls, values)| (calls, Verdict::Check(values)));
    let listed = all.into_iter().chain(checked).flat_map(|(calls, verdict)| {
        calls.iter().map(move |(name, number)| {
            let number = u32::try_from(*number);
            let number = number.map_err(|_| HostError::other(format!("{name} has no valid number")))?;
            Ok((number, verdict))
        })
    });
    listed.collect()
}

/// Returns ranges that cover all numbers, in order. Calls that are not listed fail with `ENOSYS`.
fn ranges(verdicts: &BTreeMap<u32, Verdict>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut add = |first, verdict| match ranges.last() {
        Some(last) if last.verdict.is_same(verdict) => {}
        _ => ranges.push(Range { first, verdict }),
    };
    let mut next = 0;
    for (number, verdict) in verdicts {
        if *number > next {
            add(next, Verdict::Fail(ENOSYS));
        }
        add(*number, *verdict);
        next = number + 1;
    }
    add(next, Verdict::Fail(ENOSYS));
    ranges
}

impl Verdict {
    /// Returns true if two ranges with these verdicts can be one.
    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Allow, Self::Allow) => true,
            (Self::Fail(errno), Self::Fail(other)) => errno == other,
            _ => false,
        }
    }
}

/// Returns a program that finds the range of the loaded call number, and ends with the verdict of that range.
fn compile_search(ranges: &[Range]) -> BpfProgram {
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let (Some(first), false) = (upper.first(), lower.is_empty()) else {
        return upper.first().map_or_else(Vec::new, |range| compile_verdict(range.verdict));
    };
    let (lower, boundary) = (compile_search(lower), first.first);
    let mut program = match u8::try_from(lower.len()) {
        Ok(distance) => vec![jump(BPF_JGE, boundary, distance, 0)],
        // Too far for a conditional jump.
        Err(_) => vec![jump(BPF_JGE, boundary, 0, 1), jump(BPF_JA, lower.len() as u32, 0, 0)],
    };
    program.extend(lower);
    program.extend(compile_search(upper));
    program
}

/// Returns a program that ends with the verdict.
fn compile_verdict(verdict: Verdict) -> BpfProgram {
    match verdict {
        Verdict::Allow => vec![stop(libc::SECCOMP_RET_ALLOW)],
        Verdict::Fail(errno) => vec![fail(errno)],
        Verdict::Check(Allowed::Without(bits)) => {
            vec![load(FIRST_ARGUMENT), jump(BPF_JSET, bits, 0, 1), fail(EPERM), stop(libc::SECCOMP_RET_ALLOW)]
        }
        Verdict::Check(Allowed::OneOf(values)) => {
            const { assert!(LONGEST_LIST < JUMP_MAX) };
            // Each jump leads past the jumps that follow and the failure.
            let jumps =
                values.iter().rev().zip(1_u8..).map(|(value, distance)| jump(BPF_JEQ, *value, distance, 0));
            let jumps: Vec<_> = jumps.collect();
            let mut program = vec![load(FIRST_ARGUMENT)];
            program.extend(jumps.into_iter().rev());
            program.extend([fail(EPERM), stop(libc::SECCOMP_RET_ALLOW)]);
            program
        }
    }
}

/// Length of the longest list of allowed values.
const LONGEST_LIST: usize = {
    let (mut longest, mut index) = (0, 0);
    while index < CHECKED.len() {
        if let Allowed::OneOf(values) = CHECKED[index].1
            && values.len() > longest
        {
            longest = values.len();
        }
        index += 1;
    }
    longest
};

fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

/// Compares the loaded value. Skips as many of the next instructions as the result says.
fn jump(comparison: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    instruction(BPF_JMP | comparison | BPF_K, value, if_true, if_false)
}

fn fail(errno: u32) -> sock_filter {
    stop(libc::SECCOMP_RET_ERRNO | errno)
}

fn stop(action: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, action, 0, 0)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests;
