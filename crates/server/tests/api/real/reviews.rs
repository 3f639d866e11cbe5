//! Reviews over HTTP: versions, causes, decisions, reviewers, events.

use serde_json::{Value, json};

use super::projects::Fixture;

/// Starts a server with a project in which the changes of two agents conflict at `a.txt` and `b.txt`.
fn conflicts() -> (Fixture, Vec<String>) {
    let fixture = Fixture::new(&[("a.txt", "base\n"), ("b.txt", "base\n")]);
    let (first, second) = (traced(&fixture, "writer"), traced(&fixture, "editor"));
    fixture.run(&first, "echo from the writer > a.txt; cp a.txt b.txt");
    fixture.run(&second, "echo from the editor > a.txt; cp a.txt b.txt");
    assert_eq!(fixture.complete(&first)["state"], "landed");
    assert_eq!(fixture.complete(&second)["state"], "in_review");
    let open = list(&fixture, "state=open");
    let ids = open.iter().map(|review| review["id"].as_str().unwrap().to_owned()).collect();
    (fixture, ids)
}

/// Creates a sandbox of an agent that makes a snapshot after each command.
fn traced(fixture: &Fixture, agent: &str) -> String {
    let new = json!({"template": "base", "project": "website", "agent": agent, "trace": "command"});
    let made = fixture.post("sandboxes", &new);
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["id"].as_str().unwrap().to_owned()
}

fn list(fixture: &Fixture, query: &str) -> Vec<Value> {
    let answer = fixture.get(&format!("projects/website/reviews?{query}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["items"].as_array().unwrap().clone()
}

#[test]
fn a_review_has_versions_regions_choices_and_causes() {
    let (fixture, ids) = conflicts();
    let review = fixture.get(&format!("projects/website/reviews/{}", ids[0])).json();
    assert_eq!(
        (&review["path"], &review["class"], &review["agent"]),
        (&json!("a.txt"), &json!("content"), &json!("editor"))
    );
    let contents = ["base", "ours", "theirs", "head"].map(|side| review[side]["content"].clone());
    let expected = ["base\n", "from the writer\n", "from the editor\n", "from the writer\n"];
    assert_eq!(contents, expected.map(|text| json!(text)), "{review}");
    assert_eq!(review["theirs"]["mode"], "0644");
    assert_eq!((&review["theirs"]["text"], &review["theirs"]["mime"]), (&json!(true), &json!("text/plain")));
    assert_eq!(review["regions"][0]["kind"], "lines", "{review}");
    let choices: Vec<&str> = review["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| choice["choice"].as_str().unwrap())
        .collect();
    assert_eq!(choices[..2], ["ours", "theirs"]);
    assert_eq!(review["oursChange"]["operation"]["author"], "writer");
    for (side, words) in [("oursChange", "from the writer"), ("theirsChange", "from the editor")] {
        let causes = review[side]["causes"].as_array().unwrap();
        let messages: Vec<&str> = causes.iter().map(|cause| cause["message"].as_str().unwrap()).collect();
        assert!(messages.iter().any(|message| message.contains(words)), "{side}: {messages:?}");
    }
    for (side, content) in ["base", "ours", "theirs", "head"].iter().zip(expected) {
        let route = format!("projects/website/reviews/{}/versions/{side}", ids[0]);
        assert_eq!(fixture.get(&route).body, content);
        let part = fixture.call("GET", &route).header("range", "bytes=0-1").send();
        assert_eq!((part.status, part.body.as_str()), (206, &content[..2]));
    }
    let wrong = fixture.get(&format!("projects/website/reviews/{}/versions/mine", ids[0]));
    assert_eq!(wrong.error(), "INVALID_REQUEST");
    assert_eq!(fixture.get("projects/website/reviews/rev-x").error(), "REVIEW_NOT_FOUND");
}

#[test]
fn decisions_change_the_head_and_the_last_one_lands_the_completion() {
    let (fixture, ids) = conflicts();
    let resolve =
        |id: &str, body: Value| fixture.post(&format!("projects/website/reviews/{id}/resolve"), &body);
    for body in [
        json!({}),
        json!({"choice": "mine"}),
        json!({"choice": "strategy"}),
        json!({"choice": "ours", "content": "x"}),
        json!({"content": "x", "contentBase64": "eA=="}),
        json!({"contentBase64": "?"}),
        json!({"choice": "ours", "strategy": "text"}),
        json!({"choice": "strategy", "strategy": "guess"}),
        json!({"choice": "ours", "message": "a\u{0}b"}),
    ] {
        assert_eq!(resolve(&ids[0], body.clone()).error(), "INVALID_REQUEST", "{body}");
    }
    let failed = resolve(&ids[0], json!({"choice": "strategy", "strategy": "text"}));
    assert_eq!(failed.error(), "RESOLUTION_NOT_APPLICABLE", "{}", failed.body);
    let done = resolve(&ids[0], json!({"choice": "theirs", "message": "the editor is right"})).json();
    assert_eq!(
        (&done["review"]["state"], &done["operation"]["operation"]),
        (&json!("resolved"), &json!("resolve"))
    );
    assert_eq!(done["review"]["resolution"], json!({"choice": "theirs", "sequence": 3}), "{done}");
    assert_eq!(fixture.file("a.txt"), "from the editor\n");
    let again = resolve(&ids[0], json!({"choice": "ours"}));
    assert_eq!(
        (again.error(), &again.json()["error"]["details"]["by"]),
        ("REVIEW_DECIDED".into(), &json!("a test"))
    );

    // Somebody changed the other file meanwhile.
    let sandbox = fixture.sandbox("third");
    fixture.run(&sandbox, "echo later > b.txt");
    fixture.complete(&sandbox);
    let outdated = resolve(&ids[1], json!({"content": "by hand\n"}));
    assert_eq!(outdated.error(), "REVIEW_OUTDATED", "{}", outdated.body);
    let seen = fixture.get(&format!("projects/website/reviews/{}", ids[1])).json()["head"]["version"].clone();
    assert_eq!(outdated.json()["error"]["details"]["version"], seen);
    let done = resolve(&ids[1], json!({"contentBase64": "YnkgaGFuZP8=", "expect": seen}));
    assert_eq!(done.status, 200, "{}", done.body);
    let route = format!("projects/website/reviews/{}", ids[1]);
    assert_eq!(fixture.get(&route).json()["head"]["size"], 8);

    let completion = done.json()["review"]["completion"].as_str().unwrap().to_owned();
    let completion = fixture.get(&format!("projects/website/completions/{completion}")).json();
    assert_eq!(completion["state"], "landed", "{completion}");
    let operations = fixture.get("projects/website/operations?operation=resolve").json();
    assert_eq!(operations["items"].as_array().unwrap().len(), 2);
    assert_eq!(list(&fixture, "state=open").len(), 0);
    assert_eq!(list(&fixture, "state=resolved&path=b.txt").len(), 1);
    let events = fixture.get("events?limit=1000").json();
    let reviews: Vec<(&str, &Value)> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), &event["data"]))
        .filter(|(kind, _)| kind.starts_with("review."))
        .collect();
    let kinds: Vec<&str> = reviews.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["review.opened", "review.opened", "review.resolved", "review.resolved"]);
    let decisions = reviews[2..].iter().map(|(_, data)| (&data["by"], &data["choice"]));
    assert!(decisions.eq([(&json!("a test"), &json!("theirs")), (&json!("a test"), &json!("content"))]));
    // Events name no paths.
    assert!(reviews.iter().all(|(_, data)| !data.to_string().contains(".txt")), "{reviews:?}");
}

