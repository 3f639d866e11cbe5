//! Comparison of every answer to an agent between a project with and without files that are hidden from the agent.

use serde_json::{Value, json};

use super::Fixture;
use super::events::ID_DIGITS;
use crate::real::test_server::wait_until;
use crate::support::Answer;

/// Creates a project and makes a series of changes. With `hidden`, files that the guest may not see are part of them; the
/// guest sees the same files and changes without them.
pub(super) fn project_with_changes(hidden: bool) -> Fixture {
    let visible = [("a.txt", "a\n"), ("docs/one.md", "one\n"), ("fixed/f.txt", "fixed\n")];
    let secret = [("secret/plan.md", "plan\n"), ("docs/private.key", "key\n"), ("keys/only.key", "key\n")];
    let files: Vec<_> = visible.into_iter().chain(secret.into_iter().filter(|_| hidden)).collect();
    let fixture = Fixture::new(&files);
    let touch = "find . -exec touch -h -d @1700000000 {} +";
    // Directories have the time of the import before that.
    fixture.change("writer", &format!("echo more >> a.txt; {touch}"));
    if hidden {
        fixture.change("writer", &format!("echo more >> secret/plan.md; {touch}"));
        fixture.change("writer", &format!("echo x > docs/x.key; rm keys/only.key; {touch}"));
    }
    let more = if hidden { "echo y > secret/y.md;" } else { "" };
    fixture.change("writer", &format!("{more} echo two > docs/two.md; {touch}"));
    // A file is moved out of a hidden directory, and then another one into it.
    let moves =
        if hidden { "mv secret/plan.md docs/plan.md" } else { "printf 'plan\\nmore\\n' > docs/plan.md" };
    fixture.change("writer", &format!("{moves}; {touch}"));
    let leaves = if hidden { "mkdir -p secret; mv docs/two.md secret/two.md" } else { "rm docs/two.md" };
    fixture.change("writer", &format!("{leaves}; {touch}"));
    if hidden {
        fixture.change("writer", &format!("echo last > secret/last.md; {touch}"));
    }
    fixture
}

/// Replaces the values that differ in every run: ids, hashes and times.
pub(super) fn normalised(value: &mut Value) {
    match value {
        Value::String(text) => {
            let is_time = text.len() >= 20 && text.as_bytes()[10] == b'T' && text.ends_with('Z');
            *text = if is_time { "…".to_owned() } else { without_ids(text) };
        }
        // Ids of events of a project are random for agents.
        Value::Number(number) if number.to_string().len() == ID_DIGITS => *value = json!(0),
        Value::Array(items) => items.iter_mut().for_each(normalised),
        Value::Object(fields) => fields.values_mut().for_each(normalised),
        _ => {}
    }
}

fn without_ids(text: &str) -> String {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    let is_id = |word: &str| {
        let prefixes = ["prj-", "sbx-", "key-", "tree-", "cmd-", "rev-", "wsp-", "guest-"];
        let is_time_in_cursor = word.len() == 13 && word.bytes().all(|byte| byte.is_ascii_digit());
        word.len() >= 26 || is_time_in_cursor || prefixes.iter().any(|prefix| word.starts_with(prefix))
    };
    let parts = text.split_inclusive(is_end).map(|part| {
        let word = part.trim_end_matches(is_end);
        if is_id(word) { format!("…{}", &part[word.len()..]) } else { part.to_owned() }
    });
    parts.collect()
}

/// Returns status, size and body of a response, without the values that differ in every run.
pub(super) fn observed(answer: &Answer) -> (u16, usize, String) {
    let body = match serde_json::from_str::<Value>(&answer.body) {
        Ok(mut body) => {
            normalised(&mut body);
            if let Some(error) = body.get_mut("error").and_then(Value::as_object_mut) {
                error.remove("requestId");
            }
            body.as_object_mut().and_then(|body| body.remove("frozen"));
            // Events are numbered for all owners of a server together.
            if let Some(events) = body.get_mut("items").and_then(Value::as_array_mut) {
                let numbers = events.iter_mut().filter_map(|event| event.get_mut("id"));
                numbers.filter(|id| id.is_number()).for_each(|id| *id = json!(0));
            }
            if let Some(next) = body.get_mut("next").filter(|next| next.is_number()) {
                *next = json!(0);
            }
            body.to_string()
        }
        Err(_) => answer.body.clone(),
    };
    (answer.status, answer.body.len(), body)
}

