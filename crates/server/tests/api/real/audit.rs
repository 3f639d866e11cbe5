//! Completeness of the audit log.

use serde_json::{Value, json};

use super::test_server::{TestServer, wait_until};
use crate::snapshots::archive::Archive;
use crate::support::Answer;

/// Server with resources for every operation.
struct Fixture {
    server: TestServer,
    sandbox: String,
    snapshot: String,
}

impl Fixture {
    fn new() -> Self {
        let server = TestServer::new();
        let sandbox = server.create();
        let snapshot = uploaded(&server);
        Self { server, sandbox, snapshot }
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.server.post(&format!("/api/v1/{path}"), body)
    }

    fn delete(&self, path: &str) -> Answer {
        self.server.call("DELETE", &format!("/api/v1/{path}")).send()
    }

    /// Sends a request about the sandbox.
    fn post_to_sandbox(&self, path: &str, body: &Value) -> Answer {
        self.post(&format!("sandboxes/{}/{path}", self.sandbox), body)
    }

    fn terminal(&self) -> String {
        self.post_to_sandbox("pty", &json!({"cols": 80, "rows": 24})).json()["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Performs an operation; `None` if it is unknown here.
    fn request(&self, operation: &str) -> Option<Answer> {
        let sandbox = self.sandbox.as_str();
        Some(match operation {
            "create_key" => self.post("keys", &json!({"name": "a", "owner": "a", "role": "user"})),
            "revoke_key" => {
                let key = self.post("keys", &json!({"name": "a", "owner": "a", "role": "user"})).json();
                self.delete(&format!("keys/{}", key["id"].as_str().unwrap()))
            }
            "create_sandbox" => self.post("sandboxes", &json!({"template": "base"})),
            "delete_sandbox" => self.delete(&format!("sandboxes/{}", self.server.create())),
            "delete_sandboxes" => {
                self.post("sandboxes/batch-delete", &json!({"ids": [self.server.create()]}))
            }
            "label_sandbox" => {
                let call = self.server.call("PATCH", &format!("/api/v1/sandboxes/{sandbox}"));
                call.json(r#"{"labels":{"a":"b"}}"#).send()
            }
            "extend_sandbox" => self.post_to_sandbox("extend", &json!({"seconds": 60})),
            "set_timeout" => {
                let call = self.server.call("PUT", &format!("/api/v1/sandboxes/{sandbox}/timeout"));
                call.json(r#"{"timeoutSeconds":600}"#).send()
            }
            "pause_sandbox" => {
                let paused = self.post_to_sandbox("pause", &json!({"keep": "memory"}));
                assert_eq!(self.post_to_sandbox("resume", &json!({})).status, 200);
                paused
            }
            "resume_sandbox" => {
                assert_eq!(self.post_to_sandbox("pause", &json!({"keep": "memory"})).status, 200);
                self.post_to_sandbox("resume", &json!({}))
            }
            "commit_sandbox" => self.post_to_sandbox("commit", &json!({})),
            "restore_sandbox" => self.post_to_sandbox("restore", &json!({"snapshot": self.snapshot})),
            "fork_sandbox" => self.post_to_sandbox("fork", &json!({})),
            "run_command" => self.post_to_sandbox("process/run", &json!({"command": "true"})),
            "kill_command" => {
                let command = self.server.start_background(sandbox, json!({"command": "sleep 1000"}));
                self.post_to_sandbox(&format!("process/{command}/kill"), &json!({}))
            }
            "write_stdin" => {
                let command = self.server.start_background(sandbox, json!({"command": "cat", "stdin": true}));
                self.post_to_sandbox(
                    &format!("process/{command}/stdin"),
                    &json!({"data": "secret", "close": true}),
                )
            }
            "open_terminal" => self.post_to_sandbox("pty", &json!({"cols": 80, "rows": 24})),
            "resize_terminal" => self.post_to_sandbox(
                &format!("pty/{}/resize", self.terminal()),
                &json!({"cols": 81, "rows": 25}),
            ),
            "create_ticket" => self.post_to_sandbox(&format!("pty/{}/ticket", self.terminal()), &json!({})),
            "create_preview" => self.post_to_sandbox("ports/8000", &json!({})),
            "create_token" => self.post_to_sandbox("token", &json!({"rights": ["process"]})),
            "close_terminal" => self.delete(&format!("sandboxes/{sandbox}/pty/{}", self.terminal())),
            "create_note" => self.post_to_sandbox("notes", &json!({"text": "secret"})),
            "create_signed_url" => {
                self.post_to_sandbox("signed-url", &json!({"path": "/workspace/file", "method": "GET"}))
            }
            "write_file" => self.put("workspace/file", b"secret"),
            "remove_file" => {
                assert_eq!(self.put("workspace/other", b"secret").status, 200);
                self.delete(&format!("sandboxes/{sandbox}/files/workspace/other"))
            }
            "change_files" => self.post_to_sandbox(
                "files",
                &json!({"operations": [{"op": "write", "path": "/workspace/a", "text": "secret"}]}),
            ),
            "import_template" => self.import("one"),
            "build_template" => {
                let archive = Archive::new().file("template.toml", "from = \"missing\"").bytes();
                self.server.call("POST", "/api/v1/templates/three/build").body(&archive).send()
            }
            "remove_template" => {
                assert_eq!(self.import("two").status, 201);
                self.delete("templates/two")
            }
            "upload_snapshot" => upload(&self.server),
            "delete_snapshot" => self.delete(&format!("snapshots/{}", uploaded(&self.server))),
            "set_reference" => self.set_reference("one"),
            "delete_reference" => {
                assert!(self.set_reference("two").status < 300);
                self.delete("references/two")
            }
            "create_project" => self.post("projects", &json!({"name": "one"})),
            "update_project" => {
                self.create_project("seven");
                self.server.call("PATCH", "/api/v1/projects/seven").json(r#"{"name":"eight"}"#).send()
            }
            "delete_project" => {
                self.create_project("two");
                self.delete("projects/two")
            }
            "import_project" => self.import_project("three"),
            "rollback_project" => {
                assert_eq!(self.import_project("four").status, 200);
                self.post("projects/four/rollback", &json!({"to": 1}))
            }
            "set_policy" => {
                self.create_project("five");
                self.server.call("PUT", "/api/v1/projects/five/policy").json(r#"{"rules":[]}"#).send()
            }
            "complete_sandbox" => {
                self.create_project("six");
                let made = self.post("sandboxes", &json!({"template": "base", "project": "six"})).json();
                self.post(
                    &format!("sandboxes/{}/complete", made["id"].as_str().unwrap()),
                    &json!({"wait": 60}),
                )
            }
            "rebase_sandbox" => {
                self.create_project("fifteen");
                let made = self.post("sandboxes", &json!({"template": "base", "project": "fifteen"})).json();
                self.post(&format!("sandboxes/{}/rebase", made["id"].as_str().unwrap()), &json!({}))
            }
            "create_workspace" => {
                self.create_project("ten");
                self.post("projects/ten/workspaces", &json!({"agent": "a"}))
            }
            "delete_workspace" => {
                self.workspace("eleven", "b");
                self.delete("projects/eleven/workspaces/b")
            }
            "complete_workspace" => {
                self.workspace("twelve", "c");
                self.post("projects/twelve/workspaces/c/complete", &json!({"wait": 60}))
            }
            "rebase_workspace" => {
                self.workspace("sixteen", "e");
                self.post("projects/sixteen/workspaces/e/rebase", &json!({}))
            }
            "complete_workspace_of_agent" => {
                self.workspace("thirteen", "d");
                self.post("workspace/d/complete", &json!({"wait": 60}))
            }
            "sync_project" => {
                self.create_project("fourteen");
                self.post("projects/fourteen/sync", &json!({}))
            }
            "resolve_review" => {
                let review = self.review("seven");
                self.post(&format!("projects/seven/reviews/{review}/resolve"), &json!({"choice": "theirs"}))
            }
            "complete_snapshot" => {
                assert_eq!(self.import_project("nine").status, 200);
                self.post("projects/nine/completions", &json!({"snapshot": self.snapshot, "base": 1}))
            }
            "create_episode" => self.episode(),
            "delete_episode" => {
                let made = self.episode().json();
                self.delete(&format!("episodes/{}", made["id"].as_str().unwrap()))
            }
            "collect" => self.server.call("POST", "/api/v1/gc").send(),
            _ => return None,
        })
    }

    fn episode(&self) -> Answer {
        self.post("episodes", &json!({"snapshot": self.snapshot, "action": "a", "reward": 1}))
    }

    fn create_project(&self, name: &str) {
        assert_eq!(self.post("projects", &json!({ "name": name })).status, 201);
    }

    /// Creates a project with the workspace of an agent.
    fn workspace(&self, project: &str, agent: &str) {
        self.create_project(project);
        let made = self.post(&format!("projects/{project}/workspaces"), &json!({ "agent": agent }));
        assert_eq!(made.status, 201, "{}", made.body);
    }

    /// Creates a project with an open review, and returns its id.
    fn review(&self, name: &str) -> String {
        self.create_project(name);
        let policy = r#"{"rules":[{"path":"**","critical":true}]}"#;
        let set = self.server.call("PUT", &format!("/api/v1/projects/{name}/policy")).json(policy).send();
        assert_eq!(set.status, 200, "{}", set.body);
        let made = self.post("sandboxes", &json!({"template": "base", "project": name})).json();
        let sandbox = made["id"].as_str().unwrap();
        self.post(&format!("sandboxes/{sandbox}/process/run"), &json!({"command": "echo change > file"}));
        self.post(&format!("sandboxes/{sandbox}/complete"), &json!({"wait": 60}));
        let reviews = self.server.get(&format!("/api/v1/projects/{name}/reviews")).json();
        reviews["items"][0]["id"].as_str().unwrap().to_owned()
    }

    fn import_project(&self, name: &str) -> Answer {
        self.create_project(name);
        let archive = Archive::new().file("a", "b").bytes();
        self.server.call("POST", &format!("/api/v1/projects/{name}/import")).body(&archive).send()
    }

    fn set_reference(&self, name: &str) -> Answer {
        let call = self.server.call("PUT", &format!("/api/v1/references/{name}"));
        call.json(&json!({"snapshot": self.snapshot}).to_string()).send()
    }

    fn put(&self, path: &str, content: &[u8]) -> Answer {
        let route = format!("/api/v1/sandboxes/{}/files/{path}", self.sandbox);
        self.server.call("PUT", &route).body(content).send()
    }

    fn import(&self, name: &str) -> Answer {
        let archive = Archive::new().program("bin/sh", "a shell").bytes();
        self.server.call("PUT", &format!("/api/v1/templates/{name}")).body(&archive).send()
    }

    fn audited(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.server.path().join("audit.log")).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

fn upload(server: &TestServer) -> Answer {
    server.call("POST", "/api/v1/snapshots").body(&Archive::new().file("a", "b").bytes()).send()
}

fn uploaded(server: &TestServer) -> String {
    upload(server).json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn every_operation_that_changes_something_is_audited() {
    let fixture = Fixture::new();
    let description = fixture.server.get("/api/v1/openapi.json").json();
    let mut tried = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "get")
        {
            let name = operation["operationId"].as_str().unwrap();
            let answer = fixture.request(name);
            let answer = answer.unwrap_or_else(|| panic!("no request for {name} ({method} {path}): add one"));
            assert!((200..300).contains(&answer.status), "{name}: {}", answer.body);
            let id = answer.header("x-request-id").unwrap();
            wait_until(&format!("{name} is audited"), || {
                fixture.audited().iter().any(|entry| entry["request_id"] == id && !entry["user"].is_null())
            });
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
    let text = fixture.audited().iter().map(Value::to_string).collect::<String>();
    assert!(text.contains("command.input") && !text.contains("secret"), "input is counted, not kept");
}
