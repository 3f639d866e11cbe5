//! Work outside sandboxes with the key of an agent: heads, differences and pushes in its view.

use serde_json::{Value, json};

use super::Fixture;
use super::leaks::{observed, project_with_changes};
use crate::snapshots::archive::Archive;

impl Fixture {
    /// Uploads files as a snapshot of the agent, and returns its id.
    fn upload(&self, files: &[(&str, &str)]) -> String {
        let archive = files.iter().fold(Archive::new(), |archive, (path, text)| archive.file(path, text));
        let call = self.server.call_as(&self.guest, "POST", "/api/v1/snapshots");
        let made = call.body(&archive.bytes()).send();
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// Pushes a snapshot of the agent that was made from the files at a sequence of the agent.
    fn push(&self, snapshot: &str, base: u64) -> Value {
        let body = json!({"snapshot": snapshot, "base": base, "message": "pushed", "wait": 60});
        let pushed = self.agent("POST", "projects/website/completions", Some(body));
        assert_eq!(pushed.status, 202, "{}", pushed.body);
        pushed.json()
    }
}

#[test]
fn heads_and_differences_are_those_of_the_view() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    fixture.change("writer", "echo more >> secret/plan.md");
    fixture.change("writer", "echo b > b.txt; echo more >> secret/plan.md; mv secret/plan.md plan.md");
    let get = |path: &str| fixture.agent("GET", &format!("projects/website/{path}"), None);
    let heads = get("snapshots").json();
    let sequences: Vec<u64> =
        heads["items"].as_array().unwrap().iter().map(|head| head["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, [2, 1], "{heads}");
    assert!(heads["items"].as_array().unwrap().iter().all(|head| head.get("snapshot").is_none()), "{heads}");
    assert_eq!(get("snapshots?before=2").json()["items"].as_array().unwrap().len(), 1);
    // A file that comes from a hidden path was added.
    let changes = |path: &str| -> Vec<(String, String)> {
        let diff = get(path);
        assert_eq!(diff.status, 200, "{}", diff.body);
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
        let entries = diff.json()["entries"].as_array().unwrap().clone();
        entries.iter().map(|entry| (text(entry, "path"), text(entry, "change"))).collect()
    };
    let added = |paths: &[&str]| -> Vec<(String, String)> {
        paths.iter().map(|path| ((*path).to_owned(), "added".to_owned())).collect()
    };
    for last in ["diff", "diff?from=1", "diff?from=1&to=2", "diff?insight=true"] {
        assert_eq!(changes(last), added(&["b.txt", "plan.md"]), "{last}");
    }
    assert_eq!(changes("diff?to=1"), added(&["a.txt"]));
    assert_eq!(changes("diff?from=0"), added(&["a.txt", "b.txt", "plan.md"]));
    assert!(get("diff?from=1&patch=true").body.contains("+plan"));
    let wrong = get("diff?to=3");
    assert_eq!(
        (wrong.error(), &wrong.json()["error"]["details"]["head"]),
        ("SEQUENCE_NOT_FOUND".into(), &json!(2))
    );
    // Ids of heads, which contain hidden files, mean nothing.
    let head = fixture.owner("GET", "projects/website", None).json()["head"].as_str().unwrap().to_owned();
    assert_eq!(get(&format!("diff?to={head}")).error(), "SEQUENCE_NOT_FOUND");
    let call = fixture.server.call_as(&fixture.alice, "GET", "/api/v1/projects/website/snapshots");
    assert_eq!(call.header("x-agent", "guest").send().json(), heads);
}

#[test]
fn an_agent_pushes_the_files_of_its_view() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("fixed/f.txt", "f\n"), ("secret/plan.md", "plan\n")]);
    fixture.change("writer", "echo more >> secret/plan.md");
    let files = [("a.txt", "A\n"), ("fixed/f.txt", "f\n"), ("new.txt", "new\n")];
    let snapshot = fixture.upload(&files);
    let pushed = fixture.push(&snapshot, 1);
    assert_eq!(
        (&pushed["state"], &pushed["sequence"], &pushed["agent"]),
        (&json!("landed"), &json!(2), &json!("guest"))
    );
    assert_eq!(fixture.push(&snapshot, 1), pushed, "the same push again");
    let read = |path: &str| fixture.owner("GET", &format!("projects/website/files/{path}"), None).body;
    assert_eq!((read("a.txt"), read("new.txt")), ("A\n".into(), "new\n".into()));
    assert_eq!(read("secret/plan.md"), "plan\nmore\n", "hidden files stay");
    let operation = fixture.owner("GET", "projects/website/operations", None).json()["items"][0].clone();
    assert_eq!((&operation["author"], &operation["message"]), (&json!("guest"), &json!("pushed")));
    assert_eq!(operation["sequence"], 3, "{operation}");
    let events = fixture.agent("GET", "events?type=completion.landed", None).json();
    assert_eq!(events["items"][0]["data"]["completionId"], pushed["id"], "{events}");

    // Hidden and read-only paths are refused from the rules.
    let files =
        [("a.txt", "A\n"), ("fixed/f.txt", "no\n"), ("new.txt", "n2\n"), ("secret/plan.md", "mine\n")];
    let partly = fixture.push(&fixture.upload(&files), 2);
    assert_eq!((&partly["state"], &partly["sequence"]), (&json!("landed"), &json!(3)), "{partly}");
    let refused: Vec<&str> =
        partly["refused"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert_eq!(refused, ["fixed/f.txt", "secret", "secret/plan.md"], "{partly}");
    assert_eq!((read("new.txt"), read("secret/plan.md")), ("n2\n".into(), "plan\nmore\n".into()));

    let head = fixture.owner("GET", "projects/website", None).json()["head"].clone();
    for (body, error) in [
        (json!({"snapshot": snapshot, "base": 4}), "SEQUENCE_NOT_FOUND"),
        (json!({"snapshot": snapshot, "base": head}), "SEQUENCE_NOT_FOUND"),
        (json!({"snapshot": head, "base": 1}), "SNAPSHOT_NOT_FOUND"),
        (json!({"snapshot": snapshot, "base": 1, "agent": "writer"}), "FORBIDDEN"),
    ] {
        let answer = fixture.agent("POST", "projects/website/completions", Some(body.clone()));
        assert_eq!(answer.error(), error, "{body}");
    }
    assert_eq!(
        fixture
            .agent("POST", "projects/other/completions", Some(json!({"snapshot": snapshot, "base": 1})))
            .error(),
        "PROJECT_NOT_FOUND"
    );
}

