//! Events of a project for the keys of agents and reviewers: those that concern what they may see, under ids that tell
//! nothing about the others.

use serde_json::{Value, json};

use super::Fixture;
use super::leaks::{normalised, project_with_changes};
use crate::events::EventReader;
use crate::support::Answer;

const EVENTS: &str = "projects/website/events";
/// Number of digits of the ids that agents get.
pub(super) const ID_DIGITS: usize = 16;

fn items(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["items"].as_array().unwrap().clone()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn ids(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["id"].as_u64().unwrap()).collect()
}

#[test]
fn an_agent_reads_the_events_of_changes_that_it_sees_and_of_its_own_completions() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    fixture.change("writer", "echo more >> secret/plan.md");
    fixture.change("writer", "echo b > b.txt; echo more >> secret/plan.md");
    let sandbox = fixture.sandbox(&fixture.guest, "guest");
    fixture.run(&fixture.guest, &sandbox, "echo c > c.txt");
    let completed = fixture.complete(&fixture.guest, &sandbox);
    assert_eq!(completed["sequence"], 3, "{completed}");
    fixture.change("writer", "echo more >> secret/plan.md");

    let all = items(&fixture.owner("GET", EVENTS, None));
    assert!(all.len() > 15, "the owner sees everything: {all:?}");
    let seen = items(&fixture.agent("GET", EVENTS, None));
    let expected = [
        "project.created",
        "project.advanced",
        "project.advanced",
        "completion.queued",
        "completion.landed",
        "project.advanced",
    ];
    assert_eq!(types(&seen), expected, "{seen:?}");
    let data: Vec<Value> = seen.iter().map(|event| event["data"].clone()).collect();
    let own = |sequence: Option<u64>| match sequence {
        Some(sequence) => {
            json!({"project": "website", "agent": "guest", "completionId": completed["id"], "sequence": sequence})
        }
        None => json!({"project": "website", "agent": "guest", "completionId": completed["id"]}),
    };
    let advanced = |sequence: u64| json!({"project": "website", "sequence": sequence});
    let expected =
        [json!({"project": "website"}), advanced(1), advanced(2), own(None), own(Some(3)), advanced(3)];
    assert_eq!(data, expected);

    // Positions: pages of any size continue where the last one ended, and no page ends at a hidden event.
    for limit in 1..=seen.len() {
        let (mut paged, mut after) = (Vec::new(), 0);
        loop {
            let page = fixture.agent("GET", &format!("{EVENTS}?after={after}&limit={limit}"), None).json();
            paged.extend(page["items"].as_array().unwrap().clone());
            after = page["next"].as_u64().unwrap();
            assert_eq!(Some(&after), ids(&paged).last());
            if page["more"] == false {
                break;
            }
        }
        assert_eq!(paged, seen, "{limit}");
    }
    let advances = items(&fixture.agent("GET", &format!("{EVENTS}?type=project.advanced"), None));
    assert_eq!(advances.len(), 3);
    assert!(items(&fixture.agent("GET", &format!("{EVENTS}?type=policy.changed"), None)).is_empty());

    // The ids are no numbers: neither those of the owner, nor in their order, and no other position is accepted.
    let (mine, theirs) = (ids(&seen), ids(&all));
    assert!(mine.iter().all(|id| id.to_string().len() == ID_DIGITS && !theirs.contains(id)), "{mine:?}");
    assert_eq!(ids(&items(&fixture.agent("GET", EVENTS, None))), mine, "they stay the same");
    for wrong in [1, theirs[theirs.len() - 1], u64::MAX] {
        let answer = fixture.agent("GET", &format!("{EVENTS}?after={wrong}"), None);
        assert_eq!(answer.error(), "INVALID_REQUEST", "{wrong}");
    }
    // The owner sees with the eyes of the agent what the agent sees.
    let call = fixture.server.call_as(&fixture.alice, "GET", &format!("/api/v1/{EVENTS}"));
    assert_eq!(items(&call.header("x-agent", "guest").send()), seen);
}

