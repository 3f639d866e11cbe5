//! Commands in a sandbox.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::time::Duration;

use libtest_mimic::Trial;
use rustix::process::Signal;
use workspace_catalog::{CommandState, State};
use workspace_sandbox::{AfterInput, CommandLine, RunRequest, SandboxError, Service};

use crate::home::{ANY_TAG, TestHome, alice, create, read, request, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        output_and_exit_code_are_reported,
        command_gets_requested_environment_and_directory,
        command_that_cannot_run_reports_the_reason,
        arguments_are_passed_without_a_shell,
        invalid_arguments_and_tags_are_refused,
        commands_are_listed_by_tag,
        pid_is_that_inside_the_sandbox,
        command_is_killed_after_its_time_limit,
        killing_a_command_kills_its_children,
        input_is_written_and_closed,
        acknowledged_input_arrives_exactly_once,
        output_can_be_read_from_any_offset,
        oldest_output_is_dropped_first_and_leaves_a_gap,
        blocking_command_loses_no_output,
        output_of_all_commands_is_limited_and_counted,
        output_after_the_end_of_a_command_is_limited_too,
        ended_command_refuses_requests,
        command_whose_exit_was_reported_refuses_input,
        concurrent_commands_do_not_mix_output,
    ]
}

async fn output_and_exit_code_are_reported(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let ran = sh(&service, &info, "echo out; echo err >&2; exit 3").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!((ran.exit.exit_code, ran.exit.timed_out, ran.exit.failure_reason), (3, false, None));
    wait_until("its end is written down", async || {
        let commands = service.commands(&alice(), &info.sandbox.id, ANY_TAG, 10).await.unwrap();
        commands.len() == 1 && commands[0].state == CommandState::Exited && commands[0].exit_code == Some(3)
    })
    .await;
}

async fn command_gets_requested_environment_and_directory(home: &TestHome) {
    let service = home.start().await;
    let envs = [("A".to_owned(), "sandbox".to_owned()), ("B".to_owned(), "sandbox".to_owned())].into();
    let new = workspace_sandbox::NewSandbox { envs, ..crate::home::base() };
    let info = service.create(crate::home::creator(), new).await.unwrap();
    let own = RunRequest {
        cwd: Some("/tmp".to_owned()),
        envs: [("B".to_owned(), "$(id) 'x'".to_owned())].into(),
        ..request("pwd; echo \"$A $B\"")
    };
    let handle = service.run(&alice(), &info.sandbox.id, own).await.unwrap();
    assert_eq!(read(&handle, 0).await.stdout, "/tmp\nsandbox $(id) 'x'\n");
    for wrong in [
        RunRequest { cwd: Some("tmp".to_owned()), ..request("true") },
        RunRequest { cwd: Some("/\0".to_owned()), ..request("true") },
        RunRequest { envs: [(String::new(), String::new())].into(), ..request("true") },
        request(""),
        request("a\0b"),
    ] {
        let refused = service.run(&alice(), &info.sandbox.id, wrong).await.unwrap_err();
        assert!(matches!(refused, SandboxError::Invalid { .. }), "{refused}");
    }
}

async fn command_that_cannot_run_reports_the_reason(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let nowhere = RunRequest { cwd: Some("/nowhere".to_owned()), ..request("true") };
    let handle = service.run(&alice(), &info.sandbox.id, nowhere).await.unwrap();
    let end = read(&handle, 0).await.exit;
    assert_eq!(end.exit_code, 126);
    assert!(end.failure_reason.unwrap().contains("cannot enter `/nowhere`"));
}

fn arguments(argv: &[&str]) -> RunRequest {
    let argv = argv.iter().map(|&argument| argument.to_owned()).collect();
    RunRequest { command: CommandLine::Arguments(argv), ..RunRequest::default() }
}

