//! Process that supervises programs, one after the other.
//!
//! It is forked from the agent without an exec, so it has the agent's memory and must not be dumpable. It never returns
//! from this module.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd as _, RawFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use workspace_agent_protocol::scheduling::restore_time_slice;

use crate::command_seccomp::CommandSeccompFilter;
use crate::idle_supervisors::DESCRIPTORS_MAX;
use crate::path_search::search_and_execute;
use crate::privileges::Privileges;
use crate::program_image::ExecArguments;
use crate::program_start::{MESSAGE_MAX, Program, Report};
use crate::script::SCRIPT_FD;
use crate::user::User;

/// File descriptor of the report pipe. A supervisor has these descriptors: 0 to 2 are the standard streams, 3 is the
/// report pipe, 4 the script ([`SCRIPT_FD`], a number in the command line of the shell), and 5 the socket. The
/// descriptors of a message fill 0 to 4 in this order.
const REPORT_PIPE_FD: RawFd = SCRIPT_FD - 1;
/// File descriptor of the socket on which the supervisor receives its next program.
const SOCKET_FD: RawFd = SCRIPT_FD + 1;
/// Lowest number to which descriptors are moved before they get their final numbers.
const TEMPORARY_FD_MIN: RawFd = 16;

/// Descriptors that a new supervisor takes over, by their numbers in the agent.
pub(crate) struct Descriptors {
    /// Standard streams of the program.
    pub(crate) streams: [RawFd; 3],
    /// Pipe on which the supervisor reports.
    pub(crate) report_pipe: RawFd,
    /// Memfd with the text of a command that is too long for an argument (`script.rs`).
    pub(crate) script: Option<RawFd>,
    /// Socket for further programs; `None` if the supervisor exits after its first.
    pub(crate) socket: Option<RawFd>,
}

/// Supervises a program, and then those that arrive on the socket. `encoded` has the arguments, the environment, the
/// directory and the flags of the program (`program_image.rs`).
///
/// # Safety
///
/// The process must be forked from the agent, have a single thread, and own the descriptors.
pub(crate) unsafe fn run(program: &Program, encoded: &[u8], descriptors: &Descriptors) -> ! {
    // SAFETY: plain system calls with descriptors of this process.
    unsafe {
        let mut is_reusable = take_descriptors(descriptors) && descriptors.socket.is_some();
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        reset_signals();
        // The programs inherit the filter. It is applied once, here, because the kernel compiles it each time, which is
        // slow.
        if let Some(Err(error)) = program.seccomp_filter.map(CommandSeccompFilter::apply) {
            fail_start(error.raw_os_error().unwrap_or(libc::EINVAL));
        }
        let Some(exec) = ExecArguments::decode(encoded) else { fail_start(libc::EINVAL) };
        let Some(stack) = map_stack() else { fail_start(errno()) };
        let (user, privileges) = (program.user.as_ref(), program.privileges);
        let mut request = ExecRequest { exec: &exec, user, privileges };
        let program_pid = start_program(&mut request, stack);
        // A supervisor needs no capabilities to wait, and its next programs run as the user of the agent, without any.
        is_reusable &= program.privileges.drop_all().is_ok();
        wait_for_all(program_pid, is_reusable);
        if is_reusable {
            run_next_programs(stack);
        }
        libc::_exit(0)
    }
}

/// Supervises the programs that arrive on the socket.
unsafe fn run_next_programs(stack: *mut libc::c_void) {
    let mut buffer = vec![0; MESSAGE_MAX];
    while let Some(len) = receive_program(&mut buffer) {
        let Some(exec) = ExecArguments::decode(&buffer[..len]) else { return };
        let mut request = ExecRequest { exec: &exec, user: None, privileges: Privileges::default() };
        // SAFETY: the descriptors of the program have the expected numbers, the stack is not in use, and the buffer is
        // valid for its length.
        unsafe {
            let program_pid = start_program(&mut request, stack);
            drop(exec);
            // The environment may contain secrets, and the supervisor lives on.
            libc::explicit_bzero(buffer.as_mut_ptr().cast(), len);
            wait_for_all(program_pid, true);
        }
    }
}

/// Moves the descriptors to their numbers and closes all others. Returns false if some may still be open. If the limit
/// on descriptors leaves no numbers for the move, reports that the program could not be started, and exits: the program
/// would get the standard streams of the agent.
unsafe fn take_descriptors(descriptors: &Descriptors) -> bool {
    let Descriptors { streams, report_pipe, script, socket } = descriptors;
    // SAFETY: plain system calls with descriptors of this process.
    unsafe {
        // Moved to other numbers first: a descriptor may have a number that is the target of another.
        let move_up = |fd: RawFd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, TEMPORARY_FD_MIN);
        let original_report_pipe = *report_pipe;
        let (streams, report_pipe) = (streams.map(move_up), move_up(*report_pipe));
        let (script, socket) = (script.map(move_up), socket.map(move_up));
        if streams.into_iter().chain([report_pipe]).chain(script).chain(socket).any(|fd| fd < 0) {
            write_report(original_report_pipe, &Report::ExecFailed(errno()).encode());
            libc::_exit(1);
        }
        // These calls do not fail: the descriptors are open, and the numbers are below the limit.
        for (target, fd) in streams.into_iter().enumerate() {
            libc::dup2(fd, target as c_int);
        }
        libc::dup3(report_pipe, REPORT_PIPE_FD, libc::O_CLOEXEC);
        match script {
            Some(fd) => libc::dup2(fd, SCRIPT_FD),
            None => libc::close(SCRIPT_FD),
        };
        match socket {
            Some(fd) => libc::dup3(fd, SOCKET_FD, libc::O_CLOEXEC),
            None => libc::close(SOCKET_FD),
        };
        libc::close_range(SOCKET_FD as u32 + 1, u32::MAX, 0) == 0
    }
}

