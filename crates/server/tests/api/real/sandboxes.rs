//! Life cycle of sandboxes.

use std::time::Duration;

use serde_json::{Value, json};

use super::test_server::{TestServer, wait_until};
use crate::support::Answer;

fn time(value: &Value) -> i64 {
    value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

fn lifetime(sandbox: &Value) -> i64 {
    (time(&sandbox["expiresAt"]) - time(&sandbox["createdAt"])) / 1_000
}

#[test]
fn a_sandbox_has_all_fields_and_defaults() {
    let server = TestServer::new();
    let answer = server.post("/api/v1/sandboxes", &json!({ "template": "base" }));
    assert_eq!(answer.status, 201, "{}", answer.body);
    let sandbox = answer.json();
    let id = sandbox["id"].as_str().unwrap();
    assert!(id.starts_with("sbx-"), "{sandbox}");
    assert_eq!((&sandbox["state"], &sandbox["template"]), (&json!("running"), &json!("base")));
    assert_eq!((&sandbox["network"], &sandbox["labels"]), (&json!("none"), &json!({})));
    assert_eq!(sandbox["agentConnected"], true);
    assert!(sandbox.get("name").is_none());
    assert_eq!(lifetime(&sandbox), 3_600);
    let resources = json!({"cpu": "2", "memory": 2_u64 << 30, "disk": 10_u64 << 30, "processes": 512});
    assert_eq!(sandbox["resources"], resources);
    assert_eq!(server.sandbox(id), sandbox);
    assert_eq!(server.output_of(id, "pwd; id -u"), "/workspace\n1000\n");
}

#[test]
fn requested_options_apply_in_both_spellings() {
    let server = TestServer::new();
    for timeout in ["timeout_seconds", "timeoutSeconds"] {
        let id = server.create_with(json!({
            "name": "mine", timeout: 77, "envs": {"A": "1", "B": "two words"}, "labels": {"team": "red"},
            "resources": {"cpu": "0.5", "memory": "256m", "disk": "1g", "processes": 99},
        }));
        let sandbox = server.sandbox(&id);
        assert_eq!((&sandbox["name"], lifetime(&sandbox)), (&json!("mine"), 77));
        let resources = json!({"cpu": "0.5", "memory": 256 << 20, "disk": 1 << 30, "processes": 99});
        assert_eq!(sandbox["resources"], resources);
        assert_eq!(server.output_of(&id, "echo $A $B"), "1 two words\n");
        let result = server.run_with(&id, &json!({"command": "echo $A $B", "envs": {"B": "three"}}));
        assert_eq!(result["stdout"], "1 three\n");
    }
}

#[test]
fn lists_are_paged_and_filtered() {
    let server = TestServer::new();
    let made: Vec<String> = (0..5)
        .map(|n| {
            let (name, colour) = (format!("a%_{n}"), if n % 2 == 0 { "red" } else { "blue" });
            server.create_with(json!({"name": name, "labels": {"colour": colour, "n": n.to_string()}}))
        })
        .collect();
    server.create_with(json!({"name": "B"}));
    let list = |query: &str| server.get(&format!("/api/v1/sandboxes{query}")).json();
    let ids = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = list("");
    assert_eq!((&all["total"], &all["page"], &all["limit"]), (&json!(6), &json!(1), &json!(20)));
    assert_eq!(all["items"].as_array().unwrap().len(), 6);
    for spelling in ["name_prefix", "namePrefix"] {
        let named = list(&format!("?{spelling}=a%25_"));
        assert_eq!(ids(&named), made.iter().rev().cloned().collect::<Vec<_>>());
    }
    assert_eq!(list("?name_prefix=A")["total"], 0, "case counts");
    assert_eq!(list("?name_prefix=a_")["total"], 0, "no wildcards");
    let second = list("?page=2&limit=2&name_prefix=a");
    assert_eq!((&second["total"], second["items"].as_array().unwrap().len()), (&json!(5), 2));
    assert_eq!(ids(&second), [made[2].clone(), made[1].clone()]);
    assert_eq!(list("?page=9")["items"], json!([]));
    assert_eq!(list("?state=running")["total"], 6);
    assert_eq!(list("?state=stopped")["total"], 0);
    assert_eq!(list("?labels=colour=red")["total"], 3);
    assert_eq!(ids(&list("?labels=colour=red,n=4")), [made[4].clone()]);
    for wrong in ["page=0", "limit=0", "limit=101", "page=x", "state=happy", "labels=colour", "colour=red"] {
        let answer = server.get(&format!("/api/v1/sandboxes?{wrong}"));
        assert_eq!(answer.error(), "INVALID_REQUEST", "{wrong}");
    }
}

#[test]
fn only_labels_are_replaced() {
    let server = TestServer::new();
    let id = server.create_with(json!({"name": "a", "labels": {"one": "1", "two": "2"}}));
    let path = format!("/api/v1/sandboxes/{id}");
    let patch = |body: &Value| server.call("PATCH", &path).json(&body.to_string()).send();
    let changed = patch(&json!({"labels": {"two": "", "three": "$(id) 'x' \\ \u{fc}"}}));
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert_eq!(changed.json()["labels"], json!({"two": "", "three": "$(id) 'x' \\ \u{fc}"}));
    assert_eq!(server.sandbox(&id)["name"], "a");
    for wrong in [json!({}), json!({"labels": {"a": 1}}), json!({"labels": {}, "name": "b"})] {
        assert_eq!(patch(&wrong).error(), "INVALID_REQUEST", "{wrong}");
    }
    assert_eq!(patch(&json!({"labels": {"": "x"}})).error(), "INVALID_REQUEST");
    assert_eq!(patch(&json!({"labels": {"a": "x".repeat(257)}})).error(), "INVALID_REQUEST");
}

#[test]
fn a_deleted_sandbox_leaves_nothing() {
    let server = TestServer::new();
    let id = server.create();
    let guest = server.guest_process(&id).unwrap();
    server.run(&id, "echo x > file; chmod 000 .; (setsid sleep 1000 &) ; true");
    server.delete(&id);
    assert!(!guest.is_running());
    wait_until("nothing is left", || {
        server.sandbox_directories().is_empty() && server.workspaces().is_empty()
    });
    let path = format!("/api/v1/sandboxes/{id}");
    assert_eq!(server.get(&path).error(), "SANDBOX_NOT_FOUND");
    assert_eq!(server.call("DELETE", &path).send().error(), "SANDBOX_NOT_FOUND");
    if rustix::process::geteuid().is_root() {
        assert!(!workspace_host::cgroup::ids().unwrap().contains(&id));
    }
}

#[test]
fn a_workspace_is_kept_on_request() {
    let server = TestServer::new();
    for spelling in ["keep_workspace", "keepWorkspace"] {
        let id = server.create();
        server.run(&id, "echo kept > file");
        let answer = server.call("DELETE", &format!("/api/v1/sandboxes/{id}?{spelling}=true")).send();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let kept = answer.json()["workspacePath"].as_str().unwrap().to_owned();
        assert_eq!(std::fs::read_to_string(format!("{kept}/file")).unwrap(), "kept\n");
        assert_eq!(server.post("/api/v1/gc", &json!({})).status, 200);
        assert!(std::path::Path::new(&kept).exists(), "a collection leaves what is to be kept");
    }
}

#[test]
fn several_sandboxes_are_deleted_at_once() {
    let server = TestServer::new();
    let ids: Vec<String> = (0..3).map(|_| server.create()).collect();
    let foreign = "sbx-00000000000000000000000000000000";
    let body = json!({"ids": [ids[0], foreign, ids[1], ids[0], "'; DROP TABLE sandboxes; --"]});
    let answer = server.post("/api/v1/sandboxes/batch-delete", &body).json();
    assert_eq!(answer["succeeded"], json!([ids[0], ids[1]]));
    let failed: Vec<&str> =
        answer["failed"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(failed, [foreign, &ids[0], "'; DROP TABLE sandboxes; --"]);
    assert!(answer["failed"][0]["error"].as_str().unwrap().contains(foreign));
    let kept =
        server.post("/api/v1/sandboxes/batch-delete", &json!({"ids": [ids[2]], "keepWorkspace": true}));
    assert_eq!(kept.json()["succeeded"], json!([ids[2]]));
    wait_until("the others are gone", || server.workspaces() == ["kept"]);
    for wrong in [json!({"ids": []}), json!({"ids": vec!["x"; 1_001]}), json!({"ids": "x"})] {
        assert_eq!(server.post("/api/v1/sandboxes/batch-delete", &wrong).error(), "INVALID_REQUEST");
    }
}

#[test]
fn a_sandbox_can_be_extended_up_to_the_maximum_lifetime() {
    let server = TestServer::with(&[("MAX_SANDBOX_LIFETIME", "7000")]);
    let id = server.create();
    let path = format!("/api/v1/sandboxes/{id}/extend");
    let extended = server.post(&path, &json!({"seconds": 3_000}));
    assert_eq!((extended.status, lifetime(&extended.json())), (200, 6_600));
    let refused = server.post(&path, &json!({"seconds": 500}));
    assert_eq!(refused.error(), "LIFETIME_EXCEEDED");
    // The start took some of the remaining time.
    let left = refused.json()["error"]["details"]["leftSeconds"].as_u64().unwrap();
    assert!((1..=400).contains(&left), "{left}");
    for wrong in [json!({"seconds": 0}), json!({"seconds": 3_601}), json!({"seconds": -1}), json!({})] {
        assert_eq!(server.post(&path, &wrong).error(), "INVALID_REQUEST", "{wrong}");
    }
    let long = server.post("/api/v1/sandboxes", &json!({"template": "base", "timeout_seconds": 7_001}));
    assert_eq!(long.error(), "LIFETIME_EXCEEDED");
    let details = json!({"limitSeconds": 7_000, "leftSeconds": 7_000, "setting": "MAX_SANDBOX_LIFETIME"});
    assert_eq!(long.json()["error"]["details"], details);
}

#[test]
fn the_timeout_of_a_sandbox_can_be_set() {
    let server = TestServer::with(&[("MAX_SANDBOX_LIFETIME", "7000")]);
    let id = server.create();
    let path = format!("/api/v1/sandboxes/{id}/timeout");
    let set = |body: &Value| server.call("PUT", &path).json(&body.to_string()).send();
    let after = set(&json!({"timeoutSeconds": 6_000}));
    assert_eq!(after.status, 200, "{}", after.body);
    assert!((6_000..7_000).contains(&lifetime(&after.json())), "{}", after.body);
    let early = set(&json!({"timeoutSeconds": 60})).json();
    assert!((60..6_000).contains(&lifetime(&early)), "{early}");
    for _ in 0..2 {
        let same = set(&json!({"expiresAt": after.json()["expiresAt"]}));
        assert_eq!((same.status, &same.json()["expiresAt"]), (200, &after.json()["expiresAt"]));
    }
    let refused = set(&json!({"timeoutSeconds": 7_001}));
    assert_eq!(refused.error(), "LIFETIME_EXCEEDED");
    assert_eq!(refused.json()["error"]["details"]["setting"], "MAX_SANDBOX_LIFETIME");
    for wrong in [
        json!({}),
        json!({"timeoutSeconds": 0}),
        json!({"timeoutSeconds": 60, "expiresAt": after.json()["expiresAt"]}),
        json!({"expiresAt": "2020-01-01T00:00:00Z"}),
        json!({"expiresAt": "soon"}),
        json!({"seconds": 60}),
    ] {
        assert_eq!(set(&wrong).error(), "INVALID_REQUEST", "{wrong}");
    }
    assert_eq!(server.sandbox(&id)["expiresAt"], after.json()["expiresAt"], "nothing has changed");
}

#[test]
fn an_expired_sandbox_refuses_requests_and_is_removed() {
    let server = TestServer::with(&[("EXPIRY_INTERVAL", "3600")]);
    let id = server.create_with(json!({"timeout_seconds": 1}));
    let path = format!("/api/v1/sandboxes/{id}");
    let run = || server.post(&format!("{path}/process/run"), &json!({"command": "true"}));
    wait_until("its time is up", || run().status != 200);
    // The background check has not run yet.
    assert_eq!(run().error(), "SANDBOX_EXPIRED");
    assert_eq!(
        server.post(&format!("{path}/pty"), &json!({"cols": 9, "rows": 9})).error(),
        "SANDBOX_EXPIRED"
    );
    assert_eq!(server.post(&format!("{path}/extend"), &json!({"seconds": 100})).error(), "SANDBOX_EXPIRED");
    let collected = server.post("/api/v1/gc", &json!({})).json();
    assert_eq!(collected["cleanedSandboxes"], 1);
    assert_eq!(server.get(&path).error(), "SANDBOX_NOT_FOUND");
    wait_until("nothing is left", || {
        server.sandbox_directories().is_empty() && server.workspaces().is_empty()
    });
}

#[test]
fn expired_sandboxes_are_removed_in_the_background() {
    let server = TestServer::with(&[("EXPIRY_INTERVAL", "1")]);
    let id = server.create_with(json!({"timeout_seconds": 1}));
    wait_until("it is removed", || server.get(&format!("/api/v1/sandboxes/{id}")).status == 404);
    wait_until("all of it", || server.sandbox_directories().is_empty() && server.workspaces().is_empty());
}

#[test]
fn logs_are_the_last_lines_of_all_commands() {
    let server = TestServer::new();
    let id = server.create();
    server.run(&id, "seq 1 150; echo error >&2");
    std::thread::sleep(Duration::from_millis(5));
    let between = jiff::Timestamp::now().to_string();
    std::thread::sleep(Duration::from_millis(5));
    server.run(&id, "echo last");
    let logs = |query: &str| server.get(&format!("/api/v1/sandboxes/{id}/logs{query}")).json();
    let all = logs("");
    assert_eq!(all["logs"].as_str().unwrap().lines().count(), 100);
    assert!(all["logs"].as_str().unwrap().ends_with("last\n"));
    assert_eq!(all["truncated"], true);
    let whole = logs("?tail=1000");
    assert_eq!((whole["logs"].as_str().unwrap().lines().count(), &whole["truncated"]), (152, &json!(false)));
    assert_eq!(logs("?tail=2")["logs"].as_str().unwrap().lines().count(), 2);
    assert_eq!(logs(&format!("?since={between}"))["logs"], "last\n");
    let before = logs(&format!("?until={between}&tail=1000"));
    assert!(!before["logs"].as_str().unwrap().contains("last"));
    for wrong in ["tail=0", "tail=10001", "since=yesterday", "until=1", "tail=-1"] {
        let answer = server.get(&format!("/api/v1/sandboxes/{id}/logs?{wrong}"));
        assert_eq!(answer.error(), "INVALID_REQUEST", "{wrong}");
    }
}

#[test]
fn measurements_are_kept_over_a_restart() {
    let mut server = TestServer::new();
    let id = server.create();
    let path = format!("/api/v1/sandboxes/{id}/metrics");
    let series = |server: &TestServer, query: &str| {
        let answer = server.get(&format!("{path}{query}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    wait_until("it is measured", || series(&server, "")["samples"][0].is_object());
    server.restart();
    let kept = series(&server, "");
    assert_eq!((&kept["sandboxId"], &kept["intervalSeconds"]), (&json!(id), &json!(5)));
    let first = &kept["samples"][0];
    assert!(first["memory"].as_u64().unwrap() > 0 && first["processes"].as_u64().unwrap() > 0, "{first}");
    assert!(first.get("cpuPercent").is_none() && first["rxBytes"].as_u64().unwrap_or(0) == 0, "{first}");
    let at = first["time"].as_str().unwrap();
    assert_eq!(series(&server, &format!("?from={at}&to={at}"))["samples"], json!([first]));
    assert_eq!(series(&server, "?to=2020-01-01T00:00:00Z")["samples"], json!([]));
    for query in [
        "?from=yesterday",
        "?to=",
        "?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
        "?from=99999-01-01T00:00:00Z",
        "?since=2026-01-01T00:00:00Z",
        "?from=%00",
    ] {
        assert_eq!(server.get(&format!("{path}{query}")).error(), "INVALID_REQUEST", "{query}");
    }
    // They are deleted with the sandbox.
    server.delete(&id);
    assert_eq!(server.get(&path).error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn resource_usage_is_reported() {
    let server = TestServer::new();
    let id = server.create_with(json!({"resources": {"memory": "512m", "disk": "1g", "cpu": "1"}}));
    server.run(&id, "dd if=/dev/zero of=file bs=1M count=3 2>/dev/null; sync file");
    server.start_background(&id, json!({"command": "sleep 1000"}));
    let stats = || server.get(&format!("/api/v1/sandboxes/{id}/stats")).json();
    let first = stats();
    wait_until("the file is measured", || stats()["disk"]["usage"].as_u64().unwrap() >= 3 << 20);
    wait_until("it is measured again", || {
        time(&stats()["disk"]["measuredAt"]) > time(&first["disk"]["measuredAt"])
    });
    let stats = stats();
    assert!(time(&stats["disk"]["measuredAt"]) <= time(&stats["updatedAt"]), "{stats}");
    assert_eq!(stats["sandboxId"], id.as_str());
    assert_eq!((&stats["cpu"]["limit"], &stats["memory"]["limit"]), (&json!("1"), &json!(512 << 20)));
    assert!(stats["cpu"]["usage"].is_f64() && stats["memory"]["percent"].is_f64());
    assert_eq!(stats["disk"]["limit"], 1 << 30);
    assert!(stats["disk"]["usage"].as_u64().unwrap() >= 3 << 20, "{stats}");
    assert_eq!(stats["network"], json!({"rxBytes": 0, "txBytes": 0}));
    assert!(stats["processes"].is_u64());
    assert!(time(&stats["updatedAt"]) > 0);
    let system = server.get("/api/v1/stats").json();
    let counts = json!({"total": 1, "running": 1, "paused": 0, "stopped": 0, "error": 0});
    assert_eq!(system["sandboxes"], counts);
    for part in ["cpuUsage", "memoryUsage", "diskUsage"] {
        assert!((0.0..=100.0).contains(&system["resources"][part].as_f64().unwrap()), "{system}");
    }
    assert_eq!(system["nfs"]["connections"], 0);
    assert!(system["uptime"].is_u64());
}

#[test]
fn templates_are_listed_and_unknown_ones_refused() {
    let server = TestServer::new();
    let list = server.get("/api/v1/templates").json();
    let base = list.as_array().unwrap().iter().find(|one| one["name"] == "base").unwrap();
    assert_eq!(base["present"], true);
    assert!(base["tags"].is_array() && base["description"].is_string());
    let before = server.sandbox_directories();
    for name in ["nothing", "../../etc", "base\n", "$(id)", "base; id", "/", "-v"] {
        let answer = server.post("/api/v1/sandboxes", &json!({ "template": name }));
        assert_eq!(answer.error(), "TEMPLATE_NOT_FOUND", "{name}");
    }
    let known = list.as_array().unwrap().iter().find(|one| one["name"] == "python:3.12").unwrap();
    let answer = server.post("/api/v1/sandboxes", &json!({ "template": "python:3.12" }));
    assert_eq!((answer.status, answer.error().as_str()), (422, "TEMPLATE_UNAVAILABLE"), "{}", answer.body);
    let error = &answer.json()["error"];
    assert!(known["fetch"].is_string() && error["details"]["fetch"] == known["fetch"], "{error}");
    assert!(error["message"].as_str().unwrap().contains(known["fetch"].as_str().unwrap()), "{error}");
    assert_eq!(server.sandbox_directories(), before, "nothing is left of them");
    let network = server.post("/api/v1/sandboxes", &json!({"template": "base", "network": "host"}));
    assert_eq!(network.error(), "INVALID_REQUEST");
}

fn create_once(server: &TestServer, key: &str, body: &Value) -> Answer {
    let call = server.call("POST", "/api/v1/sandboxes").header("idempotency-key", key);
    call.json(&body.to_string()).send()
}

#[test]
fn a_repeated_request_does_not_create_a_second_sandbox() {
    let server = TestServer::new();
    let body = json!({"template": "base", "timeout_seconds": 500});
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4).map(|_| scope.spawn(|| create_once(&server, "one", &body))).collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    let id = answers[0].json()["id"].clone();
    for answer in &answers {
        assert_eq!((answer.status, &answer.json()["id"]), (201, &id), "{}", answer.body);
        assert_eq!(answer.json()["state"], "running");
    }
    // The same request in the other spelling, with explicit defaults.
    let same = json!({"timeoutSeconds": 500, "template": "base", "network": "none", "envs": {}});
    assert_eq!(create_once(&server, "one", &same).json()["id"], id);
    let other = json!({"template": "base", "timeout_seconds": 501});
    assert_eq!(create_once(&server, "one", &other).error(), "IDEMPOTENCY_CONFLICT");
    assert_eq!(server.sandbox_directories().len(), 1);
    server.delete(id.as_str().unwrap());
    let gone = create_once(&server, "one", &body);
    assert_eq!(gone.error(), "SANDBOX_NOT_FOUND", "what was made is gone, and no second one is made");
    for wrong in ["", &"x".repeat(256), "\u{fc}"] {
        assert_eq!(create_once(&server, wrong, &body).error(), "INVALID_REQUEST");
    }
    // A failed request may be repeated.
    let refused = json!({"template": "nothing"});
    assert_eq!(create_once(&server, "two", &refused).error(), "TEMPLATE_NOT_FOUND");
    assert_eq!(create_once(&server, "two", &body).status, 201);
}

#[test]
fn owners_and_keys_have_quotas_and_admins_have_none() {
    let variables = [("MAX_SANDBOXES_PER_OWNER", "2"), ("MAX_SANDBOXES", "5")];
    let server = TestServer::with(&variables);
    let (alice, bob) =
        (server.key("alice", "user"), server.limited_key("bob", "user", &json!({"maxSandboxes": 1})));
    let create =
        |key: &str| server.call_as(key, "POST", "/api/v1/sandboxes").json(r#"{"template":"base"}"#).send();
    assert_eq!((create(&alice).status, create(&alice).status), (201, 201));
    let refused = create(&alice);
    assert_eq!(refused.error(), "SANDBOX_LIMIT_EXCEEDED");
    assert_eq!(refused.json()["error"]["details"]["limit"], 2);
    let bobs = create(&bob);
    let refused = create(&bob);
    assert_eq!((bobs.status, refused.error().as_str()), (201, "SANDBOX_LIMIT_EXCEEDED"));
    assert!(refused.body.contains("raise limits.maxSandboxes of the key"), "{}", refused.body);
    server.create();
    server.create();
    let full = server.post("/api/v1/sandboxes", &json!({"template": "base"}));
    assert_eq!(full.error(), "SANDBOX_LIMIT_EXCEEDED", "the server's own limit is everybody's");
    let once = create_once(&server, "k", &json!({"template": "base"}));
    assert_eq!(once.error(), "SANDBOX_LIMIT_EXCEEDED");
    server.delete(bobs.json()["id"].as_str().unwrap());
    assert_eq!(create_once(&server, "k", &json!({"template": "base"})).status, 201);
    assert_eq!(server.sandbox_directories().len(), 5);
}

#[test]
fn a_sandbox_whose_guest_died_has_a_reason_and_can_be_deleted() {
    let server = TestServer::new();
    let id = server.create();
    let command = server.start_background(&id, json!({"command": "echo before; sleep 1000"}));
    wait_until("it prints", || {
        server.get(&format!("/api/v1/sandboxes/{id}/logs")).json()["logs"] == "before\n"
    });
    server.guest_process(&id).unwrap().kill();
    wait_until("it is an error", || server.sandbox(&id)["state"] == "error");
    assert!(!server.sandbox(&id)["stateReason"].as_str().unwrap().is_empty());
    let run = server.post(&format!("/api/v1/sandboxes/{id}/process/run"), &json!({"command": "true"}));
    assert_eq!(run.error(), "SANDBOX_NOT_RUNNING");
    wait_until("its command ended", || server.command(&id, &command)["state"] == "failed");
    assert_eq!(server.get(&format!("/api/v1/sandboxes/{id}/logs")).json()["logs"], "before\n");
    assert_eq!(server.get(&format!("/api/v1/sandboxes/{id}/stats")).status, 200);
    server.delete(&id);
    wait_until("nothing is left", || {
        server.sandbox_directories().is_empty() && server.workspaces().is_empty()
    });
}

#[test]
fn cursors_neither_repeat_nor_skip_sandboxes() {
    let server = TestServer::new();
    let made: Vec<String> = (0..5).map(|_| server.create()).collect();
    let list = |query: &str| server.get(&format!("/api/v1/sandboxes?limit=2{query}")).json();
    let ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = list("");
    let mut seen = ids(&first);
    server.create();
    server.delete(&made[4]);
    let mut next = first["next"].clone();
    while let Some(cursor) = next.as_str() {
        let page = list(&format!("&cursor={cursor}"));
        seen.extend(ids(&page));
        next = page["next"].clone();
    }
    let expected: Vec<String> = made.into_iter().rev().collect();
    assert_eq!(seen, expected);
    for wrong in ["&cursor=x", "&cursor=1.a&page=2", "&cursor="] {
        let answer = server.get(&format!("/api/v1/sandboxes?limit=2{wrong}"));
        assert_eq!(answer.error(), "INVALID_REQUEST", "{wrong}");
    }
}

#[test]
fn readiness_follows_failures_of_creations() {
    let server = TestServer::new();
    let ready = || server.get("/ready");
    wait_until("it is ready", || ready().status == 200);
    let sandboxes = server.path().join("sandboxes");
    let aside = server.path().join("aside");
    std::fs::rename(&sandboxes, &aside).unwrap();
    for _ in 0..2 {
        let failed = server.post("/api/v1/sandboxes", &json!({"template": "base"}));
        assert_eq!(failed.status, 500, "{}", failed.body);
    }
    wait_until("it is not ready", || ready().status == 503);
    assert!(ready().body.contains("the last creations failed") && ready().header("retry-after").is_some());
    std::fs::rename(&aside, &sandboxes).unwrap();
    server.create();
    wait_until("it is ready again", || ready().status == 200);
}

#[test]
fn with_default_limits_invalid_requests_and_admins_are_not_limited() {
    let server = TestServer::with(&[("RATE_LIMIT", "on"), ("RATE_LIMIT_CREATE", "1")]);
    let key = server.key("alice", "user");
    let create = |key: &str, template: &str| {
        let body = json!({ "template": template }).to_string();
        server.call_as(key, "POST", "/api/v1/sandboxes").json(&body).send()
    };
    for _ in 0..3 {
        assert_eq!(create(&key, "bsae").error(), "TEMPLATE_NOT_FOUND");
    }
    assert_eq!(create(&key, "base").status, 201);
    assert_eq!(create(&key, "base").error(), "RATE_LIMITED");
    for _ in 0..3 {
        server.create();
    }
}