#[test]
fn answers_to_an_agent_are_the_same_with_and_without_hidden_files() {
    let (without, with) = (project_with_changes(false), project_with_changes(true));
    let paths = [
        "",
        "a.txt",
        "docs",
        "docs/plan.md",
        "docs/two.md",
        "secret",
        "secret/plan.md",
        "secret/y.md",
        "docs/private.key",
        "docs/x.key",
        "keys",
        "keys/only.key",
        "nothing",
    ];
    let mut requests: Vec<(&str, String, Option<Value>)> = Vec::new();
    let mut get = |path: String| requests.push(("GET", path, None));
    for path in paths {
        for at in ["", "?at=0", "?at=1", "?at=2", "?at=3", "?at=4", "?at=5", "?at=9"] {
            get(format!("projects/website/tree/{path}{at}"));
            get(format!("projects/website/files/{path}{at}"));
        }
        get(format!("projects/website/versions/{path}"));
        get(format!("projects/website/archive?path={path}"));
    }
    for path in [
        "",
        "/tree",
        "/archive",
        "/archive?at=2",
        "/operations",
        "/operations?limit=2",
        "/operations?before=3",
        "/operations?author=writer",
        "/completions",
        "/completions/none",
        "/policy",
        "/reviews",
        "/snapshots",
        "/diff?from=1&to=2",
        "/events?after=0",
    ] {
        get(format!("projects/website{path}"));
    }
    for path in [
        "projects",
        "sandboxes",
        "sandboxes?project=website",
        "snapshots",
        "episodes",
        "references",
        "events?after=0",
        "me",
    ] {
        get(path.to_owned());
    }
    requests.push(("DELETE", "projects/website".to_owned(), None));
    requests.push(("POST", "projects/website/rollback".to_owned(), Some(json!({"to": 1, "path": "secret"}))));
    for (method, path, body) in requests {
        let [without, with] =
            [&without, &with].map(|fixture| observed(&fixture.agent(method, &path, body.clone())));
        assert!(without == with, "{method} {path}\n{without:.2000?}\n{with:.2000?}");
    }

    let projects = [&without, &with];
    // The same work in a sandbox has the same result, down to the times and sizes of directories.
    assert_same(projects, |fixture| {
        let sandbox = fixture.sandbox(&fixture.guest, "guest");
        let listing =
            "find . -printf '%p %y %m %s %T@ %n\\n' | sort; stat -c '%n %h %b' . docs; df -i . | wc -l";
        let seen = fixture.run(&fixture.guest, &sandbox, listing);
        let work = "echo mine >> a.txt; mkdir -p secret keys; echo z > secret/plan.md; echo z > keys/only.key; \
            echo z > docs/x.key; echo no > fixed/f.txt; mv docs papers";
        fixture.run(&fixture.guest, &sandbox, work);
        let completed = fixture.complete(&fixture.guest, &sandbox);
        // The refused changes are reverted in the background, which events and the sandbox show.
        let path = format!("sandboxes/{sandbox}");
        wait_until("the refused changes are reverted", || {
            fixture.agent("GET", &path, None).json().get("reverted").is_some()
        });
        let mut asked = vec![("listing".to_owned(), json!(seen))];
        let id = completed["id"].as_str().unwrap().to_owned();
        asked.push(("completion".to_owned(), completed));
        for path in ["completions", "operations", "", "tree"] {
            asked.push((
                path.to_owned(),
                fixture.agent("GET", &format!("projects/website/{path}"), None).json(),
            ));
        }
        asked.push(("its sandbox".to_owned(), fixture.agent("GET", &path, None).json()));
        let path = format!("projects/website/completions/{id}");
        asked.push(("its completion".to_owned(), fixture.agent("GET", &path, None).json()));
        asked
    });
    assert_same(projects, |fixture| {
        [ask_for_snapshots, ask_for_a_rebase, ask_for_a_workspace, ask_for_reviews]
            .into_iter()
            .flat_map(|ask| ask(fixture))
            .collect()
    });
}

