//! Errors of invalid requests.

use crate::support::{KEY, Server};

#[test]
fn invalid_bodies_are_refused() {
    let server = Server::with(&[("MAX_BODY", "1k")]);
    let send = |body: &[u8]| {
        let call = server.call("POST", "/test/echo").key(KEY).header("content-type", "application/json");
        call.body(body).send()
    };
    assert_eq!(send(br#"{"text":"a","number":7}"#).body, "a 7");
    let wrong: [&[u8]; 9] = [
        b"",
        b"{",
        b"[]",
        br#"{"text":"a"}"#,
        br#"{"text":1,"number":7}"#,
        br#"{"text":"a","number":300}"#,
        br#"{"text":"a","number":7,"more":1}"#,
        b"{\"text\":\"\xff\xfe\",\"number\":7}",
        br#"{"text":"a","number":7} {}"#,
    ];
    for body in wrong {
        assert_eq!(send(body).error(), "INVALID_REQUEST", "{}", String::from_utf8_lossy(body));
    }
    let deep = "[".repeat(500);
    assert_eq!(send(deep.as_bytes()).error(), "INVALID_REQUEST");
    assert_eq!(send(&[b' '; 1500]).error(), "PAYLOAD_TOO_LARGE");
}

#[test]
fn a_body_needs_a_json_content_type() {
    let server = Server::new();
    for kind in ["text/plain", "application/jsonp", ""] {
        let call = server.call("POST", "/test/echo").key(KEY).header("content-type", kind);
        assert_eq!(call.body(b"{}").send().error(), "UNSUPPORTED_MEDIA_TYPE", "{kind}");
    }
    let call =
        server.call("POST", "/test/echo").key(KEY).header("content-type", "Application/JSON; charset=utf-8");
    assert_eq!(call.body(br#"{"text":"a","number":7}"#).send().status, 200);
}

#[test]
fn invalid_paths_and_queries_are_refused() {
    let server = Server::new();
    let get = |path: &str| server.call("GET", path).key(KEY).send();
    assert_eq!(get("/test/query?text=a&number=7").body, "a 7");
    for path in [
        "/test/query",
        "/test/query?text=a&number=x",
        "/test/query?text=a&number=7&more=1",
        "/test/path/300",
        "/test/path/%ff",
        "/test/name/%ff",
    ] {
        assert_eq!(get(path).error(), "INVALID_REQUEST", "{path}");
    }
    assert_eq!(get("/test/").error(), "NOT_FOUND");
    assert_eq!(get(&format!("/test/name/{}", "a".repeat(5000))).error(), "URI_TOO_LONG");
    assert_eq!(get("/test/name/%2e%2e%2fetc").body, "../etc");
}

#[test]
fn the_size_of_headers_is_limited() {
    let server = Server::new();
    let call = server.call("GET", "/health").header("x-much", &"a".repeat(20_000));
    assert_eq!(call.send().error(), "HEADERS_TOO_LARGE");
}

#[test]
fn an_unsupported_method_gets_the_allowed_ones() {
    let server = Server::new();
    let answer = server.call("PUT", "/api/v1/keys").key(KEY).send();
    assert_eq!(answer.error(), "METHOD_NOT_ALLOWED");
    assert_eq!(answer.header("allow"), Some("GET,HEAD,POST"));
    assert_eq!(server.call("POST", "/health").send().error(), "METHOD_NOT_ALLOWED");
}

#[test]
fn internal_errors_do_not_reveal_their_cause() {
    let server = Server::new();
    for path in ["/test/internal", "/test/panic"] {
        let answer = server.call("GET", path).key(KEY).send();
        assert_eq!(answer.error(), "INTERNAL_ERROR");
        assert!(!answer.body.contains("secret cause") && !answer.body.contains("on purpose"));
    }
}

#[test]
fn a_plain_request_id_is_kept() {
    let server = Server::new();
    let id = |given: &str| {
        let answer = server.call("GET", "/nothing").header("x-request-id", given).send();
        answer.error();
        answer.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id("abc-1.2_3"), "abc-1.2_3");
    for given in ["", "a b", "a\"b", &"a".repeat(101)] {
        assert!(id(given).starts_with("req-"), "{given}");
    }
}
