//! Tests of supervisors that run one command after the other.
//!
//! A supervisor is a process that starts the program of a command, and is its parent (`$PPID`). [`start`] of `plain`
//! starts an agent with its server, [`command`] returns a request to run a shell command, and [`assert_soon`] waits for
//! a condition.
//!
//! Supervisors exit when they are idle for a second, so a test on a busy machine may find another one. Such tests
//! try again until the same supervisor has both commands.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::v1::{CreatePtyRequest, RunCommandRequest};

use crate::plain::{CLOSE, assert_soon, command, start};
use crate::server::{CommandResult, TestServer};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = crate::trials![
        supervisor_of_an_ended_command_gets_the_next,
        supervisor_with_background_processes_gets_no_other_command,
        command_starts_though_idle_supervisors_were_killed,
        command_starts_though_idle_supervisors_were_stopped,
        program_that_no_supervisor_received_is_started_once,
        environment_and_directory_are_those_of_the_command,
        long_arguments_and_scripts_follow_short_commands,
        terminals_and_pipes_follow_each_other,
        limits_and_priority_of_a_supervisor_do_not_outlive_the_command,
        failed_starts_do_not_end_the_supervisor,
        idle_supervisors_exit,
    ];
    trials.extend(crate::trials_as_root!["may list the descriptors of the agent and its supervisors":
        many_commands_leave_no_descriptors,
    ]);
    trials
}

/// Returns the standard output of a command.
fn text(result: &CommandResult) -> String {
    String::from_utf8(result.output(Stream::Stdout)).unwrap()
}

/// Runs a command that prints the PID of its supervisor last, and returns that.
#[track_caller]
fn supervisor_of(server: &TestServer, request: RunCommandRequest) -> libc::pid_t {
    let result = server.run(request);
    assert_eq!((result.exit_code, result.failed.as_str()), (0, ""));
    text(&result).lines().last().unwrap().parse().unwrap()
}

/// Runs a command, and returns the PID of its supervisor.
fn supervisor(server: &TestServer) -> libc::pid_t {
    supervisor_of(server, command("echo $PPID"))
}

/// Repeats a pair of commands until one supervisor has both.
#[track_caller]
fn assert_reused(server: &TestServer, mut pair: impl FnMut(&TestServer) -> [libc::pid_t; 2]) {
    assert_soon("the supervisor is not reused", || {
        let [first, second] = pair(server);
        first == second
    });
}

/// Sends a signal to a supervisor.
fn send(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: the call takes integers. The process is the agent's child, and may have exited.
    unsafe { libc::kill(pid, signal) };
}

fn supervisor_of_an_ended_command_gets_the_next() {
    let server = start();
    assert_reused(&server, |server| [supervisor(server), supervisor(server)]);
}

fn supervisor_with_background_processes_gets_no_other_command() {
    let server = start();
    let started = server.run(command("setsid sleep 1000 >/dev/null 2>&1 & echo $! $PPID"));
    let printed = text(&started);
    let (orphan, first) = printed.trim().split_once(' ').unwrap();
    for _ in 0..5 {
        assert_ne!(supervisor(&server).to_string(), first);
    }
    // Killing the first command kills its processes, and none of another.
    let other = server.begin(command("echo started; sleep 1000"));
    assert_soon("the command does not start", || !server.output(&other).is_empty());
    server.kill(&started.id, libc::SIGKILL);
    let is_running = || fs::exists(format!("/proc/{orphan}/cwd")).unwrap();
    assert_soon("the background process is still running", || !is_running());
    server.kill(&started.id, libc::SIGKILL);
    // The other command does not read its input, so it keeps running when that is closed.
    let no_data = b"";
    server.input(&other, no_data, CLOSE);
    assert!(server.progress(&other).unwrap().end.is_none());
    server.kill(&other, libc::SIGTERM);
    assert_eq!(server.wait(&other).exit_code, 143);
}

