//! How often one may call.

use crate::support::{KEY, Server};

#[test]
fn a_key_with_no_requests_left_is_told_when_to_come_back() {
    let server = Server::with(&[("RATE_LIMIT_OTHER", "3")]);
    for left in ["2", "1", "0"] {
        let answer = server.call("GET", "/test/path/1").key(KEY).send();
        assert_eq!((answer.status, answer.header("ratelimit-remaining")), (200, Some(left)));
        assert_eq!(answer.header("ratelimit-limit"), Some("3"));
    }
    let answer = server.call("GET", "/test/path/1").key(KEY).send();
    assert_eq!(answer.error(), "RATE_LIMITED");
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
fn limits_can_be_switched_off() {
    let server = Server::with(&[("RATE_LIMIT", "off"), ("RATE_LIMIT_OTHER", "1")]);
    for _ in 0..3 {
        let answer = server.call("GET", "/test/path/1").key(KEY).send();
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
