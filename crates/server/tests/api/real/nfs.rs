//! Workspaces of sandboxes over NFS, with the programs of libnfs as clients.

use std::process::{Command, Output};

use serde_json::{Value, json};
use workspace_test_support::requires;

use super::test_server::{TestServer, wait_until};

/// Returns false, and records that the test is skipped, without the programs of libnfs.
#[track_caller]
fn has_libnfs() -> bool {
    requires(Command::new("nfs-ls").output().is_ok(), "`nfs-ls`, `nfs-cat` and `nfs-cp` of libnfs")
}

fn server() -> TestServer {
    TestServer::with(&[("NFS_MODE", "embedded"), ("NFS_PORT", "0")])
}

/// Returns the address of the export of a sandbox in the API.
fn export_of(server: &TestServer, id: &str) -> Value {
    let nfs = server.sandbox(id)["nfs"].clone();
    assert!(nfs.is_object(), "the sandbox has no export");
    nfs
}

/// Returns the URL of a file of an export, for libnfs.
fn url(nfs: &Value, file: &str) -> String {
    let (host, port, path) = (nfs["host"].as_str().unwrap(), &nfs["port"], nfs["path"].as_str().unwrap());
    format!("nfs://{host}{path}{file}?version=3&nfsport={port}&mountport={port}")
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn read(nfs: &Value, file: &str) -> String {
    let read = run("nfs-cat", &[&url(nfs, file)]);
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    String::from_utf8(read.stdout).unwrap()
}

/// Copies a file of this machine to a new file of an export.
fn write(nfs: &Value, file: &str, content: &str) -> Output {
    let local = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(local.path(), content).unwrap();
    run("nfs-cp", &[local.path().to_str().unwrap(), &url(nfs, file)])
}

fn is_refused(output: &Output) -> bool {
    !output.status.success() || !output.stderr.is_empty()
}

#[test]
fn clients_and_the_sandbox_see_the_same_files() {
    if !has_libnfs() {
        return;
    }
    let server = server();
    let id = server.create();
    server.run(&id, "mkdir made && echo inside > made/file && ln -s made/file link");
    let nfs = export_of(&server, &id);
    assert_eq!(read(&nfs, "/made/file"), "inside\n");
    let written = write(&nfs, "/made/other", "outside\n");
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    assert_eq!(server.output_of(&id, "cat made/other"), "outside\n");
    // Whoever runs commands in the sandbox owns what a client made.
    assert_eq!(server.output_of(&id, "test -O made/other && echo mine"), "mine\n");
    server.run(&id, "echo changed > made/other");
    assert_eq!(read(&nfs, "/made/other"), "changed\n");
    let listed = run("nfs-ls", &[&url(&nfs, "/")]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("made") && listed.contains("link"), "{listed}");
    let command = nfs["mountCommand"].as_str().unwrap();
    assert!(command.contains(nfs["path"].as_str().unwrap()), "{command}");
    assert_eq!(server.get("/api/v1/stats").json()["nfs"]["mode"], "embedded");
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("nfs_operations_total{op=\"read\"}"), "{metrics}");
    server.delete(&id);
    assert!(is_refused(&run("nfs-cat", &[&url(&nfs, "/made/file")])));
}

