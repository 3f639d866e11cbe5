//! Access control on every route of the OpenAPI document.

use serde_json::{Value, json};

use super::test_server::TestServer;
use crate::snapshots::archive::Archive;

/// Name of a reference that exists.
const REFERENCE: &str = "main";

/// Request for an operation of the OpenAPI document, with existing ids.
struct Route {
    method: String,
    path: String,
    body: Option<Value>,
}

fn routes(server: &TestServer, ids: &Resources) -> Vec<Route> {
    let description = server.get("/api/v1/openapi.json").json();
    let mut routes = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = match path.split('/').nth(3) {
                Some("snapshots") => &ids.snapshot,
                Some("episodes") => &ids.episode,
                _ => &ids.sandbox,
            };
            let file = if path.contains("/snapshots/") || path.contains("/projects/") {
                "file"
            } else {
                "workspace/file"
            };
            let filled =
                path.replace("{id}", id).replace("{command}", &ids.command).replace("{pty}", &ids.pty);
            // A template that always exists.
            let filled = match path.starts_with("/api/v1/templates/") {
                true => filled.replace("{name}", "base"),
                false => filled,
            };
            let filled = filled
                .replace("{a}", &ids.snapshot)
                .replace("{b}", &ids.snapshot)
                .replace("{path}", file)
                .replace("{name}", REFERENCE)
                .replace("{port}", "7000")
                .replace("{project}", &ids.project)
                .replace("{completion}", &ids.completion)
                .replace("{review}", &ids.review)
                .replace("{side}", "theirs")
                .replace("{agent}", "a%20test")
                .replace("{subject}", if path.ends_with("/path") { &ids.project } else { "a%20test" });
            let needs_query = filled.ends_with("/policy/explain");
            let filled = if needs_query { format!("{filled}?agent=a&path=b") } else { filled };
            let body = operation.get("requestBody").map(|_| body(path));
            routes.push(Route { method: method.to_uppercase(), path: filled, body });
        }
    }
    assert!(routes.len() > 20, "the description has the API");
    routes
}

/// Returns a valid body for a path.
fn body(path: &str) -> Value {
    match path.rsplit('/').next().unwrap() {
        "sandboxes" => json!({"template": "base"}),
        "batch-delete" => json!({"ids": ["sbx-1"]}),
        "extend" => json!({"seconds": 1}),
        "timeout" => json!({"timeoutSeconds": 1}),
        "pause" => json!({"keep": "memory"}),
        "commit" | "resume" | "complete" | "rebase" | "workspaces" | "sync" => json!({}),
        "projects" => json!({"name": "another"}),
        "policy" => json!({"rules": []}),
        "rollback" => json!({"to": 1}),
        "resolve" => json!({"choice": "ours"}),
        "completions" => json!({"snapshot": "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718", "base": 1}),
        "{project}" => json!({"name": "renamed"}),
        "fork" => json!({"count": 1}),
        "restore" => json!({"snapshot": "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718"}),
        "run" => json!({"command": "touch /workspace/foreign"}),
        "kill" => json!({"signal": 9}),
        "stdin" => json!({"data": "x"}),
        "pty" | "resize" => json!({"cols": 80, "rows": 24}),
        "files" => json!({"operations": [{"op": "remove", "path": "/workspace/file"}]}),
        "token" => json!({"rights": ["process"]}),
        "ticket" => json!({"readOnly": true}),
        "signed-url" => json!({"path": "/workspace/file", "method": "GET"}),
        "notes" => json!({"text": "a note"}),
        "{port}" => json!({}),
        "keys" => json!({"name": "a", "owner": "a", "role": "admin"}),
        _ => json!({"labels": {}}),
    }
}

fn is_public(path: &str) -> bool {
    matches!(path, "/" | "/health" | "/ready" | "/api/v1/openapi.json" | "/api/docs")
}

#[derive(Clone)]
struct Resources {
    sandbox: String,
    command: String,
    pty: String,
    snapshot: String,
    episode: String,
    project: String,
    completion: String,
    review: String,
}