#[test]
fn events_of_another_project_that_had_the_name_before_are_hidden() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    let created = fixture.owner("POST", "projects", Some(json!({"name": "site"})));
    assert_eq!(created.status, 201, "{}", created.body);
    assert_eq!(fixture.owner("DELETE", "projects/site", None).status, 204);
    let renamed = fixture.owner("PATCH", "projects/website", Some(json!({"name": "site"})));
    assert_eq!(renamed.status, 200, "{}", renamed.body);
    let all = items(&fixture.owner("GET", "projects/site/events", None));
    assert!(types(&all).contains(&"project.deleted"), "the owner sees both: {all:?}");
    let seen = items(&fixture.agent("GET", "projects/site/events", None));
    assert_eq!(types(&seen), ["project.updated"]);
}

#[test]
fn a_change_of_hidden_files_reaches_no_stream_of_an_agent() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    let last = *ids(&items(&fixture.agent("GET", EVENTS, None))).last().unwrap();
    let route = format!("/api/v1/{EVENTS}");
    let open = |last| EventReader::open_at(fixture.server.address(), &fixture.guest, &route, last);
    let mut stream = open(Some(last));
    fixture.change("writer", "echo more >> secret/plan.md");
    fixture.change("writer", "echo b > b.txt");
    fixture.change("writer", "echo c > c.txt");
    let first = stream.next().unwrap();
    assert_eq!((first.kind.as_str(), &first.data["data"]["sequence"]), ("project.advanced", &json!(2)));
    assert_eq!(first.id, first.data["id"].as_u64().unwrap());
    let second = stream.next().unwrap();
    assert_eq!(second.data["data"]["sequence"], 3);
    // A lost stream is resumed after its last message.
    let resumed = open(Some(first.id)).next().unwrap();
    assert_eq!((resumed.id, &resumed.data), (second.id, &second.data));
}

#[test]
fn a_reviewer_sees_the_queue_of_its_reviews_by_events() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("secret/plan.md", "plan\n")]);
    let policy = json!({"rules": [
        {"agent": "checker", "path": "secret/**", "access": "none"},
        {"path": "b.txt", "reviewers": ["boss"]},
    ]});
    assert_eq!(fixture.owner("PUT", "projects/website/policy", Some(policy)).status, 200);
    let bound =
        |role: &str| fixture.key(&json!({"role": role, "projects": ["website"], "agents": ["checker"]}));
    let (checker, worker) = (bound("reviewer"), bound("agent"));
    let sandboxes = ["one", "two"].map(|agent| fixture.sandbox(&fixture.alice, agent));
    for (sandbox, text) in sandboxes.iter().zip(["one", "two"]) {
        let write = format!("for file in a.txt b.txt secret/plan.md; do echo {text} > $file; done");
        fixture.run(&fixture.alice, sandbox, &write);
        fixture.complete(&fixture.alice, sandbox);
    }
    let reviews = |key: &str| {
        let events = items(&fixture.send(key, "GET", EVENTS, None)).into_iter();
        events.filter(|event| event["type"].as_str().unwrap().starts_with("review.")).collect::<Vec<_>>()
    };
    assert_eq!(reviews(&fixture.alice).len(), 3);
    assert!(reviews(&worker).is_empty(), "only the role `reviewer` sees reviews");
    let opened = reviews(&checker);
    assert_eq!(types(&opened), ["review.opened"], "{opened:?}");
    let id = opened[0]["data"]["reviewId"].as_str().unwrap().to_owned();
    let path = format!("projects/website/reviews/{id}");
    let review = fixture.send(&checker, "GET", &path, None).json();
    assert_eq!((&review["path"], &review["agent"]), (&json!("a.txt"), &opened[0]["data"]["agent"]));

    let resolved =
        fixture.send(&checker, "POST", &format!("{path}/resolve"), Some(json!({"choice": "theirs"})));
    assert_eq!(resolved.status, 200, "{}", resolved.body);
    // The owner decides the hidden review, of which the reviewer hears nothing.
    let hidden = fixture.owner("GET", "projects/website/reviews?path=secret%2Fplan.md", None).json();
    let hidden = format!("projects/website/reviews/{}/resolve", hidden["items"][0]["id"].as_str().unwrap());
    assert_eq!(fixture.owner("POST", &hidden, Some(json!({"choice": "theirs"}))).status, 200);
    let decided = reviews(&checker);
    assert_eq!(types(&decided), ["review.opened", "review.resolved"]);
    let data = &decided[1]["data"];
    assert_eq!((&data["reviewId"], &data["by"]), (&json!(id), &json!("checker")), "{data}");
    assert_eq!(data["sequence"], resolved.json()["operation"]["sequence"], "{data}");
}