async fn arguments_are_passed_without_a_shell(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let given = ["", "two words", "'\"$HOME\\ *", "line\nbreak", "ä", ""];
    let line = [&["printf", "<%s>"], given.as_slice()].concat();
    let handle = service.run(&alice(), id, arguments(&line)).await.unwrap();
    let ran = read(&handle, 0).await;
    let expected: String = given.iter().map(|argument| format!("<{argument}>")).collect();
    assert_eq!((ran.stdout, ran.exit.exit_code, ran.exit.failure_reason), (expected, 0, None));
    let (record, kept) = service.command_record(&alice(), id, &handle.id).await.unwrap();
    assert_eq!(record.argv.unwrap(), line);
    assert!(record.command.starts_with("printf '<%s>' '' 'two words' "), "{}", record.command);
    assert_eq!(kept, Some(0..printed_len(&given)));

    // The variables of the command decide where the program is searched.
    let own = RunRequest {
        cwd: Some("/tmp".to_owned()),
        envs: [("PATH".to_owned(), "/workspace/own:/usr/bin:/bin".to_owned())].into(),
        ..arguments(&["tool", "a b"])
    };
    let tool = "mkdir /workspace/own; printf '#!/bin/sh\necho own $#\n' > /workspace/own/tool; chmod +x /workspace/own/tool";
    assert_eq!(sh(&service, &info, tool).await.exit.exit_code, 0);
    let handle = service.run(&alice(), id, own).await.unwrap();
    assert_eq!(read(&handle, 0).await.stdout, "own 1\n");
    let missing = service.run(&alice(), id, arguments(&["tool", "a b"])).await.unwrap();
    let exit = read(&missing, 0).await.exit;
    assert_eq!(exit.exit_code, 127);
    assert!(exit.failure_reason.unwrap().contains("cannot run tool"));
    wait_until("it is written down as failed", async || {
        let (record, _) = service.command_record(&alice(), id, &missing.id).await.unwrap();
        record.state == CommandState::Failed && record.exit_code == Some(127)
    })
    .await;
}

/// Returns the length of the output of `printf '<%s>'` with these arguments.
fn printed_len(arguments: &[&str]) -> u64 {
    arguments.iter().map(|argument| argument.len() as u64 + 2).sum()
}

async fn invalid_arguments_and_tags_are_refused(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    for wrong in [
        arguments(&[]),
        arguments(&["", "a"]),
        arguments(&["a\0b"]),
        arguments(&["echo", "\0"]),
        RunRequest { tag: Some(String::new()), ..request("true") },
        RunRequest { tag: Some("a\nb".to_owned()), ..request("true") },
        RunRequest { tag: Some("ä".repeat(129)), ..request("true") },
    ] {
        let refused = service.run(&alice(), &info.sandbox.id, wrong).await.unwrap_err();
        assert!(matches!(refused, SandboxError::Invalid { field: "argv" | "tag", .. }), "{refused}");
    }
    let unknown = service.command_record(&alice(), &info.sandbox.id, "cmd-none").await.unwrap_err();
    assert!(matches!(unknown, SandboxError::NoCommand { .. }), "{unknown}");
}

async fn commands_are_listed_by_tag(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let mut ids = Vec::new();
    for tag in [Some("ä"), None, Some("ä"), Some("b")] {
        let tagged = RunRequest { tag: tag.map(str::to_owned), ..request("true") };
        ids.push(service.run(&alice(), id, tagged).await.unwrap().id);
    }
    for (tag, expected) in [
        (None, vec![&ids[3], &ids[2], &ids[1], &ids[0]]),
        (Some("ä"), vec![&ids[2], &ids[0]]),
        (Some("b"), vec![&ids[3]]),
        (Some("c"), vec![]),
    ] {
        let found = service.commands(&alice(), id, tag, 10).await.unwrap();
        assert_eq!(found.iter().map(|command| &command.id).collect::<Vec<_>>(), expected, "{tag:?}");
        assert!(tag.is_none() || found.iter().all(|command| command.tag.as_deref() == tag));
    }
}

async fn pid_is_that_inside_the_sandbox(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let waiting = RunRequest { stdin: true, ..request("echo $$; read line") };
    let handle = service.run(&alice(), id, waiting).await.unwrap();
    let pid = async || service.command_record(&alice(), id, &handle.id).await.unwrap().0.pid;
    wait_until("its PID is known while it runs", async || pid().await.is_some()).await;
    let running = pid().await;
    let listed = service.processes(&alice(), id).await.unwrap();
    assert!(listed.iter().any(|process| Some(process.pid) == running && process.command == handle.id));
    service.input(&alice(), id, &handle.id, b"\n".to_vec(), AfterInput::Close).await.unwrap();
    assert_eq!(read(&handle, 0).await.stdout.trim(), running.unwrap().to_string());
    // It is kept when the command has ended, also for one without a shell.
    let own = service.run(&alice(), id, arguments(&["readlink", "/proc/self"])).await.unwrap();
    let printed = read(&own, 0).await.stdout;
    wait_until("the PIDs are written down", async || {
        let commands = service.commands(&alice(), id, ANY_TAG, 10).await.unwrap();
        commands.iter().all(|command| command.state == CommandState::Exited)
    })
    .await;
    assert_eq!(pid().await, running);
    let (record, _) = service.command_record(&alice(), id, &own.id).await.unwrap();
    assert_eq!(record.pid.unwrap().to_string(), printed.trim());
}

