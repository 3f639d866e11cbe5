//! Rate limits, and limits on connections and response memory.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::{KEY, Server};

#[test]
fn a_rate_limited_request_gets_retry_after() {
    let server = Server::with(&[("RATE_LIMIT_OTHER", "3")]);
    let key = server.key("user");
    for left in ["2", "1", "0"] {
        let answer = server.call("GET", "/test/path/1").key(&key).send();
        assert_eq!((answer.status, answer.header("ratelimit-remaining")), (200, Some(left)));
        assert_eq!(answer.header("ratelimit-limit"), Some("3"));
    }
    let answer = server.call("GET", "/test/path/1").key(&key).send();
    assert_eq!(answer.error(), "RATE_LIMITED");
    assert_eq!(answer.json()["error"]["details"]["setting"], "RATE_LIMIT_OTHER");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");
    assert_eq!(server.call("GET", "/health").send().status, 200);
}

#[test]
fn a_key_may_have_limits_of_its_own() {
    let server = Server::new();
    let order = r#"{"name":"a","owner":"a","role":"user","limits":{"otherPerMinute":1}}"#;
    let key = server.call("POST", "/api/v1/keys").key(KEY).json(order).send().json()["key"].clone();
    let get = || server.call("GET", "/test/path/1").key(key.as_str().unwrap()).send();
    assert_eq!(get().status, 200);
    assert_eq!(get().error(), "RATE_LIMITED");
}

#[test]
fn admin_keys_have_only_limits_of_their_own() {
    let server = Server::with(&[("RATE_LIMIT_OTHER", "1")]);
    for _ in 0..3 {
        let answer = server.call("GET", "/test/path/1").key(KEY).send();
        assert_eq!((answer.status, answer.header("ratelimit-limit")), (200, None));
    }
    let order = r#"{"name":"a","owner":"a","role":"admin","limits":{"otherPerMinute":1}}"#;
    let key = server.call("POST", "/api/v1/keys").key(KEY).json(order).send().json()["key"].clone();
    let get = || server.call("GET", "/test/path/1").key(key.as_str().unwrap()).send();
    assert_eq!(get().status, 200);
    assert_eq!(get().error(), "RATE_LIMITED");
}

#[test]
fn invalid_requests_take_no_token_and_have_a_limit_of_their_own() {
    let server = Server::with(&[("RATE_LIMIT_CREATE", "1"), ("RATE_LIMIT_OTHER", "6")]);
    let key = server.key("user");
    let create = |body: &str| server.call("POST", "/api/v1/sandboxes").key(&key).json(body).send();
    for wrong in ["{}", r#"{"template":1}"#, r#"{"template":"base","memory":"1g"}"#, "{"] {
        let answer = create(wrong);
        assert_eq!(
            (answer.error().as_str(), answer.header("ratelimit-remaining")),
            ("INVALID_REQUEST", Some("1"))
        );
    }
    let other = server.call("GET", "/test/path/1").key(&key).send();
    assert_eq!(other.header("ratelimit-remaining"), Some("5"));
    for _ in 0..2 {
        assert_eq!(create("{}").error(), "INVALID_REQUEST");
    }
    let limited = create("{}");
    assert_eq!(limited.error(), "RATE_LIMITED");
    assert!(limited.body.contains("rejected requests") && limited.header("retry-after").is_some());
}

#[test]
fn rate_limits_can_be_disabled() {
    let server = Server::with(&[("RATE_LIMIT", "off"), ("RATE_LIMIT_OTHER", "1")]);
    let key = server.key("user");
    for _ in 0..3 {
        let answer = server.call("GET", "/test/path/1").key(&key).send();
        assert_eq!((answer.status, answer.header("ratelimit-limit")), (200, None));
    }
}

#[test]
fn guessing_keys_is_limited_by_address_and_does_not_fill_the_audit_log() {
    let server = Server::with(&[("RATE_LIMIT_OTHER", "5")]);
    let guess = || server.call("GET", "/api/v1/keys").key("a-guess-at-some-key").send().error();
    let guesses: Vec<_> = (0..8).map(|_| guess()).collect();
    assert_eq!(guesses.iter().filter(|it| *it == "UNAUTHORIZED").count(), 5, "{guesses:?}");
    assert_eq!(guesses.last().unwrap(), "RATE_LIMITED");
    assert_eq!(server.call("GET", "/api/v1/keys").key(KEY).send().status, 200);
    assert_eq!(server.audit().len(), 5);
}

/// Opens a connection with a response that never ends.
fn stream(server: &Server, key: &str) -> TcpStream {
    begin(server, key, "/test/endless", "begun")
}

/// Opens a connection and reads only this much of a response.
fn begin(server: &Server, key: &str, path: &str, until: &str) -> TcpStream {
    let mut connection = TcpStream::connect(server.address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nhost: test\r\nx-api-key: {key}\r\n\r\n").unwrap();
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains(until) {
        let mut piece = [0; 1024];
        let count = connection.read(&mut piece).unwrap();
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&piece[..count]);
    }
    connection
}

#[test]
fn one_owner_cannot_take_all_connections() {
    let server = Server::with(&[("MAX_CONNECTIONS_PER_OWNER", "2")]);
    let (key, second) = (server.key("user"), server.key("user"));
    let get = |key: &str| server.call("GET", "/test/path/1").key(key).send();
    let (first, _other) = (stream(&server, &key), stream(&server, &second));
    let refused = get(&key);
    assert_eq!(refused.error(), "CONNECTION_LIMIT_EXCEEDED");
    let details = &refused.json()["error"]["details"];
    assert_eq!((&details["limit"], &details["setting"]), (&2.into(), &"MAX_CONNECTIONS_PER_OWNER".into()));
    assert!(refused.header("retry-after").is_some());
    let _admins = [stream(&server, KEY), stream(&server, KEY), stream(&server, KEY)];
    let other = r#"{"name":"a","owner":"another","role":"user"}"#;
    let other = server.call("POST", "/api/v1/keys").key(KEY).json(other).send().json()["key"].clone();
    assert_eq!(get(other.as_str().unwrap()).status, 200, "another owner has its own");
    drop(first);
    // The server notices the disconnect a little later.
    while get(&key).status != 200 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn an_unread_response_counts_until_the_client_disconnects() {
    let server = Server::new();
    let unread = begin(&server, KEY, "/test/large", "xxx");
    assert_eq!(server.call("GET", "/test/path/1").key(KEY).send().status, 200);
    assert_eq!(server.app.shutdown.in_progress(), 1, "what is not sent is still held");
    drop(unread);
    while server.app.shutdown.in_progress() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn unread_responses_of_one_owner_use_bounded_memory() {
    let server = Server::new();
    let key = server.key("user");
    let large = |key: &str| server.call("GET", "/test/large").key(key).send();
    // Twice 64 MiB.
    let (first, _second) =
        (begin(&server, &key, "/test/large", "xxx"), begin(&server, &key, "/test/large", "xxx"));
    assert_eq!(large(&key).error(), "ANSWERS_UNREAD");
    assert_eq!(server.call("GET", "/test/path/1").key(&key).send().status, 200, "small ones do not count");
    assert_eq!(large(KEY).status, 200, "nor do those of others");
    drop(first);
    while large(&key).status != 200 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
