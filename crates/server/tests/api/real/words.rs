//! Names chosen by clients are never interpreted by a shell, a filesystem or a database.

use serde_json::json;

use super::test_server::TestServer;

const WORDS: [&str; 12] = [
    "$(touch /workspace/pwned)",
    "`touch /workspace/pwned`",
    "; touch /workspace/pwned",
    "' || touch /workspace/pwned; '",
    "\" && touch /workspace/pwned #",
    "../../../../etc",
    "a|b>c<d&e",
    "-rf --help",
    "%00%n%s",
    "'; DROP TABLE sandboxes; --",
    "\\\u{2028}\u{202e}\u{1f980}",
    "* ? [a] {b,c} ~",
];

#[test]
fn names_labels_and_variables_are_stored_unchanged() {
    let server = TestServer::new();
    for word in WORDS {
        let id = server.create_with(json!({"name": word, "labels": {word: word}, "envs": {"WORD": word}}));
        let sandbox = server.sandbox(&id);
        assert_eq!((&sandbox["name"], &sandbox["labels"]), (&json!(word), &json!({word: word})));
        assert_eq!(server.output_of(&id, "printf %s \"$WORD\""), word);
        let result =
            server.run_with(&id, &json!({"command": "printf %s \"$OWN\"; ls", "envs": {"OWN": word}}));
        assert_eq!(result["stdout"], word, "nothing was made");
        server.delete(&id);
    }
    for name in ["", "a\0b", "a\nb", &"x".repeat(129)] {
        let answer = server.post("/api/v1/sandboxes", &json!({"template": "base", "name": name}));
        assert_eq!(answer.error(), "INVALID_REQUEST", "{name:?}");
    }
    for (name, value) in [("", "x"), ("a=b", "x"), ("a\0", "x"), ("a", "\0")] {
        let answer = server.post("/api/v1/sandboxes", &json!({"template": "base", "envs": {name: value}}));
        assert_eq!(answer.error(), "INVALID_REQUEST", "{name:?}");
    }
}

#[test]
fn directories_and_shells_are_not_interpreted() {
    let server = TestServer::new();
    let id = server.create();
    let run = format!("/api/v1/sandboxes/{id}/process/run");
    for word in WORDS {
        let answer = server.post(&run, &json!({"command": "true", "cwd": format!("/workspace/{word}")}));
        let inside = word == "../../../../etc";
        assert_eq!(answer.status, if inside { 200 } else { 422 }, "{word}: {}", answer.body);
        if !inside {
            assert_eq!(answer.error(), "COMMAND_FAILED", "{word}");
        }
        assert_eq!(server.post(&run, &json!({"command": "true", "cwd": word})).error(), "INVALID_REQUEST");
        let pty = json!({"cols": 80, "rows": 24, "shell": word});
        let opened = server.post(&format!("/api/v1/sandboxes/{id}/pty"), &pty);
        assert_eq!(opened.status, 201, "a shell that is not there is /bin/sh: {}", opened.body);
        let pty = opened.json()["id"].as_str().unwrap().to_owned();
        let closed = server.call("DELETE", &format!("/api/v1/sandboxes/{id}/pty/{pty}")).send();
        assert_eq!(closed.status, 204, "{}", closed.body);
        super::test_server::wait_until("it is closed", || server.command(&id, &pty)["state"] != "running");
    }
    assert_eq!(server.output_of(&id, "ls -A"), "");
    for wrong in
        [json!({"command": ""}), json!({"command": "a\0b"}), json!({"command": "true", "cwd": "/a\0"})]
    {
        assert_eq!(server.post(&run, &wrong).error(), "INVALID_REQUEST", "{wrong}");
    }
}

#[test]
fn ids_are_not_interpreted() {
    let server = TestServer::new();
    let id = server.create();
    // `kept` is a directory next to the workspaces of the sandboxes.
    let words = ["..", "%2e%2e%2f%2e%2e", "a%00b", "%27%20OR%201=1--", "sbx-%24(id)", "%ff", "kept", "%2F"];
    for word in words {
        for path in ["", "/logs", "/stats", "/process"] {
            let answer = server.get(&format!("/api/v1/sandboxes/{word}{path}"));
            assert!(matches!(answer.status, 400 | 404), "{word}{path}: {}", answer.body);
            // Checks the form of the body.
            drop(answer.error());
        }
        let answer = server.call("DELETE", &format!("/api/v1/sandboxes/{word}")).send();
        assert!(matches!(answer.status, 400 | 404), "{word}: {}", answer.body);
        for path in [format!("process/{word}/output"), format!("pty/{word}/ws")] {
            let answer = server.get(&format!("/api/v1/sandboxes/{id}/{path}"));
            assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.body);
        }
    }
    assert_eq!(server.output_of(&id, "echo still there"), "still there\n");
}
