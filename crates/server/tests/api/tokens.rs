//! Sandbox tokens: rights on every route, expiry, revocation, limits and the audit log. Also `/api/v1/me`.

use serde_json::{Value, json};
use workspace_test_support::wait_until;

use crate::support::{Answer, KEY, OWNER, Server};

const RIGHTS: [&str; 7] =
    ["files:read", "files:write", "process", "terminal", "ports", "lifecycle", "snapshot"];

fn create(server: &Server, key: &str, sandbox: &str, body: &Value) -> Answer {
    let path = format!("/api/v1/sandboxes/{sandbox}/token");
    server.call("POST", &path).key(key).json(&body.to_string()).send()
}

fn token(server: &Server, key: &str, sandbox: &str, rights: &[&str]) -> String {
    let answer = create(server, key, sandbox, &json!({ "rights": rights }));
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["token"].as_str().unwrap().to_owned()
}

fn get(server: &Server, key: &str, path: &str) -> Answer {
    server.call("GET", path).key(key).send()
}

fn path_of(sandbox: &str) -> String {
    format!("/api/v1/sandboxes/{sandbox}")
}

/// Operation on a sandbox, with the right that a token needs.
struct Operation {
    method: String,
    path: String,
    access: Access,
}

#[derive(Debug, PartialEq)]
enum Access {
    Keys,
    AnyToken,
    Right(String),
}

/// Returns all operations on one sandbox, as the OpenAPI document describes them.
fn operations(server: &Server) -> Vec<Operation> {
    let description = server.call("GET", "/api/v1/openapi.json").send().json();
    let mut operations = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schemes = operation["security"].as_array().cloned().unwrap_or_default();
            let rights = schemes.iter().find_map(|scheme| scheme.get("sandboxToken"));
            let access = match rights.map(|rights| rights[0].as_str()) {
                None => Access::Keys,
                Some(None) => Access::AnyToken,
                Some(Some(right)) => Access::Right(right.to_owned()),
            };
            if path.starts_with("/api/v1/sandboxes/{id}") {
                operations.push(Operation { method: method.to_uppercase(), path: path.clone(), access });
            } else {
                let expected = if path == "/api/v1/me" { Access::AnyToken } else { Access::Keys };
                assert_eq!(access, expected, "{method} {path}");
            }
        }
    }
    operations
}

impl Operation {
    fn send(&self, server: &Server, credential: &str, sandbox: &str) -> Answer {
        let path = self.path.replace("{id}", sandbox).replace("{pty}", "pty-1").replace("{command}", "cmd-1");
        let call = server.call(&self.method, &path).key(credential);
        if self.method == "GET" { call.send() } else { call.json("{}").send() }
    }
}

#[test]
fn each_right_opens_its_routes_and_no_others() {
    let server = Server::with(&[("RATE_LIMIT", "off")]);
    let key = server.key("user");
    let operations = operations(&server);
    assert!(operations.len() > 18, "{}", operations.len());
    for right in RIGHTS {
        for operation in &operations {
            // A sandbox of its own, because the operation may delete it.
            let sandbox = server.sandbox(OWNER);
            let token = token(&server, &key, &sandbox, &[right]);
            let answer = operation.send(&server, &token, &sandbox);
            let is_open = match &operation.access {
                Access::Keys => false,
                Access::AnyToken => true,
                Access::Right(needed) => needed == right,
            };
            let case = format!("{right}: {} {}: {}", operation.method, operation.path, answer.body);
            if is_open {
                assert!(![401, 403].contains(&answer.status), "{case}");
            } else {
                assert_eq!(answer.error(), "FORBIDDEN", "{case}");
            }
        }
    }
}

#[test]
fn routes_need_the_right_that_their_name_suggests() {
    let server = Server::new();
    let operations = operations(&server);
    let access = |method: &str, path: &str| {
        let path = format!("/api/v1/sandboxes/{{id}}{path}");
        let found = operations.iter().find(|one| one.method == method && one.path == path);
        match &found.unwrap_or_else(|| panic!("no {method} {path}")).access {
            Access::Keys => "(keys)".to_owned(),
            Access::AnyToken => "(any)".to_owned(),
            Access::Right(right) => right.clone(),
        }
    };
    for (method, path, expected) in [
        ("GET", "", "(any)"),
        ("DELETE", "", "lifecycle"),
        ("POST", "/extend", "lifecycle"),
        ("PUT", "/timeout", "lifecycle"),
        ("POST", "/pause", "lifecycle"),
        ("POST", "/resume", "lifecycle"),
        ("POST", "/process/run", "process"),
        ("GET", "/process/{command}", "process"),
        ("POST", "/process/{command}/stdin", "process"),
        ("GET", "/logs", "process"),
        ("POST", "/pty", "terminal"),
        ("GET", "/pty/{pty}/ws", "terminal"),
        ("POST", "/pty/{pty}/ticket", "terminal"),
        ("POST", "/commit", "snapshot"),
        ("POST", "/restore", "snapshot"),
        ("POST", "/rebase", "snapshot"),
        ("GET", "/changes", "files:read"),
        ("POST", "/token", "(keys)"),
        ("POST", "/fork", "(keys)"),
    ] {
        assert_eq!(access(method, path), expected, "{method} {path}");
    }
}

