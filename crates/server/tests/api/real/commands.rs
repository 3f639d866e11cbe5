//! Commands: results, streams, background.

use std::net::Shutdown;
use std::time::Duration;

use serde_json::{Value, json};

use super::stream::{Event, Stream, assert_seamless, printed};
use super::test_server::{TestServer, names, wait_until, wait_until_within};
use crate::support::Answer;

fn run_path(id: &str) -> String {
    format!("/api/v1/sandboxes/{id}/process/run")
}

#[test]
fn a_result_has_all_fields() {
    let server = TestServer::new();
    let id = server.create();
    let result = server.run(&id, "echo out; echo err >&2; exit 3");
    assert!(result["commandId"].as_str().unwrap().starts_with("cmd-"));
    let fields: Vec<&str> = result.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["commandId", "exitCode", "stderr", "stdout", "truncated"]);
    assert_eq!((&result["exitCode"], &result["truncated"]), (&json!(3), &json!(false)));
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!(server.run(&id, "kill -TERM $$")["exitCode"], 143);
    assert_eq!(server.run(&id, "no-such-program")["exitCode"], 127);
    assert_eq!(server.run_with(&id, &json!({"command": "pwd", "cwd": "/tmp"}))["stdout"], "/tmp\n");
    let shown = server.command(&id, result["commandId"].as_str().unwrap());
    assert_eq!((&shown["state"], &shown["exitCode"]), (&json!("exited"), &json!(3)));
    assert_eq!((&shown["cwd"], &shown["timedOut"]), (&json!("/workspace"), &json!(false)));
    for wrong in [json!({}), json!({"command": 1}), json!({"command": "a", "cmd": "b"}), json!([])] {
        assert_eq!(server.post(&run_path(&id), &wrong).error(), "INVALID_REQUEST", "{wrong}");
    }
}

#[test]
fn arguments_are_run_without_a_shell_and_recorded() {
    let server = TestServer::new();
    let id = server.create();
    let argv = json!(["printf", "<%s>", "", "two words", "'$HOME\""]);
    let body = json!({"argv": argv, "tag": "quotes", "envs": {"A": "b"}});
    let result = server.run_with(&id, &body);
    assert_eq!((&result["stdout"], &result["exitCode"]), (&json!("<><two words><'$HOME\">"), &json!(0)));
    let path = format!("/api/v1/sandboxes/{id}/process/{}", result["commandId"].as_str().unwrap());
    wait_until("its end is recorded", || server.get(&path).json()["state"] == "exited");
    let record = server.get(&path).json();
    assert_eq!((&record["argv"], &record["tag"]), (&argv, &json!("quotes")));
    assert_eq!(record["command"], r#"printf '<%s>' '' 'two words' ''\''$HOME"'"#);
    assert_eq!((&record["exitCode"], &record["output"]), (&json!(0), &json!({"from": 0, "to": 22})));
    assert!(record["pid"].as_u64().unwrap() > 1 && record["endedAt"].is_string(), "{record}");
    let missing = server.post(&run_path(&id), &json!({"argv": ["no-such-program", "a b"]}));
    assert_eq!(missing.error(), "COMMAND_FAILED");
    assert_eq!(missing.json()["error"]["details"]["exitCode"], 127);
    for wrong in [
        json!({"argv": []}),
        json!({"argv": [""]}),
        json!({"argv": ["a\0"]}),
        json!({"argv": "ls"}),
        json!({"argv": ["true"], "command": "true"}),
        json!({"command": "true", "tag": ""}),
        json!({"command": "true", "tag": "x".repeat(129)}),
    ] {
        assert_eq!(server.post(&run_path(&id), &wrong).error(), "INVALID_REQUEST", "{wrong}");
    }
    let unknown = server.get(&format!("/api/v1/sandboxes/{id}/process/cmd-none"));
    assert_eq!(unknown.error(), "COMMAND_NOT_FOUND");
}

#[test]
fn commands_are_listed_by_tag_with_the_pid_of_running_ones() {
    let server = TestServer::new();
    let id = server.create();
    let first = server.start_background(&id, json!({"argv": ["sleep", "1000"], "tag": "slow one"}));
    server.start_background(&id, json!({"command": "sleep 1000", "tag": "other"}));
    let list = |query: &str| server.get(&format!("/api/v1/sandboxes/{id}/process?{query}"));
    wait_until("the PID is known", || list("tag=slow%20one").json()["items"][0]["pid"].is_u64());
    let found = list("tag=slow%20one&limit=9").json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found}");
    let command = &found["items"][0];
    assert_eq!((&command["commandId"], &command["tag"]), (&json!(first), &json!("slow one")));
    let processes = server.get(&format!("/api/v1/sandboxes/{id}/processes")).json();
    let processes = processes["items"].as_array().unwrap();
    let process = processes.iter().find(|process| process["pid"] == command["pid"]).unwrap();
    assert_eq!((&process["commandId"], &process["arguments"]), (&json!(first), &json!("sleep 1000")));
    assert_eq!(list("tag=none").json()["items"], json!([]));
    for wrong in ["tag=", "tag=%00", "tag=%0A"] {
        assert_eq!(list(wrong).error(), "INVALID_REQUEST", "{wrong}");
    }
}