/// Waits for the next program, and takes its descriptors. Returns the length of the message; `None` if the agent has
/// closed the socket, if none arrives within the receive timeout that the agent has set on it, or if the message is not
/// complete. The agent sees that the report pipe is closed without a report, and starts the program under a new
/// supervisor.
fn receive_program(buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: this descriptor is open as long as the process.
    let socket = unsafe { BorrowedFd::borrow_raw(SOCKET_FD) };
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut buffers = [io::IoSliceMut::new(buffer)];
        match recvmsg(socket, &mut buffers, &mut control, RecvFlags::empty()) {
            // SIGSTOP and SIGCONT interrupt a receive with a timeout.
            Err(Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    let mut count = 0;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for descriptor in descriptors {
                // The numbers from 0 to 4 are free, and the kernel uses the lowest ones first, so each descriptor has
                // its number (see `REPORT_PIPE_FD`).
                if descriptor.into_raw_fd() != count {
                    return None;
                }
                count += 1;
            }
        }
    }
    let is_complete = !received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    // SAFETY: the descriptor is the report pipe of the program.
    let is_cloexec = unsafe { libc::fcntl(REPORT_PIPE_FD, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    (is_complete && is_cloexec && count > REPORT_PIPE_FD).then_some(received.bytes)
}

/// Input of the child for its `execve`.
struct ExecRequest<'a> {
    exec: &'a ExecArguments<'a>,
    /// User that runs the program; `None` for the user of the supervisor.
    user: Option<&'a User>,
    /// See [`Program::privileges`].
    privileges: Privileges,
}

impl ExecRequest<'_> {
    /// Switches to the user of the program.
    fn switch_user(&self) -> io::Result<()> {
        match self.user {
            Some(user) => user.switch_to(),
            None => self.privileges.drop_all(),
        }
    }
}

/// Size of the stack of the child until its `execve`, in bytes.
const STACK_SIZE: usize = 64 << 10;

/// Allocates the stack of the child until its `execve`. Returns its upper end; `None` if there is no memory.
unsafe fn map_stack() -> Option<*mut libc::c_void> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the address of new memory. The result is one past the end of the mapping, which a
    // pointer may be.
    unsafe {
        let stack = libc::mmap(std::ptr::null_mut(), STACK_SIZE, protection, flags, -1, 0);
        (stack != libc::MAP_FAILED).then(|| stack.byte_add(STACK_SIZE))
    }
}

/// Reports that the program could not be started, and exits.
unsafe fn fail_start(errno: i32) -> ! {
    report(Report::ExecFailed(errno));
    // SAFETY: the call ends the process.
    unsafe { libc::_exit(1) }
}

