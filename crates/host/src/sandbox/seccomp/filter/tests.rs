//! Tests of the filter in a process, and of the same list as a profile of OCI runtimes.

use std::collections::BTreeSet;
use std::io::Read as _;

use serde_json::Value;

use super::super::{FAMILIES, NEW_NAMESPACES, PERSONALITIES, profile};
use super::*;

/// A system call and its first argument.
#[derive(Debug, Clone, Copy)]
struct Call {
    name: &'static str,
    number: i64,
    first: u64,
    /// Expected error; 0 for none.
    errno: i32,
}

const fn call(name: &'static str, number: i64, first: u64, errno: i32) -> Call {
    Call { name, number, first, errno }
}

/// Harmless calls with an allowed and a denied value for every checked argument.
const CALLS: [Call; 21] = [
    // Without shared signal handlers the kernel itself rejects threads.
    call("clone", libc::SYS_clone, libc::CLONE_THREAD as u64, libc::EINVAL),
    call("clone", libc::SYS_clone, libc::CLONE_NEWNS as u64, libc::EPERM),
    call("clone", libc::SYS_clone, libc::CLONE_NEWCGROUP as u64, libc::EPERM),
    call("clone", libc::SYS_clone, libc::CLONE_NEWUTS as u64, libc::EPERM),
    call("clone", libc::SYS_clone, libc::CLONE_NEWIPC as u64, libc::EPERM),
    call("clone", libc::SYS_clone, libc::CLONE_NEWUSER as u64, libc::EPERM),
    call("clone", libc::SYS_clone, libc::CLONE_NEWPID as u64, libc::EPERM),
    call("clone", libc::SYS_clone, libc::CLONE_NEWNET as u64, libc::EPERM),
    call("clone", libc::SYS_clone, (libc::CLONE_NEWUSER | libc::CLONE_THREAD) as u64, libc::EPERM),
    call("personality", libc::SYS_personality, 0xffff_ffff, 0),
    call("personality", libc::SYS_personality, libc::ADDR_NO_RANDOMIZE as u64, libc::EPERM),
    call("personality", libc::SYS_personality, 0xffff_fffe, libc::EPERM),
    // Without a type the kernel itself rejects a socket.
    call("socket", libc::SYS_socket, libc::AF_UNIX as u64, libc::ESOCKTNOSUPPORT),
    call("socket", libc::SYS_socket, libc::AF_NETLINK as u64, libc::ESOCKTNOSUPPORT),
    call("socket", libc::SYS_socket, libc::AF_VSOCK as u64, libc::EPERM),
    call("socket", libc::SYS_socket, libc::AF_ALG as u64, libc::EPERM),
    call("socket", libc::SYS_socket, u32::MAX as u64, libc::EPERM),
    call("socketpair", libc::SYS_socketpair, libc::AF_UNIX as u64, libc::EFAULT),
    call("socketpair", libc::SYS_socketpair, libc::AF_VSOCK as u64, libc::EPERM),
    call("clone3", libc::SYS_clone3, 0, libc::ENOSYS),
    call("a call of a later kernel", 1000, 0, libc::ENOSYS),
];

/// Upper halves of a register, which the kernel ignores.
const UPPER: [u64; 4] = [0, 1 << 32, 1 << 63, 0xffff_ffff << 32];

/// Returns the errors of calls that a process makes under the filter; 0 for a call that succeeds.
fn under_filter(calls: &[(i64, u64)]) -> Vec<i32> {
    let filter = Filter::new().unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    let mut errors = vec![-1_i32; calls.len()];
    // SAFETY: the child only makes system calls until it ends; it takes no lock and allocates no memory.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            if filter.apply().is_err() {
                libc::_exit(1);
            }
            for ((number, first), error) in calls.iter().zip(&mut errors) {
                let done = libc::syscall(*number, *first, 0, 0, 0, 0, 0);
                *error = if done < 0 { *libc::__errno_location() } else { 0 };
            }
            let written = libc::write(
                std::os::fd::AsRawFd::as_raw_fd(&writer),
                errors.as_ptr().cast(),
                size_of_val(errors.as_slice()),
            );
            libc::_exit(i32::from(written < 0));
        }
        child
    };
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    let mut status = 0;
    // SAFETY: a child of this process, and an integer to write to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    bytes.chunks_exact(4).map(|error| i32::from_ne_bytes(error.try_into().unwrap())).collect()
}

