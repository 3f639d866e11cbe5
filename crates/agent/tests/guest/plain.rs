//! Tests of the agent as an ordinary process. [`TestServer`] is its server: `run` starts a command and waits for its
//! result, and `begin` returns its id at once.
//!
//! Also helpers for other tests: [`start`] (an agent with its server), [`command`] (a request to run a shell command)
//! and [`assert_soon`].

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::v1::{CreatePtyRequest, RunCommandRequest};

use crate::server::{CommandResult, Guest, SANDBOX, TestServer};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = crate::trials![
        command_output_and_exit_code_are_reported,
        death_by_signal_is_128_plus_n,
        commands_get_cwd_and_env_but_not_the_token,
        missing_directory_is_reported,
        arguments_reach_the_program_unchanged,
        program_is_searched_in_the_path_of_the_command,
        program_that_cannot_be_executed_is_reported,
        pid_of_the_program_is_reported,
        timeout_kills_all_descendants,
        suspended_timeout_does_not_advance,
        nothing_is_started_while_timers_are_suspended,
        kill_leaves_no_processes,
        commands_have_own_groups_in_one_session,
        background_processes_do_not_delay_the_exit,
        input_and_end_of_file_reach_the_command,
        bursts_of_requests_are_not_lost,
        unread_input_is_counted_and_bounded,
        signal_reaches_a_command_that_just_started,
        restarted_server_receives_all_progress,
        wrong_token_is_rejected,
        killing_a_supervisor_kills_its_command,
        large_output_is_complete_or_truncated_to_the_limit,
        duplicate_or_invalid_ids_are_rejected,
        output_flood_does_not_starve_other_events,
        terminal_behaves_like_a_tty,
        terminal_survives_a_server_restart,
    ];
    trials.extend(crate::trials_as_root!["may list the descriptors of the agent":
        short_commands_leak_no_descriptors,
        forgotten_background_processes_can_be_killed,
    ]);
    trials
}

/// Last argument of [`TestServer::input`]: more input may follow.
pub(crate) const KEEP_OPEN: bool = false;
/// Last argument of [`TestServer::input`]: the standard input is closed after the data.
pub(crate) const CLOSE: bool = true;

/// Process of an agent without a sandbox, which is killed on drop.
pub(crate) struct Agent(pub(crate) Child);