/// Requests that name ids of a project, with their answers.
#[derive(Default)]
struct Asked(Vec<(String, Value)>);

impl Asked {
    /// Sends a request of the guest, and records status, headers, size and body of the answer.
    fn send(
        &mut self,
        fixture: &Fixture,
        (method, path): (&str, &str),
        body: Option<Value>,
        label: &str,
    ) -> Answer {
        self.send_as(&fixture.guest, fixture, (method, path), body, label)
    }

    fn send_as(
        &mut self,
        key: &str,
        fixture: &Fixture,
        (method, path): (&str, &str),
        body: Option<Value>,
        label: &str,
    ) -> Answer {
        let mut answer = fixture.send(key, method, path, body);
        answer.body = answer.body.replace(fixture.server.path().to_str().unwrap(), "DATA");
        let (status, size, text) = observed(&answer);
        // Durations and numbers of events have different lengths.
        let size = if answer.body.contains("\"frozen\"") || path.contains("events") { 0 } else { size };
        self.0.push((format!("{method} {label}"), json!([status, headers(&answer), size, text])));
        answer
    }

    fn get(&mut self, fixture: &Fixture, path: &str, label: &str) -> Answer {
        self.send(fixture, ("GET", path), None, label)
    }
}

/// Returns the headers of a response that do not differ in every run, as they are.
fn headers(answer: &Answer) -> Vec<&str> {
    let differs = |line: &&str| {
        let name = line.split(':').next().unwrap();
        ["date", "x-request-id", "etag", "content-length", "content-disposition"].contains(&name)
    };
    answer.head.lines().filter(|line| !differs(line)).collect()
}

/// Lets both projects answer the same requests, and compares the answers.
fn assert_same(projects: [&Fixture; 2], ask: impl Fn(&Fixture) -> Vec<(String, Value)>) {
    let [without, with] = projects.map(|fixture| {
        let mut asked = ask(fixture);
        asked.iter_mut().for_each(|(_, answer)| normalised(answer));
        asked
    });
    assert_eq!(without.len(), with.len());
    let differ: Vec<_> = without.iter().zip(&with).filter(|(without, with)| without != with).collect();
    assert!(differ.is_empty(), "{differ:#?}");
}

/// Snapshots of a sandbox of the guest, which writes files with the content and the names of hidden ones.
fn ask_for_snapshots(fixture: &Fixture) -> Vec<(String, Value)> {
    let mut asked = Asked::default();
    let sandbox = fixture.sandbox(&fixture.guest, "guest");
    let work = "echo mine >> a.txt; mkdir -p secret keys; echo plan > secret/plan.md; echo key > keys/only.key; \
        echo two > copy.md; printf 'plan\\nmore\\n' > longer.md; mkfifo pipe; find . -exec touch -h -d @1700000000 {} +";
    fixture.run(&fixture.guest, &sandbox, work);
    asked.get(fixture, &format!("sandboxes/{sandbox}/changes"), "changes");
    let path = format!("sandboxes/{sandbox}/commit");
    let committed = asked.send(fixture, ("POST", &path), Some(json!({"message": "work"})), "commit").json();
    let after = committed["snapshot"]["id"].as_str().unwrap().to_owned();
    let shown = asked.get(fixture, &format!("sandboxes/{sandbox}"), "sandbox").json();
    let before = shown["snapshot"].as_str().unwrap().to_owned();
    for (name, id) in [("before", &before), ("after", &after)] {
        let shown = asked.get(fixture, &format!("snapshots/{id}"), name).json();
        // Also as it is: equal files have equal hashes.
        asked.0.push((format!("tree {name}"), json!(shown["tree"].as_str().map(str::as_bytes))));
        for path in ["", "?limit=2", "/docs", "/secret", "/keys", "/a.txt", "/nothing"] {
            asked.get(fixture, &format!("snapshots/{id}/tree{path}"), &format!("{name} tree {path}"));
        }
        for path in
            ["a.txt", "docs", "docs/plan.md", "docs/private.key", "secret/plan.md", "keys/only.key", "none"]
        {
            asked.get(fixture, &format!("snapshots/{id}/files/{path}"), &format!("{name} file {path}"));
        }
        for query in ["", "?path=docs", "?path=secret", "?path=keys"] {
            asked.get(fixture, &format!("snapshots/{id}/archive{query}"), &format!("{name} archive {query}"));
        }
    }
    for (a, b) in [(&before, &after), (&after, &before), (&before, &before)] {
        for query in ["", "?insight=true", "?patch=true"] {
            asked.get(fixture, &format!("snapshots/{a}/diff/{b}{query}"), &format!("diff {query}"));
        }
    }
    // The head of the owner, which has the hidden files, is no snapshot of the agent.
    let head = fixture.owner("GET", "projects/website", None).json()["head"].as_str().unwrap().to_owned();
    for path in ["", "/tree", "/archive", "/files/a.txt"] {
        let answer = asked.get(fixture, &format!("snapshots/{head}{path}"), &format!("head {path}"));
        assert_eq!(answer.error(), "SNAPSHOT_NOT_FOUND", "{path}");
    }
    for path in ["snapshots", "snapshots?limit=1", "me", "references", "events?after=0", "episodes"] {
        asked.get(fixture, path, path);
    }
    for path in ["entries", "entries/docs", "entries/secret", "files/secret/plan.md", "notes", "process"] {
        asked.get(fixture, &format!("sandboxes/{sandbox}/{path}"), path);
    }
    asked.0
}