#[test]
fn heads_differences_and_pushes_are_the_same_with_and_without_hidden_files() {
    let fixtures = [project_with_changes(false), project_with_changes(true)];
    let mut queries = vec![String::new()];
    for from in 0..6 {
        for to in 0..=6 {
            queries.push(format!("?from={from}&to={to}"));
        }
        queries.push(format!("?from={from}&insight=true"));
        queries.push(format!("?from={from}&patch=true"));
        queries.push(format!("?to={from}&limit=1"));
    }
    let mut paths: Vec<String> = queries.iter().map(|query| format!("diff{query}")).collect();
    paths.extend(
        ["snapshots", "snapshots?limit=2", "snapshots?before=3", "snapshots?before=99"].map(str::to_owned),
    );
    for path in paths {
        let get = |fixture: &Fixture| fixture.agent("GET", &format!("projects/website/{path}"), None);
        let [without, with] = fixtures.each_ref().map(|fixture| observed(&get(fixture)));
        assert!(without == with, "{path}\n{without:.2000?}\n{with:.2000?}");
        // Hashes of trees, too.
        let hash = |fixture: &Fixture| {
            let answer = get(fixture);
            let body = serde_json::from_str::<Value>(&answer.body).unwrap_or_default();
            (body["from"].clone(), body["to"].clone())
        };
        assert_eq!(hash(&fixtures[0]), hash(&fixtures[1]), "{path}");
    }
    let head = fixtures[0].agent("GET", "projects/website", None).json()["sequence"].as_u64().unwrap();
    let files = [
        ("a.txt", "mine\n"),
        ("secret/plan.md", "z\n"),
        ("docs/x.key", "z\n"),
        ("keys/only.key", "z\n"),
        ("docs/one.md", "1\n"),
    ];
    for base in 0..=head {
        let pushed = fixtures.each_ref().map(|fixture| {
            let pushed = fixture.push(&fixture.upload(&files), base);
            let shown = fixture.agent("GET", "projects/website/completions", None);
            let mut first = pushed;
            super::leaks::normalised(&mut first);
            (first, observed(&shown))
        });
        assert_eq!(pushed[0], pushed[1], "{base}");
    }
}