#[test]
fn a_token_has_the_requested_rights_and_expiry() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let answer = create(
        &server,
        &key,
        &sandbox,
        &json!({"rights": ["terminal", "process", "process"], "expiresInSeconds": 60}),
    );
    assert_eq!((answer.status, &answer.json()["rights"]), (201, &json!(["process", "terminal"])));
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("wst_"), "{token}");
    assert_eq!(get(&server, &token, &path_of(&sandbox)).json()["id"], sandbox.as_str());
    let plain = server.call("GET", &path_of(&sandbox)).header("x-api-key", &token).send();
    assert_eq!(plain.status, 200);
    let me = get(&server, &token, "/api/v1/me").json();
    assert_eq!((&me["token"]["sandboxId"], &me["owner"]), (&json!(sandbox), &json!(OWNER)));
    assert_eq!(me["token"]["rights"], answer.json()["rights"]);
    assert_eq!(me["token"]["expiresAt"], answer.json()["expiresAt"]);
    assert!(me.get("usage").is_none() && me["admin"] == false, "{me}");
}

#[test]
fn invalid_requests_for_tokens_are_refused() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    for body in [
        json!({}),
        json!({"rights": []}),
        json!({"rights": ["everything"]}),
        json!({"rights": "process"}),
        json!({"rights": ["process"], "expiresInSeconds": 0}),
        json!({"rights": ["process"], "expiresInSeconds": 86_401}),
        json!({"rights": ["process"], "expiresInSeconds": -1}),
        json!({"rights": ["process"], "more": 1}),
    ] {
        assert_eq!(create(&server, &key, &sandbox, &body).error(), "INVALID_REQUEST", "{body}");
    }
    let body = json!({"rights": ["process"]});
    assert_eq!(create(&server, &key, "sbx-none", &body).error(), "SANDBOX_NOT_FOUND");
    let foreign = server.sandbox("another");
    assert_eq!(create(&server, &key, &foreign, &body).error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn other_sandboxes_are_not_found_with_a_token() {
    let server = Server::with(&[("RATE_LIMIT", "off")]);
    let key = server.key("user");
    let (own, other, foreign) = (server.sandbox(OWNER), server.sandbox(OWNER), server.sandbox("another"));
    let token = token(&server, &key, &own, &RIGHTS);
    let plain = |answer: &Answer, id: &str| {
        let mut error = answer.json()["error"].clone();
        error["requestId"] = Value::Null;
        error.to_string().replace(id, "ID")
    };
    let expected = plain(&get(&server, &key, &path_of(&foreign)), &foreign);
    for operation in operations(&server) {
        for sandbox in [other.as_str(), &foreign, "sbx-none"] {
            let answer = operation.send(&server, &token, sandbox);
            assert_eq!(answer.error(), "SANDBOX_NOT_FOUND", "{} {}", operation.method, operation.path);
            assert_eq!(plain(&answer, sandbox), expected, "{} {}", operation.method, operation.path);
        }
    }
    // The id in the path is compared after decoding.
    let escaped = format!("/api/v1/sandboxes/%73{}", &own[1..]);
    assert_eq!(get(&server, &token, &escaped).status, 200);
}

#[test]
fn a_token_is_refused_on_routes_without_its_sandbox() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let token = token(&server, &key, &sandbox, &RIGHTS);
    for (method, path) in [
        ("GET", "/api/v1/sandboxes"),
        ("POST", "/api/v1/sandboxes"),
        ("POST", "/api/v1/sandboxes/batch-delete"),
        ("GET", "/api/v1/snapshots"),
        ("GET", "/api/v1/templates"),
        ("GET", "/api/v1/keys"),
        ("GET", "/metrics"),
        // These have no rule that accepts tokens.
        ("GET", "/test/path/1"),
        ("GET", "/api/v1/nothing"),
        ("PUT", "/api/v1/me"),
    ] {
        let answer = server.call(method, path).key(&token).send();
        assert_eq!(answer.error(), "FORBIDDEN", "{method} {path}");
    }
    let minted = create(&server, &token, &sandbox, &json!({"rights": ["process"]}));
    assert_eq!(minted.error(), "FORBIDDEN", "tokens cannot create tokens");
    assert_eq!(server.call("GET", "/health").send().status, 200);
}