/// Lets another agent change visible and hidden files of both projects: those without hidden ones get only the visible
/// changes.
fn change_both(fixture: &Fixture, visible: &str) {
    let has_hidden = fixture.owner("GET", "projects/website/tree/secret", None).status == 200;
    let hidden = if has_hidden { "date +%N >> secret/last.md; date +%N > docs/n.key;" } else { "" };
    fixture.change("writer", &format!("{hidden} {visible}; find . -exec touch -h -d @1700000000 {{}} +"));
}

/// Rebases of a sandbox onto heads with hidden changes: merged, in conflict, and with none that the guest can see.
fn ask_for_a_rebase(fixture: &Fixture) -> Vec<(String, Value)> {
    let mut asked = Asked::default();
    let sandbox = fixture.sandbox(&fixture.guest, "guest");
    let path = format!("sandboxes/{sandbox}/rebase");
    let work = "echo mine > mine.txt; mkdir -p secret; echo mine > secret/last.md; echo mine > papers.txt";
    fixture.run(&fixture.guest, &sandbox, work);
    let rebase = |asked: &mut Asked, label: &str| {
        asked.send(fixture, ("POST", &path), Some(json!({})), label);
        asked.get(fixture, &format!("sandboxes/{sandbox}"), "sandbox");
        asked.get(fixture, &format!("sandboxes/{sandbox}/changes"), "changes");
    };
    rebase(&mut asked, "rebase without a change");
    if fixture.owner("GET", "projects/website/tree/secret", None).status == 200 {
        fixture.change("writer", "echo hidden >> secret/last.md; find . -exec touch -h -d @1700000000 {} +");
    }
    rebase(&mut asked, "rebase with hidden changes");
    let path_of_sandbox = format!("sandboxes/{sandbox}");
    let change = |visible: &str| {
        change_both(fixture, visible);
        // Shown after a while, whether there are hidden changes or not.
        wait_until("it has moved on", || {
            fixture.agent("GET", &path_of_sandbox, None).json()["baseMoved"] == json!(true)
        });
    };
    change("echo theirs > theirs.txt");
    rebase(&mut asked, "rebase with changes");
    change("echo theirs > mine.txt");
    rebase(&mut asked, "rebase in conflict");
    fixture.complete(&fixture.guest, &sandbox);
    for path in ["completions", "completions?limit=1", "completions?state=in_review", "operations", ""] {
        asked.get(fixture, &format!("projects/website/{path}"), path);
    }
    rebase(&mut asked, "rebase after the completion");
    asked.0
}