#[test]
fn a_long_command_line_is_cut_in_lists_and_the_audit_log() {
    let server = TestServer::new();
    let id = server.create();
    let command = format!("printf %s '{}' | wc -c", "x".repeat(100_000));
    let result = server.run(&id, &command);
    assert_eq!(result["stdout"].as_str().unwrap().trim(), "100000");
    let shown = server.command(&id, result["commandId"].as_str().unwrap());
    assert_eq!((&shown["command"], &shown["commandTruncated"]), (&json!(command[..4096]), &json!(true)));
    let short = server.run(&id, "true");
    let shown = server.command(&id, short["commandId"].as_str().unwrap());
    assert_eq!((&shown["command"], &shown["commandTruncated"]), (&json!("true"), &json!(false)));
}

#[test]
fn output_beyond_the_limit_is_cut_off_and_binary_output_is_kept() {
    let server = TestServer::new();
    let id = server.create();
    let default = server.run(&id, "head -c 1048577 /dev/zero | tr '\\0' x");
    assert_eq!((default["stdout"].as_str().unwrap().len(), &default["truncated"]), (1 << 20, &json!(true)));
    let small = server.run_with(&id, &json!({"command": "echo 12345; echo 678 >&2", "maxOutputSize": 4}));
    let size = small["stdout"].as_str().unwrap().len() + small["stderr"].as_str().unwrap().len();
    assert_eq!((size, &small["truncated"]), (4, &json!(true)));
    let nothing = server.run_with(&id, &json!({"command": "echo 1", "maxOutputSize": 0}));
    assert_eq!((&nothing["stdout"], &nothing["truncated"]), (&json!(""), &json!(true)));
    // With `overflow: block`, the command still ends, because `run` discards output beyond the limit.
    let flood = "head -c 20000000 /dev/zero; exit 3";
    let blocking = json!({"command": flood, "maxOutputSize": 10, "overflow": "block", "timeout": 0});
    let ended = server.run_with(&id, &blocking);
    assert_eq!((&ended["exitCode"], &ended["truncated"]), (&json!(3), &json!(true)));
    let unknown =
        server.post(&run_path(&id), &json!({"command": "echo 12345; exit 127", "maxOutputSize": 2}));
    assert_eq!((&unknown.json()["exitCode"], &unknown.json()["stdout"]), (&json!(127), &json!("12")));
    let large = server.post(&run_path(&id), &json!({"command": "true", "maxOutputSize": 67_108_865}));
    assert_eq!(large.error(), "INVALID_REQUEST");
    let binary = server.run(&id, "printf '\\377\\000a'; printf b >&2");
    assert_eq!(binary["stdoutBase64"], "/wBh");
    assert_eq!((&binary["stderr"], binary.get("stderrBase64")), (&json!("b"), None));
    let events = Stream::run(&server, &id, json!({"command": "printf '\\377\\000a'"})).begun().rest();
    assert_eq!((&events[0].data["dataBase64"], events[0].data.get("data")), (&json!("/wBh"), None));
}

#[test]
fn a_timeout_kills_the_command_and_returns_its_output() {
    let server = TestServer::new();
    let id = server.create();
    let body = json!({"command": "echo before; (setsid sleep 1234 &); sleep 1234", "timeout": 300});
    let answer = server.post(&run_path(&id), &body);
    assert_eq!(answer.error(), "PROCESS_TIMEOUT");
    let details = answer.json()["error"]["details"].clone();
    assert_eq!(details["stdout"], "before\n");
    let command = details["commandId"].as_str().unwrap();
    wait_until("it is written down", || server.command(&id, command)["timedOut"] == true);
    wait_until("nothing is left", || server.run(&id, "pgrep -f 'sleep 123[4]'")["exitCode"] == 1);
    let events = Stream::run(&server, &id, json!({"command": "sleep 1000", "timeout": 100})).begun().rest();
    assert_eq!(events.last().unwrap().data["timedOut"], true);
}

