//! The agent as an ordinary process.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::v1::{CreatePtyRequest, RunCommandRequest};

use crate::server::{Bench, Ended, Guest, SANDBOX};

/// These tests.
pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_command_prints_and_ends,
        a_signal_is_told_as_shells_do,
        directory_and_variables_are_those_asked_for_and_the_token_is_nowhere,
        a_directory_that_is_not_there_is_said_so,
        a_command_out_of_time_ends_with_everything_it_started,
        a_killed_command_leaves_nothing_behind,
        commands_have_a_group_each_and_one_session,
        what_a_command_leaves_in_the_background_goes_on_and_holds_nobody_up,
        input_reaches_the_command_and_its_end_too,
        every_order_arrives_however_many_come_at_once,
        input_that_nobody_reads_is_counted_and_bounded,
        a_signal_reaches_a_command_that_was_started_just_now,
        a_server_that_comes_back_hears_of_everything,
        a_guest_with_another_token_is_refused_and_does_nothing,
        whoever_kills_a_supervisor_kills_the_command_with_it,
        much_output_comes_whole_and_little_of_it_is_kept,
        many_short_commands_leave_nothing_open,
        an_id_that_is_taken_or_leads_elsewhere_is_refused,
        a_flood_of_output_holds_nothing_else_up,
        what_was_forgotten_and_runs_on_can_still_be_killed,
        a_terminal_is_one,
        a_terminal_survives_the_server_and_can_be_killed,
    ]
}

/// Ends with the test.
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

fn start() -> Bench {
    Bench::start_as(start_agent)
}

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
    // They keep their numbers: one copied onto itself would still close on exec.
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

pub(crate) fn command(text: &str) -> RunCommandRequest {
    RunCommandRequest { command: text.to_owned(), cwd: "/".to_owned(), ..RunCommandRequest::default() }
}

/// Processes whose command line holds `mark`.
fn running(mark: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let line = |path: &Path| fs::read(path.join("cmdline")).ok();
    processes
        .filter_map(|entry| line(&entry.path()))
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(mark))
        .collect()
}

