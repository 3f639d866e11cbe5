//! Health, readiness, metrics, pages, security headers, shutdown.

use std::time::{Duration, Instant};

use crate::support::{Answer, Call, KEY, Server};

#[test]
fn health_and_readiness_are_reported() {
    let server = Server::new();
    assert_eq!(server.call("GET", "/health").send().json()["status"], "ok");
    let ready = server.call("GET", "/ready").send();
    assert_eq!(ready.json()["checks"][0]["name"], "catalog");
}

#[test]
fn a_server_without_a_runtime_is_not_ready_and_names_the_reason() {
    // The program of the guest agent does not exist, so no runtime is available.
    let server = Server::new();
    let ready = server.call("GET", "/ready").send();
    assert_eq!((ready.status, ready.header("retry-after")), (503, Some("5")));
    let checks = ready.json()["checks"].clone();
    let failed: Vec<_> = checks.as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
    assert_eq!(failed.len(), 1, "{checks}");
    assert!(
        failed[0]["name"] == "runtime" && failed[0]["message"].as_str().unwrap().contains("workspace-agent")
    );
    let refused = server.call("POST", "/api/v1/sandboxes").key(KEY).json(r#"{"template":"base"}"#).send();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("60")), "{}", refused.body);
}

#[test]
fn a_failed_check_makes_the_server_unready() {
    let server = Server::new();
    server.app.readiness.add("runtime", async || Err("no user namespaces".to_owned()));
    let ready = server.call("GET", "/ready").send();
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &false.into()));
    assert!(ready.body.contains("no user namespaces"));
    assert!(ready.header("retry-after").is_some());
}

#[test]
fn metrics_have_route_patterns_and_never_raw_paths() {
    let server = Server::with(&[("METRICS_PORT", "0")]);
    server.call("GET", "/test/name/abc").key(KEY).send();
    server.call("GET", "/some/invented/path").send();
    server.call("INVENTED", "/health").send();
    let api = server.call("GET", "/metrics").key(KEY).send();
    let own = Call::new(server.metrics.unwrap(), "GET", "/metrics").send();
    for answer in [api, own] {
        let line = "api_request_total{endpoint=\"GET /test/name/{name}\",status=\"200\"} 1";
        assert!(answer.body.contains(line), "{}", answer.body);
        assert!(answer.body.contains("endpoint=\"GET (none)\",status=\"401\"} 1"));
        assert!(answer.body.contains("endpoint=\"(other) /health\""));
        assert!(answer.body.contains("api_error_total{code=\"UNAUTHORIZED\"} 1"), "{}", answer.body);
        assert!(!answer.body.contains("abc") && !answer.body.contains("nvented"), "{}", answer.body);
    }
    assert!(server.metrics.unwrap().ip().is_loopback());
}

