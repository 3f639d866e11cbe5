//! Sandboxes with the network `egress`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use serde_json::json;
use workspace_test_support::{requires, skip};

use super::test_server::{TestServer, wait_until};

/// Returns true, and records the test as skipped, if this machine cannot run such sandboxes.
fn is_skipped() -> bool {
    match workspace_host::network::unavailable_reason() {
        Some(missing) if rustix::process::geteuid().is_root() => !requires(false, missing),
        Some(missing) => {
            skip(missing);
            true
        }
        None => false,
    }
}

/// Starts a nameserver that resolves every name to 10.9.8.7. Returns its address.
fn nameserver() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let end = 12 + packet[12..length].iter().position(|byte| *byte == 0).unwrap() + 5;
            let mut answer = packet[..end].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 9, 8, 7]);
            socket.send_to(&answer, from).unwrap();
        }
    });
    address
}

#[test]
fn an_invalid_allowlist_is_refused_with_the_wrong_entry() {
    let server = TestServer::new();
    let before = server.sandbox_directories();
    for (network, allow, said) in [
        ("none", json!(["example.com"]), "only the network `egress`"),
        ("egress", json!(["example.com", "http://example.com"]), "`http://example.com`"),
        ("egress", json!(["fd00::/8"]), "`fd00::/8` is IPv6"),
        ("egress", json!(["10.1.2.3/8"]), "`10.0.0.0/8`"),
        ("egress", json!(["a..b"]), "`a..b`"),
        ("egress", json!([]), "between 1 and 256"),
        ("egress", json!(vec!["a"; 257]), "between 1 and 256"),
    ] {
        let body = json!({"template": "base", "network": network, "egress_allow": allow});
        let answer = server.post("/api/v1/sandboxes", &body);
        assert_eq!(answer.error(), "INVALID_REQUEST", "{allow}");
        assert!(answer.body.contains(said), "{}", answer.body);
        assert_eq!(answer.json()["error"]["details"]["field"], "egressAllow", "{}", answer.body);
    }
    assert_eq!(server.sandbox_directories(), before, "nothing is left of them");
}

#[test]
fn a_network_outlives_a_killed_server() {
    if is_skipped() {
        return;
    }
    let nameserver = nameserver().to_string();
    let mut server = TestServer::with(&[("EGRESS_DNS", &nameserver)]);
    let allow = json!(["*.Example.com", "10.2.0.0/16"]);
    let body = json!({"template": "base", "network": "egress", "egressAllow": allow});
    let answer = server.post("/api/v1/sandboxes", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let (sandbox, shown) = (answer.json(), json!(["*.example.com", "10.2.0.0/16"]));
    assert_eq!((&sandbox["network"], &sandbox["egressAllow"]), (&json!("egress"), &shown));
    let id = sandbox["id"].as_str().unwrap();
    server.restart();
    wait_until("the guest is back", || server.sandbox(id)["agentConnected"] == true);
    assert_eq!(server.sandbox(id)["egressAllow"], shown);
    let script = "getent ahostsv4 example.com || echo none; ip -4 -o route get 10.9.8.7 || echo shut
        getent ahostsv4 a.example.com | grep -c STREAM; ip -4 -o route get 10.9.8.7 | cut -d' ' -f1-3";
    assert_eq!(server.output_of(id, script), "none\nshut\n1\n10.9.8.7 via 192.88.99.1\n");
}