#[track_caller]
pub(crate) fn assert_soon(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn a_command_prints_and_ends() {
    let bench = start();
    let ended = bench.run(command("echo out; echo err >&2; exit 3"));
    assert_eq!((ended.exit_code, ended.timed_out), (3, false));
    assert_eq!(ended.of(Stream::Stdout), b"out\n");
    assert_eq!(ended.of(Stream::Stderr), b"err\n");
}

fn a_signal_is_told_as_shells_do() {
    let bench = start();
    assert_eq!(bench.run(command("kill -9 $$")).exit_code, 137);
}

fn directory_and_variables_are_those_asked_for_and_the_token_is_nowhere() {
    let bench = start();
    let mut request =
        command("pwd; echo $GREETING; env; ls -l /proc/self/fd /proc/$PPID/fd 2>&1; cat /proc/*/environ");
    request.cwd = "/usr".to_owned();
    request.envs.insert("GREETING".to_owned(), "a $(b) 'c'".to_owned());
    let out = String::from_utf8_lossy(&bench.run(request).of(Stream::Stdout)).into_owned();
    assert!(out.starts_with("/usr\na $(b) 'c'\n"), "{out}");
    assert!(!out.contains(&bench.token_text()), "{out}");
}

fn a_directory_that_is_not_there_is_said_so() {
    let bench = start();
    let mut request = command("true");
    request.cwd = "/nowhere".to_owned();
    let ended = bench.run(request);
    assert_eq!(ended.exit_code, 126);
    assert!(ended.failed.contains("/nowhere"), "{}", ended.failed);
}

fn a_command_out_of_time_ends_with_everything_it_started() {
    let bench = start();
    let mark = format!("3{}", std::process::id());
    // One ignores the request to end, one has left session and parent.
    let text = format!(
        "trap '' TERM; (setsid sleep {mark} &) ; sh -c 'trap \"\" TERM; sleep {mark}.5' & wait; sleep {mark}"
    );
    let mut request = command(&text);
    request.timeout_ms = 300;
    let ended = bench.run(request);
    assert!(ended.timed_out);
    assert_ne!(ended.exit_code, 0);
    assert_soon("something of the command still runs", || running(&mark).is_empty());
}

fn a_killed_command_leaves_nothing_behind() {
    let bench = start();
    let mark = format!("4{}", std::process::id());
    let text = format!("setsid setsid sh -c 'while :; do sleep {mark} & sleep 0.01; done' & sleep {mark}");
    let id = bench.begin(command(&text));
    assert_soon("it never began", || running(&mark).len() > 3);
    bench.kill(&id, 9);
    assert_eq!(bench.wait(&id).exit_code, 137);
    assert_soon("something of the command still runs", || running(&mark).is_empty());
}

fn commands_have_a_group_each_and_one_session() {
    let bench = start();
    let places = [0, 1].map(|_| {
        let id = bench.begin(command("cut -d ' ' -f 5,6 /proc/self/stat"));
        assert_eq!(bench.wait(&id).exit_code, 0);
        let numbers = String::from_utf8(bench.output(&id)).unwrap();
        let (group, session) = numbers.trim().split_once(' ').unwrap();
        (group.to_owned(), session.to_owned())
    });
    let [(first, session), (second, same)] = places;
    assert_eq!(session, same);
    assert_ne!(first, second);
    assert!(first != session && second != session, "{first} {second} {session}");
}

fn what_a_command_leaves_in_the_background_goes_on_and_holds_nobody_up() {
    let bench = start();
    let mark = format!("5{}", std::process::id());
    let go = std::env::temp_dir().join(format!("workspace-go-{mark}"));
    let background =
        format!("(until [ -e {} ]; do sleep 0.05; done; echo late; exec sleep {mark})", go.display());
    // It would never end if it waited for what is in the background.
    let ended = bench.run(command(&format!("{background} & echo first")));
    assert_eq!((ended.exit_code, ended.of(Stream::Stdout)), (0, b"first\n".to_vec()));
    fs::write(&go, "").unwrap();
    assert_soon("what it prints later is not kept", || bench.output(&ended.id).ends_with(b"late\n"));
    assert!(!running(&mark).is_empty());
    bench.kill(&ended.id, 9);
    assert_soon("it can be killed all the same", || running(&mark).is_empty());
    fs::remove_file(&go).unwrap();
}

fn input_reaches_the_command_and_its_end_too() {
    let bench = start();
    let mut request = command("tr a-z A-Z");
    request.stdin = true;
    let id = bench.begin(request);
    let text = "abc ".repeat(100_000);
    for part in text.as_bytes().chunks(10_000) {
        bench.input(&id, part, false);
    }
    bench.input(&id, b"", true);
    let ended = bench.wait(&id);
    assert_eq!(ended.exit_code, 0);
    assert!(ended.of(Stream::Stdout) == text.to_uppercase().into_bytes());
    // Without any, a program finds the end at once.
    assert_eq!(bench.run(command("cat; echo done")).of(Stream::Stdout), b"done\n");
}

fn every_order_arrives_however_many_come_at_once() {
    let bench = start();
    let id = bench.begin(RunCommandRequest { stdin: true, ..command("cat | wc -c") });
    for _ in 0..1_000 {
        bench.input(&id, b"0123456789", false);
    }
    bench.input(&id, b"", true);
    assert_eq!(bench.wait(&id).of(Stream::Stdout), b"10000\n");
}

fn input_that_nobody_reads_is_counted_and_bounded() {
    let bench = start();
    let id = bench.begin(RunCommandRequest { stdin: true, ..command("sleep 1000") });
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..20 {
        bench.input(&id, &piece, false);
    }
    assert_soon("the guest counts", || {
        bench.progress(&id).is_some_and(|progress| progress.input_received == 20 << 20)
    });
    let progress = bench.progress(&id).unwrap();
    let waiting = progress.input_received - progress.input_taken;
    assert!(waiting <= 4 << 20, "{waiting} bytes wait");
    assert!(!progress.input_closed);
    bench.kill(&id, libc::SIGKILL);
    assert_eq!(bench.wait_for_end(&id), 137);
}

fn a_signal_reaches_a_command_that_was_started_just_now() {
    let bench = start();
    for _ in 0..20 {
        let id = bench.begin(command("sleep 1000"));
        bench.kill(&id, libc::SIGTERM);
        assert_eq!(bench.wait_for_end(&id), 143);
    }
}

fn a_server_that_comes_back_hears_of_everything() {
    let mut bench = start();
    let id = bench.begin(command("for i in $(seq 30); do echo line $i; sleep 0.02; done; exit 7"));
    let quick = bench.run(command("echo quick"));
    bench.restart_server(Duration::from_millis(300));
    let ended = bench.wait(&id);
    assert_eq!(ended.exit_code, 7);
    let expected: String = (1..=30).map(|number| format!("line {number}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&ended.of(Stream::Stdout)), expected);
    assert_eq!(bench.wait(&quick.id).exit_code, 0, "told again until it is forgotten");
    bench.forget(&quick.id);
    // Requests are served in order: the one before was.
    bench.run(command("true"));
    bench.restart_server(Duration::ZERO);
    assert!(!bench.knows(&quick.id), "not told again once it is");
    assert_eq!(bench.run(command("echo more")).of(Stream::Stdout), b"more\n");
}

fn a_guest_with_another_token_is_refused_and_does_nothing() {
    let bench = Bench::with_token(b"wrong", start_agent);
    assert_soon("it never tried", || bench.refusals() > 2);
    assert_eq!(bench.connections(), 0);
}

fn whoever_kills_a_supervisor_kills_the_command_with_it() {
    let bench = start();
    let mark = format!("6{}", std::process::id());
    let Ended { exit_code, .. } =
        bench.run(command(&format!("setsid sleep {mark} & kill -9 $PPID; sleep {mark}")));
    assert_eq!(exit_code, 137);
    assert_soon("something of the command still runs", || running(&mark).is_empty());
    assert_eq!(bench.run(command("echo alive")).of(Stream::Stdout), b"alive\n");
}

fn much_output_comes_whole_and_little_of_it_is_kept() {
    let bench = start();
    let mut request = command("seq 300000");
    request.keep_output = 64 << 20;
    let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(bench.run(request).of(Stream::Stdout) == expected.as_bytes());
    let mut request = command("seq 300000; echo the end");
    request.keep_output = 100_000;
    let ended = bench.run(request);
    assert!(ended.of(Stream::Stdout).ends_with(b"300000\nthe end\n"));
    assert!(ended.of(Stream::Stdout).len() < 400_000);
}

fn many_short_commands_leave_nothing_open() {
    let bench = start();
    let before = bench.descriptors();
    for round in 0..10 {
        let ids: Vec<String> =
            (0..20).map(|number| bench.begin(command(&format!("echo {round} {number}")))).collect();
        for id in ids {
            assert_eq!(bench.wait(&id).exit_code, 0);
            bench.forget(&id);
        }
    }
    assert_soon("descriptors are left", || bench.descriptors() <= before);
    assert_eq!(bench.children(), 0);
}

fn an_id_that_is_taken_or_leads_elsewhere_is_refused() {
    let bench = start();
    let id = bench.begin(command("sleep 0.2"));
    let mut again = command("true");
    again.command_id = id.clone();
    assert!(bench.refused(again).contains(&id));
    for bad in ["../x", "a/b", ""] {
        let mut request = command("true");
        request.command_id = bad.to_owned();
        assert!(!bench.refused(request).is_empty());
    }
}

#[track_caller]
fn assert_shows(bench: &Bench, id: &str, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let shown = String::from_utf8_lossy(&bench.output(id)).into_owned();
        if shown.contains(text) {
            return;
        }
        assert!(Instant::now() < deadline, "no `{text}` in: {shown}");
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

fn a_terminal_is_one() {
    let bench = start();
    // One that is not there, so that another takes its place.
    let id = bench.begin_terminal(terminal("/bin/no-such-shell"));
    bench.type_in(&id, "stty size; pwd; test -t 0 && echo is a $TERM\n");
    assert_shows(&bench, &id, "33 91\r\n/usr\r\n");
    assert_shows(&bench, &id, "is a xterm-256color\r\n");
    bench.resize(&id, 132, 43);
    bench.type_in(&id, "stty size\n");
    assert_shows(&bench, &id, "43 132\r\n");
    // Ctrl-C goes to the program in front.
    bench.type_in(&id, "sleep 1000; echo ended with $?\n");
    std::thread::sleep(Duration::from_millis(100));
    bench.type_in(&id, "\u{3}");
    bench.type_in(&id, "echo still here: $((6 * 7))\n");
    assert_shows(&bench, &id, "still here: 42\r\n");
    bench.type_in(&id, "exit 9\n");
    assert_eq!(bench.wait(&id).exit_code, 9);
}

fn a_terminal_survives_the_server_and_can_be_killed() {
    let mut bench = start();
    let id = bench.begin_terminal(terminal("/bin/sh"));
    bench.type_in(&id, "(sleep 0.2; echo while you were away: $((5 * 5))) &\n");
    assert_shows(&bench, &id, "while");
    bench.restart_server(Duration::from_millis(400));
    assert_shows(&bench, &id, "while you were away: 25\r\n");
    bench.type_in(&id, "echo back: $((3 * 3))\n");
    assert_shows(&bench, &id, "back: 9\r\n");
    bench.kill_terminal(&id);
    assert_eq!(bench.wait(&id).exit_code, 137);
}

fn a_flood_of_output_holds_nothing_else_up() {
    let bench = start();
    let mut request = command("yes & yes error >&2 & wait");
    request.timeout_ms = 300;
    // Enough that neither stream's beginning is gone when the other had the last word.
    request.keep_output = 64 << 20;
    let ended = bench.run(request);
    assert!(ended.timed_out);
    assert!(!ended.of(Stream::Stdout).is_empty() && !ended.of(Stream::Stderr).is_empty());
    // Left behind by a command that ended: its end is told all the same, and it can be killed.
    let mut request = command("yes & exit 4");
    request.keep_output = 1 << 20;
    let id = bench.begin(request);
    assert_eq!(bench.wait_for_end(&id), 4);
    bench.kill(&id, 9);
    assert_soon("it floods on", || bench.children() == 0);
}

fn what_was_forgotten_and_runs_on_can_still_be_killed() {
    let bench = start();
    let before = bench.descriptors();
    let ended = bench.run(command("sleep 1000 & echo started"));
    bench.forget(&ended.id);
    bench.run(command("true"));
    assert!(bench.children() > 0);
    bench.kill(&ended.id, 9);
    assert_soon("it runs on", || bench.children() == 0);
    for _ in 0..20 {
        // The end of a command and that it is forgotten cross each other.
        let ended = bench.run(command("true"));
        bench.forget(&ended.id);
    }
    // The one that was run in between is known still, as the server has not said otherwise.
    assert_soon("descriptors are left", || bench.descriptors() <= before);
}