impl Guest for Agent {
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a server and an agent as an ordinary process of this user, and waits until it is connected.
pub(crate) fn start() -> TestServer {
    TestServer::start_as(start_agent)
}

/// Starts an agent that gets the token from a pipe and the directory of output files as a descriptor.
fn start_agent(home: &Path, token: &[u8]) -> Box<dyn Guest + Send> {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(token).unwrap();
    drop(writer);
    let output = File::open(home.join("output")).unwrap();
    let (token_fd, output_fd) = (reader.as_raw_fd(), output.as_raw_fd());
    let mut command = Command::new(env!("CARGO_BIN_EXE_workspace-agent"));
    command
        .args(["--sandbox", SANDBOX, "--socket"])
        .arg(home.join("sockets/agent.sock"))
        .args(["--token-fd", &token_fd.to_string(), "--output-fd", &output_fd.to_string()])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    // The descriptors keep their numbers. `dup2` of a descriptor onto itself would not clear close-on-exec.
    // SAFETY: between fork and exec only flags of descriptors change.
    unsafe {
        command.pre_exec(move || {
            for fd in [token_fd, output_fd] {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Box::new(Agent(command.spawn().unwrap()))
}

/// Returns a request to run a shell command in `/`. It has no id, so [`TestServer::begin`] gives it a new one.
pub(crate) fn command(text: &str) -> RunCommandRequest {
    RunCommandRequest { command: text.to_owned(), cwd: "/".to_owned(), ..RunCommandRequest::default() }
}

/// Returns the command lines that contain `mark`.
fn running(mark: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let line = |path: &Path| fs::read(path.join("cmdline")).ok();
    processes
        .filter_map(|entry| line(&entry.path()))
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(mark))
        .collect()
}

/// Waits until `check` returns true. Panics with the message `what` after 20 seconds.
#[track_caller]
pub(crate) fn assert_soon(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn command_output_and_exit_code_are_reported() {
    let server = start();
    let result = server.run(command("echo out; echo err >&2; exit 3"));
    assert_eq!((result.exit_code, result.timed_out), (3, false));
    assert_eq!(result.output(Stream::Stdout), b"out\n");
    assert_eq!(result.output(Stream::Stderr), b"err\n");
}

fn death_by_signal_is_128_plus_n() {
    let server = start();
    assert_eq!(server.run(command("kill -9 $$")).exit_code, 137);
}

fn commands_get_cwd_and_env_but_not_the_token() {
    let server = start();
    let mut request =
        command("pwd; echo $GREETING; env; ls -l /proc/self/fd /proc/$PPID/fd 2>&1; cat /proc/*/environ");
    request.cwd = "/usr".to_owned();
    request.envs.insert("GREETING".to_owned(), "a $(b) 'c'".to_owned());
    let out = String::from_utf8_lossy(&server.run(request).output(Stream::Stdout)).into_owned();
    assert!(out.starts_with("/usr\na $(b) 'c'\n"), "{out}");
    assert!(!out.contains(&server.token_text()), "{out}");
}

fn missing_directory_is_reported() {
    let server = start();
    let mut request = command("true");
    request.cwd = "/nowhere".to_owned();
    let result = server.run(request);
    assert_eq!(result.exit_code, 126);
    assert!(result.failed.contains("/nowhere"), "{}", result.failed);
}

fn arguments(argv: &[&str]) -> RunCommandRequest {
    let argv = argv.iter().map(|&argument| argument.to_owned()).collect();
    RunCommandRequest { argv, cwd: "/".to_owned(), ..RunCommandRequest::default() }
}

fn arguments_reach_the_program_unchanged() {
    let server = start();
    let given = ["", "two words", "'\"$HOME\\ *", "line\nbreak", "-n", "ä", "", &"x".repeat(100_000)];
    let result = server.run(arguments(&[&["printf", "<%s>"], given.as_slice()].concat()));
    assert_eq!((result.exit_code, result.failed.as_str()), (0, ""));
    let expected: String = given.iter().map(|argument| format!("<{argument}>")).collect();
    assert_eq!(String::from_utf8(result.output(Stream::Stdout)).unwrap(), expected);
}

fn program_is_searched_in_the_path_of_the_command() {
    let server = start();
    let home = tempfile::tempdir().unwrap();
    for (directory, mode) in [("denied", 0o644), ("allowed", 0o755)] {
        let directory = home.path().join(directory);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("tool"), "#!/bin/sh\necho \"$0 $1\"\n").unwrap();
        fs::set_permissions(directory.join("tool"), fs::Permissions::from_mode(mode)).unwrap();
    }
    let with_path = |name: &str, path: &str| {
        let mut request = arguments(&[name, "x"]);
        request.envs.insert("PATH".to_owned(), path.to_owned());
        request.cwd = home.path().to_str().unwrap().to_owned();
        server.run(request)
    };
    let home_text = home.path().display();
    let found = with_path("tool", &format!("/nowhere:{home_text}/denied:{home_text}/allowed"));
    assert_eq!(found.output(Stream::Stdout), format!("{home_text}/allowed/tool x\n").into_bytes());
    assert_eq!(with_path("allowed/tool", "/nowhere").output(Stream::Stdout), b"allowed/tool x\n");
    let denied = with_path("tool", &format!("{home_text}/denied:/nowhere"));
    assert_eq!(denied.exit_code, 127);
    assert!(denied.failed.contains("Permission denied"), "{}", denied.failed);
    let hidden = with_path("printf", "/nowhere");
    assert!(hidden.failed.contains("No such file"), "{}", hidden.failed);
}

fn program_that_cannot_be_executed_is_reported() {
    let server = start();
    for name in ["no-such-program", "/nowhere/program", "echo hello", "/etc"] {
        let result = server.run(arguments(&[name, "x"]));
        assert_eq!((result.exit_code, result.output(Stream::Stdout)), (127, Vec::new()), "{name}");
        assert!(result.failed.contains(name), "{}", result.failed);
    }
    let home = tempfile::tempdir().unwrap();
    let text = home.path().join("text");
    fs::write(&text, "echo hello\n").unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    let result = server.run(arguments(&[text.to_str().unwrap()]));
    assert_eq!((result.exit_code, result.output(Stream::Stdout)), (127, Vec::new()), "no shell runs it");
}

fn pid_of_the_program_is_reported() {
    let server = start();
    let printed = |id: &str| String::from_utf8(server.output(id)).unwrap().trim().to_owned();
    let result = server.run(command("echo $$"));
    assert_eq!(server.progress(&result.id).unwrap().pid.to_string(), printed(&result.id));
    // Without any output, it is reported, too.
    let id = server.begin(arguments(&["sleep", "1000"]));
    assert_soon("the PID is not reported", || server.progress(&id).is_some_and(|progress| progress.pid > 0));
    let pid = server.progress(&id).unwrap().pid;
    assert_soon("the PID is of another program", || {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x001000\0")
    });
    server.kill(&id, libc::SIGKILL);
    assert_eq!(server.wait(&id).exit_code, 137);
    assert_eq!(server.progress(&id).unwrap().pid, pid);
}

fn timeout_kills_all_descendants() {
    let server = start();
    let mark = format!("3{}", std::process::id());
    // One process ignores SIGTERM, one has left session and parent.
    let text = format!(
        "trap '' TERM; (setsid sleep {mark} &) ; sh -c 'trap \"\" TERM; sleep {mark}.5' & wait; sleep {mark}"
    );
    let mut request = command(&text);
    request.timeout_ms = 300;
    let result = server.run(request);
    assert!(result.timed_out);
    assert_ne!(result.exit_code, 0);
    assert_soon("processes of the command are still running", || running(&mark).is_empty());
}

fn suspended_timeout_does_not_advance() {
    let server = start();
    let begin = |text: &str| {
        let mut request = command(text);
        request.cwd = server.home().to_str().unwrap().to_owned();
        request.timeout_ms = 1_000;
        server.begin(request)
    };
    let (short, long) = (begin("while [ ! -e end ]; do sleep 0.01; done"), begin("sleep 1000"));
    server.suspend_timers(true);
    // Twice their timeout.
    std::thread::sleep(Duration::from_secs(2));
    fs::write(server.home().join("end"), "").unwrap();
    assert!(!server.wait(&short).timed_out);
    assert!(server.progress(&long).is_none_or(|progress| progress.end.is_none()));
    server.suspend_timers(false);
    assert!(server.wait(&long).timed_out);
}

fn nothing_is_started_while_timers_are_suspended() {
    let server = start();
    server.suspend_timers(true);
    let request = |id: &str| RunCommandRequest { command_id: id.to_owned(), ..command("true") };
    assert_eq!(server.refused(request("cmd-paused")), "the sandbox is paused");
    server.suspend_timers(false);
    // The same id may be used again, because the command never began.
    assert_eq!(server.run(request("cmd-paused")).exit_code, 0);
}

fn kill_leaves_no_processes() {
    let server = start();
    let mark = format!("4{}", std::process::id());
    let text = format!("setsid setsid sh -c 'while :; do sleep {mark} & sleep 0.01; done' & sleep {mark}");
    let id = server.begin(command(&text));
    assert_soon("the command never started", || running(&mark).len() > 3);
    server.kill(&id, 9);
    assert_eq!(server.wait(&id).exit_code, 137);
    assert_soon("processes of the command are still running", || running(&mark).is_empty());
}

fn commands_have_own_groups_in_one_session() {
    let server = start();
    let ids = [0, 1].map(|_| {
        let id = server.begin(command("cut -d ' ' -f 5,6 /proc/self/stat"));
        assert_eq!(server.wait(&id).exit_code, 0);
        let numbers = String::from_utf8(server.output(&id)).unwrap();
        let (group, session) = numbers.trim().split_once(' ').unwrap();
        (group.to_owned(), session.to_owned())
    });
    let [(first, session), (second, same)] = ids;
    assert_eq!(session, same);
    assert_ne!(first, second);
    assert!(first != session && second != session, "{first} {second} {session}");
}

fn background_processes_do_not_delay_the_exit() {
    let server = start();
    let mark = format!("5{}", std::process::id());
    let go = std::env::temp_dir().join(format!("workspace-go-{mark}"));
    let background =
        format!("(until [ -e {} ]; do sleep 0.05; done; echo late; exec sleep {mark})", go.display());
    // It would never exit if it waited for its background processes.
    let result = server.run(command(&format!("{background} & echo first")));
    assert_eq!((result.exit_code, result.output(Stream::Stdout)), (0, b"first\n".to_vec()));
    fs::write(&go, "").unwrap();
    assert_soon("later output is not kept", || server.output(&result.id).ends_with(b"late\n"));
    assert!(!running(&mark).is_empty());
    server.kill(&result.id, 9);
    assert_soon("background processes were not killed", || running(&mark).is_empty());
    fs::remove_file(&go).unwrap();
}

fn input_and_end_of_file_reach_the_command() {
    let server = start();
    let mut request = command("tr a-z A-Z");
    request.stdin = true;
    let id = server.begin(request);
    let text = "abc ".repeat(100_000);
    for part in text.as_bytes().chunks(10_000) {
        server.input(&id, part, KEEP_OPEN);
    }
    server.input(&id, b"", CLOSE);
    let result = server.wait(&id);
    assert_eq!(result.exit_code, 0);
    assert!(result.output(Stream::Stdout) == text.to_uppercase().into_bytes());
    // Without standard input, a program reads end-of-file immediately.
    assert_eq!(server.run(command("cat; echo done")).output(Stream::Stdout), b"done\n");
}

fn bursts_of_requests_are_not_lost() {
    let server = start();
    let id = server.begin(RunCommandRequest { stdin: true, ..command("cat | wc -c") });
    for _ in 0..1_000 {
        server.input(&id, b"0123456789", KEEP_OPEN);
    }
    server.input(&id, b"", CLOSE);
    assert_eq!(server.wait(&id).output(Stream::Stdout), b"10000\n");
}

fn unread_input_is_counted_and_bounded() {
    let server = start();
    let id = server.begin(RunCommandRequest { stdin: true, ..command("sleep 1000") });
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..20 {
        server.input(&id, &piece, KEEP_OPEN);
    }
    assert_soon("the guest does not count the input", || {
        server.progress(&id).is_some_and(|progress| progress.input_received == 20 << 20)
    });
    let progress = server.progress(&id).unwrap();
    let waiting = progress.input_received - progress.input_taken;
    assert!(waiting <= 4 << 20, "{waiting} bytes are buffered");
    assert!(!progress.input_closed);
    server.kill(&id, libc::SIGKILL);
    assert_eq!(server.wait_for_exit(&id), 137);
}

fn signal_reaches_a_command_that_just_started() {
    let server = start();
    for _ in 0..20 {
        let id = server.begin(command("sleep 1000"));
        server.kill(&id, libc::SIGTERM);
        assert_eq!(server.wait_for_exit(&id), 143);
    }
}

fn restarted_server_receives_all_progress() {
    let mut server = start();
    let id = server.begin(command("for i in $(seq 30); do echo line $i; sleep 0.02; done; exit 7"));
    let quick = server.run(command("echo quick"));
    server.restart_server(Duration::from_millis(300));
    let result = server.wait(&id);
    assert_eq!(result.exit_code, 7);
    let expected: String = (1..=30).map(|number| format!("line {number}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&result.output(Stream::Stdout)), expected);
    assert_eq!(server.wait(&quick.id).exit_code, 0, "reported again until it is acknowledged");
    server.forget(&quick.id);
    // Requests are handled in order, so the previous one is done.
    server.run(command("true"));
    server.restart_server(Duration::ZERO);
    assert!(!server.knows(&quick.id), "not reported again after that");
    assert_eq!(server.run(command("echo more")).output(Stream::Stdout), b"more\n");
}

fn wrong_token_is_rejected() {
    let server = TestServer::with_token(b"wrong", start_agent);
    assert_soon("the guest never tried to connect", || server.refusals() > 2);
    assert_eq!(server.connections(), 0);
}

fn killing_a_supervisor_kills_its_command() {
    let server = start();
    let mark = format!("6{}", std::process::id());
    let CommandResult { exit_code, .. } =
        server.run(command(&format!("setsid sleep {mark} & kill -9 $PPID; sleep {mark}")));
    assert_eq!(exit_code, 137);
    assert_soon("processes of the command are still running", || running(&mark).is_empty());
    assert_eq!(server.run(command("echo alive")).output(Stream::Stdout), b"alive\n");
}

fn large_output_is_complete_or_truncated_to_the_limit() {
    let server = start();
    let mut request = command("seq 300000");
    request.keep_output = 64 << 20;
    let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(server.run(request).output(Stream::Stdout) == expected.as_bytes());
    let mut request = command("seq 300000; echo the end");
    request.keep_output = 100_000;
    let result = server.run(request);
    assert!(result.output(Stream::Stdout).ends_with(b"300000\nthe end\n"));
    assert!(result.output(Stream::Stdout).len() < 400_000);
}

fn short_commands_leak_no_descriptors() {
    let server = start();
    let before = server.descriptors();
    for round in 0..10 {
        let ids: Vec<String> =
            (0..20).map(|number| server.begin(command(&format!("echo {round} {number}")))).collect();
        for id in ids {
            assert_eq!(server.wait(&id).exit_code, 0);
            server.forget(&id);
        }
    }
    assert_soon("descriptors were leaked", || server.descriptors() <= before);
    // An idle supervisor exits after a second.
    assert_soon("supervisors are still running", || server.children().is_empty());
}

fn duplicate_or_invalid_ids_are_rejected() {
    let server = start();
    let id = server.begin(command("sleep 0.2"));
    let mut again = command("true");
    again.command_id = id.clone();
    assert!(server.refused(again).contains(&id));
    for bad in ["../x", "a/b", ""] {
        let mut request = command("true");
        request.command_id = bad.to_owned();
        assert!(!server.refused(request).is_empty());
    }
}

#[track_caller]
fn assert_prints(server: &TestServer, id: &str, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let output = String::from_utf8_lossy(&server.output(id)).into_owned();
        if output.contains(text) {
            return;
        }
        assert!(Instant::now() < deadline, "no `{text}` in: {output}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn terminal(shell: &str) -> CreatePtyRequest {
    CreatePtyRequest {
        cols: 91,
        rows: 33,
        shell: shell.to_owned(),
        cwd: "/usr".to_owned(),
        envs: [("PS1".to_owned(), "> ".to_owned())].into(),
        ..CreatePtyRequest::default()
    }
}

fn terminal_behaves_like_a_tty() {
    let server = start();
    // This shell does not exist, so another one is used.
    let id = server.begin_terminal(terminal("/bin/no-such-shell"));
    server.type_in(&id, "stty size; pwd; test -t 0 && echo is a $TERM\n");
    assert_prints(&server, &id, "33 91\r\n/usr\r\n");
    assert_prints(&server, &id, "is a xterm-256color\r\n");
    server.resize(&id, 132, 43);
    server.type_in(&id, "stty size\n");
    assert_prints(&server, &id, "43 132\r\n");
    // Ctrl-C goes to the foreground process.
    server.type_in(&id, "sleep 1000; echo ended with $?\n");
    std::thread::sleep(Duration::from_millis(100));
    server.type_in(&id, "\u{3}");
    server.type_in(&id, "echo still here: $((6 * 7))\n");
    assert_prints(&server, &id, "still here: 42\r\n");
    server.type_in(&id, "exit 9\n");
    assert_eq!(server.wait(&id).exit_code, 9);
}

fn terminal_survives_a_server_restart() {
    let mut server = start();
    let id = server.begin_terminal(terminal("/bin/sh"));
    server.type_in(&id, "(sleep 0.2; echo while you were away: $((5 * 5))) &\n");
    assert_prints(&server, &id, "while");
    server.restart_server(Duration::from_millis(400));
    assert_prints(&server, &id, "while you were away: 25\r\n");
    server.type_in(&id, "echo back: $((3 * 3))\n");
    assert_prints(&server, &id, "back: 9\r\n");
    server.kill_terminal(&id);
    assert_eq!(server.wait(&id).exit_code, 137);
}

fn output_flood_does_not_starve_other_events() {
    let server = start();
    let mut request = command("yes & yes error >&2 & wait");
    request.timeout_ms = 300;
    // Enough that the beginning of neither stream is dropped.
    request.keep_output = 64 << 20;
    let result = server.run(request);
    assert!(result.timed_out);
    assert!(!result.output(Stream::Stdout).is_empty() && !result.output(Stream::Stderr).is_empty());
    // The exit of a command with a background process is reported, and the process can be killed.
    let mut request = command("yes & exit 4");
    request.keep_output = 1 << 20;
    let id = server.begin(request);
    assert_eq!(server.wait_for_exit(&id), 4);
    server.kill(&id, 9);
    assert_soon("processes are still running", || server.children().is_empty());
}

fn forgotten_background_processes_can_be_killed() {
    let server = start();
    let before = server.descriptors();
    let result = server.run(command("sleep 1000 & echo started"));
    server.forget(&result.id);
    server.run(command("true"));
    // The supervisor of `sleep` is left; idle supervisors are there for a second.
    assert!(!server.children().is_empty());
    server.kill(&result.id, 9);
    assert_soon("processes are still running", || server.children().is_empty());
    for _ in 0..20 {
        // The acknowledgement may arrive while the command still has its supervisor, or after that.
        let result = server.run(command("true"));
        server.forget(&result.id);
    }
    assert_soon("descriptors were leaked", || server.descriptors() <= before);
}