#[test]
fn a_token_in_the_query_is_refused() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let token = token(&server, &key, &sandbox, &RIGHTS);
    for name in ["token", "ticket", "access_token", "key", "signature", "authorization"] {
        for path in
            [path_of(&sandbox), "/api/v1/me".to_owned(), format!("{}/pty/pty-1/ws", path_of(&sandbox))]
        {
            let answer = server.call("GET", &format!("{path}?{name}={token}")).send();
            assert_eq!(answer.error(), "UNAUTHORIZED", "{path}?{name}");
        }
    }
}

#[test]
fn an_expired_token_is_refused() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let answer = create(&server, &key, &sandbox, &json!({"rights": ["process"], "expiresInSeconds": 1}));
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    wait_until("the token expires", || get(&server, &token, &path_of(&sandbox)).status == 401);
    let answer = get(&server, &token, &path_of(&sandbox));
    assert_eq!(
        (answer.error().as_str(), answer.header("www-authenticate")),
        ("UNAUTHORIZED", Some("Bearer"))
    );
}

#[test]
fn a_token_with_any_other_character_is_refused() {
    let server = Server::with(&[("RATE_LIMIT", "off")]);
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let token = token(&server, &key, &sandbox, &RIGHTS);
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(get(&server, &changed, &path_of(&sandbox)).error(), "UNAUTHORIZED", "{changed}");
    }
    for changed in [format!("{token}A"), token[..token.len() - 1].to_owned(), "wst_".to_owned()] {
        assert_eq!(get(&server, &changed, &path_of(&sandbox)).error(), "UNAUTHORIZED", "{changed}");
    }
    assert_eq!(get(&server, &token, &path_of(&sandbox)).status, 200);
}

#[test]
fn a_token_ends_with_its_key() {
    let server = Server::new();
    let made = server.call("POST", "/api/v1/keys").key(KEY);
    let made = made.json(&json!({"name": "a", "owner": OWNER, "role": "user"}).to_string()).send().json();
    let sandbox = server.sandbox(OWNER);
    let token = token(&server, made["key"].as_str().unwrap(), &sandbox, &["process"]);
    assert_eq!(get(&server, &token, &path_of(&sandbox)).status, 200);
    let revoke = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(server.call("DELETE", &revoke).key(KEY).send().status, 204);
    assert_eq!(get(&server, &token, &path_of(&sandbox)).error(), "UNAUTHORIZED");
    assert_eq!(get(&server, &token, "/api/v1/me").error(), "UNAUTHORIZED");
}

#[test]
fn a_token_ends_with_its_sandbox() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let token = token(&server, &key, &sandbox, &["process"]);
    server.runtime.block_on(server.app.catalog.sandboxes().delete(&sandbox, &[])).unwrap();
    for path in [path_of(&sandbox), format!("{}/process", path_of(&sandbox)), "/api/v1/me".to_owned()] {
        assert_eq!(get(&server, &token, &path).error(), "SANDBOX_NOT_FOUND", "{path}");
    }
}

