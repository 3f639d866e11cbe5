//! Lineage of sandboxes, traces, notes and the causes of differences.

use serde_json::{Value, json};

use super::test_server::{TestServer, wait_until};
use crate::support::Answer;
use workspace_sandbox::TRACE_PENDING;

fn path_of(id: &str, rest: &str) -> String {
    format!("/api/v1/sandboxes/{id}{rest}")
}

fn post_as(server: &TestServer, key: &str, path: &str, body: &Value) -> Answer {
    server.call_as(key, "POST", path).json(&body.to_string()).send()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Runs a command as that key. Returns the result.
fn run(server: &TestServer, key: &str, id: &str, command: &str) -> Value {
    let answer = post_as(server, key, &path_of(id, "/process/run"), &json!({ "command": command }));
    assert_eq!(answer.status, 200, "{}", answer.body);
    with_trace(server, id, answer.json())
}

/// Returns a result or an event of a command with the outcome of its trace, which a slow machine may not know yet.
fn with_trace(server: &TestServer, id: &str, mut result: Value) -> Value {
    if result.get("traceError").is_some_and(|error| error == TRACE_PENDING) {
        let record = path_of(id, &format!("/process/{}", text(&result["commandId"])));
        wait_until("it is traced", || {
            let record = server.get(&record).json();
            record["state"] == "exited" && record["traceError"] != TRACE_PENDING
        });
        let record = server.get(&record).json();
        let fields = result.as_object_mut().unwrap();
        fields.remove("traceError");
        if record["snapshot"].is_string() {
            fields.insert("snapshot".to_owned(), record["snapshot"].clone());
        }
    }
    result
}

fn note(server: &TestServer, key: &str, id: &str, body: &Value) -> Value {
    let answer = post_as(server, key, &path_of(id, "/notes"), body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

#[test]
fn sandboxes_have_their_lineage() {
    let server = TestServer::new();
    let alice = server.key("alice", "user");
    let project = post_as(&server, &alice, "/api/v1/projects", &json!({"name": "checkout"}));
    assert_eq!(project.status, 201, "{}", project.body);
    let body = json!({"template": "base", "project": "checkout", "agent": "fixer-7", "trace": "command"});
    let made = post_as(&server, &alice, "/api/v1/sandboxes", &body);
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    let id = text(&made["id"]);
    assert_eq!((&made["createdBy"], made.get("forkedFrom")), (&json!("a test"), None));
    let fork = post_as(&server, &alice, &path_of(&id, "/fork"), &json!({})).json();
    let fork = &fork["sandboxes"][0];
    assert_eq!(fork["forkedFrom"], id);
    for sandbox in [&made, fork] {
        let lineage = (&sandbox["project"], &sandbox["agent"], &sandbox["trace"]);
        assert_eq!(lineage, (&json!("checkout"), &json!("fixer-7"), &json!("command")));
    }
    let plain = post_as(&server, &alice, "/api/v1/sandboxes", &json!({"template": "base"})).json();
    assert!(plain.get("project").is_none() && plain.get("trace").is_none(), "{plain}");
    let total = |key: &str, query: &str| {
        server.call_as(key, "GET", &format!("/api/v1/sandboxes?{query}")).send().json()["total"].clone()
    };
    assert_eq!(total(&alice, "project=checkout"), 2);
    assert_eq!(total(&alice, "project=checkout&agent=nobody"), 0);
    assert_eq!(total(&alice, "agent=fixer-7&limit=1"), 2);
    assert_eq!(total(&server.key("bob", "user"), "project=checkout"), 0);
    let events = |query: &str| {
        let page =
            server.call_as(&alice, "GET", &format!("/api/v1/events?type=sandbox.created&{query}")).send();
        page.json()["items"].as_array().unwrap().len()
    };
    assert_eq!((events("project=checkout"), events("project=other"), events("")), (2, 0, 3));
    for wrong in [json!(""), json!("a\nb"), json!("x".repeat(129)), json!(7)] {
        let body = json!({"template": "base", "project": wrong});
        assert_eq!(
            post_as(&server, &alice, "/api/v1/sandboxes", &body).error(),
            "INVALID_REQUEST",
            "{wrong}"
        );
    }
    let wrong = json!({"template": "base", "trace": "all"});
    assert_eq!(post_as(&server, &alice, "/api/v1/sandboxes", &wrong).error(), "INVALID_REQUEST");
}

#[test]
fn commands_and_notes_explain_differences() {
    let server = TestServer::new();
    let (alice, bob) = (server.key("alice", "user"), server.key("bob", "user"));
    let made =
        post_as(&server, &alice, "/api/v1/sandboxes", &json!({"template": "base", "trace": "command"}));
    let id = text(&made.json()["id"]);
    let first = run(&server, &alice, &id, "echo one > a; echo one > b");
    let a = text(&first["snapshot"]);
    assert!(run(&server, &alice, &id, "cat a").get("snapshot").is_none());
    let pending = note(&server, &alice, &id, &json!({"text": "two lines", "data": {"tokens": 8}}));
    assert_eq!(pending["snapshot"], Value::Null);
    let second = run(&server, &alice, &id, "echo two >> a");
    let third = run(&server, &alice, &id, "mv b c; exit 3");
    let b = text(&third["snapshot"]);
    let about = json!({"text": "a better name", "command": third["commandId"]});
    assert_eq!(note(&server, &alice, &id, &about)["snapshot"], b);

    let record = server.command(&id, third["commandId"].as_str().unwrap());
    assert_eq!((&record["snapshot"], &record["traceError"]), (&json!(b), &Value::Null));
    let why = format!("/api/v1/snapshots/{a}/diff/{b}?why=true");
    let diff = server.call_as(&alice, "GET", &why).send().json();
    assert_eq!(diff["causes_complete"], true, "{diff}");
    let causes = |path: &str| {
        let entries = diff["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["path"] == path).unwrap()["causes"].clone()
    };
    assert_eq!((causes("a"), causes("c")), (json!([second["snapshot"]]), json!([b])));
    let detail = |snapshot: &Value| {
        let all = diff["causes"].as_array().unwrap();
        all.iter().find(|cause| cause["snapshot"] == *snapshot).unwrap().clone()
    };
    let second_cause = detail(&second["snapshot"]);
    assert_eq!(
        (&second_cause["command"], &second_cause["message"]),
        (&second["commandId"], &json!("echo two >> a"))
    );
    assert_eq!(second_cause["notes"][0]["text"], "two lines");
    assert_eq!(detail(&json!(b))["notes"][0]["text"], "a better name");
    let insight = server.call_as(&alice, "GET", &format!("{why}&insight=true")).send().json();
    assert_eq!(insight["entries"][0]["causes"], diff["entries"][0]["causes"]);
    assert!(insight["totals"].is_object());
    let plain = server.call_as(&alice, "GET", &format!("/api/v1/snapshots/{a}/diff/{b}")).send().json();
    assert!(plain.get("causes").is_none() && plain["entries"][0].get("causes").is_none(), "{plain}");
    assert_eq!(server.call_as(&alice, "GET", &format!("{why}&patch=true")).send().error(), "INVALID_REQUEST");
    let changes = server.call_as(&alice, "GET", &path_of(&id, "/changes?why=true")).send();
    assert_eq!(changes.error(), "INVALID_REQUEST");
    assert_eq!(server.call_as(&bob, "GET", &why).send().error(), "SNAPSHOT_NOT_FOUND");

    // Notes live as long as their snapshot, and longer than the sandbox.
    assert_eq!(server.call_as(&alice, "DELETE", &path_of(&id, "")).send().status, 204);
    let diff = server.call_as(&alice, "GET", &why).send().json();
    assert!(diff.to_string().contains("two lines"), "{diff}");
    let gone = format!("/api/v1/snapshots/{}", text(&second["snapshot"]));
    assert_eq!(server.call_as(&alice, "DELETE", &gone).send().status, 204);
    let diff = server.call_as(&alice, "GET", &why).send().json();
    assert_eq!(diff["causes_complete"], false);
    assert!(!diff.to_string().contains("two lines"), "{diff}");
}

#[test]
fn streams_have_the_snapshot_of_their_command() {
    let server = TestServer::new();
    let id = server.create_with(json!({"trace": "command"}));
    let body = json!({"command": "echo x > x", "stream": true});
    let stream = server.post(&path_of(&id, "/process/run"), &body);
    let exit = stream.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let exit = with_trace(&server, &id, serde_json::from_str(exit).unwrap());
    assert_eq!(exit["type"], "exit");
    let snapshot = text(&exit["snapshot"]);
    let found = server.get(&format!("/api/v1/snapshots/{snapshot}")).json();
    assert_eq!(found["labels"]["command"], exit["commandId"]);
    // The output of the ended command has the snapshot, too.
    let again = server.get(&path_of(&id, &format!("/process/{}/output", text(&exit["commandId"]))));
    assert!(again.body.contains(&format!("\"snapshot\":\"{snapshot}\"")), "{}", again.body);
    let timeout = server
        .post(&path_of(&id, "/process/run"), &json!({"command": "echo y > x; sleep 60", "timeout": 300}));
    assert_eq!(timeout.error(), "PROCESS_TIMEOUT");
    let command = text(&timeout.json()["error"]["details"]["commandId"]);
    wait_until("it is traced", || server.command(&id, &command)["snapshot"].is_string());
}

#[test]
fn notes_are_listed_in_pages_and_bounded() {
    let server = TestServer::with(&[("MAX_NOTES_PER_SANDBOX", "5"), ("MAX_NOTES_PER_OWNER", "6")]);
    let (alice, bob) = (server.key("alice", "user"), server.key("bob", "user"));
    let create = |key: &str| {
        let made = post_as(&server, key, "/api/v1/sandboxes", &json!({"template": "base"}));
        text(&made.json()["id"])
    };
    let (id, other) = (create(&alice), create(&alice));
    let notes = path_of(&id, "/notes");
    for number in 0..5 {
        note(&server, &alice, &id, &json!({"text": format!("note {number}")}));
    }
    let full = post_as(&server, &alice, &notes, &json!({"text": "one more"}));
    assert_eq!((full.error().as_str(), full.status), ("NOTE_LIMIT_EXCEEDED", 429));
    assert_eq!(full.json()["error"]["details"]["setting"], "MAX_NOTES_PER_SANDBOX");
    note(&server, &alice, &other, &json!({"text": "the sixth"}));
    let full = post_as(&server, &alice, &path_of(&other, "/notes"), &json!({"text": "the seventh"}));
    assert_eq!(full.json()["error"]["details"]["setting"], "MAX_NOTES_PER_OWNER");
    note(&server, &bob, &create(&bob), &json!({"text": "mine"}));

    let page = |query: &str| {
        let page = server.call_as(&alice, "GET", &format!("{notes}?{query}")).send().json();
        let texts: Vec<String> =
            page["items"].as_array().unwrap().iter().map(|it| text(&it["text"])).collect();
        (texts.join(","), page)
    };
    let (texts, first) = page("limit=2");
    assert_eq!((texts.as_str(), &first["total"]), ("note 0,note 1", &json!(5)));
    let (texts, second) = page(&format!("limit=3&cursor={}", text(&first["next"])));
    assert_eq!((texts.as_str(), second.get("next")), ("note 2,note 3,note 4", None));
    let (texts, newest) = page("sort=newest&limit=2");
    assert_eq!(texts, "note 4,note 3");
    assert_eq!(
        page(&format!("sort=newest&limit=9&cursor={}", text(&newest["next"]))).0,
        "note 2,note 1,note 0"
    );
    assert_eq!(page("command=cmd-none").1["total"], 0);
    for wrong in ["limit=0", "limit=1001", "sort=best", "page=1"] {
        let answer = server.call_as(&alice, "GET", &format!("{notes}?{wrong}")).send();
        assert_eq!(answer.error(), "INVALID_REQUEST", "{wrong}");
    }
    for (wrong, name) in [
        (json!({}), "INVALID_REQUEST"),
        (json!({"text": ""}), "INVALID_REQUEST"),
        (json!({"text": "a\u{0}b"}), "INVALID_REQUEST"),
        (json!({"text": "a", "data": [1]}), "INVALID_REQUEST"),
        (json!({"text": "a", "more": 1}), "INVALID_REQUEST"),
        (json!({"text": "x".repeat(16 * 1024 + 1)}), "PAYLOAD_TOO_LARGE"),
        (json!({"text": "a", "data": {"a": "x".repeat(64 * 1024)}}), "PAYLOAD_TOO_LARGE"),
        (json!({"text": "a", "command": "cmd-none"}), "COMMAND_NOT_FOUND"),
    ] {
        let answer = post_as(&server, &alice, &notes, &wrong);
        assert_eq!(answer.error(), name, "{}", answer.body);
    }
    // Notes of a deleted sandbox do not count any more.
    assert_eq!(server.call_as(&alice, "DELETE", &path_of(&id, "")).send().status, 204);
    wait_until("there is room again", || {
        post_as(&server, &alice, &path_of(&other, "/notes"), &json!({"text": "again"})).status == 201
    });
}

#[test]
fn a_killed_server_loses_no_trace() {
    let mut server = TestServer::new();
    let id = server.create_with(json!({"trace": "command"}));
    let mut commands = Vec::new();
    for number in 0..5 {
        let body =
            json!({"command": format!("sleep 0.2; echo {number} > file-{number}"), "background": true});
        let command = text(&server.post(&path_of(&id, "/process/run"), &body).json()["commandId"]);
        let record = path_of(&id, &format!("/process/{command}"));
        // A server that is killed before it has sent the command fails it.
        wait_until("it has begun", || server.get(&record).json()["pid"].is_u64());
        commands.push(command);
        server.restart();
        wait_until("the guest is back", || server.sandbox(&id)["agentConnected"] == true);
    }
    wait_until("all have ended", || {
        commands.iter().all(|command| server.command(&id, command)["state"] == "exited")
    });
    let records: Vec<Value> = commands.iter().map(|command| server.command(&id, command)).collect();
    assert!(records.iter().all(|record| record["exitCode"] == 0), "{records:?}");
    // Each file is in the snapshot of a command, and each snapshot has an owner.
    let last = records.iter().rev().find_map(|record| record["snapshot"].as_str()).unwrap();
    let tree = server.get(&format!("/api/v1/snapshots/{last}/tree")).json();
    assert_eq!(tree["total"], 5, "{records:?}");
}