/// Starts a child that executes the program. As after `vfork`, the child shares the memory of the supervisor, which is
/// suspended until the child has called `execve` or exited: copying the page tables would take a fifth of the time of a
/// short command. Returns the PID of the child.
unsafe fn start_program(request: &mut ExecRequest<'_>, stack: *mut libc::c_void) -> libc::pid_t {
    extern "C" fn run(request: *mut libc::c_void) -> c_int {
        // SAFETY: the supervisor passes a pointer to a value that outlives the child's use of it.
        unsafe { execute_program(&*request.cast::<ExecRequest<'_>>()) }
    }
    // SAFETY: the stack grows downwards from its end. The supervisor continues only when the child has executed the
    // program or exited, so they never use the memory at the same time.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(run, stack, flags, (&raw mut *request).cast())
    };
    if pid < 0 {
        // SAFETY: the call ends the process.
        unsafe { fail_start(errno()) }
    }
    pid
}

/// Resets signal handlers and the signal mask, which are inherited from the agent.
///
/// # Safety
///
/// The process must be forked from the agent.
pub(crate) unsafe fn reset_signals() {
    // SAFETY: the calls change only the signal handling of this process, with a mask initialised here.
    unsafe {
        for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Executes the program in this process. It must not allocate: its memory is that of the supervisor, which would never
/// free it.
unsafe fn execute_program(request: &ExecRequest<'_>) -> ! {
    let exec = request.exec;
    // SAFETY: the strings are NUL-terminated, and the arrays end with a null pointer.
    unsafe {
        // Reported by this process and not by the supervisor, so that it is the first report.
        report(Report::Forked(libc::getpid()));
        if exec.has_terminal {
            libc::setsid();
            // Makes it the controlling terminal, for example for Ctrl-C. Fails if the terminal already is the
            // controlling terminal of another session, which would then receive the input.
            if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                report(Report::ExecFailed(errno()));
                libc::_exit(127);
            }
        } else {
            // No session of its own: without cgroups, Linux divides CPU time between sessions
            // (`sched_autogroup_enabled`), so all commands of a sandbox stay in the session of its agent. A new
            // session would also have to wait for a scheduler tick before it runs.
            libc::setpgid(0, 0);
        }
        if let Err(error) = request.switch_user() {
            report(Report::ExecFailed(error.raw_os_error().unwrap_or(libc::EPERM)));
            libc::_exit(127);
        }
        if libc::chdir(exec.directory.as_ptr()) != 0 {
            report(Report::ChdirFailed(errno()));
            libc::_exit(126);
        }
        // The process inherited the short time slice of the agent.
        drop(restore_time_slice());
        let errno = if exec.needs_path_lookup {
            search_and_execute(exec.name, exec.path, |file| execute(file, exec))
        } else {
            execute(exec.name, exec)
        };
        report(Report::ExecFailed(errno));
        libc::_exit(127)
    }
}

/// Executes a file. Returns the error number, since it returns only on failure.
unsafe fn execute(file: &CStr, exec: &ExecArguments<'_>) -> i32 {
    // SAFETY: the pointers are those of NUL-terminated strings, and the arrays end with a null pointer.
    unsafe { libc::execve(file.as_ptr(), exec.arguments.as_ptr(), exec.environment.as_ptr()) };
    errno()
}

/// Reaps descendants until none is left, and reports the exit of the program. A supervisor that is reused reports that
/// it is idle, and has none of the program's descriptors any more.
unsafe fn wait_for_all(program_pid: libc::pid_t, is_reusable: bool) {
    let idle = is_reusable.then_some(Report::Idle);
    // SAFETY: the descriptors belong to this process; open copies would keep the command's pipes open.
    unsafe {
        for fd in [0, 1, 2, SCRIPT_FD] {
            libc::close(fd);
        }
        loop {
            let mut status = 0;
            let pid = libc::waitpid(-1, &raw mut status, libc::__WALL);
            if pid == program_pid {
                let exited = Report::Exited(exit_code(status));
                match idle {
                    // Both are reported with one write, so that the agent wakes up once.
                    Some(idle) if !has_children() => {
                        report_both(exited, idle);
                        break;
                    }
                    _ => report(exited),
                }
            } else if pid < 0 && errno() == libc::ECHILD {
                idle.into_iter().for_each(report);
                break;
            }
        }
        libc::close(REPORT_PIPE_FD);
    }
}

/// Returns true if a child runs or is not reaped.
unsafe fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the kernel accepts a null pointer if the information is not needed.
    unsafe { libc::syscall(libc::SYS_waitid, libc::P_ALL, 0, std::ptr::null_mut::<u8>(), flags, 0) == 0 }
}

fn exit_code(status: c_int) -> i32 {
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

fn report(report: Report) {
    write_report(REPORT_PIPE_FD, &report.encode());
}

fn report_both(first: Report, second: Report) {
    write_report(REPORT_PIPE_FD, [first.encode(), second.encode()].as_flattened());
}

fn write_report(pipe: RawFd, bytes: &[u8]) {
    // SAFETY: the buffer is valid for its length. A write to a pipe of so few bytes is atomic.
    unsafe { libc::write(pipe, bytes.as_ptr().cast(), bytes.len()) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;
    use crate::program_start::REPORT_LEN;

    #[test]
    fn a_supervisor_that_is_short_of_descriptors_starts_nothing() {
        let (agent, supervisor) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let descriptors = Descriptors {
            streams: [0, 1, 2],
            report_pipe: supervisor.as_raw_fd(),
            script: None,
            socket: None,
        };
        // One descriptor can be moved at most.
        let max = TEMPORARY_FD_MIN as libc::rlim_t + 1;
        let limit = libc::rlimit { rlim_cur: max, rlim_max: max };
        // SAFETY: the child only makes system calls, which is allowed in the fork of a process with several threads.
        let pid = unsafe {
            match libc::fork() {
                0 => {
                    libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                    take_descriptors(&descriptors);
                    libc::_exit(0)
                }
                pid => pid,
            }
        };
        assert!(pid > 0);
        drop(supervisor);
        let mut bytes = [0; REPORT_LEN];
        assert_eq!(rustix::io::read(&agent, &mut bytes[..]), Ok(REPORT_LEN));
        assert_eq!(Report::decode(bytes), Some(Report::ExecFailed(libc::EMFILE)));
        let mut status = 0;
        // SAFETY: the pointer is valid, and the child is that of this test.
        let reaped = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(reaped, pid);
        assert_eq!(exit_code(status), 1);
    }
}
