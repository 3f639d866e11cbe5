//! Sandboxes in containers whose guests dial the server over a bridge.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::house::{House, agent_program, soon};
use super::stream::{Stream, printed};

const NETWORK: &str = "workspace-test-bridge";

/// A Docker daemon of its own with a bridge; it ends when its input does.
struct Docker {
    child: Child,
    directory: PathBuf,
}

impl Docker {
    /// None where there are no programs for it, or no rights.
    fn start() -> Option<Self> {
        let found = ["dockerd", "docker", "busybox"].iter().all(|program| is_there(program));
        if !found || !rustix::process::geteuid().is_root() {
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sandbox/tests/service/docker.sh");
        let directory = tempfile::tempdir().unwrap().keep();
        let mut command = Command::new(script);
        command.arg(&directory).arg(agent_program());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let docker = Self { child, directory };
        docker.say(&["network", "create", NETWORK]);
        Some(docker)
    }

    fn host(&self) -> String {
        format!("unix://{}/docker.sock", self.directory.display())
    }

    fn say(&self, words: &[&str]) -> String {
        let output = Command::new("docker").args(["--host", &self.host()]).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        for container in self.say(&["ps", "--all", "--quiet"]).lines() {
            self.say(&["rm", "--force", container]);
        }
        self.say(&["network", "rm", NETWORK]);
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).any(|place| place.join(program).is_file())
}

#[test]
fn guests_on_a_bridge_find_a_server_that_was_killed() {
    let Some(docker) = Docker::start() else {
        let ordinary = !rustix::process::geteuid().is_root();
        assert!(ordinary || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "Docker is missing");
        eprintln!("not tested: Docker's programs or the superuser's rights are missing");
        return;
    };
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port().to_string();
    let mut house = House::with(&[
        ("RUNTIME", "docker"),
        ("DOCKER_HOST", &docker.host()),
        ("DOCKER_NETWORK", NETWORK),
        ("GUEST_TRANSPORT", "tcp"),
        ("GRPC_HOST", "0.0.0.0"),
        ("GRPC_PORT", &port),
    ]);
    let id = house.create_with(json!({ "network": "egress" }));
    assert!(!docker.say(&["inspect", "--format", "{{json .Args}}", &id]).contains("--socket"));
    assert_eq!(house.out(&id, "echo $((6*7)) | tee file"), "42\n");
    let line = "for i in $(seq 1 60); do echo $i; sleep 0.05; done";
    let command = house.begin(&id, json!({ "command": line }));
    // What a server that is killed has not passed on never begins.
    Stream::output(&house, &id, &command, None).first();
    house.restart();
    let events = Stream::output(&house, &id, &command, None).rest();
    let expected: String = (1..=60).map(|n| format!("{n}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&printed(&events)), expected, "{events:?}");
    soon("the guest is back", || house.sandbox(&id)["agentConnected"] == true);
    assert_eq!(house.out(&id, "cat file"), "42\n");
    house.delete(&id);
}