async fn command_is_killed_after_its_time_limit(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let short =
        RunRequest { timeout: Some(Duration::from_millis(300)), ..request("setsid sleep 100 & sleep 100") };
    let handle = service.run(&alice(), &info.sandbox.id, short).await.unwrap();
    assert!(read(&handle, 0).await.exit.timed_out);
    wait_until("nothing is left", async || sh(&service, &info, "pgrep sleep | wc -l").await.stdout == "0\n")
        .await;
}

async fn killing_a_command_kills_its_children(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let command = request("setsid sh -c 'sleep 100 & sleep 100' & echo up; sleep 100");
    let handle = service.run(&alice(), &info.sandbox.id, command).await.unwrap();
    handle.output(0).await.unwrap().next().await.unwrap();
    service.kill(&alice(), &info.sandbox.id, &handle.id, 9).await.unwrap();
    assert_eq!(read(&handle, 0).await.exit.exit_code, 137);
    wait_until("nothing is left", async || sh(&service, &info, "pgrep sleep | wc -l").await.stdout == "0\n")
        .await;
    for signal in [0, -1, 65] {
        let refused = service.kill(&alice(), &info.sandbox.id, &handle.id, signal).await.unwrap_err();
        assert!(matches!(refused, SandboxError::Invalid { .. }), "{refused}");
    }
}

async fn input_is_written_and_closed(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = &info.sandbox.id;
    let handle =
        service.run(&alice(), id, RunRequest { stdin: true, ..request("cat; echo done") }).await.unwrap();
    service.input(&alice(), id, &handle.id, b"one\n".to_vec(), AfterInput::KeepOpen).await.unwrap();
    service.input(&alice(), id, &handle.id, b"two\n".to_vec(), AfterInput::Close).await.unwrap();
    assert_eq!(read(&handle, 0).await.stdout, "one\ntwo\ndone\n");
}