/// Creates a sandbox of `alice` with a running command and a terminal, and a snapshot with a reference and an
/// episode.
fn create_resources(server: &TestServer, alice: &str) -> Resources {
    let post = |path: &str, body: Value| {
        let answer = server.call_as(alice, "POST", path).json(&body.to_string()).send();
        assert!(answer.status < 300, "{}", answer.body);
        answer.json()
    };
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    let sandbox = id(&post("/api/v1/sandboxes", json!({"template": "base"}))["id"]);
    let run = json!({"command": "sleep 1000", "background": true, "stdin": true});
    let command = id(&post(&format!("/api/v1/sandboxes/{sandbox}/process/run"), run)["commandId"]);
    let pty = id(&post(&format!("/api/v1/sandboxes/{sandbox}/pty"), json!({"cols": 80, "rows": 24}))["id"]);
    let archive = Archive::new().file("file", "content").bytes();
    let snapshot = id(&server.call_as(alice, "POST", "/api/v1/snapshots").body(&archive).send().json()["id"]);
    let target = json!({"snapshot": snapshot}).to_string();
    let set = server.call_as(alice, "PUT", &format!("/api/v1/references/{REFERENCE}")).json(&target).send();
    assert!(set.status < 300, "{}", set.body);
    let step = json!({"snapshot": snapshot, "action": "begin", "reward": 1});
    let episode = id(&post("/api/v1/episodes", step)["id"]);
    let file = format!("/api/v1/sandboxes/{sandbox}/files/workspace/file");
    assert_eq!(server.call_as(alice, "PUT", &file).body(b"content").send().status, 200);
    let (project, completion, review) = create_project(server, alice, &format!("project-of-{sandbox}"));
    Resources { sandbox, command, pty, snapshot, episode, project, completion, review }
}

/// Creates a project of `alice` with a file, a completion and a review. Returns its name and their ids.
fn create_project(server: &TestServer, alice: &str, name: &str) -> (String, String, String) {
    let post = |path: &str, body: Value| {
        let answer = server.call_as(alice, "POST", &format!("/api/v1/{path}")).json(&body.to_string()).send();
        assert!(answer.status < 300, "{}", answer.body);
        answer.json()
    };
    post("projects", json!({ "name": name }));
    let archive = Archive::new().file("file", "content").bytes();
    let import =
        server.call_as(alice, "POST", &format!("/api/v1/projects/{name}/import")).body(&archive).send();
    assert_eq!(import.status, 200, "{}", import.body);
    let sandbox = post("sandboxes", json!({"template": "base", "project": name}));
    let sandbox = sandbox["id"].as_str().unwrap();
    let policy = json!({"rules": [{"path": "critical", "critical": true}]}).to_string();
    let set = server.call_as(alice, "PUT", &format!("/api/v1/projects/{name}/policy")).json(&policy).send();
    assert_eq!(set.status, 200, "{}", set.body);
    let run = json!({"command": "echo change > critical"});
    post(&format!("sandboxes/{sandbox}/process/run"), run);
    let completion = post(&format!("sandboxes/{sandbox}/complete"), json!({"wait": 60}));
    let delete = server.call_as(alice, "DELETE", &format!("/api/v1/sandboxes/{sandbox}")).send();
    assert_eq!(delete.status, 204, "{}", delete.body);
    post(&format!("projects/{name}/workspaces"), json!({}));
    let reviews = server.call_as(alice, "GET", &format!("/api/v1/projects/{name}/reviews")).send().json();
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    (name.to_owned(), id(&completion["id"]), id(&reviews["items"][0]["id"]))
}

#[test]
fn a_sandbox_of_another_owner_is_not_found_on_any_route() {
    let server = TestServer::new();
    let (alice, mallory) = (server.key("alice", "user"), server.key("mallory", "user"));
    let theirs = create_resources(&server, &alice);
    let missing = "sbx-00000000000000000000000000000000";
    let real = routes(&server, &theirs);
    let none = routes(&server, &Resources { sandbox: missing.to_owned(), ..theirs.clone() });
    let own = format!("/api/v1/sandboxes/{}", theirs.sandbox);
    for (real, none) in real.iter().zip(&none).filter(|(real, _)| real.path.starts_with(&own)) {
        let ask = |route: &Route| {
            let mut call = server.call_as(&mallory, &route.method, &route.path);
            if let Some(body) = &route.body {
                call = call.json(&body.to_string());
            }
            call.send()
        };
        let (real, none) = (ask(real), ask(none));
        assert_eq!(real.error(), "SANDBOX_NOT_FOUND");
        let plain = |answer: &crate::support::Answer, id: &str| {
            let mut error = answer.json()["error"].clone();
            error["requestId"] = Value::Null;
            error.to_string().replace(id, "ID")
        };
        assert_eq!(plain(&real, &theirs.sandbox), plain(&none, missing));
    }
    let batch = json!({"ids": [theirs.sandbox]}).to_string();
    let batch = server.call_as(&mallory, "POST", "/api/v1/sandboxes/batch-delete").json(&batch).send().json();
    assert_eq!(batch["succeeded"], json!([]));
    let list = server.call_as(&mallory, "GET", "/api/v1/sandboxes").send().json();
    assert_eq!(list["total"], 0);
    // No request had an effect.
    assert_eq!(server.command(&theirs.sandbox, &theirs.command)["state"], "running");
    assert_eq!(server.command(&theirs.sandbox, &theirs.pty)["state"], "running");
    assert_eq!(server.output_of(&theirs.sandbox, "ls; cat file"), "file\ncontent");
    let own = server.call_as(&alice, "GET", "/api/v1/sandboxes").send().json();
    assert_eq!(own["total"], 1);
}