#[test]
fn a_stream_has_all_events_in_order() {
    let server = TestServer::new();
    let id = server.create();
    let command = "echo one; sleep 0.05; echo two >&2; sleep 0.05; echo three; exit 7";
    let mut stream = Stream::run(&server, &id, json!({ "command": command })).begun();
    let events = stream.rest();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["stdout", "stderr", "stdout", "exit"]);
    assert_eq!(printed(&events), b"one\ntwo\nthree\n");
    assert_eq!(assert_seamless(&events, 0), 14);
    let last = &events[3].data;
    assert_eq!((&last["exitCode"], &last["type"]), (&json!(7), &json!("exit")));
    for event in &events {
        assert_eq!(event.data["type"], event.kind.as_str());
        assert!(event.data["commandId"].as_str().unwrap().starts_with("cmd-"));
        assert!(event.data["timestamp"].as_u64().unwrap() > 1_600_000_000_000);
    }
    // The output can be streamed again from any byte.
    let command = events[0].data["commandId"].as_str().unwrap();
    for from in 0..=14 {
        let path = from.to_string();
        let again = Stream::output(&server, &id, command, Some(&path)).begun().rest();
        assert_eq!(printed(&again), &b"one\ntwo\nthree\n"[from as usize..]);
        assert_seamless(&again, from);
    }
    let path = format!("/api/v1/sandboxes/{id}/process/{command}/output");
    assert_eq!(server.get(&format!("{path}?from=x")).error(), "INVALID_REQUEST");
    assert_eq!(server.call("GET", &path).header("last-event-id", "x").send().error(), "INVALID_REQUEST");
}

#[test]
fn a_command_that_cannot_start_is_an_error_event() {
    let server = TestServer::new();
    let id = server.create();
    let events = Stream::run(&server, &id, json!({"command": "true", "cwd": "/no/such"})).begun().rest();
    assert_eq!(events.last().unwrap().kind, "error");
    assert!(events.last().unwrap().data["message"].as_str().unwrap().contains("/no/such"));
}

#[test]
fn a_background_command_gets_input_and_signals() {
    let server = TestServer::new();
    let id = server.create();
    let command = server.start_background(&id, json!({"command": "cat; echo end", "stdin": true}));
    let path = format!("/api/v1/sandboxes/{id}/process/{command}");
    let stdin = |body: Value| server.post(&format!("{path}/stdin"), &body);
    assert_eq!(stdin(json!({"data": "text \u{fc}\n"})).status, 204);
    assert_eq!(stdin(json!({"dataBase64": "/wA="})).status, 204);
    assert_eq!(stdin(json!({"data": "a", "dataBase64": "YQ=="})).error(), "INVALID_REQUEST");
    assert_eq!(stdin(json!({"dataBase64": "%"})).error(), "INVALID_REQUEST");
    assert_eq!(stdin(json!({"close": true})).status, 204);
    let events = Stream::output(&server, &id, &command, None).begun().rest();
    assert_eq!(printed(&events), b"text \xc3\xbc\n\xff\0end\n");
    wait_until("it ended", || server.command(&id, &command)["state"] == "exited");
    assert_eq!(stdin(json!({"data": "late"})).error(), "COMMAND_NOT_RUNNING");
    assert_eq!(server.post(&format!("{path}/kill"), &json!({})).error(), "COMMAND_NOT_RUNNING");

    let killed = |signal: Value, code: i64| {
        // A signal during `exec` may be lost, so the shell must not replace itself.
        let command = server.start_background(&id, json!({"command": "while :; do sleep 1; done"}));
        let kill = format!("/api/v1/sandboxes/{id}/process/{command}/kill");
        assert_eq!(server.post(&kill, &signal).status, 204);
        wait_until("it ended", || server.command(&id, &command)["exitCode"] == code);
        for wrong in [json!({"signal": 0}), json!({"signal": 65}), json!({"signal": "KILL"})] {
            assert_eq!(server.post(&kill, &wrong).error(), "INVALID_REQUEST");
        }
    };
    killed(json!({}), 143);
    killed(json!({"signal": 9}), 137);
    killed(json!({"signal": 2}), 130);
}

