//! Tickets for terminals, as far as they need no sandbox. `real/terminals.rs` connects with them.

use serde_json::json;
use workspace_catalog::{CommandEnd, NewCommand};

use crate::support::{Answer, KEY, OWNER, Server};

/// Adds a terminal whose shell has exited to the catalog, and returns its id.
fn terminal(server: &Server, sandbox: &str, id: &str) -> String {
    let new = NewCommand {
        id: id.to_owned(),
        sandbox_id: sandbox.to_owned(),
        command: "sh".to_owned(),
        argv: None,
        cwd: None,
        tag: None,
        started_at: 1,
    };
    let end = CommandEnd { exited: true, exit_code: Some(0), timed_out: false, pid: None, ended_at: 2 };
    server.runtime.block_on(async {
        server.app.catalog.commands().insert(&new).await.unwrap();
        server.app.catalog.commands().finish(sandbox, id, end).await.unwrap();
    });
    id.to_owned()
}

fn issue(server: &Server, key: &str, sandbox: &str, pty: &str) -> Answer {
    server.call("POST", &format!("/api/v1/sandboxes/{sandbox}/pty/{pty}/ticket")).key(key).send()
}

fn ticket(server: &Server, key: &str, sandbox: &str, pty: &str) -> String {
    let answer = issue(server, key, sandbox, pty);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["ticket"].as_str().unwrap().to_owned()
}

/// Uses a ticket. A valid one is refused only because this is no WebSocket.
fn connect(server: &Server, sandbox: &str, pty: &str, ticket: &str) -> String {
    server.call("GET", &format!("/api/v1/sandboxes/{sandbox}/pty/{pty}/ws?ticket={ticket}")).send().error()
}

#[test]
fn a_ticket_is_accepted_once() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let pty = terminal(&server, &sandbox, "pty-1");
    let one = ticket(&server, &key, &sandbox, &pty);
    assert!(one.starts_with("wtt_"), "{one}");
    assert_eq!(connect(&server, &sandbox, &pty, &one), "INVALID_REQUEST");
    assert_eq!(connect(&server, &sandbox, &pty, &one), "UNAUTHORIZED");
    for wrong in ["", "wtt_", "wtt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        assert_eq!(connect(&server, &sandbox, &pty, wrong), "UNAUTHORIZED", "{wrong}");
    }
}

#[test]
fn a_ticket_is_for_one_terminal_and_for_nothing_else() {
    let server = Server::new();
    let (key, sandbox, other) = (server.key("user"), server.sandbox(OWNER), server.sandbox(OWNER));
    let (pty, second) = (terminal(&server, &sandbox, "pty-1"), terminal(&server, &sandbox, "pty-2"));
    let third = terminal(&server, &other, "pty-3");
    for (sandbox_used, pty_used) in [(&sandbox, &second), (&other, &third), (&other, &pty)] {
        let one = ticket(&server, &key, &sandbox, &pty);
        assert_eq!(connect(&server, sandbox_used, pty_used, &one), "UNAUTHORIZED");
    }
    let one = ticket(&server, &key, &sandbox, &pty);
    let base = format!("/api/v1/sandboxes/{sandbox}");
    for path in [base.clone(), format!("{base}/process"), "/api/v1/me".to_owned()] {
        let answer = server.call("GET", &format!("{path}?ticket={one}")).send();
        assert_eq!(answer.error(), "UNAUTHORIZED", "{path}");
    }
    for header in ["authorization", "x-api-key"] {
        let value = if header == "authorization" { format!("Bearer {one}") } else { one.clone() };
        assert_eq!(server.call("GET", &base).header(header, &value).send().error(), "UNAUTHORIZED");
    }
    assert_eq!(connect(&server, &sandbox, &pty, &one), "INVALID_REQUEST", "it is still unused");
}

#[test]
fn a_key_and_a_ticket_together_are_refused() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let pty = terminal(&server, &sandbox, "pty-1");
    let one = ticket(&server, &key, &sandbox, &pty);
    let path = format!("/api/v1/sandboxes/{sandbox}/pty/{pty}/ws?ticket={one}");
    let answer = server.call("GET", &path).key(&key).send();
    assert_eq!(
        (answer.error().as_str(), &answer.json()["error"]["details"]["field"]),
        ("INVALID_REQUEST", &json!("ticket"))
    );
}

#[test]
fn tickets_need_a_terminal_of_the_caller() {
    let server = Server::new();
    let (key, sandbox, foreign) = (server.key("user"), server.sandbox(OWNER), server.sandbox("another"));
    terminal(&server, &sandbox, "pty-1");
    terminal(&server, &foreign, "pty-2");
    assert_eq!(issue(&server, &key, &sandbox, "pty-9").error(), "PTY_NOT_FOUND");
    assert_eq!(issue(&server, &key, &sandbox, "pty-2").error(), "PTY_NOT_FOUND");
    assert_eq!(issue(&server, &key, &foreign, "pty-2").error(), "SANDBOX_NOT_FOUND");
    // An admin key may use the terminals of all owners.
    let one = ticket(&server, KEY, &foreign, "pty-2");
    assert_eq!(connect(&server, &foreign, "pty-2", &one), "INVALID_REQUEST");
}

#[test]
fn a_ticket_ends_with_its_key() {
    let server = Server::new();
    let made = server.call("POST", "/api/v1/keys").key(KEY);
    let made = made.json(&json!({"name": "a", "owner": OWNER, "role": "user"}).to_string()).send().json();
    let sandbox = server.sandbox(OWNER);
    let pty = terminal(&server, &sandbox, "pty-1");
    let one = ticket(&server, made["key"].as_str().unwrap(), &sandbox, &pty);
    let revoke = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(server.call("DELETE", &revoke).key(KEY).send().status, 204);
    assert_eq!(connect(&server, &sandbox, &pty, &one), "UNAUTHORIZED");
}

#[test]
fn the_number_of_unused_tickets_is_limited() {
    let server = Server::with(&[("RATE_LIMIT", "off")]);
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let pty = terminal(&server, &sandbox, "pty-1");
    let tickets: Vec<String> = (0..100).map(|_| ticket(&server, &key, &sandbox, &pty)).collect();
    let refused = issue(&server, &key, &sandbox, &pty);
    assert_eq!(refused.error(), "TICKET_LIMIT_EXCEEDED");
    assert_eq!(refused.json()["error"]["details"]["limit"], 100);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(issue(&server, KEY, &sandbox, &pty).status, 201, "another owner has its own");
    assert_eq!(connect(&server, &sandbox, &pty, &tickets[0]), "INVALID_REQUEST");
    assert_eq!(issue(&server, &key, &sandbox, &pty).status, 201);
}

#[test]
fn the_audit_log_has_no_tickets() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let pty = terminal(&server, &sandbox, "pty-1");
    let one = ticket(&server, &key, &sandbox, &pty);
    connect(&server, &sandbox, &pty, &one);
    connect(&server, &sandbox, &pty, &one);
    let entries = server.audit();
    let created = entries.iter().find(|entry| entry["event"] == "pty.ticket_created").unwrap();
    assert_eq!((&created["pty_id"], &created["read_only"]), (&json!(pty), &json!(false)));
    assert!(entries.iter().any(|entry| entry["event"] == "auth.failed"));
    assert!(!format!("{entries:?}").contains(&one));
}