/// A client writes without a pause while the service restarts again and again.
async fn acknowledged_input_arrives_exactly_once(home: &TestHome) {
    let service = home.start().await;
    let id = create(&service).await.sandbox.id;
    let cat = RunRequest { stdin: true, timeout: Some(Duration::ZERO), ..request("cat") };
    let command = service.run(&alice(), &id, cat).await.unwrap().id;
    let (mut service, mut next, mut acknowledged) = (service, 0_u32, Vec::new());
    for round in 0..6 {
        let (writer, sandbox, command) = (service.clone(), id.clone(), command.clone());
        let writing = tokio::spawn(async move {
            let mut written = Vec::new();
            for number in next.. {
                let line = format!("{number} {:5000}\n", "").into_bytes();
                if writer.input(&alice(), &sandbox, &command, line, AfterInput::KeepOpen).await.is_err() {
                    return (written, number + 1);
                }
                written.push(number);
            }
            unreachable!("numbers do not end")
        });
        tokio::time::sleep(Duration::from_millis(20 + 7 * round)).await;
        // The agent is stopped for a while: messages to it are lost with the stream.
        let deaf = (round == 5).then(|| home.process(&id));
        if let Some(guest) = &deaf {
            guest.signal(Signal::STOP);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        service.close().await;
        if let Some(guest) = &deaf {
            guest.signal(Signal::CONT);
        }
        let (written, from) = writing.await.unwrap();
        acknowledged.extend(written);
        next = from;
        service = home.start().await;
        wait_until("its guest is back", async || service.get(&alice(), &id).await.unwrap().agent_connected)
            .await;
    }
    assert!(acknowledged.len() > 8, "{acknowledged:?}");
    service.input(&alice(), &id, &command, Vec::new(), AfterInput::Close).await.unwrap();
    let handle = service.command(&alice(), &id, &command).await.unwrap();
    let printed = read(&handle, 0).await.stdout;
    let printed: Vec<u32> = printed.lines().map(|line| line.trim_end().parse().unwrap()).collect();
    assert!(printed.is_sorted_by(|one, next| one < next), "something came twice or out of order");
    let lost: Vec<_> = acknowledged.iter().filter(|number| !printed.contains(number)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

async fn output_can_be_read_from_any_offset(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let command = request("for i in $(seq 1000 1999); do echo $i; done");
    let handle = service.run(&alice(), &info.sandbox.id, command).await.unwrap();
    let whole = read(&handle, 0).await.stdout;
    assert_eq!(whole.len(), 5_000);
    for from in [0_u64, 1, 4_999, 5_000] {
        let again = service.command(&alice(), &info.sandbox.id, &handle.id).await.unwrap();
        assert_eq!(read(&again, from).await.stdout, whole[usize::try_from(from).unwrap()..], "{from}");
    }
}

async fn oldest_output_is_dropped_first_and_leaves_a_gap(home: &TestHome) {
    let service = home.start_with(|settings| settings.kept_output_bytes = 64 << 10).await;
    let info = create(&service).await;
    let mut handle = service
        .run(&alice(), &info.sandbox.id, request("head -c 1000000 /dev/zero | tr '\\0' x; echo end"))
        .await
        .unwrap();
    handle.wait().await.unwrap();
    let ran = read(&handle, 0).await;
    let [(from, to)] = ran.gaps[..] else { panic!("{:?}", ran.gaps) };
    assert_eq!(from, 0);
    assert_eq!(ran.stdout.len() as u64, 1_000_004 - to);
    assert!(ran.stdout.ends_with("xend\n") && ran.stdout.len() >= 64 << 10);
}

async fn blocking_command_loses_no_output(home: &TestHome) {
    let kept = 64 << 10;
    let service = home.start_with(|settings| settings.kept_output_bytes = kept).await;
    let info = create(&service).await;
    let id = &info.sandbox.id;
    let flood = |line: &str| RunRequest {
        block_on_unread_output: true,
        timeout: Some(Duration::ZERO),
        ..request(line)
    };
    let line = "head -c 3000000 /dev/zero | tr '\\0' x; echo end";
    let handle = service.run(&alice(), id, flood(line)).await.unwrap();
    let doomed = service.run(&alice(), id, flood("yes")).await.unwrap();
    let hurried = RunRequest { timeout: Some(Duration::from_millis(300)), ..flood("yes") };
    let mut hurried = service.run(&alice(), id, hurried).await.unwrap();
    // Without readers, output stays within bounds, and the command ends only by force.
    assert!(hurried.wait().await.unwrap().timed_out);
    tokio::time::sleep(Duration::from_millis(300)).await;
    for command in service.commands(&alice(), id, ANY_TAG, 10).await.unwrap() {
        let ended = command.id == hurried.id;
        assert_eq!(command.state != CommandState::Running, ended, "{}", command.command);
    }
    // A reader that stops half-way, a service that restarts, and another reader for the rest.
    let mut output = handle.output(0).await.unwrap();
    let pieces = output.next().await.unwrap().unwrap();
    assert!(!pieces.is_empty());
    drop((output, pieces));
    service.kill(&alice(), id, &doomed.id, 9).await.unwrap();
    service.close().await;
    let service = home.start_with(|settings| settings.kept_output_bytes = kept).await;
    let handle = service.command(&alice(), id, &handle.id).await.unwrap();
    let ran = read(&handle, 0).await;
    assert_eq!((ran.gaps.as_slice(), ran.stdout.len()), ([].as_slice(), 3_000_004));
    assert!(ran.stdout.ends_with("xend\n"));
    assert_eq!(ran.exit.exit_code, 0);
    let mut doomed = service.command(&alice(), id, &doomed.id).await.unwrap();
    assert_eq!(doomed.wait().await.unwrap().exit_code, 137);
}

/// Starts a service whose sandboxes keep little output, and returns the limit in bytes.
async fn with_little_output(home: &TestHome) -> (Service, u64) {
    let limit = 4 << 20;
    let change = |settings: &mut workspace_sandbox::Settings| {
        (settings.kept_output_bytes_per_sandbox, settings.kept_output_bytes) = (limit, 3 << 20);
        settings.disk_interval = Duration::from_millis(50);
    };
    (home.start_with(change).await, limit)
}

async fn output_after_the_end_of_a_command_is_limited_too(home: &TestHome) {
    let (service, limit) = with_little_output(home).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    for number in 0..8 {
        let left = format!(
            "(until test -e go; do sleep 0.01; done; head -c 3000000 /dev/zero; touch done{number}; sleep 100) &"
        );
        let mut handle = service.run(&alice(), id, request(&left)).await.unwrap();
        handle.wait().await.unwrap();
    }
    let mut all = service
        .run(&alice(), id, request("touch go; until test -e done0 -a -e done7; do sleep 0.01; done"))
        .await
        .unwrap();
    all.wait().await.unwrap();
    wait_until("it is bounded", async || service.stats(&alice(), id).await.unwrap().output <= 2 * limit)
        .await;
    assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Running);
}

async fn output_of_all_commands_is_limited_and_counted(home: &TestHome) {
    let (service, limit) = with_little_output(home).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let print = "head -c 2000000 /dev/zero | tr '\\0' x; echo end";
    let first = service.run(&alice(), id, request(print)).await.unwrap();
    assert_eq!(read(&first, 0).await.stdout.len(), 2_000_004);
    assert!(service.stats(&alice(), id).await.unwrap().output >= 2_000_000);
    // One that keeps printing, and others beside it.
    let endless = service.run(&alice(), id, request("yes")).await.unwrap();
    for _ in 0..6 {
        let mut handle = service.run(&alice(), id, request(print)).await.unwrap();
        handle.wait().await.unwrap();
    }
    wait_until("it is bounded", async || {
        let stats = service.stats(&alice(), id).await.unwrap();
        stats.disk >= stats.output && stats.output <= 2 * limit
    })
    .await;
    // A reader of removed output gets an error.
    wait_until("the first is gone", async || {
        let Ok(old) = service.command(&alice(), id, &first.id).await else { return false };
        match old.output(0).await {
            Err(SandboxError::OutputGone { .. }) => true,
            Err(error) => panic!("{error}"),
            Ok(_) => !read(&old, 0).await.gaps.is_empty(),
        }
    })
    .await;
    service.kill(&alice(), id, &endless.id, 9).await.unwrap();
    let ran = read(&endless, 0).await;
    assert!(!ran.gaps.is_empty() && ran.exit.exit_code == 137, "{:?} {:?}", ran.gaps, ran.exit);
    assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Running);
}

async fn ended_command_refuses_requests(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = &info.sandbox.id;
    let mut handle = service.run(&alice(), id, request("true")).await.unwrap();
    handle.wait().await.unwrap();
    wait_until("its end is known", async || {
        let killed = service.kill(&alice(), id, &handle.id, 9).await;
        matches!(killed, Err(SandboxError::CommandEnded { .. }))
    })
    .await;
    let refused = service.input(&alice(), id, &handle.id, vec![1], AfterInput::KeepOpen).await.unwrap_err();
    assert!(matches!(refused, SandboxError::CommandEnded { .. }), "{refused}");
    for unknown in ["cmd-1", "", "../x", "a\0"] {
        let refused = service.command(&alice(), id, unknown).await.unwrap_err();
        assert!(matches!(refused, SandboxError::NoCommand { .. }), "{refused}");
    }
}

/// Its exit may not be in the catalog yet.
async fn command_whose_exit_was_reported_refuses_input(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = &info.sandbox.id;
    for _ in 0..30 {
        let mut handle = service.run(&alice(), id, request("true")).await.unwrap();
        handle.wait().await.unwrap();
        let written = service.input(&alice(), id, &handle.id, Vec::new(), AfterInput::KeepOpen).await;
        assert!(matches!(written, Err(SandboxError::CommandEnded { .. })), "{written:?}");
    }
}

async fn concurrent_commands_do_not_mix_output(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let (service, id) = (service.clone(), info.sandbox.id.clone());
            tokio::spawn(async move {
                let command = request(&format!("for i in 1 2 3; do echo {n}; done; exit {n}"));
                let handle = service.run(&alice(), &id, command).await.unwrap();
                let ran = read(&handle, 0).await;
                assert_eq!((ran.stdout, ran.exit.exit_code), (format!("{n}\n").repeat(3), n));
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
