//! System calls of a sandbox: approximately those that Docker allows an unprivileged container by default.
//!
//! [`ALLOWED`] calls are passed to the kernel, [`CHECKED`] ones for some values of their first argument.
//! [`DENIED`] calls, and other values, fail with `EPERM`: creating and entering namespaces, mounting, loading
//! modules, tracing the kernel and using its keyrings. Everything else fails with `ENOSYS`, as on a kernel
//! without it: C libraries that try a newer call first then use the older one, and would fail on `EPERM`.

#[cfg(target_os = "linux")]
mod filter;

use std::collections::BTreeSet;

#[cfg(target_os = "linux")]
pub(crate) use filter::Filter;
use serde_json::{Value, json};

// Values of Linux, because a daemon on another system runs containers on Linux, too.
/// Flags of `clone` that create namespaces: `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`,
/// `NEWPID`, `NEWNET`.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
/// Allowed address families: `AF_UNIX`, `AF_INET`, `AF_INET6` and `AF_NETLINK`. Others load kernel modules
/// (`AF_ALG`), or reach the host past its network namespaces (`AF_VSOCK`).
const FAMILIES: [u32; 4] = [1, 2, 10, 16];
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Allowed execution domains (`personality(2)`): `PER_LINUX`, `PER_LINUX32`, each with and without `UNAME26`, and
/// the value that only reads the current one.
const PERSONALITIES: [u32; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// System calls by name and number.
#[cfg(target_os = "linux")]
type Calls = &'static [(&'static str, libc::c_long)];
#[cfg(target_os = "linux")]
macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// System calls by name; only Linux has numbers for them.
#[cfg(not(target_os = "linux"))]
type Calls = &'static [(&'static str, ())];
#[cfg(not(target_os = "linux"))]
macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), ())),*] };
}

const ALLOWED: Calls = calls! {
    SYS_accept SYS_accept4 SYS_adjtimex SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_adjtime
    SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect
    SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2
    SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64
    SYS_fallocate SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr
    SYS_flistxattr SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex
    SYS_futex_waitv SYS_get_robust_list SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid
    SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom
    SYS_getresgid SYS_getresuid SYS_getrlimit SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch
    SYS_io_cancel SYS_io_destroy SYS_io_getevents SYS_io_setup SYS_io_submit SYS_ioctl
    SYS_ioprio_get SYS_ioprio_set SYS_kill SYS_landlock_add_rule SYS_landlock_create_ruleset
    SYS_landlock_restrict_self SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_lremovexattr
    SYS_lseek SYS_lsetxattr SYS_madvise SYS_membarrier SYS_memfd_create SYS_mincore SYS_mkdirat SYS_mknodat
    SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect SYS_mq_getsetattr SYS_mq_notify SYS_mq_open
    SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd
    SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_name_to_handle_at SYS_nanosleep SYS_newfstatat SYS_openat
    SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
    SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_process_mrelease SYS_process_vm_readv
    SYS_process_vm_writev SYS_pselect6 SYS_ptrace SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead
    SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages SYS_removexattr
    SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask
    SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getattr
    SYS_sched_getparam SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr
    SYS_sched_setparam SYS_sched_setscheduler SYS_sched_yield SYS_seccomp SYS_semctl SYS_semget SYS_semop
    SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_robust_list SYS_set_tid_address
    SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid SYS_setpriority SYS_setregid
    SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_setsid SYS_setsockopt SYS_setuid SYS_setxattr
    SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_splice
    SYS_statfs SYS_statx SYS_symlinkat SYS_sync SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill
    SYS_timer_create SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime SYS_timerfd_create
    SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate SYS_umask SYS_uname SYS_unlinkat
    SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
};