#[test]
fn many_writes_to_a_command_all_arrive() {
    let server = TestServer::new();
    let id = server.create();
    let command = server.start_background(&id, json!({"command": "cat | wc -c", "stdin": true}));
    let path = format!("/api/v1/sandboxes/{id}/process/{command}/stdin");
    let data = "x".repeat(1_000);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert_eq!(server.post(&path, &json!({ "data": data })).status, 204);
                }
            });
        }
    });
    assert_eq!(server.post(&path, &json!({"close": true})).status, 204);
    let events = Stream::output(&server, &id, &command, None).begun().rest();
    assert_eq!(printed(&events), b"400000\n");
}

#[test]
fn stdin_that_is_full_or_closed_refuses_input() {
    let server = TestServer::new();
    let id = server.create();
    let stdin = |command: &str, body: &Value| {
        server.post(&format!("/api/v1/sandboxes/{id}/process/{command}/stdin"), body)
    };
    let deaf = server.start_background(&id, json!({"command": "sleep 1000"}));
    assert_eq!(stdin(&deaf, &json!({"data": "x"})).error(), "STDIN_CLOSED");
    let slow = server.start_background(&id, json!({"command": "sleep 1000", "stdin": true}));
    let piece = json!({"data": "x".repeat(256 << 10)});
    let refused = std::iter::repeat_with(|| stdin(&slow, &piece)).take(9).find(|answer| answer.status != 204);
    let refused = refused.expect("something is refused");
    assert_eq!(refused.error(), "STDIN_FULL");
    assert_eq!(refused.json()["error"]["details"]["written"], 0);
    let reader = server
        .start_background(&id, json!({"command": "sleep 0.5; wc -c; exec <&-; sleep 1000", "stdin": true}));
    for _ in 0..8 {
        assert_eq!(
            stdin(&reader, &json!({"data": "x".repeat(1 << 20)})).status,
            204,
            "it waits for the reader"
        );
    }
    assert_eq!(stdin(&reader, &json!({"close": true})).status, 204);
    assert_eq!(stdin(&reader, &json!({"data": "x"})).error(), "STDIN_CLOSED");
    let mut output = Stream::output(&server, &id, &reader, None).begun();
    assert_eq!(output.first().bytes(), b"8388608\n");
}

#[test]
fn only_old_ended_commands_are_removed() {
    let server = TestServer::with(&[("COMMANDS_KEPT", "20")]);
    let id = server.create();
    let running = server.start_background(&id, json!({"command": "echo here; sleep 1000"}));
    let old = server.run(&id, "echo old")["commandId"].as_str().unwrap().to_owned();
    for n in 0..60 {
        server.output_of(&id, &format!("echo {n}"));
    }
    let count = || server.get(&format!("/api/v1/sandboxes/{id}/process?limit=1000")).json()["items"].clone();
    wait_until("old ones are forgotten", || count().as_array().unwrap().len() <= 24);
    assert!(count().as_array().unwrap().len() >= 21);
    assert_eq!(server.command(&id, &running)["state"], "running");
    let output = server.path().join("sandboxes").join(&id).join("output");
    assert!(names(&output).len() <= 25);
    let gone = server.get(&format!("/api/v1/sandboxes/{id}/process/{old}/output"));
    assert_eq!(gone.error(), "COMMAND_NOT_FOUND");
    let mut stream = Stream::output(&server, &id, &running, None).begun();
    assert_eq!(stream.first().bytes(), b"here\n");
}

#[test]
fn a_disconnect_kills_the_command_only_on_request() {
    let server = TestServer::new();
    let id = server.create();
    for (kill, stream) in [(true, true), (true, false), (false, true), (false, false)] {
        let body = json!({"command": "echo begun; sleep 4321", "killOnDisconnect": kill, "stream": stream});
        let mut connection = Stream::run_as(&server, &id, &body);
        let running = || {
            let list = server.get(&format!("/api/v1/sandboxes/{id}/process?limit=1")).json();
            list["items"][0].clone()
        };
        wait_until("it runs", || running()["state"] == "running");
        let command = running()["commandId"].as_str().unwrap().to_owned();
        if stream {
            connection = connection.begun();
            assert_eq!(connection.first().bytes(), b"begun\n");
        }
        connection.socket().shutdown(Shutdown::Both).unwrap();
        drop(connection);
        if kill {
            wait_until_within(Duration::from_secs(5), "it is killed", || {
                server.command(&id, &command)["exitCode"] == 137
            });
        } else {
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(server.command(&id, &command)["state"], "running");
            server.post(&format!("/api/v1/sandboxes/{id}/process/{command}/kill"), &json!({"signal": 9}));
            wait_until("it ended", || server.command(&id, &command)["state"] == "exited");
        }
    }
}

