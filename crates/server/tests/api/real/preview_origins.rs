//! Cookies and origins of previews, in a browser.

use serde_json::json;

use super::browser::Browser;
use super::previews::{PORT, Preview, serve};
use super::test_server::{TestServer, wait_until};
use crate::support::Call;

/// Server with a preview, and the URLs at which a browser finds both.
struct Fixture {
    server: TestServer,
    sandbox: String,
    preview: Preview,
    /// Origin of the API.
    api: String,
}

impl Fixture {
    fn new() -> Self {
        let server = TestServer::new();
        let sandbox = server.create();
        serve(&server, &sandbox);
        let preview = Preview::create(&server, &sandbox, PORT, &json!({}));
        let api = format!("http://127.0.0.1:{}", server.address().port());
        let fixture = Self { server, sandbox, preview, api };
        wait_until("the program listens", || {
            let call = Call::new(fixture.server.address(), "GET", "/echo").host(&fixture.preview.host);
            call.header("x-workspace-preview-token", &fixture.preview.token).send().status == 200
        });
        fixture
    }

    /// URL of the path form, which has the host of the API.
    fn path_url(&self, rest: &str) -> String {
        format!("{}{rest}", self.preview.path_url.replace("http://test", &self.api))
    }

    /// URL of the host form with the token.
    fn host_url(&self, preview: &Preview) -> String {
        let port = self.server.address().port();
        preview.url.replace(".localhost/", &format!(".localhost:{port}/"))
    }

    /// Origin of a host of a preview.
    fn origin(&self, preview: &Preview) -> String {
        format!("http://{}:{}", preview.host, self.server.address().port())
    }
}

/// Expression that sends a request with the cookies of the viewer, and returns the status that the page may see.
fn fetched(url: &str) -> String {
    format!("fetch('{url}', {{credentials: 'include'}}).then(response => response.status)")
}

#[test]
fn a_page_of_the_path_form_cannot_use_cookies_and_storage_of_its_viewer() {
    let Some(mut browser) = Browser::start() else { return };
    let fixture = Fixture::new();
    // The viewer has a cookie and a key for the host of the API, as a console would keep them.
    let viewer = browser.open(&format!("{}/api/docs", fixture.api));
    let remember = "document.cookie = 'session=viewer; SameSite=Strict', localStorage.setItem('key', 'secret'), document.cookie";
    assert_eq!(browser.evaluate(&viewer, remember), "session=viewer");
    let own = fetched(&format!("{}/health", fixture.api));
    assert_eq!(browser.evaluate(&viewer, &own), 200, "the page of the API itself may");

    let page = browser.open(&fixture.path_url("headers"));
    assert_eq!(browser.evaluate(&page, "self.origin"), "null");
    for expression in ["document.cookie", "localStorage.getItem('key')", "sessionStorage.length"] {
        assert_eq!(browser.evaluate(&page, expression), "threw SecurityError", "{expression}");
    }
    assert_eq!(
        browser.evaluate(&page, "navigator.serviceWorker.register('sw.js').then(() => 1)"),
        "threw SecurityError"
    );
    for path in ["/api/v1/sandboxes", "/health", "/"] {
        let status = browser.evaluate(&page, &fetched(&format!("{}{path}", fixture.api)));
        assert_eq!(status, "threw TypeError", "it may not read {path}");
    }
    let opened = format!("window.open('{}/health') === null", fixture.api);
    assert_eq!(browser.evaluate(&page, &opened), true, "it opens no windows");
    // The program saw no cookie of the viewer.
    let page = browser.open(&fixture.path_url("echo"));
    let echo = browser.evaluate(&page, "JSON.parse(document.body.innerText)");
    let names: Vec<&str> =
        echo["headers"].as_array().unwrap().iter().map(|header| header[0].as_str().unwrap()).collect();
    assert!(names.contains(&"user-agent") && !names.contains(&"cookie"), "{names:?}");
    assert_eq!(browser.evaluate(&viewer, "document.cookie"), "session=viewer", "nothing was changed");
}

#[test]
fn a_host_of_a_preview_is_another_origin() {
    let Some(mut browser) = Browser::start() else { return };
    let fixture = Fixture::new();
    let viewer = browser.open(&format!("{}/health", fixture.api));
    browser.evaluate(&viewer, "document.cookie = 'session=viewer', localStorage.setItem('key', 'secret')");
    let page = browser.open(&fixture.host_url(&fixture.preview));
    assert_eq!(browser.evaluate(&page, "self.origin"), fixture.origin(&fixture.preview));
    let shown = browser.evaluate(&page, "location.href");
    assert!(!shown.as_str().unwrap().contains("workspace_token"), "{shown}");
    // Its own cookies and storage work. The cookie of the preview and those of the API are out of reach.
    let own = "document.cookie = 'own=1', localStorage.setItem('own', '1'), document.cookie";
    assert_eq!(browser.evaluate(&page, own), "own=1");
    assert_eq!(browser.evaluate(&page, "localStorage.getItem('key')"), json!(null));
    assert_eq!(browser.evaluate(&page, &fetched("/echo")), 200, "the cookie of the preview is sent");
    let echo = browser.evaluate(&page, "fetch('/echo').then(response => response.json())");
    let cookies = echo["headers"].as_array().unwrap().iter().find(|header| header[0] == "cookie").unwrap();
    assert_eq!(cookies[1], "own=1", "the program sees its own alone");
    for path in ["/api/v1/sandboxes", "/health"] {
        let status = browser.evaluate(&page, &fetched(&format!("{}{path}", fixture.api)));
        assert_eq!(status, "threw TypeError", "it may not read {path}");
    }
    // A preview of another port has a host, and so cookies and storage, of its own.
    fixture.server.output_of(&fixture.sandbox, "sed 's/8000/8001/' /tmp/app.py > /tmp/other.py");
    let command = "exec /usr/bin/python3 /tmp/other.py 8001";
    fixture.server.start_background(&fixture.sandbox, json!({"command": command, "timeout": 0}));
    let other = Preview::create(&fixture.server, &fixture.sandbox, 8001, &json!({}));
    wait_until("the other program listens", || {
        let call = Call::new(fixture.server.address(), "GET", "/echo").host(&other.host);
        call.header("x-workspace-preview-token", &other.token).send().status == 200
    });
    let second = browser.open(&fixture.host_url(&other));
    assert_eq!(browser.evaluate(&second, "document.cookie + localStorage.getItem('own')"), "null");
    let read = fetched(&format!("{}/echo", fixture.origin(&fixture.preview)));
    assert_eq!(browser.evaluate(&second, &read), "threw TypeError", "it may not read the first");
    let changed = format!(
        "fetch('{}/echo', {{method: 'POST', mode: 'no-cors', credentials: 'include', body: 'x'}}).then(answer => answer.type)",
        fixture.origin(&fixture.preview)
    );
    assert_eq!(browser.evaluate(&second, &changed), "opaque");
    assert_eq!(browser.evaluate(&page, "document.cookie"), "own=1", "nothing was changed");
}