#[test]
fn a_token_of_an_admin_key_is_no_admin() {
    let server = Server::new();
    let sandbox = server.sandbox("another");
    let token = token(&server, KEY, &sandbox, &RIGHTS);
    assert_eq!(get(&server, &token, &path_of(&sandbox)).json()["owner"], "another");
    let me = get(&server, &token, "/api/v1/me").json();
    assert_eq!((&me["admin"], &me["role"], &me["owner"]), (&json!(false), &json!("admin"), &json!("admin")));
    assert_eq!(get(&server, &token, "/api/v1/keys").error(), "FORBIDDEN");
    assert_eq!(get(&server, &token, &path_of(&server.sandbox("another"))).error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn a_token_counts_for_the_rate_limit_of_its_key() {
    let server = Server::with(&[("RATE_LIMIT_OTHER", "3")]);
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let token = token(&server, &key, &sandbox, &["process"]);
    let with_token = get(&server, &token, &path_of(&sandbox));
    assert_eq!((with_token.status, with_token.header("ratelimit-remaining")), (200, Some("1")));
    assert_eq!(get(&server, &key, &path_of(&sandbox)).header("ratelimit-remaining"), Some("0"));
    assert_eq!(get(&server, &token, &path_of(&sandbox)).error(), "RATE_LIMITED");
    assert_eq!(get(&server, &key, &path_of(&sandbox)).error(), "RATE_LIMITED");
}

#[test]
fn tokens_of_an_admin_key_have_the_rate_limits_of_the_settings() {
    let server = Server::with(&[("RATE_LIMIT_OTHER", "2")]);
    let sandbox = server.sandbox(OWNER);
    let (one, other) =
        (token(&server, KEY, &sandbox, &["process"]), token(&server, KEY, &sandbox, &["process"]));
    for token in [&one, &other] {
        assert_eq!(get(&server, token, &path_of(&sandbox)).header("ratelimit-limit"), Some("2"));
    }
    assert_eq!(get(&server, &one, &path_of(&sandbox)).error(), "RATE_LIMITED");
    assert_eq!(get(&server, KEY, &path_of(&sandbox)).status, 200);
}

#[test]
fn the_audit_log_has_the_use_of_a_token_but_never_the_token() {
    let server = Server::new();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let token = token(&server, &key, &sandbox, &["lifecycle"]);
    let label = |key: &str| {
        let call = server.call("PATCH", &path_of(&sandbox)).key(key);
        assert_eq!(call.json(r#"{"labels":{"a":"b"}}"#).send().status, 200);
    };
    label(&token);
    label(&key);
    assert_eq!(get(&server, &token, "/api/v1/keys").error(), "FORBIDDEN");
    let entries = server.audit();
    let of = |event: &str| entries.iter().filter(|entry| entry["event"] == event).collect::<Vec<_>>();
    let created = of("token.created");
    assert_eq!((created.len(), &created[0]["sandbox_id"]), (1, &json!(sandbox)));
    assert_eq!(created[0]["rights"], json!(["lifecycle"]));
    assert!(created[0]["expires_at"].is_string() && created[0].get("credential").is_none());
    let labelled = of("sandbox.labelled");
    assert_eq!((labelled.len(), &labelled[0]["credential"]), (2, &json!("token")));
    assert!(labelled[1].get("credential").is_none(), "{}", labelled[1]);
    assert_eq!(labelled[0]["user"], labelled[1]["user"]);
    assert_eq!(of("auth.forbidden")[0]["credential"], "token");
    assert!(!format!("{entries:?}").contains(&token));
}

#[test]
fn servers_of_one_catalog_accept_each_others_tokens() {
    let one = Server::new();
    let url = workspace_catalog::sqlite_url(&one.data.path().join("catalog.db"));
    let other = Server::with(&[("DATABASE_URL", &url)]);
    let sandbox = one.sandbox(OWNER);
    let token = token(&one, &one.key("user"), &sandbox, &["process"]);
    assert_eq!(get(&other, &token, &path_of(&sandbox)).json()["id"], sandbox.as_str());
    let apart = Server::new();
    assert_eq!(get(&apart, &token, "/api/v1/me").error(), "UNAUTHORIZED");
}

#[test]
fn a_key_is_described_with_its_limits_and_usage() {
    let server = Server::with(&[("MAX_SNAPSHOTS_PER_OWNER", "0")]);
    let order =
        r#"{"name":"ci","owner":"someone","role":"user","limits":{"maxSandboxes":3,"runPerMinute":7}}"#;
    let made = server.call("POST", "/api/v1/keys").key(KEY).json(order).send().json();
    server.sandbox(OWNER);
    server.sandbox("another");
    let me = get(&server, made["key"].as_str().unwrap(), "/api/v1/me").json();
    assert_eq!((&me["keyId"], &me["name"]), (&made["id"], &json!("ci")));
    assert_eq!((&me["owner"], &me["role"], &me["admin"]), (&json!(OWNER), &json!("user"), &json!(false)));
    let limits = &me["limits"];
    assert_eq!((&limits["maxSandboxes"], &limits["runPerMinute"]), (&json!(3), &json!(7)));
    assert_eq!(limits["createPerMinute"], 10);
    assert!(limits.get("maxSnapshots").is_none(), "{limits}");
    let usage = json!({"sandboxes": 1, "snapshots": 0, "snapshotBytes": 0, "episodes": 0, "episodeBytes": 0});
    assert_eq!((&me["usage"], me.get("token")), (&usage, None));
}

#[test]
fn an_admin_key_has_no_limits() {
    let server = Server::new();
    let me = get(&server, KEY, "/api/v1/me").json();
    assert_eq!((&me["admin"], &me["limits"]), (&json!(true), &json!({})));
    let unlimited = Server::with(&[("RATE_LIMIT", "off")]);
    let me = get(&unlimited, &unlimited.key("read_only"), "/api/v1/me").json();
    assert!(me["limits"].get("otherPerMinute").is_none() && me["limits"]["maxSandboxes"] == 10, "{me}");
}