#[test]
fn a_stream_that_ends_kills_no_background_process() {
    let server = TestServer::new();
    let id = server.create();
    let body = json!({"command": "sleep 4322 & echo begun", "killOnDisconnect": true, "stream": true});
    let mut connection = Stream::run_as(&server, &id, &body).begun();
    while connection.next().is_some_and(|event| !event.is_last()) {}
    drop(connection);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(server.run(&id, "pgrep -f 'sleep 4322$'")["exitCode"], 0);
}

/// Command that prints numbers slowly, so that the connection can be cut in between.
const COUNT: &str = "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.005; done";

fn counted() -> Vec<u8> {
    (0..400).flat_map(|n| format!("line {n}\n").into_bytes()).collect()
}

#[test]
fn a_resumed_stream_has_no_gap_and_no_repetition() {
    let server = TestServer::new();
    let id = server.create();
    let command = server.start_background(&id, json!({ "command": COUNT }));
    let (mut events, mut behind): (Vec<Event>, u64) = (Vec::new(), 0);
    while !events.last().is_some_and(Event::is_last) {
        let last = events.last().map(|event| event.id.clone());
        let mut stream = Stream::output(&server, &id, &command, last.as_deref()).begun();
        let some: Vec<Event> = std::iter::from_fn(|| stream.next()).take(7).collect();
        behind = assert_seamless(&some, behind);
        events.extend(some);
    }
    assert_eq!(printed(&events), counted());
}

#[test]
fn a_stream_can_be_resumed_after_a_server_kill() {
    let mut server = TestServer::new();
    let id = server.create();
    let mut stream = Stream::run(&server, &id, json!({ "command": COUNT })).begun();
    let mut events: Vec<Event> = std::iter::from_fn(|| stream.next()).take(5).collect();
    let command = events[0].data["commandId"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        server.restart();
        let last = events.last().unwrap().id.clone();
        let mut stream = Stream::output(&server, &id, &command, Some(&last)).begun();
        let some: Vec<Event> = std::iter::from_fn(|| stream.next()).take(20).collect();
        assert_seamless(&some, last.parse().unwrap());
        assert!(!some.is_empty());
        events.extend(some);
    }
    let last = events.last().unwrap().id.clone();
    if !events.last().unwrap().is_last() {
        events.extend(Stream::output(&server, &id, &command, Some(&last)).begun().rest());
    }
    assert_eq!(printed(&events), counted());
    let end = &events.last().unwrap().data;
    assert_eq!((&end["type"], &end["exitCode"]), (&json!("exit"), &json!(0)));
    wait_until("it is written down", || server.command(&id, &command)["state"] == "exited");
}

