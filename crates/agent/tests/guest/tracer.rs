//! Killing a process before a chosen system call.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::mpsc;
use std::thread::JoinHandle;

use libc::pid_t;

/// System calls that read or change files.
const FILE_CALLS: [c_long; 17] = [
    libc::SYS_openat,
    libc::SYS_fchmod,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_syncfs,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_readlinkat,
    libc::SYS_newfstatat,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_close,
];

/// Tracer of a process, which it kills before one of its file system calls. Only root may trace an agent.
pub(crate) struct Tracer {
    pid: pid_t,
    /// Thread that traces. Returns true if it killed the process.
    thread: JoinHandle<bool>,
}

impl Tracer {
    /// Traces a process, and kills it before its `number`-th file system call from now on, counted from 0.
    pub(crate) fn kill_at(pid: pid_t, number: usize) -> Self {
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut threads = Threads::seize(pid);
            ready.send(()).unwrap();
            threads.run(pid, number)
        });
        is_ready.recv().unwrap();
        Self { pid, thread }
    }

    /// Kills the process, if it still runs. Returns true if it was killed before a system call.
    pub(crate) fn finish(self) -> bool {
        // SAFETY: the process is traced, so its PID is not reused before the tracer has seen its end.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        self.thread.join().unwrap()
    }
}

/// Traced threads of a process.
struct Threads(BTreeSet<pid_t>);

impl Threads {
    fn seize(pid: pid_t) -> Self {
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let threads: BTreeSet<pid_t> =
            tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        for thread in &threads {
            // SAFETY: no memory is passed.
            let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, *thread, 0, c_long::from(options)) };
            assert_eq!(seized, 0, "{}", std::io::Error::last_os_error());
            // SAFETY: no memory is passed.
            unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, *thread, 0, 0) };
        }
        Self(threads)
    }

    /// Lets the threads run until the process has ended. Returns true if it was killed before a system call.
    fn run(&mut self, pid: pid_t, number: usize) -> bool {
        let (mut count, mut was_killed) = (0, false);
        while !self.0.is_empty() {
            let mut status = 0;
            // SAFETY: the status is valid for writing. `__WNOTHREAD` leaves children of other threads alone.
            let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            assert!(thread > 0, "{}", std::io::Error::last_os_error());
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.0.remove(&thread);
                continue;
            }
            // A new thread is reported when it stops for the first time.
            self.0.insert(thread);
            if is_system_call(status) && enters_file_call(thread) && !was_killed {
                was_killed = count == number;
                count += 1;
            }
            if was_killed {
                // SAFETY: the process is traced, so its PID is its own.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                continue;
            }
            let signal = c_long::from(signal_of(status));
            // SAFETY: no memory is passed.
            unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, signal) };
        }
        was_killed
    }
}

fn is_system_call(status: c_int) -> bool {
    libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80
}

/// Returns the signal that a thread was stopped for; 0 for an event of the tracer.
fn signal_of(status: c_int) -> c_int {
    match libc::WSTOPSIG(status) {
        signal if status >> 16 == 0 && !is_system_call(status) => signal,
        _ => 0,
    }
}

/// Returns true if a thread is about to make a system call of [`FILE_CALLS`].
fn enters_file_call(thread: pid_t) -> bool {
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: all fields are numbers, for which zeros are valid.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let place: *mut c_void = (&raw mut info).cast();
    // SAFETY: the place is valid for writing `size` bytes.
    let read = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO as c_uint, thread, size, place) };
    if read <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return false;
    }
    // SAFETY: `op` says that the field is set.
    let call = unsafe { info.u.entry.nr };
    FILE_CALLS.iter().any(|known| u64::try_from(*known).is_ok_and(|known| known == call))
}