#[test]
fn commands_and_terminals_of_another_sandbox_are_not_found() {
    let server = TestServer::new();
    let alice = server.key("alice", "user");
    let (one, other) = (create_resources(&server, &alice), create_resources(&server, &alice));
    for (method, path, name) in [
        ("GET", format!("process/{}/output", other.command), "COMMAND_NOT_FOUND"),
        ("POST", format!("process/{}/kill", other.command), "COMMAND_NOT_FOUND"),
        ("POST", format!("process/{}/stdin", other.command), "COMMAND_NOT_FOUND"),
        ("POST", format!("pty/{}/resize", other.pty), "PTY_NOT_FOUND"),
        ("DELETE", format!("pty/{}", other.pty), "PTY_NOT_FOUND"),
        ("GET", format!("pty/{}/ws", other.pty), "PTY_NOT_FOUND"),
        ("GET", format!("pty/{}/ws", one.command), "PTY_NOT_FOUND"),
        ("DELETE", format!("pty/{}", one.command), "PTY_NOT_FOUND"),
    ] {
        let call = server.call_as(&alice, method, &format!("/api/v1/sandboxes/{}/{path}", one.sandbox));
        let call = if method == "POST" { call.json(&body(&path).to_string()) } else { call };
        assert_eq!(call.send().error(), name, "{method} {path}");
    }
    assert_eq!(server.command(&other.sandbox, &other.command)["state"], "running");
}

#[test]
fn read_only_keys_change_nothing_on_any_route() {
    let server = TestServer::new();
    let (alice, looker) = (server.key("alice", "user"), server.key("alice", "read_only"));
    let theirs = create_resources(&server, &alice);
    for route in routes(&server, &theirs) {
        let is_stream = ["/output", "/ws", "/connect"].iter().any(|end| route.path.ends_with(end));
        if is_public(&route.path) || is_stream || route.path.contains("/watch/") {
            continue;
        }
        let mut call = server.call_as(&looker, &route.method, &route.path);
        if let Some(body) = &route.body {
            call = call.json(&body.to_string());
        }
        let answer = call.send();
        // Those of admins, and one that tells how files can be changed over NFS.
        let refused = ["/api/v1/keys", "/api/v1/stats", "/metrics", "/api/v1/nfs/exports"];
        let is_refused = route.method != "GET" || refused.contains(&route.path.as_str());
        let expected = if is_refused { 403 } else { 200 };
        assert_eq!(answer.status, expected, "{} {}: {}", route.method, route.path, answer.body);
    }
    let path = format!("/api/v1/sandboxes/{}/pty/{}/ws", theirs.sandbox, theirs.pty);
    let socket = server.call_as(&looker, "GET", &path).header("upgrade", "websocket");
    assert_eq!(socket.send().error(), "FORBIDDEN", "a terminal can be typed into");
    let path = format!("/api/v1/sandboxes/{}/ports/7000/connect", theirs.sandbox);
    let socket = server.call_as(&looker, "GET", &path).header("upgrade", "websocket");
    assert_eq!(socket.send().error(), "FORBIDDEN", "a connection can change something");
    assert_eq!(server.command(&theirs.sandbox, &theirs.command)["state"], "running");
    assert_eq!(server.output_of(&theirs.sandbox, "ls; cat file"), "file\ncontent");
}

#[test]
fn every_route_except_public_ones_needs_a_valid_key() {
    let server = TestServer::new();
    let id = || "sbx-1".to_owned();
    let ids = Resources {
        sandbox: id(),
        command: id(),
        pty: id(),
        snapshot: id(),
        episode: id(),
        project: id(),
        completion: id(),
        review: id(),
    };
    for route in routes(&server, &ids) {
        for key in [None, Some("a-key-that-nobody-made")] {
            let mut call = crate::support::Call::new(server.address(), &route.method, &route.path);
            if let Some(key) = key {
                call = call.key(key);
            }
            let answer = call.send();
            if is_public(&route.path) {
                assert_eq!(answer.status, 200, "{}", route.path);
            } else {
                assert_eq!(answer.error(), "UNAUTHORIZED", "{} {}", route.method, route.path);
            }
        }
    }
}