#[test]
fn the_upper_half_of_an_argument_is_ignored() {
    let calls: Vec<(Call, u64)> =
        CALLS.into_iter().flat_map(|call| UPPER.map(|upper| (call, call.first | upper))).collect();
    let plain: Vec<(i64, u64)> = calls.iter().map(|(call, first)| (call.number, *first)).collect();
    for ((call, first), error) in calls.iter().zip(under_filter(&plain)) {
        assert_eq!(error, call.errno, "{}({first:#x})", call.name);
    }
}

#[test]
fn denied_calls_fail_with_eperm() {
    let denied: Vec<_> = DENIED.iter().chain(DENIED_ON_X86_64).collect();
    let calls: Vec<(i64, u64)> = denied.iter().map(|(_, number)| (*number, 0)).collect();
    for ((name, _), error) in denied.iter().zip(under_filter(&calls)) {
        assert_eq!(error, libc::EPERM, "{name}");
    }
}

#[test]
fn unknown_calls_fail_with_enosys() {
    // The third one is of the x32 ABI.
    let calls = [500, 1000, 0x4000_0000 | libc::SYS_getpid, 0x7fff_ffff].map(|number| (number, 0));
    assert_eq!(under_filter(&calls), [libc::ENOSYS; 4]);
}

/// Runs the filter on a call as the kernel does. Returns its action.
fn run(filter: &Filter, arch: u32, number: u32, first: u64) -> u32 {
    let (mut accumulator, mut next) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = filter.0[next].clone();
        next += 1;
        let mut branch = |is_true: bool| next += usize::from(if is_true { jt } else { jf });
        match u32::from(code) {
            code if code == BPF_LD | BPF_W | BPF_ABS => {
                accumulator = match k {
                    NUMBER => number,
                    ARCH => arch,
                    FIRST_ARGUMENT => first as u32,
                    other => panic!("loads {other}"),
                }
            }
            code if code == BPF_JMP | BPF_JEQ | BPF_K => branch(accumulator == k),
            code if code == BPF_JMP | BPF_JGE | BPF_K => branch(accumulator >= k),
            code if code == BPF_JMP | BPF_JSET | BPF_K => branch(accumulator & k != 0),
            code if code == BPF_JMP | BPF_JA | BPF_K => next += k as usize,
            code if code == BPF_RET | BPF_K => return k,
            other => panic!("unknown instruction {other}"),
        }
    }
}

/// Returns the action for a call according to the lists.
fn listed(number: u32, first: u32) -> u32 {
    let has = |calls: super::super::Calls| calls.iter().any(|(_, other)| *other == i64::from(number));
    let is_checked = CHECKED.into_iter().find(|(calls, _)| has(calls));
    let is_allowed = match is_checked {
        Some((_, Allowed::Without(bits))) => first & bits == 0,
        Some((_, Allowed::OneOf(values))) => values.contains(&first),
        None => has(ALLOWED) || has(ALLOWED_ON_X86_64),
    };
    let errno = if is_checked.is_some() || has(DENIED) || has(DENIED_ON_X86_64) { EPERM } else { ENOSYS };
    if is_allowed { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_ERRNO | errno }
}

