//! Sandboxes in containers whose guest agents connect over a Docker bridge.

use serde_json::json;
use workspace_test_support::{Docker, stable_port};

use super::stream::{Stream, printed};
use super::test_server::{TestServer, agent_program, wait_until};

const NETWORK: &str = "workspace-test-bridge";

#[test]
fn guests_on_a_bridge_reconnect_after_a_server_kill() {
    if !Docker::is_available() {
        return;
    }
    let docker = Docker::start(&[agent_program()]);
    docker.run(&["network", "create", NETWORK]);
    let port = stable_port().to_string();
    let mut server = TestServer::with(&[
        ("RUNTIME", "docker"),
        ("DOCKER_HOST", &docker.host()),
        ("DOCKER_NETWORK", NETWORK),
        ("GUEST_TRANSPORT", "tcp"),
        ("GRPC_HOST", "0.0.0.0"),
        ("GRPC_PORT", &port),
    ]);
    let id = server.create_with(json!({ "network": "egress" }));
    assert!(!docker.run(&["inspect", "--format", "{{json .Args}}", &id]).contains("--socket"));
    assert_eq!(server.output_of(&id, "echo $((6*7)) | tee file"), "42\n");
    let line = "for i in $(seq 1 60); do echo $i; sleep 0.05; done";
    let command = server.start_background(&id, json!({ "command": line }));
    // A command that the killed server had not sent to the guest agent never starts.
    Stream::output(&server, &id, &command, None).first();
    server.restart();
    let events = Stream::output(&server, &id, &command, None).rest();
    let expected: String = (1..=60).map(|n| format!("{n}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&printed(&events)), expected, "{events:?}");
    wait_until("the guest is back", || server.sandbox(&id)["agentConnected"] == true);
    assert_eq!(server.output_of(&id, "cat file"), "42\n");
    server.delete(&id);
}