#[test]
fn a_policy_that_hides_a_path_hides_the_events_about_it() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    fixture.change("writer", "echo b > b.txt");
    let advances =
        |key: &str| items(&fixture.send(key, "GET", &format!("{EVENTS}?type=project.advanced"), None)).len();
    assert_eq!(advances(&fixture.guest), 2);
    let policy = json!({"rules": [{"agent": "guest", "path": "b.txt", "access": "none"}]});
    assert_eq!(fixture.owner("PUT", "projects/website/policy", Some(policy)).status, 200);
    assert_eq!(advances(&fixture.guest), 1);
}

#[test]
fn the_events_of_an_agents_own_sandboxes_do_not_count_those_of_others() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    let sandbox = fixture.sandbox(&fixture.guest, "guest");
    fixture.run(&fixture.guest, &sandbox, "echo plan > copy.md");
    fixture.complete(&fixture.guest, &sandbox);
    let seen = items(&fixture.agent("GET", "events", None));
    assert!(
        types(&seen).contains(&"sandbox.created") && types(&seen).contains(&"completion.landed"),
        "{seen:?}"
    );
    assert!(ids(&seen).iter().all(|id| id.to_string().len() == ID_DIGITS), "{seen:?}");
    let made = seen.iter().find(|event| event["type"] == "snapshot.created").unwrap();
    // How much a snapshot adds to the store depends on hidden files with the same content.
    assert_eq!(made["data"].get("bytes"), None, "{made}");
    let rest = items(&fixture.agent("GET", &format!("events?after={}", seen[1]["id"]), None));
    assert_eq!(rest, seen[2..]);
    assert_eq!(fixture.agent("GET", "events?after=7", None).error(), "INVALID_REQUEST");
}

#[test]
fn events_for_an_agent_are_the_same_with_and_without_hidden_files() {
    let fixtures = [project_with_changes(false), project_with_changes(true)];
    let compare = |route: &dyn Fn(&Fixture) -> String| {
        let [without, with] = fixtures.each_ref().map(|fixture| {
            let answer = fixture.agent("GET", &route(fixture), None);
            let (size, mut body) = (answer.body.len(), answer.json());
            if let Some(error) = body.get_mut("error").and_then(Value::as_object_mut) {
                error.remove("requestId");
            }
            normalised(&mut body);
            (answer.status, size, body)
        });
        assert_eq!(without, with);
    };
    for query in
        ["", "?limit=1", "?limit=3", "?after=0", "?after=5", "?type=project.advanced", "?type=review.opened"]
    {
        compare(&|_| format!("{EVENTS}{query}"));
    }
    for position in 0..6 {
        for limit in ["", "&limit=2"] {
            compare(&|fixture| {
                let all = ids(&items(&fixture.agent("GET", EVENTS, None)));
                format!("{EVENTS}?after={}{limit}", all[position])
            });
        }
    }
    for fixture in &fixtures {
        let sandbox = fixture.sandbox(&fixture.guest, "guest");
        fixture.run(
            &fixture.guest,
            &sandbox,
            "echo mine > mine.txt; mkdir -p secret; echo z > secret/plan.md",
        );
        assert_eq!(fixture.complete(&fixture.guest, &sandbox)["state"], "landed");
    }
    compare(&|_| EVENTS.to_owned());
}