#[test]
fn only_the_owner_learns_the_secret_in_the_path() {
    if !has_libnfs() {
        return;
    }
    let server = server();
    let id = server.create();
    server.run(&id, "echo mine > file");
    let nfs = export_of(&server, &id);
    assert!(nfs["path"].as_str().unwrap().len() > id.len() + 32, "{nfs}");
    let without = json!({ "host": nfs["host"], "port": nfs["port"], "path": format!("/{id}") });
    let wrong = json!({ "host": nfs["host"], "port": nfs["port"], "path": format!("/{id}.0123456789abcdef0123456789abcdef") });
    for guessed in [without, wrong] {
        assert!(is_refused(&run("nfs-cat", &[&url(&guessed, "/file")])), "{guessed}");
    }
    let other = server.key("bob", "user");
    let exports =
        |key: &str| server.call_as(key, "GET", "/api/v1/nfs/exports").send().json()["items"].clone();
    assert_eq!(exports(&other), json!([]));
    assert_eq!(server.get("/api/v1/nfs/exports").json()["items"][0]["sandbox"], id);
    // A token needs the rights to read and write files.
    let token = |rights: Value| {
        let body = json!({ "rights": rights, "expiresInSeconds": 60 });
        let made = server.post(&format!("/api/v1/sandboxes/{id}/token"), &body);
        assert!(made.status < 300, "{}", made.body);
        made.json()["token"].as_str().unwrap().to_owned()
    };
    let seen = |token: &str| server.call_as(token, "GET", &format!("/api/v1/sandboxes/{id}")).send().json();
    assert_eq!(seen(&token(json!(["files:read"])))["nfs"], Value::Null);
    assert_eq!(seen(&token(json!(["files:read", "files:write"])))["nfs"], nfs);
    // Whoever knows the path can write, which a read-only key may not.
    let reader = server.key(server.sandbox(&id)["owner"].as_str().unwrap(), "read_only");
    let sandbox = server.call_as(&reader, "GET", &format!("/api/v1/sandboxes/{id}")).send();
    assert_eq!((sandbox.status, &sandbox.json()["nfs"]), (200, &Value::Null));
    let listed = server.call_as(&reader, "GET", "/api/v1/sandboxes").send();
    assert!(
        listed.body.contains(&id) && !listed.body.contains(nfs["path"].as_str().unwrap()),
        "{}",
        listed.body
    );
    assert_eq!(server.call_as(&reader, "GET", "/api/v1/nfs/exports").send().status, 403);
    let audit = std::fs::read_to_string(server.path().join("audit.log")).unwrap();
    assert!(audit.contains("nfs.refused"), "{audit}");
    assert!(!audit.contains(nfs["path"].as_str().unwrap()), "the secret is in the audit log");
}

#[test]
fn only_clients_that_the_owner_allows_may_use_an_export() {
    if !has_libnfs() {
        return;
    }
    let mut server = server();
    let [own, other] = ["127.0.0.0/8", "192.0.2.0/24"]
        .map(|network| server.create_with(json!({ "nfsAllowedIps": [network, "fd00::7"] })));
    for id in [&own, &other] {
        server.run(id, "echo inside > file");
    }
    let forks = server.post(&format!("/api/v1/sandboxes/{other}/fork"), &json!({}));
    assert!(forks.status < 300, "{}", forks.body);
    let listed = server.get("/api/v1/nfs/exports").json()["items"].as_array().unwrap().clone();
    let of_other = listed.iter().filter(|export| export["clients"] == "192.0.2.0/24,fd00::7/128");
    assert_eq!((listed.len(), of_other.count()), (3, 2), "the fork has the list, too: {listed:?}");
    for _ in 0..2 {
        assert_eq!(read(&export_of(&server, &own), "/file"), "inside\n");
        for export in server.get("/api/v1/nfs/exports").json()["items"].as_array().unwrap() {
            let is_own = export["sandbox"] == own.as_str();
            let got = run("nfs-cat", &[&url(&export["nfs"], "/file")]);
            assert_eq!(is_refused(&got), !is_own, "{export}");
        }
        server.restart();
    }
    for wrong in [
        json!([]),
        json!(["*"]),
        json!(["10.0.0.0/8,10.1.0.1"]),
        json!(["10.0.0.0/33"]),
        json!(["a.example"]),
    ] {
        let body = json!({ "template": "base", "nfsAllowedIps": wrong });
        let refused = server.post("/api/v1/sandboxes", &body);
        assert_eq!(
            (refused.status, &refused.json()["error"]["details"]["field"]),
            (400, &json!("nfsAllowedIps")),
            "{wrong}"
        );
    }
}

