//! Signed URLs, with routes in the place of those for files.

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use workspace_api::access::Right;
use workspace_server::RouteGroup;
use workspace_server::access::{QueryCredential, Rule};
use workspace_server::caller::Caller;
use workspace_server::extract::Path;
use workspace_test_support::wait_until;

use crate::support::{Answer, KEY, OWNER, Server};

const FILES: &str = "/api/v1/sandboxes/{id}/test-files/{*path}";
const RULES: &[Rule] = &[
    Rule::right("GET", FILES, Right::FilesRead).or_query(QueryCredential::Signature),
    Rule::right("PUT", FILES, Right::FilesWrite).or_query(QueryCredential::Signature),
];

fn server() -> Server {
    let read = async |Path((_, path)): Path<(String, String)>| path;
    let write = async |caller: Caller| format!("{:?}", caller.upload_max());
    let routes = Router::new().route(FILES, get(read).put(write));
    let files = RouteGroup::authenticated(routes, utoipa::openapi::OpenApi::default()).with_rules(RULES);
    Server::with_groups(&[], vec![files])
}

fn create(server: &Server, key: &str, sandbox: &str, body: &Value) -> Answer {
    let path = format!("/api/v1/sandboxes/{sandbox}/signed-url");
    server.call("POST", &path).key(key).json(&body.to_string()).send()
}

/// Returns path and query of a signed URL, for the test routes.
fn signed(server: &Server, key: &str, sandbox: &str, body: &Value) -> String {
    let answer = create(server, key, sandbox, body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let url = answer.json()["url"].as_str().unwrap().to_owned();
    let path = url.strip_prefix("http://test").unwrap_or_else(|| panic!("{url}"));
    path.replace("/files/", "/test-files/")
}

#[test]
fn a_signed_url_reads_its_file_without_a_key() {
    let server = server();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let url = signed(&server, &key, &sandbox, &json!({"path": "/workspace/a b/ü?.txt", "method": "GET"}));
    assert_eq!(server.call("GET", &url).send().body, "workspace/a b/ü?.txt");
    assert_eq!(server.call("HEAD", &url).send().status, 200);
    assert_eq!(server.call("PUT", &url).send().error(), "UNAUTHORIZED");
    let without = url.split('?').next().unwrap();
    assert_eq!(server.call("GET", without).send().error(), "UNAUTHORIZED");
    assert_eq!(server.call("GET", without).key(&key).send().status, 200);
    let query = url.split_once('?').unwrap().1;
    let other = format!("/api/v1/sandboxes/{sandbox}/test-files/workspace/other?{query}");
    assert_eq!(server.call("GET", &other).send().error(), "UNAUTHORIZED");
    let other = url.replace(&sandbox, &server.sandbox(OWNER));
    assert_eq!(server.call("GET", &other).send().error(), "UNAUTHORIZED");
    for path in [format!("/api/v1/sandboxes/{sandbox}"), "/api/v1/me".to_owned()] {
        assert_eq!(server.call("GET", &format!("{path}?{query}")).send().error(), "UNAUTHORIZED", "{path}");
    }
}

#[test]
fn a_signed_upload_is_limited() {
    let server = server();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let url =
        signed(&server, &key, &sandbox, &json!({"path": "/workspace/a", "method": "PUT", "maxBytes": 10}));
    assert_eq!(server.call("PUT", &url).send().body, "Some(10)");
    assert_eq!(server.call("PUT", &url.replace("=10", "=11")).send().error(), "UNAUTHORIZED");
    assert_eq!(server.call("PUT", &format!("{url}&mode=777")).send().error(), "UNAUTHORIZED");
    let unlimited = signed(&server, &key, &sandbox, &json!({"path": "/workspace/a", "method": "PUT"}));
    assert_eq!(server.call("PUT", &unlimited).send().body, "None");
}

#[test]
fn invalid_requests_for_signed_urls_are_refused() {
    let server = server();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    for body in [
        json!({"path": "/a"}),
        json!({"path": "/a", "method": "DELETE"}),
        json!({"path": "/a", "method": "GET", "maxBytes": 1}),
        json!({"path": "a", "method": "GET"}),
        json!({"path": "/", "method": "GET"}),
        json!({"path": "/a/../b", "method": "GET"}),
        json!({"path": "/a\u{0}", "method": "GET"}),
        json!({"path": "/a", "method": "GET", "expiresInSeconds": 0}),
        json!({"path": "/a", "method": "GET", "expiresInSeconds": 86_401}),
    ] {
        assert_eq!(create(&server, &key, &sandbox, &body).error(), "INVALID_REQUEST", "{body}");
    }
    let body = json!({"path": "/a", "method": "GET"});
    let foreign = server.sandbox("another");
    assert_eq!(create(&server, &key, &foreign, &body).error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn a_signed_url_ends_with_its_time_its_key_or_its_sandbox() {
    let server = server();
    let made = server.call("POST", "/api/v1/keys").key(KEY);
    let made = made.json(&json!({"name": "a", "owner": OWNER, "role": "user"}).to_string()).send().json();
    let (key, sandbox) = (made["key"].as_str().unwrap(), server.sandbox(OWNER));
    let body = json!({"path": "/a", "method": "GET", "expiresInSeconds": 1});
    let short = signed(&server, key, &sandbox, &body);
    wait_until("the URL expires", || server.call("GET", &short).send().status == 401);
    let url = signed(&server, key, &sandbox, &json!({"path": "/a", "method": "GET"}));
    assert_eq!(server.call("GET", &url).send().status, 200);
    let revoke = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(server.call("DELETE", &revoke).key(KEY).send().status, 204);
    assert_eq!(server.call("GET", &url).send().error(), "UNAUTHORIZED");
}

#[test]
fn a_token_signs_only_what_it_may_do_itself() {
    let server = server();
    let (key, sandbox) = (server.key("user"), server.sandbox(OWNER));
    let body = json!({"rights": ["files:read"], "expiresInSeconds": 60});
    let made = server.call("POST", &format!("/api/v1/sandboxes/{sandbox}/token")).key(&key);
    let made = made.json(&body.to_string()).send().json();
    let token = made["token"].as_str().unwrap();
    let read = create(&server, token, &sandbox, &json!({"path": "/a", "method": "GET"}));
    assert_eq!(read.status, 201, "{}", read.body);
    assert!(read.json()["expiresAt"].as_str() <= made["expiresAt"].as_str(), "{}", read.body);
    let write = create(&server, token, &sandbox, &json!({"path": "/a", "method": "PUT"}));
    assert_eq!(write.error(), "FORBIDDEN");
}

#[test]
fn signed_urls_of_an_admin_key_reach_sandboxes_of_all_owners() {
    let server = server();
    let sandbox = server.sandbox("another");
    let url = signed(&server, KEY, &sandbox, &json!({"path": "/a", "method": "GET"}));
    assert_eq!(server.call("GET", &url).send().body, "a");
    let entries = server.audit();
    let created = entries.iter().find(|entry| entry["event"] == "signed_url.created").unwrap();
    assert_eq!((&created["path"], &created["method"]), (&json!("/a"), &json!("GET")));
    assert!(!format!("{entries:?}").contains(url.rsplit('=').next().unwrap()));
}
