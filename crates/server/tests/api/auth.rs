//! Authentication and roles.

use serde_json::Value;

use crate::support::{KEY, Server};

/// All operations of the OpenAPI document: method, path with values for its variables, and true if it is public.
fn operations(server: &Server) -> Vec<(String, String, bool)> {
    let description = server.call("GET", "/api/v1/openapi.json").send().json();
    let paths = description["paths"].as_object().unwrap().clone();
    let filled = |path: &str| path.replace('{', "x").replace('}', "");
    let all = paths.into_iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().clone().into_iter();
        let path = filled(&path);
        methods.map(move |(method, it)| {
            let open = it["security"] == serde_json::json!([{}]);
            (method.to_uppercase(), path.clone(), open)
        })
    });
    all.collect()
}

#[test]
fn every_operation_except_public_ones_needs_a_valid_key() {
    let server = Server::new();
    let operations = operations(&server);
    assert!(operations.iter().filter(|(_, _, open)| !open).count() >= 4, "{operations:?}");
    for (method, path, open) in operations {
        let without = server.call(&method, &path).send();
        let wrong = server.call(&method, &path).key("no-such-key-0123456789").send();
        if open {
            assert!(without.status != 401 && wrong.status != 401, "{method} {path}");
        } else {
            assert_eq!(without.error(), "UNAUTHORIZED", "{method} {path}");
            assert_eq!(wrong.error(), "UNAUTHORIZED", "{method} {path}");
            assert_eq!(without.header("www-authenticate"), Some("Bearer"));
        }
    }
}

#[test]
fn read_only_keys_can_only_read() {
    let server = Server::new();
    let key = server.key("read_only");
    for (method, path, open) in operations(&server) {
        if method != "GET" && method != "HEAD" && !open {
            assert_eq!(server.call(&method, &path).key(&key).send().error(), "FORBIDDEN", "{method} {path}");
        }
    }
    assert_eq!(server.call("GET", "/test/path/7").key(&key).send().body, "7");
    let upgrade = server.call("GET", "/test/path/7").key(&key).header("upgrade", "websocket").send();
    assert_eq!(upgrade.error(), "FORBIDDEN");
}

#[test]
fn admin_routes_reject_user_keys() {
    let server = Server::new();
    let key = server.key("user");
    for (method, path) in [("GET", "/api/v1/keys"), ("DELETE", "/api/v1/keys/x"), ("GET", "/metrics")] {
        assert_eq!(server.call(method, path).key(&key).send().error(), "FORBIDDEN", "{method} {path}");
    }
    let audit = server.audit();
    let refused: Vec<_> = audit.iter().filter(|entry| entry["event"] == "auth.forbidden").collect();
    assert_eq!((refused.len(), &refused[1]["route"]), (3, &"/api/v1/keys/{id}".into()));
}

#[test]
fn both_headers_for_keys_are_accepted() {
    let server = Server::new();
    assert_eq!(server.call("GET", "/api/v1/keys").header("x-api-key", KEY).send().status, 200);
    let scheme = server.call("GET", "/api/v1/keys").header("authorization", &format!("bearer {KEY}")).send();
    assert_eq!(scheme.status, 200);
    for (name, value) in [("authorization", "Basic eDp5"), ("authorization", "Bearer "), ("x-api-key", "")] {
        let answer = server.call("GET", "/api/v1/keys").header(name, value).send();
        assert_eq!(answer.error(), "UNAUTHORIZED", "{name}: {value}");
    }
}

#[test]
fn unauthenticated_callers_cannot_probe_paths() {
    let server = Server::new();
    assert_eq!(server.call("GET", "/api/v1/nothing").send().error(), "UNAUTHORIZED");
    assert_eq!(server.call("PUT", "/api/v1/keys").send().error(), "UNAUTHORIZED");
    assert_eq!(server.call("GET", "/api/v1/nothing").key(KEY).send().error(), "NOT_FOUND");
}

#[test]
fn failed_authentication_is_in_the_audit_log_without_the_key() {
    let server = Server::new();
    let answer = server.call("GET", "/api/v1/keys").key("not-a-key-but-a-secret").send();
    let entries = server.audit();
    let entry = entries.iter().find(|entry| entry["event"] == "auth.failed").unwrap();
    assert_eq!(entry["request_id"].as_str(), answer.header("x-request-id"));
    assert_eq!((&entry["level"], &entry["address"]), (&Value::from("warn"), &Value::from("127.0.0.1")));
    assert!(!format!("{entries:?}").contains("not-a-key-but-a-secret"));
}