#[test]
fn exports_survive_a_kill_of_the_server() {
    if !has_libnfs() {
        return;
    }
    let mut server = server();
    let id = server.create();
    server.run(&id, "echo before > file");
    let nfs = export_of(&server, &id);
    server.kill();
    server.start();
    assert_eq!(export_of(&server, &id), nfs, "clients keep what they have mounted");
    assert_eq!(read(&nfs, "/file"), "before\n");
    assert!(write(&nfs, "/another", "after\n").status.success());
    assert_eq!(server.output_of(&id, "cat another"), "after\n");
}

#[test]
fn a_restore_replaces_the_files_of_an_export() {
    if !has_libnfs() {
        return;
    }
    let server = server();
    let id = server.create();
    let nfs = export_of(&server, &id);
    assert!(write(&nfs, "/file", "first\n").status.success());
    let committed = server.post(&format!("/api/v1/sandboxes/{id}/commit"), &json!({}));
    assert_eq!(committed.status, 201, "{}", committed.body);
    let snapshot = committed.json()["snapshot"].clone();
    server.run(&id, "echo second > file");
    assert!(write(&nfs, "/late", "second\n").status.success());
    let body = json!({ "snapshot": snapshot.get("id").unwrap_or(&snapshot) });
    let restored = server.post(&format!("/api/v1/sandboxes/{id}/restore"), &body);
    assert_eq!(restored.status, 200, "{}", restored.body);
    assert_eq!(read(&nfs, "/file"), "first\n");
    assert_eq!(server.output_of(&id, "cat file"), "first\n");
    // What the restore removed can be made anew: the client copies only to new names.
    assert!(write(&nfs, "/late", "third\n").status.success());
    assert_eq!(server.output_of(&id, "cat late"), "third\n");
}

#[test]
fn a_sandbox_that_is_paused_to_disk_has_no_export_until_its_resume() {
    if !has_libnfs() {
        return;
    }
    let mut server = server();
    let id = server.create();
    server.run(&id, "echo kept > file");
    let nfs = export_of(&server, &id);
    for restarts in [false, true] {
        let pause = server.post(&format!("/api/v1/sandboxes/{id}/pause"), &json!({ "keep": "disk" }));
        assert_eq!(pause.status, 200, "{}", pause.body);
        if restarts {
            server.restart();
        }
        assert_eq!(server.sandbox(&id)["nfs"], Value::Null);
        assert_eq!(server.get("/api/v1/nfs/exports").json()["items"], json!([]));
        let resumed = server.post(&format!("/api/v1/sandboxes/{id}/resume"), &json!({}));
        assert_eq!(resumed.status, 200, "{}", resumed.body);
        assert_eq!(export_of(&server, &id), nfs);
        assert_eq!(read(&nfs, "/file"), "kept\n");
    }
}

#[test]
fn a_sandbox_that_was_stopped_keeps_its_disk_limit() {
    if !has_libnfs() {
        return;
    }
    let server = server();
    let id = server.create_with(json!({ "resources": { "disk": "2m" } }));
    let nfs = export_of(&server, &id);
    assert!(write(&nfs, "/first", &"x".repeat(1 << 20)).status.success());
    server.post(
        &format!("/api/v1/sandboxes/{id}/process/run"),
        &json!({ "command": "head -c 4m /dev/zero > large" }),
    );
    wait_until("it is stopped", || server.sandbox(&id)["state"] == "stopped");
    assert_eq!(read(&nfs, "/first").len(), 1 << 20);
    assert!(is_refused(&write(&nfs, "/second", &"x".repeat(1 << 20))), "more than its limit was written");
}

#[test]
fn a_server_without_nfs_has_no_exports() {
    let server = TestServer::with(&[("NFS_MODE", "off")]);
    let id = server.create();
    assert_eq!(server.sandbox(&id)["nfs"], Value::Null);
    assert_eq!(server.get("/api/v1/nfs/exports").json(), json!({ "mode": "off", "items": [] }));
}