#[test]
fn dropped_output_is_reported_as_a_gap() {
    let server = TestServer::with(&[("OUTPUT_KEEP", "256k")]);
    let id = server.create();
    let result = server.run_with(&id, &json!({"command": "seq 1 500000", "maxOutputSize": 67_108_864}));
    let command = result["commandId"].as_str().unwrap();
    let whole: Vec<u8> = (1..=500_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let events = Stream::output(&server, &id, command, None).begun().rest();
    assert_eq!(events[0].kind, "gap");
    let (from, to) = (events[0].data["from"].as_u64().unwrap(), events[0].data["to"].as_u64().unwrap());
    assert!(from == 0 && whole.len() as u64 - to >= 256 << 10, "{from} {to}");
    assert_eq!(assert_seamless(&events[1..], to), whole.len() as u64);
    assert_eq!(printed(&events), &whole[to as usize..]);
}

#[test]
fn a_slow_client_neither_blocks_others_nor_uses_memory() {
    let server = TestServer::with(&[("OUTPUT_KEEP", "64m")]);
    let id = server.create();
    let size: u64 = 48 << 20;
    let print = format!("sleep 0.3; head -c {size} /dev/zero | tr '\\0' x");
    let command = server.start_background(&id, json!({ "command": print }));
    // These clients request all output and read nothing.
    let slow: Vec<Stream> = (0..8).map(|_| Stream::output(&server, &id, &command, None)).collect();
    let before = server.resident_bytes();
    // The command ends, so it does not wait for clients that do not read.
    let fast = Stream::output(&server, &id, &command, None).begun().rest();
    assert_eq!(assert_seamless(&fast, 0), size);
    let grown = server.resident_bytes().saturating_sub(before);
    // Without limits, the unread streams would need 8 × 48 MiB.
    assert!(grown < 96 << 20, "grew by {} MiB", grown >> 20);
    server.run(&id, "true");
    // A slow client still gets all output.
    let late = slow.into_iter().next().unwrap().begun().rest();
    assert_eq!(assert_seamless(&late, 0), size);
}

#[test]
fn the_number_of_running_commands_is_limited() {
    let mut server = TestServer::with(&[("MAX_COMMANDS", "3")]);
    let id = server.create();
    let path = format!("/api/v1/sandboxes/{id}/process/run");
    let run = |server: &TestServer| server.post(&path, &json!({"command": "sleep 1000", "background": true}));
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12).map(|_| scope.spawn(|| run(&server))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let (begun, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 202);
    assert_eq!(begun.len(), 3, "{answers:?}");
    for answer in refused {
        assert_eq!((answer.status, answer.error().as_str()), (429, "COMMAND_LIMIT_EXCEEDED"));
        assert_eq!(answer.json()["error"]["details"]["limit"], 3);
    }
    // A request in progress is lost with the server, and the client gets an error.
    let output = server.path().join("sandboxes").join(&id).join("output");
    let has_begun = |answer: &&Answer| {
        let id = answer.json()["commandId"].as_str().unwrap().to_owned();
        names(&output).iter().any(|name| name.contains(&id))
    };
    wait_until("all three have begun", || begun.iter().all(has_begun));
    // The next server counts running commands before it accepts requests.
    server.restart();
    wait_until("the guest is back", || server.sandbox(&id)["agentConnected"] == true);
    assert_eq!(run(&server).error(), "COMMAND_LIMIT_EXCEEDED");
    let one = begun[0].json()["commandId"].as_str().unwrap().to_owned();
    let killed = server.post(&format!("/api/v1/sandboxes/{id}/process/{one}/kill"), &json!({"signal": 9}));
    assert_eq!(killed.status, 204, "{}", killed.body);
    wait_until("there is room again", || server.command(&id, &one)["state"] != "running");
    assert_eq!(run(&server).status, 202);
    assert_eq!(run(&server).error(), "COMMAND_LIMIT_EXCEEDED");
}

#[test]
fn missing_output_is_reported() {
    let server = TestServer::new();
    let id = server.create();
    let command = server.run(&id, "echo printed")["commandId"].as_str().unwrap().to_owned();
    wait_until("its end is written down", || server.command(&id, &command)["state"] == "exited");
    let output = format!("/api/v1/sandboxes/{id}/process/{command}/output");
    assert!(server.get(&output).body.contains("printed"));
    let directory = server.path().join("sandboxes").join(&id).join("output");
    for file in names(&directory).iter().filter(|name| name.contains(&command)) {
        std::fs::remove_file(directory.join(file)).unwrap();
    }
    wait_until("it is gone", || {
        let answer = server.get(&output);
        answer.status == 410 && answer.error() == "OUTPUT_UNAVAILABLE"
    });
    assert_eq!(server.output_of(&id, "echo next"), "next\n");
}

fn run_once(server: &TestServer, id: &str, key: &str, body: &Value) -> Answer {
    server.call("POST", &run_path(id)).header("idempotency-key", key).json(&body.to_string()).send()
}

#[test]
fn a_repeated_request_does_not_run_a_command_twice() {
    let mut server = TestServer::new();
    let id = server.create();
    let slow = json!({"command": "echo x >> /workspace/count; sleep 1; wc -l < /workspace/count; exit 3"});
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4).map(|_| scope.spawn(|| run_once(&server, &id, "one", &slow))).collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    let first = answers[0].json();
    assert_eq!((&first["stdout"], &first["exitCode"]), (&json!("1\n"), &json!(3)), "{first}");
    for answer in &answers {
        assert_eq!((answer.status, answer.json()), (200, first.clone()), "{}", answer.body);
    }
    let background = json!({"command": "echo y >> /workspace/other; sleep 3; echo done", "background": true});
    let command = run_once(&server, &id, "two", &background).json()["commandId"].clone();
    wait_until("it began", || server.run(&id, "cat /workspace/other")["stdout"] == "y\n");
    // After a restart: while the command runs, and when it has ended.
    server.restart();
    wait_until("the guest is back", || server.sandbox(&id)["agentConnected"] == true);
    assert_eq!(run_once(&server, &id, "two", &background).json()["commandId"], command);
    assert_eq!(run_once(&server, &id, "one", &slow).json(), first);
    let events = Stream::output(&server, &id, command.as_str().unwrap(), None).begun().rest();
    assert_eq!(printed(&events), b"done\n");
    assert_eq!(run_once(&server, &id, "two", &background).json()["commandId"], command);
    assert_eq!(server.output_of(&id, "cat /workspace/count /workspace/other"), "x\ny\n");

    let other = json!({"command": "true"});
    assert_eq!(run_once(&server, &id, "one", &other).error(), "IDEMPOTENCY_CONFLICT");
    let elsewhere = server.create();
    assert_eq!(run_once(&server, &elsewhere, "one", &other).status, 200, "a key is for one sandbox");
    assert_eq!(run_once(&server, "sbx-none", "one", &other).error(), "SANDBOX_NOT_FOUND");
    let bob = server.key("bob", "user");
    let call = server.call_as(&bob, "POST", &run_path(&id)).header("idempotency-key", "one");
    assert_eq!(call.json(&slow.to_string()).send().error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn a_body_without_required_fields_may_be_left_out() {
    let server = TestServer::new();
    let id = server.create();
    let command = server.start_background(&id, json!({"command": "while :; do sleep 1; done"}));
    let kill = format!("/api/v1/sandboxes/{id}/process/{command}/kill");
    assert_eq!(server.call("POST", &kill).body(b"{}").send().error(), "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(server.call("POST", &kill).send().status, 204);
    wait_until("it ended", || server.command(&id, &command)["exitCode"] == 143);
    assert_eq!(server.call("POST", &format!("/api/v1/sandboxes/{id}/commit")).send().status, 201);
    let forked = server.call("POST", &format!("/api/v1/sandboxes/{id}/fork")).send();
    assert_eq!((forked.status, forked.json()["sandboxes"].as_array().unwrap().len()), (201, 1));
    assert_eq!(server.call("POST", &run_path(&id)).send().error(), "UNSUPPORTED_MEDIA_TYPE");
}

#[test]
fn text_is_never_cut_within_a_character() {
    let server = TestServer::new();
    let id = server.create();
    // One byte before characters of three bytes, so that every boundary of 64 KiB is within a character.
    let command = "printf x; yes € | tr -d '\\n' | head -c 300000; printf y >&2; yes 😀 | tr -d '\\n' | head -c 400000 >&2";
    let events = Stream::run(&server, &id, json!({ "command": command })).begun().rest();
    // The order of stdout and stderr is not defined.
    for (stream, expected) in
        [("stdout", format!("x{}", "€".repeat(100_000))), ("stderr", format!("y{}", "😀".repeat(100_000)))]
    {
        let of_stream: Vec<Event> = events.iter().filter(|event| event.kind == stream).cloned().collect();
        assert!(printed(&of_stream) == expected.as_bytes(), "{stream} is not what was printed");
    }
    assert_seamless(&events, 0);
    assert!(events.iter().all(|event| event.data.get("dataBase64").is_none()));
    assert!(events.len() > 5, "it came in pieces");
    let cmd = events[0].data["commandId"].as_str().unwrap();
    for event in events.iter().take(6) {
        let again = Stream::output(&server, &id, cmd, Some(&event.id)).begun().rest();
        assert!(again.iter().all(|event| event.data.get("dataBase64").is_none()));
        assert_seamless(&again, event.id.parse().unwrap());
    }
    let whole = server.run_with(&id, &json!({"command": command, "maxOutputSize": 1 << 20}));
    assert_eq!((whole["stdout"].as_str().unwrap().len(), whole.get("stdoutBase64")), (300_001, None));
    assert_eq!((whole["stderr"].as_str().unwrap().len(), whole.get("stderrBase64")), (400_001, None));
    let cut = server.run_with(&id, &json!({"command": command, "maxOutputSize": 1_000}));
    assert_eq!((cut["stdout"].as_str().unwrap().len(), cut.get("stdoutBase64")), (1_000, None));
    let cut = server.run_with(&id, &json!({"command": command, "maxOutputSize": 999}));
    assert_eq!((cut["stdout"].as_str().unwrap().len(), cut.get("stdoutBase64")), (997, None));
    assert_eq!(cut["truncated"], true);
    let logs = server.get(&format!("/api/v1/sandboxes/{id}/logs")).json();
    assert!(!logs["logs"].as_str().unwrap().contains('\u{fffd}'));
    // Output that is not UTF-8 is unchanged, also an incomplete character at the end.
    assert_eq!(server.run(&id, "printf 'a\\342\\202'")["stdoutBase64"], "YeKC");
}

#[test]
fn a_command_of_maximum_length_works() {
    let server = TestServer::new();
    let id = server.create();
    let body = "echo \"$0 $#\"; read x; echo \"got $x\"; ls /proc/self/fd | tr '\\n' ' '; exit 7";
    let run = |padding: usize| {
        let command = format!("{body}\n# {}", "x".repeat(padding));
        let command = server.start_background(&id, json!({"command": command, "stdin": true}));
        let stdin = format!("/api/v1/sandboxes/{id}/process/{command}/stdin");
        assert_eq!(server.post(&stdin, &json!({"data": "input\n", "close": true})).status, 204);
        let events = Stream::output(&server, &id, &command, None).begun().rest();
        let code = events.last().unwrap().data["exitCode"].clone();
        (String::from_utf8(printed(&events)).unwrap(), code)
    };
    let short = run(1);
    assert!(short.0.contains("/bin/sh 0\ngot input\n0 1 2 3") && short.1 == 7, "{short:?}");
    for padding in [(128 << 10) - body.len() - 4, 128 << 10, (1 << 20) - body.len() - 3] {
        assert_eq!(run(padding), short, "{padding}");
    }
    let long = server.post(&run_path(&id), &json!({"command": "x".repeat((1 << 20) + 1)}));
    assert_eq!(long.error(), "INVALID_REQUEST");
}

#[test]
fn processes_left_by_a_command_are_listed_and_can_be_killed() {
    let server = TestServer::new();
    let id = server.create();
    let list = || server.get(&format!("/api/v1/sandboxes/{id}/processes")).json()["items"].clone();
    assert_eq!(list(), json!([]));
    let command = server.run(&id, "setsid sleep 12345 > /dev/null 2>&1 &")["commandId"].clone();
    let running = server.start_background(&id, json!({"command": "exec sleep 54321"}));
    let runs = |list: Value| {
        list.as_array().unwrap().iter().all(|one| one["arguments"].as_str().unwrap().starts_with("sleep"))
    };
    wait_until("both are listed", || list().as_array().unwrap().len() == 2 && runs(list()));
    let processes = list();
    let found = |id: &str| processes.as_array().unwrap().iter().find(|one| one["commandId"] == id).unwrap();
    let left = found(command.as_str().unwrap());
    assert_eq!((&left["left"], &left["arguments"]), (&json!(true), &json!("sleep 12345")));
    assert_eq!(
        (&found(&running)["left"], &found(&running)["arguments"]),
        (&json!(false), &json!("sleep 54321"))
    );
    let kill = format!("/api/v1/sandboxes/{id}/process/{}/kill", command.as_str().unwrap());
    assert_eq!(server.call("POST", &kill).send().status, 204);
    wait_until("it ended", || list().as_array().unwrap().len() == 1);
    assert_eq!(server.call("POST", &kill).send().error(), "COMMAND_NOT_RUNNING");
    let other = server.key("bob", "user");
    let hidden = server.call_as(&other, "GET", &format!("/api/v1/sandboxes/{id}/processes")).send();
    assert_eq!(hidden.error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn closing_stdin_of_an_exiting_command_does_not_block() {
    let server = TestServer::new();
    let id = server.create();
    for round in 0..30 {
        let command = server.start_background(&id, json!({"command": "read x", "stdin": true}));
        let stdin = format!("/api/v1/sandboxes/{id}/process/{command}/stdin");
        let answer = server.post(&stdin, &json!({"data": "line\n", "close": true}));
        assert!([204, 409].contains(&answer.status), "{round}: {}", answer.body);
    }
}