fn command_starts_though_idle_supervisors_were_killed() {
    let server = start();
    for _ in 0..10 {
        let first = supervisor(&server);
        send(first, libc::SIGKILL);
        assert_ne!(supervisor(&server), first);
    }
}

fn command_starts_though_idle_supervisors_were_stopped() {
    let server = start();
    for _ in 0..10 {
        send(supervisor(&server), libc::SIGSTOP);
        supervisor(&server);
    }
}

/// A supervisor that is stopped all the time is killed with the program that it has not received.
fn program_that_no_supervisor_received_is_started_once() {
    let server = start();
    let home = tempfile::tempdir().unwrap();
    let starts = home.path().join("starts");
    let again = format!("echo start >> {}; cat; echo $PPID", starts.display());
    let was_lost = || {
        let first = supervisor(&server);
        let is_over = AtomicBool::new(false);
        let before = fs::read_to_string(&starts).unwrap_or_default().lines().count();
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    send(first, libc::SIGSTOP);
                }
            });
            let id = server.begin(RunCommandRequest { stdin: true, ..command(&again) });
            server.input(&id, b"input\n", CLOSE);
            std::thread::sleep(Duration::from_millis(50));
            send(first, libc::SIGKILL);
            is_over.store(true, Ordering::Relaxed);
            server.wait(&id)
        });
        let after = fs::read_to_string(&starts).unwrap_or_default().lines().count();
        assert!(after <= before + 1, "the program was started {} times", after - before);
        if result.exit_code != 0 {
            // It was started before, and killed with its supervisor.
            assert_eq!(result.exit_code, 137);
            return false;
        }
        assert_eq!(after, before + 1);
        let printed = text(&result);
        let (input, second) = printed.trim().split_once('\n').unwrap();
        assert_eq!(input, "input");
        second != first.to_string()
    };
    assert_soon("no supervisor was killed before it received the program", was_lost);
}

fn environment_and_directory_are_those_of_the_command() {
    let server = start();
    assert_reused(&server, |server| {
        let mut request = command("cd /; umask 077; echo $SECRET >&2; echo $PPID");
        request.envs.insert("SECRET".to_owned(), "of the first".to_owned());
        request.cwd = "/usr".to_owned();
        let first = supervisor_of(server, request);
        let result = server.run(command("env; pwd; umask; trap; echo $PPID"));
        let printed = text(&result);
        assert!(!printed.contains("SECRET") && !printed.contains("of the first"), "{printed}");
        assert!(printed.contains("\n/\n0022\n"), "{printed}");
        [first, printed.lines().last().unwrap().parse().unwrap()]
    });
}

fn long_arguments_and_scripts_follow_short_commands() {
    let server = start();
    for length in [60_000, 70_000, 120_000, 500_000] {
        supervisor(&server);
        let long = "x".repeat(length);
        let result = server.run(command(&format!("printf %s '{long}'; ls /proc/self/fd | wc -l >&2")));
        assert!(result.output(Stream::Stdout) == long.as_bytes(), "{length}");
        // `ls` has the standard streams, and the descriptor of the directory that it lists.
        assert_eq!(result.output(Stream::Stderr), b"4\n", "{length}");
    }
    // A command of 128 KiB or more is passed to its shell as a file in memory (a script, `script.rs`). The supervisor
    // receives its descriptor in addition to those of the streams.
    let padding = "#".repeat(200_000);
    assert_reused(&server, |server| {
        let first = supervisor(server);
        [first, supervisor_of(server, command(&format!("echo $PPID {padding}")))]
    });
}