/// Allowed system calls that newer architectures do not have; empty on those.
#[cfg(target_arch = "x86_64")]
const ALLOWED_ON_X86_64: Calls = calls! {
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_wait
    SYS_eventfd SYS_fork SYS_futimesat SYS_getdents SYS_getpgrp SYS_inotify_init SYS_lchown SYS_link SYS_lstat
    SYS_mkdir SYS_mknod SYS_modify_ldt SYS_open SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_rmdir
    SYS_select SYS_signalfd SYS_stat SYS_symlink SYS_time SYS_unlink SYS_utime SYS_utimes SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_ON_X86_64: Calls = &[];

/// Calls that fail with `EPERM`. `clone3` is not among them, so it fails with `ENOSYS`: its flags are in memory, where
/// no filter sees them, and programs use `clone` on kernels without it.
const DENIED: Calls = calls! {
    SYS_acct SYS_add_key SYS_bpf SYS_chroot SYS_clock_settime SYS_delete_module SYS_fanotify_init SYS_fanotify_mark
    SYS_finit_module SYS_fsconfig SYS_fsmount SYS_fsopen SYS_fspick SYS_get_mempolicy SYS_init_module
    SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup SYS_kcmp SYS_kexec_file_load SYS_kexec_load
    SYS_keyctl SYS_lookup_dcookie SYS_mbind SYS_memfd_secret SYS_migrate_pages SYS_mount SYS_mount_setattr
    SYS_move_mount SYS_move_pages SYS_open_by_handle_at SYS_open_tree SYS_perf_event_open SYS_pidfd_getfd
    SYS_pivot_root SYS_process_madvise SYS_quotactl SYS_quotactl_fd SYS_reboot SYS_request_key SYS_set_mempolicy
    SYS_setdomainname SYS_sethostname SYS_setns SYS_settimeofday SYS_swapoff SYS_swapon SYS_syslog SYS_umount2
    SYS_unshare SYS_userfaultfd SYS_vhangup
};

/// Denied system calls that newer architectures do not have; empty on those.
#[cfg(target_arch = "x86_64")]
const DENIED_ON_X86_64: Calls = calls! { SYS_ioperm SYS_iopl SYS_sysfs SYS_uselib SYS_ustat };
#[cfg(not(target_arch = "x86_64"))]
const DENIED_ON_X86_64: Calls = &[];

/// Calls that are allowed for some values of their first argument.
const CHECKED: [(Calls, Allowed); 3] = [
    (calls! { SYS_clone }, Allowed::Without(NEW_NAMESPACES)),
    (calls! { SYS_personality }, Allowed::OneOf(&PERSONALITIES)),
    (calls! { SYS_socket SYS_socketpair }, Allowed::OneOf(&FAMILIES)),
];

/// Allowed values of an argument. The kernel takes the lower 32 bits of each of these arguments and ignores
/// the rest of the register, so only these 32 bits are compared.
#[derive(Debug, Clone, Copy)]
enum Allowed {
    /// Values with none of these bits.
    Without(u32),
    OneOf(&'static [u32]),
}

/// Pattern that matches every value that equals `bits` where `mask` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    mask: u32,
    bits: u32,
}

impl Allowed {
    /// Returns patterns that match exactly the allowed values.
    fn allowed_patterns(self) -> Vec<Pattern> {
        match self {
            Self::Without(mask) => vec![Pattern { mask, bits: 0 }],
            Self::OneOf(values) => {
                values.iter().map(|bits| Pattern { mask: u32::MAX, bits: *bits }).collect()
            }
        }
    }

    /// Returns patterns that match exactly the values that are not allowed.
    ///
    /// libseccomp has no rule for "none of these values" that compares only 32 bits. So the values are taken as a
    /// binary tree, from the highest bit: for each bit of an allowed value, the values with the same higher bits
    /// and this bit inverted form a branch. A branch without an allowed value is one pattern.
    fn denied_patterns(self) -> BTreeSet<Pattern> {
        let set_bits = |bits: u32| (0..u32::BITS).map(|bit| 1 << bit).filter(move |bit| bits & bit != 0);
        match self {
            Self::Without(bits) => set_bits(bits).map(|bit| Pattern { mask: bit, bits: bit }).collect(),
            Self::OneOf(values) => {
                let branch = |value: u32, bit: u32| {
                    let mask = u32::MAX << bit;
                    Pattern { mask, bits: (value ^ 1 << bit) & mask }
                };
                let branches =
                    values.iter().flat_map(|value| (0..u32::BITS).map(move |bit| branch(*value, bit)));
                let allows_nothing =
                    |pattern: &Pattern| values.iter().all(|value| value & pattern.mask != pattern.bits);
                branches.filter(allows_nothing).collect()
            }
        }
    }
}

/// Returns the name of a system call in OCI profiles.
fn call_name(call: &(&'static str, impl Sized)) -> &'static str {
    call.0.trim_start_matches("SYS_")
}

/// Returns the rules of this file as a seccomp profile for OCI runtimes (`linux.seccomp` of their configuration).
pub fn profile() -> Value {
    let allowed: Vec<&str> = ALLOWED.iter().chain(ALLOWED_ON_X86_64).map(call_name).collect();
    let denied: Vec<&str> = DENIED.iter().chain(DENIED_ON_X86_64).map(call_name).collect();
    let mut rules = vec![
        json!({ "names": allowed, "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": denied, "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM }),
        // Docker uses EPERM as the default, whatever the profile says. `runc` makes calls fail with ENOSYS
        // that are newer than all named here.
        json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }),
    ];
    for (calls, values) in CHECKED {
        let names: Vec<&str> = calls.iter().map(call_name).collect();
        // "value" is the mask. Its upper half is zero, so that the upper half of the register is not
        // compared.
        let argument = |Pattern { mask, bits }| {
            let op = "SCMP_CMP_MASKED_EQ";
            json!([{ "index": 0, "op": op, "value": mask, "valueTwo": bits }])
        };
        let allow =
            |pattern| json!({ "names": names, "action": "SCMP_ACT_ALLOW", "args": argument(pattern) });
        let deny = |pattern| {
            let args = argument(pattern);
            json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM, "args": args })
        };
        rules.extend(values.allowed_patterns().into_iter().map(allow));
        rules.extend(values.denied_patterns().into_iter().map(deny));
    }
    let architecture = if cfg!(target_arch = "aarch64") { "SCMP_ARCH_AARCH64" } else { "SCMP_ARCH_X86_64" };
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": ENOSYS,
        "architectures": [architecture],
        "syscalls": rules,
    })
}