#[test]
fn the_filter_decides_about_every_call_as_listed() {
    let filter = Filter::new().unwrap();
    let bits = (0..u32::BITS).map(|bit| 1 << bit);
    let values = [FAMILIES.as_slice(), &PERSONALITIES].concat().into_iter();
    let values = values.flat_map(|value| [value.wrapping_sub(1), value, value.wrapping_add(1)]);
    let firsts: Vec<u32> = bits.chain(values).chain([NEW_NAMESPACES, !NEW_NAMESPACES, u32::MAX]).collect();
    let x32 = (0..1200).map(|number| 0x4000_0000 | number);
    for number in (0..1200).chain(x32).chain([0x7fff_ffff, 0x8000_0000, u32::MAX]) {
        for (first, upper) in firsts.iter().zip(UPPER.into_iter().cycle()) {
            let action = run(&filter, ARCHITECTURE, number, u64::from(*first) | upper);
            assert_eq!(action, listed(number, *first), "{number}({first:#x})");
        }
    }
}

#[test]
fn a_call_of_another_architecture_ends_the_process() {
    let filter = Filter::new().unwrap();
    for arch in [0, 0x4000_0003, ARCHITECTURE ^ 1] {
        assert_eq!(run(&filter, arch, libc::SYS_getpid as u32, 0), libc::SECCOMP_RET_KILL_PROCESS);
    }
}

#[test]
fn ranges_too_far_for_a_conditional_jump_are_found() {
    let fails = |first: u32| Range { first, verdict: Verdict::Fail(first) };
    let ranges: Vec<Range> = (0..1000).map(fails).collect();
    let filter = Filter([vec![load(NUMBER)], compile_search(&ranges)].concat());
    for number in 0..1000 {
        assert_eq!(run(&filter, 0, number, 0), libc::SECCOMP_RET_ERRNO | number);
    }
}

#[test]
fn every_call_is_in_one_list() {
    let checked: Vec<_> = CHECKED.into_iter().flat_map(|(calls, _)| calls).collect();
    let lists = [ALLOWED, ALLOWED_ON_X86_64, DENIED, DENIED_ON_X86_64].into_iter().flatten().chain(checked);
    let all: Vec<i64> = lists.map(|(_, number)| *number).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}

#[test]
fn the_oci_profile_equals_the_filter() {
    let profile = profile();
    for call in CALLS {
        for upper in UPPER {
            let refused = verdict(&profile, call.name, call.first | upper);
            let expected = [libc::EPERM, libc::ENOSYS].contains(&call.errno).then_some(call.errno as u64);
            assert_eq!(refused, expected, "{}({:#x})", call.name, call.first | upper);
        }
    }
    assert_eq!(verdict(&profile, "unshare", 0), Some(libc::EPERM as u64));
    assert_eq!(verdict(&profile, "read", 0), None);
}

/// Returns the error of a call under a profile, or `None` if it is allowed. Matching rules must agree:
/// otherwise libseccomp would choose.
fn verdict(profile: &Value, name: &str, first: u64) -> Option<u64> {
    let matches = |rule: &&Value| {
        let named = rule["names"].as_array().unwrap().iter().any(|one| one == name);
        let argument = rule["args"].as_array().is_none_or(|arguments| {
            let [argument] = arguments.as_slice() else { panic!("{arguments:?}") };
            assert_eq!((&argument["index"], &argument["op"]), (&0.into(), &"SCMP_CMP_MASKED_EQ".into()));
            first & argument["value"].as_u64().unwrap() == argument["valueTwo"].as_u64().unwrap()
        });
        named && argument
    };
    let action = |rule: &Value| match rule["action"].as_str().unwrap() {
        "SCMP_ACT_ALLOW" => None,
        "SCMP_ACT_ERRNO" => rule["errnoRet"].as_u64(),
        other => panic!("{other}"),
    };
    let actions: BTreeSet<_> =
        profile["syscalls"].as_array().unwrap().iter().filter(matches).map(action).collect();
    assert!(actions.len() <= 1, "{name}({first:#x}): {actions:?}");
    actions.first().copied().unwrap_or_else(|| profile["defaultErrnoRet"].as_u64())
}

#[test]
fn constants_equal_those_of_libc() {
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    assert_eq!(NEW_NAMESPACES, namespaces as u32);
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    assert_eq!(FAMILIES, families.map(|family| family as u32));
    assert_eq!((EPERM, ENOSYS), (libc::EPERM as u32, libc::ENOSYS as u32));
}