#[test]
fn the_policy_names_reviewers_and_foreign_reviews_do_not_exist() {
    let (fixture, ids) = conflicts();
    let policy = json!({"rules": [
        {"path": "a.txt", "reviewers": ["lead-*"], "reviewTimeout": "2h", "escalateTo": "boss"},
    ]});
    let set = fixture.call("PUT", "projects/website/policy").json(&policy.to_string()).send();
    assert_eq!(set.status, 200, "{}", set.body);
    let route = format!("projects/website/reviews/{}/resolve", ids[0]);
    let refused = fixture.post(&route, &json!({"choice": "ours"}));
    assert_eq!(refused.error(), "REVIEW_FORBIDDEN", "{}", refused.body);
    assert_eq!(list(&fixture, "assigned=lead-1").len(), 2);
    let others = list(&fixture, "assigned=somebody");
    assert_eq!((others.len(), &others[0]["path"]), (1, &json!("b.txt")));
    let first = fixture.get("projects/website/reviews?limit=1").json();
    let next = list(&fixture, &format!("limit=1&cursor={}", first["next"].as_str().unwrap()));
    assert_eq!(next[0]["id"], ids[1].as_str());
    assert_eq!(first["total"], list(&fixture, "").len(), "on all pages");
    assert_eq!(fixture.get("projects/website/reviews?assigned=lead-1").json().get("total"), None);

    let bob = fixture.server.key("bob", "user");
    for path in ["".to_owned(), format!("/{}", ids[0]), format!("/{}/versions/base", ids[0])] {
        let route = format!("/api/v1/projects/website/reviews{path}");
        assert_eq!(fixture.server.call_as(&bob, "GET", &route).send().error(), "PROJECT_NOT_FOUND", "{path}");
    }
    let wrong = json!({"rules": [{"path": "**", "reviewTimeout": "soon"}]}).to_string();
    let set = fixture.call("PUT", "projects/website/policy").json(&wrong).send();
    assert_eq!(set.error(), "POLICY_INVALID", "{}", set.body);
}
