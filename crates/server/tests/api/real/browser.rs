//! Chromium, controlled by the DevTools protocol over a pipe.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use workspace_test_support::{find_program, skip};

use super::test_server::{runs_slow_tests, wait_until};

/// Maximum time of a response of the browser.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Names of the program in distributions.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Running browser. Dropping it ends it.
pub(super) struct Browser {
    child: Child,
    requests: ChildStdin,
    messages: mpsc::Receiver<Value>,
    last_id: u64,
    _profile: TempDir,
}

/// Page of a browser.
pub(super) struct Page {
    session: String,
}

impl Browser {
    /// Starts a browser. Records the test as skipped and returns `None` unless all tests are requested and there is a
    /// browser.
    pub(super) fn start() -> Option<Self> {
        if !runs_slow_tests() {
            skip("a browser, which only `make test-full` uses");
            return None;
        }
        let Some(program) = PROGRAMS.iter().find_map(|name| find_program(name)) else {
            skip("needs `chromium`");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // The browser reads requests from descriptor 3 and writes responses to descriptor 4.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"]).arg(program);
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ]);
        command.args(["--no-proxy-server", "--disable-background-networking"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (requests, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        Some(Self { child, requests, messages, last_id: 0, _profile: profile })
    }

    /// Calls a method of the protocol, and returns its result.
    #[track_caller]
    fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Value {
        self.try_call(session, method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Calls a method of the protocol. A script fails if its page is replaced meanwhile.
    fn try_call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Result<Value, Value> {
        self.last_id += 1;
        let mut request = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        self.requests.write_all(&[request.to_string().as_bytes(), b"\0"].concat()).unwrap();
        self.requests.flush().unwrap();
        loop {
            let message = self.messages.recv_timeout(TIMEOUT).expect("the browser responds");
            if message["id"] == self.last_id {
                return match &message["error"] {
                    Value::Null => Ok(message["result"].clone()),
                    error => Err(error.clone()),
                };
            }
        }
    }

    /// Opens a page, and waits until it has loaded.
    pub(super) fn open(&mut self, url: &str) -> Page {
        let target = self.call(None, "Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session =
            self.call(None, "Target.attachToTarget", &attach)["sessionId"].as_str().unwrap().to_owned();
        let page = Page { session };
        self.navigate(&page, url);
        page
    }

    /// Loads another URL in a page.
    pub(super) fn navigate(&mut self, page: &Page, url: &str) {
        let loaded = self.call(Some(&page.session), "Page.navigate", &json!({ "url": url }));
        assert!(loaded["errorText"].is_null(), "{url}: {loaded}");
        let is_loaded = "location.href != 'about:blank' && document.readyState == 'complete'";
        wait_until("the page has loaded", || {
            self.try_evaluate(page, is_loaded).is_ok_and(|value| value == true)
        });
    }

    /// Evaluates an expression in a page, and returns its value. A promise is awaited; an exception is returned as its
    /// name.
    #[track_caller]
    pub(super) fn evaluate(&mut self, page: &Page, expression: &str) -> Value {
        self.try_evaluate(page, expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    fn try_evaluate(&mut self, page: &Page, expression: &str) -> Result<Value, Value> {
        let caught = format!(
            "(async () => {{ try {{ return await ({expression}) }} catch (error) {{ return 'threw ' + error.name }} }})()"
        );
        let params = json!({"expression": caught, "awaitPromise": true, "returnByValue": true});
        let evaluated = self.try_call(Some(&page.session), "Runtime.evaluate", &params)?;
        Ok(evaluated["result"]["value"].clone())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The other processes of the browser end with the main process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