#[test]
fn every_response_has_security_headers() {
    let server = Server::new();
    for answer in [server.call("GET", "/health").send(), server.call("GET", "/nothing").send()] {
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(answer.header("content-security-policy").unwrap().contains("default-src 'none'"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

#[test]
fn the_front_page_is_html_for_browsers_and_json_for_other_clients() {
    let server = Server::new();
    let page = server.call("GET", "/").header("accept", "text/html,*/*;q=0.8").send();
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(
        page.header("content-security-policy").unwrap().starts_with("default-src 'none'; style-src 'self';")
    );
    assert!(page.body.contains(env!("CARGO_PKG_VERSION")) && page.body.contains("workspace key create"));
    assert!(!page.body.contains("<script") && !page.body.contains("://"), "{}", page.body);
    let data = server.data.path().to_str().unwrap();
    for accept in ["*/*", "application/json"] {
        let info = server.call("GET", "/").header("accept", accept).send();
        assert_eq!(
            (info.header("content-type"), info.header("vary")),
            (Some("application/json"), Some("Accept"))
        );
        assert!(!info.body.contains(data), "{}", info.body);
        let links = info.json()["links"].as_object().unwrap().clone();
        for path in links.values().map(|path| path.as_str().unwrap()).filter(|path| *path != "/ready") {
            assert_eq!(server.call("GET", path).key(KEY).send().status, 200, "{path}");
            assert!(page.body.contains(path), "{path}");
        }
    }
    assert_eq!(server.call("POST", "/").send().error(), "METHOD_NOT_ALLOWED");
}

#[test]
fn the_api_browser_loads_only_from_the_server_itself() {
    let server = Server::new();
    let page = server.call("GET", "/api/docs").send();
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; img-src data:;"));
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    let loaded: Vec<_> = page.body.split(['"']).filter(|it| it.starts_with("/api/docs/")).collect();
    assert_eq!(loaded.len(), 4, "{}", page.body);
    for path in loaded {
        let file = server.call("GET", path).send();
        let kind = if path.ends_with(".js") { "text/javascript" } else { "text/css" };
        assert!(file.status == 200 && file.header("content-type").unwrap().starts_with(kind), "{path}");
        assert_eq!(file.header("content-encoding"), None, "{path}");
    }
    assert!(!page.body.contains("://"), "{}", page.body);
    for path in ["swagger-ui-bundle.js.LICENSE.txt", "LICENSE", "NOTICE"] {
        assert_eq!(server.call("GET", &format!("/api/docs/{path}")).send().status, 200, "{path}");
    }
}

#[test]
fn the_api_browser_is_compressed_for_clients_that_accept_gzip() {
    let server = Server::new();
    let path = "/api/docs/swagger-ui-bundle.js";
    let plain = server.call("GET", path).send();
    assert!(plain.body.contains("SwaggerUIBundle") && plain.header("vary") == Some("Accept-Encoding"));
    let compressed = server.call("GET", path).header("accept-encoding", "gzip").send();
    assert_eq!(compressed.header("content-encoding"), Some("gzip"));
    let length = |answer: &Answer| answer.header("content-length").unwrap().parse::<usize>().unwrap();
    assert!(length(&compressed) < 500_000 && length(&plain) > 1_000_000);
}

#[test]
fn the_api_browser_keeps_the_key_in_memory_and_can_send_it() {
    let server = Server::new();
    let script = server.call("GET", "/api/docs/api_docs.js").send().body;
    assert!(script.contains("persistAuthorization: false") && script.contains("validatorUrl: null"));
    let description = server.call("GET", "/api/v1/openapi.json").send().json();
    assert_eq!(description["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    assert!(description["security"].as_array().unwrap().iter().any(|it| it.get("bearer").is_some()));
    assert!(description.get("servers").is_none(), "requests go to the server that served the page");
}

#[test]
fn only_configured_origins_get_cors_headers() {
    let server = Server::with(&[("CORS_ORIGINS", "https://a.org")]);
    let ask = |origin: &str| {
        let call = server.call("OPTIONS", "/api/v1/keys").header("origin", origin);
        call.header("access-control-request-method", "POST").send()
    };
    let named = ask("https://a.org");
    assert_eq!((named.status, named.header("access-control-allow-origin")), (204, Some("https://a.org")));
    assert!(named.header("access-control-allow-headers").unwrap().contains("Authorization"));
    assert!(named.header("access-control-allow-methods").unwrap().contains("PATCH"));
    assert_eq!(named.header("access-control-allow-credentials"), None);
    let other = ask("https://b.org");
    assert_eq!((other.error().as_str(), other.header("access-control-allow-origin")), ("UNAUTHORIZED", None));
    let plain = server.call("GET", "/health").header("origin", "https://a.org").send();
    assert_eq!(plain.header("access-control-allow-origin"), Some("https://a.org"));
    assert_eq!(plain.header("vary"), Some("Origin"));
    let exposed = plain.header("access-control-expose-headers").unwrap();
    for name in ["ETag", "Retry-After", "X-Request-Id", "Last-Event-ID", "RateLimit-Remaining"] {
        assert!(exposed.contains(name), "{name} in {exposed}");
    }
    let near = ["https://a.org.b.org", "https://A.org", "http://a.org", "https://a.org:444", "null"];
    for origin in near {
        assert_eq!(ask(origin).header("access-control-allow-origin"), None, "{origin}");
    }
}

#[test]
fn without_configured_origins_no_page_may_call_the_api() {
    let server = Server::new();
    let call = server.call("OPTIONS", "/api/v1/keys").header("origin", "https://a.org");
    let preflight = call.header("access-control-request-method", "POST").send();
    assert_eq!(preflight.error(), "UNAUTHORIZED");
    let plain = server.call("GET", "/health").header("origin", "https://a.org").send();
    for answer in [preflight, plain] {
        assert!(!answer.head.contains("access-control"), "{}", answer.head);
    }
}

#[test]
fn all_origins_are_allowed_by_an_asterisk_and_never_with_credentials() {
    let server = Server::with(&[("CORS_ORIGINS", "*")]);
    let call = server.call("OPTIONS", "/api/v1/sandboxes/x/token").header("origin", "https://a.org");
    let preflight = call.header("access-control-request-method", "POST").send();
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some("*")));
    let headers = preflight.header("access-control-allow-headers").unwrap();
    assert!(headers.contains("If-Match") && headers.contains("X-Agent"), "{headers}");
    // An error can be read by the page, too.
    let refused = server.call("GET", "/api/v1/me").header("origin", "https://b.org").send();
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some("*")));
    assert_eq!(refused.header("access-control-allow-credentials"), None);
    let same_origin = server.call("GET", "/health").send();
    assert_eq!(same_origin.header("access-control-allow-origin"), None);
}

#[test]
fn a_shutdown_refuses_new_requests_and_finishes_running_ones() {
    let mut server = Server::new();
    let address = server.address;
    let slow = std::thread::spawn(move || Call::new(address, "GET", "/test/slow").key(KEY).send());
    server.wait_for_a_request();
    server.app.shutdown.begin();
    let refused = server.call("GET", "/health").send();
    assert_eq!((refused.error().as_str(), refused.header("connection")), ("SHUTTING_DOWN", Some("close")));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(slow.join().unwrap().body, "done");
    server.runtime.block_on(server.running.take().unwrap()).unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_shutdown_has_a_timeout() {
    let mut server = Server::with(&[("SHUTDOWN_TIMEOUT", "1")]);
    // This request never ends, because its body is not sent.
    let stuck = std::net::TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST /test/echo HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: 10\r\n\r\n"
    );
    std::io::Write::write_all(&mut &stuck, head.as_bytes()).unwrap();
    server.wait_for_a_request();
    let began = Instant::now();
    server.app.shutdown.begin();
    server.runtime.block_on(server.running.take().unwrap()).unwrap();
    let took = began.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(10)).contains(&took), "{took:?}");
}
