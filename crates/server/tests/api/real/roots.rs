//! Kept root filesystems and users over HTTP.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use workspace_test_support::{find_program, requires};

use super::test_server::{TestServer, agent_program};

/// Returns a root filesystem with busybox, and the libraries of the guest agent, as a tar archive.
pub(crate) fn archive(busybox: &Path) -> Vec<u8> {
    let root = tempfile::tempdir().unwrap();
    let bin = root.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    std::fs::write(root.path().join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    std::fs::copy(busybox, bin.join("busybox")).unwrap();
    for name in ["sh", "cat", "mkdir", "id"] {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    for program in [busybox, &agent_program()] {
        let libraries = Command::new("ldd").arg(program).output().unwrap();
        let libraries = String::from_utf8(libraries.stdout).unwrap();
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            let to = root.path().join(library.trim_start_matches('/'));
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(library, to).unwrap();
        }
    }
    Command::new("tar").arg("-C").arg(root.path()).args(["-c", "."]).output().unwrap().stdout
}

/// Runs a command as root, or as the only user of a server without root. Returns its output.
fn as_root(server: &TestServer, id: &str, command: &str) -> Value {
    let mut body = json!({ "command": command });
    if rustix::process::geteuid().is_root() {
        body["user"] = json!("root");
    }
    let result = server.run_with(id, &body);
    assert_eq!(result["stderr"], "", "{result}");
    result["stdout"].clone()
}

fn create(server: &TestServer, body: &Value) -> String {
    let answer = server.post("/api/v1/sandboxes", body);
    assert_eq!(answer.status, 201, "{}\n{}", answer.body, server.log());
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_kept_root_is_committed_forked_and_restored() {
    let Some(busybox) = find_program("busybox") else {
        _ = requires(false, format_args!("`busybox`"));
        return;
    };
    let server = TestServer::new();
    let imported = server.call("PUT", "/api/v1/templates/mini").body(&archive(&busybox)).send();
    assert_eq!(imported.status, 201, "{}", imported.body);
    let kept = json!({ "template": "mini", "root": "kept" });
    let id = create(&server, &kept);
    assert_eq!(server.sandbox(&id)["root"], "kept");
    as_root(&server, &id, "mkdir -p /usr/local; echo one > /usr/local/a; echo one > /etc/a; echo one > a");
    let post = |path: &str, body: Value| server.post(&format!("/api/v1/sandboxes/{path}"), &body);
    let committed = post(&format!("{id}/commit"), json!({})).json();
    let snapshot = committed["snapshot"]["id"].as_str().unwrap_or_else(|| panic!("{committed}")).to_owned();
    let shown = server.get(&format!("/api/v1/snapshots/{snapshot}")).json();
    assert_eq!(shown["root"]["template"], "mini", "{shown}");
    let show = "cat /usr/local/a /etc/a a";
    // New sandboxes are created from the snapshot, with and without its root.
    let mut from_snapshot = kept;
    from_snapshot["snapshot"] = json!(snapshot);
    let second = create(&server, &from_snapshot);
    assert_eq!(as_root(&server, &second, show), "one\none\none\n");
    from_snapshot["root"] = json!("discarded");
    let plain = create(&server, &from_snapshot);
    assert_eq!(server.sandbox(&plain)["root"], "discarded");
    assert_eq!(server.run(&plain, "cat a; cat /etc/a")["stdout"], "one\n");
    as_root(&server, &id, "echo two > /usr/local/a; echo two > a");
    let forked = post(&format!("{id}/fork"), json!({ "count": 1 }));
    assert_eq!(forked.status, 201, "{}", forked.body);
    let fork = forked.json()["sandboxes"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(as_root(&server, &fork, show), "two\none\ntwo\n");
    let restored = post(&format!("{id}/restore"), json!({ "snapshot": snapshot }));
    assert_eq!(restored.status, 200, "{}", restored.body);
    assert_eq!(as_root(&server, &id, show), "one\none\none\n");
}

#[test]
fn roots_and_users_that_are_not_available_are_refused() {
    let server = TestServer::new();
    let create = |body: Value| server.post("/api/v1/sandboxes", &body);
    let refused = create(json!({ "template": "base", "root": "kept" }));
    assert_eq!((refused.status, refused.error().as_str()), (422, "ROOT_UNAVAILABLE"));
    let invalid = create(json!({ "template": "base", "root": "saved" }));
    assert_eq!(invalid.error(), "INVALID_REQUEST");
    let id = server.create();
    let path = format!("/api/v1/sandboxes/{id}");
    let run = |user: &str| {
        server.post(&format!("{path}/process/run"), &json!({ "command": "id -u", "user": user }))
    };
    let refused = run("root");
    assert_eq!((refused.status, refused.error().as_str()), (422, "USER_UNAVAILABLE"));
    assert_eq!(run("a:b").error(), "INVALID_REQUEST");
    assert_eq!(run("sandbox").json()["stdout"], "1000\n");
    let terminal = json!({ "cols": 80, "rows": 24, "user": "root" });
    assert_eq!(server.post(&format!("{path}/pty"), &terminal).error(), "USER_UNAVAILABLE");
}