/// Runs a command in a terminal, and returns the PID of its supervisor.
fn supervisor_of_terminal(server: &TestServer) -> libc::pid_t {
    let text = "test -t 0 && test -t 2 && stty size </dev/tty && echo $PPID".to_owned();
    let shell = "/bin/sh".to_owned();
    let request =
        CreatePtyRequest { command: text, shell, cols: 91, rows: 33, ..CreatePtyRequest::default() };
    let id = server.begin_terminal(CreatePtyRequest { cwd: "/".to_owned(), ..request });
    let result = server.wait(&id);
    let printed = String::from_utf8(result.output(Stream::Stdout)).unwrap();
    let (size, pid) = printed.trim().split_once("\r\n").unwrap();
    assert_eq!((result.exit_code, size), (0, "33 91"));
    pid.parse().unwrap()
}

fn terminals_and_pipes_follow_each_other() {
    let server = start();
    let without = || {
        // A process without a terminal cannot open that of its session.
        let text = "test ! -t 0 && ! (: </dev/tty) 2>/dev/null && echo $PPID";
        supervisor_of(&server, command(text))
    };
    assert_reused(&server, |server| [without(), supervisor_of_terminal(server)]);
    assert_reused(&server, |server| [supervisor_of_terminal(server), without()]);
    assert_reused(&server, |server| [supervisor_of_terminal(server), supervisor_of_terminal(server)]);
}

fn limits_and_priority_of_a_supervisor_do_not_outlive_the_command() {
    let server = start();
    let state = || {
        let result = server.run(command("ulimit -n; nice; cat /proc/self/oom_score_adj; echo $PPID"));
        let (state, pid) =
            text(&result).trim().rsplit_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        (state, pid)
    };
    let (expected, _) = state();
    for change in ["prlimit --pid $PPID --nofile=64:64", "renice -n 19 -p $PPID", "taskset -p 1 $PPID"] {
        let changed = server.run(command(&format!("{change} >/dev/null && echo $PPID")));
        assert_eq!(changed.exit_code, 0, "{change}");
        let changed = text(&changed);
        let (found, supervisor) = state();
        assert_eq!(found, expected, "{change}");
        // The affinity is the same on a machine with a single CPU.
        let is_single = std::thread::available_parallelism().unwrap().get() == 1;
        assert!(supervisor != changed.trim() || is_single, "{change}");
    }
}

fn failed_starts_do_not_end_the_supervisor() {
    let server = start();
    assert_reused(&server, |server| {
        let first = supervisor(server);
        let missing = RunCommandRequest { cwd: "/nowhere".to_owned(), ..command("true") };
        assert_eq!(server.run(missing).exit_code, 126);
        let argv = vec!["no-such-program".to_owned()];
        let failed = server.run(RunCommandRequest { argv, ..command("") });
        assert_eq!(failed.exit_code, 127);
        assert!(failed.failed.contains("No such file"), "{}", failed.failed);
        [first, supervisor(server)]
    });
}

fn idle_supervisors_exit() {
    let server = start();
    let ids: Vec<String> = (0..30).map(|_| server.begin(command("true"))).collect();
    for id in ids {
        assert_eq!(server.wait(&id).exit_code, 0);
    }
    assert_soon("idle supervisors are still running", || server.children().is_empty());
    let last = supervisor(&server);
    server.kill_guest();
    assert_soon("a supervisor outlives the agent", || !fs::exists(format!("/proc/{last}")).unwrap());
}

fn many_commands_leave_no_descriptors() {
    let server = start();
    let before = server.descriptors();
    for _ in 0..50 {
        let ids: Vec<String> = (0..20).map(|_| server.begin(command("true"))).collect();
        for id in ids {
            assert_eq!(server.wait(&id).exit_code, 0);
            // The agent keeps a command until then.
            server.forget(&id);
        }
    }
    assert_soon("an idle supervisor has descriptors", || {
        let last = supervisor(&server);
        // The only descriptor is the socket on which the supervisor receives its next program. Listing them fails if it
        // has exited.
        let open = fs::read_dir(format!("/proc/{last}/fd")).map(Iterator::count);
        open.is_ok_and(|open| open == 1)
    });
    assert_soon("descriptors were leaked", || server.descriptors() <= before);
}
