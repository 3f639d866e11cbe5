//! Builds of templates over HTTP: progress, access, kills and clients that leave.

use serde_json::{Value, json};
use workspace_test_support::{find_program, requires};

use super::roots;
use super::stream::{Event, Stream};
use super::test_server::{TestServer, wait_until};
use crate::snapshots::archive::Archive;
use crate::support::Answer;

const RECIPE: &str = "from = \"mini\"\n[[steps]]\ncopy = \"src\"\nto = \"/opt/app\"\n[[steps]]\nenv = { WORD = \"hello\" }\n\
                      [[steps]]\nrun = \"echo $WORD; cat /opt/app/word > /etc/word\"\n";
/// The second step waits until the build is cancelled.
const ENDLESS: &str = "from = \"mini\"\n[[steps]]\nrun = \"echo one > /etc/one\"\n[[steps]]\nrun = \"echo begun; cat /dev/zero > \
                       /dev/null\"\n";

/// Starts a server with a template that has a shell; `None` without busybox.
fn server_with_template() -> Option<TestServer> {
    let Some(busybox) = find_program("busybox") else {
        _ = requires(false, format_args!("`busybox`"));
        return None;
    };
    let server = TestServer::new();
    let imported = server.call("PUT", "/api/v1/templates/mini").body(&roots::archive(&busybox)).send();
    assert_eq!(imported.status, 201, "{}", imported.body);
    Some(server)
}

fn context(recipe: &str) -> Vec<u8> {
    Archive::new().file("template.toml", recipe).file("src/word", "a word\n").bytes()
}

fn build(server: &TestServer, name: &str, recipe: &str) -> Vec<Event> {
    let path = format!("/api/v1/templates/{name}/build");
    Stream::upload(server, &path, &context(recipe)).begun().rest()
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

fn refused(server: &TestServer, name: &str, body: &[u8]) -> Answer {
    server.call("POST", &format!("/api/v1/templates/{name}/build")).body(body).send()
}

fn sandboxes(server: &TestServer) -> Value {
    server.get("/api/v1/sandboxes").json()["total"].clone()
}

#[test]
fn a_recipe_is_built_with_its_progress_as_events() {
    let Some(server) = server_with_template() else { return };
    let events = build(&server, "app", RECIPE);
    assert_eq!(kinds(&events), ["step", "step", "step", "output", "done"], "{events:?}\n{}", server.log());
    assert_eq!(events[0].data, json!({"type": "step", "step": 1, "steps": 3, "text": "copy src /opt/app"}));
    assert_eq!(events[3].data, json!({"type": "output", "stream": "stdout", "data": "hello\n"}));
    let done = &events[4].data;
    assert_eq!((&done["created"], &done["cached"], &done["steps"]), (&json!(true), &json!(0), &json!(3)));
    let template = &done["template"];
    assert_eq!((&template["name"], &template["version"]), (&json!("app@1"), &json!("1")));
    // A second build of the same recipe uses cached steps, and creates no new version.
    let again = build(&server, "app", RECIPE);
    assert_eq!(kinds(&again), ["step", "cached", "step", "step", "cached", "done"], "{again:?}");
    assert_eq!(again[5].data["created"], false);
    let shown = server.get("/api/v1/templates/app").json();
    assert_eq!((&shown["name"], &shown["from"]), (&json!("app@1"), &json!("mini")), "{shown}");
    assert_eq!(shown["envs"], json!({"WORD": "hello"}));
    assert_eq!(server.get("/api/v1/templates/base").json()["name"], "base");
    assert_eq!(server.get("/api/v1/templates/none").error(), "TEMPLATE_NOT_FOUND");
    let created = server.post("/api/v1/sandboxes", &json!({"template": "app"}));
    assert_eq!(created.status, 201, "{}", created.body);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.sandbox(&id)["template"], "app@1");
    assert_eq!(server.run(&id, "cat /etc/word; echo $WORD")["stdout"], "a word\nhello\n");
    let used = server.call("DELETE", "/api/v1/templates/app@1").send();
    assert_eq!(used.error(), "TEMPLATE_IN_USE");
    server.delete(&id);
    assert_eq!(server.call("DELETE", "/api/v1/templates/app@1").send().status, 204);
    let built = server.get("/api/v1/events?type=template.built").json();
    assert_eq!(built["items"][0]["data"]["template"], "app@1", "{built}");
    let log = std::fs::read_to_string(server.path().join("audit.log")).unwrap();
    assert!(log.contains("\"template.build\"") && log.contains("\"template.built\""), "{log}");
}