/// The workspace of the guest outside sandboxes.
fn ask_for_a_workspace(fixture: &Fixture) -> Vec<(String, Value)> {
    let mut asked = Asked::default();
    let made = asked.send(fixture, ("POST", "projects/website/workspaces"), Some(json!({})), "create").json();
    let directory = made["path"].as_str().unwrap().strip_prefix("DATA/").unwrap();
    let write = |path: &str, content: &str| {
        let path = fixture.server.path().join(directory).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let own = "projects/website/workspaces/guest";
    let look = |asked: &mut Asked, when: &str| {
        for path in [
            own,
            "projects/website/workspaces/guest/changes",
            "projects/website/workspaces",
            "projects/website/workspaces?limit=1",
            "projects/website/workspaces/writer",
            "projects/website/workspaces/writer/changes",
            "workspace/website/path",
            "workspace/other/path",
        ] {
            asked.get(fixture, path, &format!("{path} {when}"));
        }
    };
    look(&mut asked, "at first");
    write("secret/last.md", "mine\n");
    write("mine.md", "mine\n");
    look(&mut asked, "after work");
    change_both(fixture, "echo theirs > other.txt");
    for when in ["with changes", "without"] {
        asked.send(fixture, ("POST", &format!("{own}/rebase")), Some(json!({})), &format!("rebase {when}"));
    }
    write("other.txt", "mine\n");
    change_both(fixture, "echo again > other.txt");
    asked.send(fixture, ("POST", &format!("{own}/rebase")), Some(json!({})), "rebase in conflict");
    asked.send(fixture, ("POST", &format!("{own}/complete")), Some(json!({"wait": 60})), "complete");
    asked.send(fixture, ("POST", &format!("{own}/rebase")), Some(json!({})), "rebase after it");
    asked.send(fixture, ("POST", "projects/website/sync"), Some(json!({})), "sync");
    look(&mut asked, "at the end");
    for path in ["a.txt", "secret/plan.md", "keys/only.key"] {
        let path = format!("projects/website/policy/explain?agent=guest&path={path}");
        asked.get(fixture, &path, &path);
    }
    asked.send(fixture, ("DELETE", own), None, "delete");
    asked.0
}

/// Reviews as a reviewer sees them that may not see hidden files.
fn ask_for_reviews(fixture: &Fixture) -> Vec<(String, Value)> {
    let mut asked = Asked::default();
    let has_hidden = fixture.owner("GET", "projects/website/tree/secret", None).status == 200;
    let hidden = if has_hidden { "secret/last.md" } else { "" };
    let sandboxes = ["one", "two"].map(|agent| fixture.sandbox(&fixture.alice, agent));
    for (sandbox, text) in sandboxes.iter().zip(["one", "two"]) {
        let write = format!("for file in a.txt {hidden}; do echo {text} > $file; done");
        fixture.run(&fixture.alice, sandbox, &write);
        fixture.complete(&fixture.alice, sandbox);
    }
    let reviewer = fixture.key(&json!({"role": "reviewer", "projects": ["website"], "agents": ["guest"]}));
    let all = "projects/website/reviews";
    for key in [&reviewer, &fixture.guest] {
        for query in
            ["", "?limit=1", "?state=open", "?path=a.txt", "?path=secret%2Flast.md", "?assigned=guest"]
        {
            asked.send_as(key, fixture, ("GET", &format!("{all}{query}")), None, &format!("reviews {query}"));
        }
    }
    let listed = fixture.owner("GET", &format!("{all}?path=a.txt"), None).json();
    let review = format!("{all}/{}", listed["items"][0]["id"].as_str().unwrap());
    for path in ["", "/versions/base", "/versions/ours", "/versions/theirs", "/versions/head"] {
        for key in [&reviewer, &fixture.guest] {
            asked.send_as(key, fixture, ("GET", &format!("{review}{path}")), None, &format!("review {path}"));
        }
    }
    for path in ["completions", "operations", "events?after=0", ""] {
        asked.send_as(&reviewer, fixture, ("GET", &format!("projects/website/{path}")), None, path);
    }
    asked.send_as(
        &reviewer,
        fixture,
        ("POST", &format!("{review}/resolve")),
        Some(json!({"choice": "theirs"})),
        "resolve",
    );
    asked.0
}
