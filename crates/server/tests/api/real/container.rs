//! The server in a Docker container with default options, where user namespaces cannot be created.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use workspace_test_support::Docker;

use super::test_server::{agent_program, server_program, wait_until};
use crate::support::{Answer, KEY};

const NAME: &str = "server";

/// Returns the path of the command `workspace`.
fn command_program() -> PathBuf {
    let program = server_program().with_file_name("workspace");
    assert!(program.is_file(), "build {} first: cargo build -p workspace-cli", program.display());
    program
}

/// Server in a container.
struct ContainerServer<'a>(&'a Docker);

impl<'a> ContainerServer<'a> {
    /// Starts it with these options of Docker, in addition to mounts for programs and data.
    fn run(docker: &'a Docker, options: &[&str]) -> Self {
        let key = format!("API_KEY={KEY}");
        let programs = [server_program(), agent_program(), command_program()];
        let mounts = programs.each_ref().map(|program| mounted(program));
        let mut words = vec!["run", "--detach", "--name", NAME, "--network", "none", "--env", &key];
        words.extend(["--tmpfs", "/data:mode=1777", "--env", "DATA_DIR=/data/server"]);
        words.extend(mounts.iter().flat_map(|mount| ["--volume", mount]));
        words.extend(options);
        words.extend(["workspace-base", "/opt/workspace-server"]);
        docker.run(&words);
        let server = Self(docker);
        wait_until("it announced itself", || server.log().contains("Try it"));
        server
    }

    fn log(&self) -> String {
        let output = self.0.command(&["logs", NAME]).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// Runs a command inside and returns its output.
    fn exec(&self, line: &str) -> String {
        self.0.run(&["exec", NAME, "sh", "-c", line])
    }

    /// Sends a request of the admin from inside the container, because the server listens on loopback.
    fn call(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let mut command = self.0.command(&["exec", "--interactive", NAME, "nc", "127.0.0.1", "8080"]);
        let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let kind = if method == "PUT" { "application/octet-stream" } else { "application/json" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {KEY}\r\n\
             content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // Stdin stays open until the response is complete, because a half-closed connection counts as closed.
        let mut input = client.stdin.take().unwrap();
        input.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        client.stdout.take().unwrap().read_to_end(&mut answer).unwrap();
        drop(input);
        client.wait().unwrap();
        Answer::parse(&answer)
    }

    fn processes(&self) -> usize {
        self.exec("ls /proc").lines().filter(|name| name.parse::<u32>().is_ok()).count()
    }
}

impl Drop for ContainerServer<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
        self.0.run(&["rm", "--force", NAME]);
    }
}

fn mounted(program: &Path) -> String {
    format!("{}:/opt/{}:ro", program.display(), program.file_name().unwrap().to_string_lossy())
}

/// Checks that the message names the problem and both remedies.
#[track_caller]
fn assert_helpful(text: &str) {
    for part in
        ["here (", "--user 1000:1000", "seccomp=unconfined", "systempaths=unconfined", "RUNTIME=docker"]
    {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

/// Checks that everything except sandboxes works, and that a request for one names the reason.
fn assert_all_but_sandboxes_works(server: &ContainerServer<'_>) {
    assert_helpful(&server.log());
    let before = server.processes();
    assert_eq!(server.call("GET", "/health", b"").json()["status"], "ok");
    let ready = server.call("GET", "/ready", b"");
    assert_eq!(ready.status, 503, "{}", ready.body);
    assert_helpful(ready.json()["checks"][1]["message"].as_str().unwrap());

    for _ in 0..3 {
        let refused = server.call("POST", "/api/v1/sandboxes", br#"{"template":"base"}"#);
        assert_eq!(refused.status, 503, "{}", refused.body);
        let error = refused.json()["error"].clone();
        assert_eq!(error["name"], "ISOLATION_UNAVAILABLE", "{error}");
        assert_helpful(error["message"].as_str().unwrap());
    }
    let sandboxes = server.call("GET", "/api/v1/sandboxes", b"").json();
    assert_eq!(sandboxes["items"], Value::Array(Vec::new()), "{sandboxes}");
    assert_eq!(server.exec("ls /data/server/sandboxes /data/server/workspaces | grep sbx"), "");
    assert_eq!(server.exec("ps | grep -v grep | grep workspace-agent"), "");
    assert!(server.processes() <= before + 1, "{}", server.exec("ps"));

    assert_keys_and_templates_work(server);
    assert_state_engine_works(server);
}

fn assert_keys_and_templates_work(server: &ContainerServer<'_>) {
    let made = server.call("POST", "/api/v1/keys", br#"{"name":"a test","owner":"alice","role":"user"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(server.call("GET", "/api/v1/keys", b"").json()["items"].as_array().map(Vec::len), Some(2));
    let names = |server: &ContainerServer<'_>| {
        let listed = server.call("GET", "/api/v1/templates", b"").json();
        let names = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert!(names(server).contains(&"python:3.12".to_owned()), "{:?}", names(server));
    let imported = server.call("PUT", "/api/v1/templates/small", &archive());
    assert_eq!(imported.status, 201, "{}", imported.body);
    assert!(names(server).contains(&"small".to_owned()), "{:?}", names(server));
    assert_eq!(server.call("DELETE", "/api/v1/templates/small", b"").status, 204);
}

/// Archive of a root filesystem with a shell.
fn archive() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("bin")).unwrap();
    std::fs::write(directory.path().join("bin/sh"), "a shell").unwrap();
    let tar = std::process::Command::new("tar").arg("-C").arg(directory.path()).args(["-c", "."]).output();
    tar.unwrap().stdout
}

fn assert_state_engine_works(server: &ContainerServer<'_>) {
    let said = server.exec(
        "mkdir /data/work && cd /data/work && echo one >file && export HOME=/data && \
         /opt/workspace snapshot . -m first 2>&1 && /opt/workspace log 2>&1",
    );
    assert!(said.contains("first"), "{said}");
}

#[test]
fn everything_except_sandboxes_works_in_a_default_container() {
    if !Docker::is_available() {
        return;
    }
    let docker = Docker::start(&[server_program(), agent_program(), command_program()]);
    // As root of the container, and as another user.
    assert_all_but_sandboxes_works(&ContainerServer::run(&docker, &[]));
    assert_all_but_sandboxes_works(&ContainerServer::run(&docker, &["--user", "1000:1000"]));
    // With only some of the required permissions, the message is the same.
    for options in [&["--security-opt", "seccomp=unconfined"][..], &["--cap-add", "SYS_ADMIN"]] {
        let server = ContainerServer::run(&docker, options);
        let refused = server.call("POST", "/api/v1/sandboxes", br#"{"template":"base"}"#);
        assert_eq!(refused.json()["error"]["name"], "ISOLATION_UNAVAILABLE", "{}", refused.body);
        assert_helpful(&refused.body);
    }
    // The remedy in the message works.
    let options = ["--user", "1000:1000", "--security-opt", "seccomp=unconfined"];
    let options = [&options[..], &["--security-opt", "systempaths=unconfined"]].concat();
    let server = ContainerServer::run(&docker, &options);
    let made = server.call("POST", "/api/v1/sandboxes", br#"{"template":"base"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let path = format!("/api/v1/sandboxes/{}/process/run", made.json()["id"].as_str().unwrap());
    let printed = server.call("POST", &path, br#"{"command":"echo $((6*7))"}"#);
    assert_eq!(printed.json()["stdout"], "42\n", "{}", printed.body);
}