#[test]
fn a_failed_build_names_the_failed_step() {
    let Some(server) = server_with_template() else { return };
    let events = build(&server, "app", "from = \"mini\"\n[[steps]]\nrun = \"echo no >&2; exit 7\"\n");
    assert_eq!(kinds(&events), ["step", "output", "error"], "{events:?}");
    assert_eq!(events[1].data["stream"], "stderr");
    let error = &events[2].data["error"];
    assert_eq!((&error["name"], &error["code"]), (&json!("BUILD_FAILED"), &json!(2025)), "{error}");
    let details = json!({"step": 1, "line": 2, "exitCode": 7});
    assert_eq!(error["details"], details);
    assert_eq!(sandboxes(&server), 0);
    wait_until("the failure is audited", || {
        let log = std::fs::read_to_string(server.path().join("audit.log")).unwrap();
        log.contains("template.build_failed")
    });
}

#[test]
fn builds_that_cannot_begin_are_refused() {
    let server = TestServer::with(&[("MAX_BUILD_CONTEXT", "64k")]);
    for role in ["user", "read_only"] {
        let key = server.key("alice", role);
        let call = server.call_as(&key, "POST", "/api/v1/templates/app/build").body(&context(RECIPE));
        assert_eq!(call.send().error(), "FORBIDDEN", "{role}");
    }
    let wrong = refused(&server, "app", &context("from = \"a\"\nform = \"b\""));
    assert_eq!((wrong.status, wrong.error().as_str()), (400, "INVALID_REQUEST"));
    assert_eq!(wrong.json()["error"]["details"]["line"], 2, "{}", wrong.body);
    for (name, body) in [
        ("app", b"not an archive".to_vec()),
        ("app", Archive::new().file("other", "x").bytes()),
        ("app", Archive::new().file("../template.toml", "from = \"a\"").bytes()),
        ("..%2Fapp", context(RECIPE)),
        ("a@b@c", context(RECIPE)),
        ("app?recipe=../x", context(RECIPE)),
    ] {
        let path = name.replacen('?', "/build?", 1);
        let path = if path == name { format!("{name}/build") } else { path };
        let answer = server.call("POST", &format!("/api/v1/templates/{path}")).body(&body).send();
        assert_eq!(answer.error(), "INVALID_REQUEST", "{name}: {}", answer.body);
    }
    let large =
        Archive::new().file("template.toml", "from = \"a\"").file("large", vec![b'x'; 100_000]).bytes();
    let refused = refused(&server, "app", &large);
    assert_eq!((refused.status, refused.error().as_str()), (413, "PAYLOAD_TOO_LARGE"));
    assert_eq!(refused.json()["error"]["details"]["setting"], "MAX_BUILD_CONTEXT");
}

#[test]
fn a_client_that_leaves_cancels_its_build() {
    let Some(server) = server_with_template() else { return };
    let mut stream = Stream::upload(&server, "/api/v1/templates/app/build", &context(ENDLESS)).begun();
    while stream.next().unwrap().kind != "output" {}
    assert_eq!(sandboxes(&server), 1);
    drop(stream);
    wait_until("its sandbox is removed", || sandboxes(&server) == 0);
    let next = build(&server, "app", &ENDLESS.replace("cat /dev/zero > /dev/null", "cat /etc/one"));
    assert_eq!(kinds(&next)[..3], ["step", "cached", "step"], "{next:?}");
    assert_eq!(next.last().unwrap().kind, "done");
}

#[test]
fn a_killed_build_continues_and_leaves_no_sandbox() {
    let Some(mut server) = server_with_template() else { return };
    let mut stream = Stream::upload(&server, "/api/v1/templates/app/build", &context(ENDLESS)).begun();
    while stream.next().unwrap().kind != "output" {}
    server.kill();
    server.start();
    wait_until("its sandbox is removed", || sandboxes(&server) == 0);
    let next = build(&server, "app", &ENDLESS.replace("cat /dev/zero > /dev/null", "cat /etc/one"));
    assert_eq!(kinds(&next)[..3], ["step", "cached", "step"], "{next:?}");
    assert_eq!(next.last().unwrap().data["template"]["name"], "app@1");
}
