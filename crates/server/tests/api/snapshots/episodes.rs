//! Steps of a search.

use serde_json::{Value, json};

use super::SnapshotServer;
use super::archive::Archive;

impl SnapshotServer {
    #[track_caller]
    fn step(&self, body: &Value) -> Value {
        let answer = self.post("episodes", body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()
    }
}

fn rewards(list: &Value) -> Vec<f64> {
    list["items"].as_array().unwrap().iter().map(|item| item["reward"].as_f64().unwrap()).collect()
}

#[test]
fn steps_of_a_search_are_stored() {
    let mut fixture = SnapshotServer::new();
    fixture.key = fixture.key_of("alice", "user");
    let start = fixture.create_snapshot(&Archive::new().file("lib.rs", "fn a() {}\n"));
    let next = fixture
        .create_snapshot(&Archive::new().file("lib.rs", "fn a() {}\nfn b() {}\n").program("run.sh", "x"));
    let root = fixture.step(&json!({"snapshot": start, "action": "begin", "reward": 0}));
    assert_eq!(
        (&root["visits"], &root["parent"], root.get("insight"), root.get("data")),
        (&1.into(), &Value::Null, None, None)
    );
    let child = |reward: f64, visits: u64, parent: &Value| {
        let body = json!({
            "snapshot": next, "parent": parent["id"], "action": "add b", "reward": reward, "visits": visits,
            "data": {"model": "m", "tokens": [1, 2]}, "insight": true,
        });
        fixture.step(&body)
    };
    let (low, high) = (child(0.25, 9, &root), child(0.75, 1, &root));
    let last = child(0.5, 1, &high);
    assert_eq!((&low["data"]["tokens"][1], &low["visits"]), (&2.into(), &9.into()));
    assert_eq!(
        (&low["insight"]["totals"]["lines_added"], &low["insight"]["truncated"]),
        (&2.into(), &false.into())
    );
    assert_eq!(low["insight"]["entries"][1]["notes"][0]["code"], "became_executable");

    let at = |step: &Value, end: &str| {
        fixture.get_json(&format!("episodes/{}{end}", step["id"].as_str().unwrap()))
    };
    assert_eq!(at(&low, ""), low);
    assert_eq!(rewards(&at(&last, "/path")), [0.0, 0.75, 0.5]);
    let children = at(&root, "/children");
    assert_eq!((rewards(&children), &children["total"]), (vec![0.25, 0.75], &2.into()));
    assert_eq!(rewards(&at(&root, "/children?limit=1&page=2")), [0.75]);
    assert_eq!(rewards(&at(&last, "/children")), [0.0; 0]);
    // The step with the higher reward is not a leaf.
    assert_eq!(at(&root, "/best")["id"], last["id"]);
    assert_eq!(at(&low, "/best")["id"], low["id"]);

    // A step without its snapshot is not visible to its owner.
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{start}")).send().status, 204);
    assert_eq!(rewards(&at(&last, "/path")), [0.75, 0.5]);
    let gone = fixture.get(&format!("episodes/{}", root["id"].as_str().unwrap()));
    assert_eq!(gone.error(), "EPISODE_NOT_FOUND");
}

#[test]
fn searches_are_listed_by_owner_with_their_steps() {
    let mut fixture = SnapshotServer::new();
    let admin = fixture.key.clone();
    fixture.key = fixture.key_of("alice", "user");
    let snapshot = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let step = |parent: Option<&Value>, action: &str| {
        let parent = parent.map(|parent| parent["id"].clone());
        fixture.step(&json!({"snapshot": snapshot, "parent": parent, "action": action, "reward": 1}))
    };
    let (one, two) = (step(None, "one"), step(None, "two"));
    let child = step(Some(&one), "one.1");
    step(Some(&child), "one.1.1");
    step(Some(&one), "one.2");
    let list = |query: &str| {
        let list = fixture.get_json(&format!("episodes{query}"));
        let items = list["items"].as_array().unwrap();
        let items: Vec<String> =
            items.iter().map(|it| format!("{}:{}", it["action"].as_str().unwrap(), it["steps"])).collect();
        (items.join(" "), list["total"].clone(), list.get("next").cloned())
    };
    assert_eq!(list(""), ("two:1 one:4".to_owned(), json!(2), None));
    assert_eq!(list("?sort=oldest"), ("one:4 two:1".to_owned(), json!(2), None));
    assert_eq!(list("?limit=1"), ("two:1".to_owned(), json!(2), Some(two["id"].clone())));
    let next = format!("?limit=1&cursor={}", two["id"].as_str().unwrap());
    assert_eq!(list(&next), ("one:4".to_owned(), json!(2), None));
    for wrong in ["?limit=0", "?limit=1001", "?cursor=x", "?sort=best", "?page=1"] {
        assert_eq!(fixture.get(&format!("episodes{wrong}")).error(), "INVALID_REQUEST", "{wrong}");
    }
    let subtree = |query: &str| {
        let found = fixture.get_json(&format!("episodes/{}/subtree{query}", one["id"].as_str().unwrap()));
        let items = found["items"].as_array().unwrap();
        let items: Vec<&str> = items.iter().map(|it| it["action"].as_str().unwrap()).collect();
        (items.join(" "), found["truncated"].clone())
    };
    assert_eq!(subtree(""), ("one one.1 one.2 one.1.1".to_owned(), json!(false)));
    assert_eq!(subtree("?depth=1"), ("one one.1 one.2".to_owned(), json!(true)));
    assert_eq!(subtree("?depth=2"), ("one one.1 one.2 one.1.1".to_owned(), json!(false)));
    assert_eq!(subtree("?depth=0"), ("one".to_owned(), json!(true)));
    assert_eq!(subtree("?limit=2"), ("one one.1".to_owned(), json!(true)));
    let path = format!("episodes/{}/subtree", one["id"].as_str().unwrap());
    for wrong in ["?limit=0", "?limit=10001", "?depth=1001", "?depth=-1"] {
        assert_eq!(fixture.get(&format!("{path}{wrong}")).error(), "INVALID_REQUEST", "{wrong}");
    }

    // Others see nothing of it, and an admin everything.
    fixture.key = fixture.key_of("bob", "user");
    assert_eq!(fixture.get_json("episodes")["total"], 0);
    assert_eq!(fixture.get(&path).error(), "EPISODE_NOT_FOUND");
    fixture.key = admin;
    let all = fixture.get_json("episodes?sort=oldest&limit=1");
    assert_eq!((&all["total"], &all["items"][0]["steps"], &all["next"]), (&json!(2), &json!(4), &one["id"]));
    let rest = fixture.get_json(&format!("episodes?sort=oldest&cursor={}", one["id"].as_str().unwrap()));
    assert_eq!((&rest["items"][0]["action"], rest.get("next")), (&json!("two"), None));
}

#[test]
fn invalid_steps_are_refused() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let unknown = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718";
    for (name, body) in [
        ("SNAPSHOT_NOT_FOUND", json!({"snapshot": unknown, "action": "a", "reward": 1})),
        ("SNAPSHOT_NOT_FOUND", json!({"snapshot": "main", "action": "a", "reward": 1})),
        ("EPISODE_NOT_FOUND", json!({"snapshot": id, "parent": unknown, "action": "a", "reward": 1})),
        ("EPISODE_NOT_FOUND", json!({"snapshot": id, "parent": "x", "action": "a", "reward": 1})),
        ("INVALID_REQUEST", json!({"snapshot": id, "action": "a", "reward": 1, "insight": true})),
        ("INVALID_REQUEST", json!({"snapshot": id, "action": "a"})),
        ("INVALID_REQUEST", json!({"snapshot": id, "action": "a", "reward": "much"})),
        ("INVALID_REQUEST", json!({"snapshot": id, "action": "a", "reward": 1, "visits": -1})),
        ("INVALID_REQUEST", json!({"snapshot": id, "action": "a", "reward": 1, "data": [1]})),
        ("INVALID_REQUEST", json!({"snapshot": id, "action": "a", "reward": 1, "more": 1})),
    ] {
        assert_eq!(fixture.post("episodes", &body).error(), name, "{body}");
    }
    let huge = format!(r#"{{"snapshot":"{id}","action":"a","reward":1e999}}"#);
    assert_eq!(fixture.call("POST", "episodes").json(&huge).send().error(), "INVALID_REQUEST");
    for end in ["", "/path", "/children", "/best"] {
        for wrong in [unknown, "x"] {
            assert_eq!(fixture.get(&format!("episodes/{wrong}{end}")).error(), "EPISODE_NOT_FOUND");
        }
    }
    let step = fixture.step(&json!({"snapshot": id, "action": "a", "reward": 1}));
    let children = format!("episodes/{}/children?limit=0", step["id"].as_str().unwrap());
    assert_eq!(fixture.get(&children).error(), "INVALID_REQUEST");
}

#[test]
fn the_size_of_a_step_is_limited() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let fits = "x".repeat((64 << 10) - 20);
    fixture.step(&json!({"snapshot": id, "action": fits, "reward": 1}));
    fixture.step(&json!({"snapshot": id, "action": "a", "reward": 1, "data": {"x": fits[..65_500]}}));
    let half = "x".repeat(33 << 10);
    // A control character needs six bytes in JSON.
    let control = "\u{1}".repeat(11 << 10);
    for (field, body) in [
        ("action", json!({"snapshot": id, "action": format!("{fits}{fits}"), "reward": 1})),
        (
            "data",
            json!({"snapshot": id, "action": "a", "reward": 1, "data": {"x": format!("{fits}{}", "x".repeat(20))}}),
        ),
        ("data", json!({"snapshot": id, "action": half, "reward": 1, "data": {"x": half}})),
        ("action", json!({"snapshot": id, "action": control, "reward": 1})),
    ] {
        let refused = fixture.post("episodes", &body);
        assert_eq!((refused.status, refused.error()), (413, "PAYLOAD_TOO_LARGE".to_owned()));
        let details = &refused.json()["error"]["details"];
        assert_eq!((&details["field"], &details["limit"]), (&field.into(), &65_536.into()));
    }
}

#[test]
fn the_total_size_of_an_owners_steps_is_limited() {
    let mut fixture = SnapshotServer::with(&[("MAX_EPISODE_BYTES_PER_OWNER", "100k")]);
    let admin = fixture.key.clone();
    fixture.key = fixture.key_of("alice", "user");
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let body = json!({"snapshot": id, "action": "x".repeat(40 << 10), "reward": 1});
    let (first, _second) = (fixture.step(&body), fixture.step(&body));
    let refused = fixture.post("episodes", &body);
    assert_eq!((refused.status, refused.error()), (429, "EPISODE_LIMIT_EXCEEDED".to_owned()));
    let details = &refused.json()["error"]["details"];
    assert_eq!(
        (&details["limit"], &details["setting"]),
        (&(100 << 10).into(), &"MAX_EPISODE_BYTES_PER_OWNER".into())
    );
    // The refused step was not stored, a small one still fits, and admins have no limit.
    assert_eq!(fixture.call_as(&admin, "POST", "episodes").json(&body.to_string()).send().status, 201);
    fixture.step(&json!({"snapshot": id, "action": "small", "reward": 1}));
    let path = format!("episodes/{}", first["id"].as_str().unwrap());
    assert_eq!(fixture.call("DELETE", &path).send().status, 204);
    fixture.step(&body);
}

#[test]
fn the_number_of_an_owners_steps_is_limited() {
    let mut fixture = SnapshotServer::with(&[("MAX_EPISODES_PER_OWNER", "3")]);
    let admin = fixture.key.clone();
    fixture.key = fixture.key_of("alice", "user");
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let add = |parent: &Value| {
        fixture.post("episodes", &json!({"snapshot": id, "parent": parent, "action": "a", "reward": 1}))
    };
    let root = add(&Value::Null).json();
    let child = add(&root["id"]).json();
    let leaf = add(&child["id"]).json();
    let refused = add(&root["id"]);
    assert_eq!((refused.status, refused.error()), (429, "EPISODE_LIMIT_EXCEEDED".to_owned()));
    assert_eq!(refused.json()["error"]["details"]["limit"], 3);
    // Other owners are not affected.
    let bob = fixture.key_of("bob", "user");
    let theirs =
        fixture.call_as(&bob, "POST", "snapshots").body(&Archive::new().file("c", "d").bytes()).send();
    let body = json!({"snapshot": theirs.json()["id"], "action": "b", "reward": 1}).to_string();
    assert_eq!(fixture.call_as(&bob, "POST", "episodes").json(&body).send().status, 201);

    // A step is deleted with all steps after it.
    let at = |step: &Value| format!("episodes/{}", step["id"].as_str().unwrap());
    assert_eq!(fixture.call_as(&bob, "DELETE", &at(&child)).send().error(), "EPISODE_NOT_FOUND");
    assert_eq!(fixture.call("DELETE", &at(&child)).send().status, 204);
    assert_eq!(fixture.get(&at(&leaf)).error(), "EPISODE_NOT_FOUND");
    assert_eq!(fixture.call("DELETE", &at(&child)).send().error(), "EPISODE_NOT_FOUND");
    assert_eq!(fixture.get_json(&format!("{}/children", at(&root)))["total"], 0);
    assert_eq!((add(&root["id"]).status, add(&root["id"]).status, add(&root["id"]).status), (201, 201, 429));

    // Admins have no limit, and other owners cannot delete their steps.
    let other =
        fixture.call_as(&admin, "POST", "snapshots").body(&Archive::new().file("e", "f").bytes()).send();
    let body =
        json!({"snapshot": other.json()["id"], "parent": root["id"], "action": "x", "reward": 1}).to_string();
    for _ in 0..4 {
        assert_eq!(fixture.call_as(&admin, "POST", "episodes").json(&body).send().status, 201);
    }
    assert_eq!(fixture.call("DELETE", &at(&root)).send().error(), "EPISODE_SHARED");
    assert_eq!(fixture.call_as(&admin, "DELETE", &at(&root)).send().status, 204);
    assert_eq!(add(&Value::Null).status, 201);
}

#[test]
fn a_step_without_its_snapshot_can_be_deleted_by_its_creator() {
    let mut fixture = SnapshotServer::with(&[("MAX_EPISODES_PER_OWNER", "1")]);
    fixture.key = fixture.key_of("alice", "user");
    let (first, second) = (
        fixture.create_snapshot(&Archive::new().file("a", "b")),
        fixture.create_snapshot(&Archive::new().file("a", "c")),
    );
    let add = || fixture.post("episodes", &json!({"snapshot": second, "action": "a", "reward": 1}));
    let step = fixture.step(&json!({"snapshot": first, "action": "a", "reward": 1}));
    let path = format!("episodes/{}", step["id"].as_str().unwrap());
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{first}")).send().status, 204);
    assert_eq!(
        (fixture.get(&path).error(), add().error()),
        ("EPISODE_NOT_FOUND".into(), "EPISODE_LIMIT_EXCEEDED".into())
    );
    assert_eq!(fixture.call("DELETE", &path).send().status, 204);
    assert_eq!(add().status, 201);
}

#[test]
fn long_paths_and_large_pages_are_paged() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let large = "x".repeat(60 << 10);
    let mut steps = vec![fixture.step(&json!({"snapshot": id, "action": "root", "reward": 0}))];
    for reward in 1..=5 {
        let parent = &steps.last().unwrap()["id"];
        let step = json!({"snapshot": id, "parent": parent, "action": "a", "reward": reward});
        steps.push(fixture.step(&step));
    }
    let last = format!("episodes/{}/path", steps[5]["id"].as_str().unwrap());
    let page = fixture.get_json(&format!("{last}?limit=4"));
    assert_eq!((rewards(&page), &page["next"]), (vec![2.0, 3.0, 4.0, 5.0], &steps[1]["id"]));
    let rest = fixture.get_json(&format!("{last}?limit=4&cursor={}", page["next"].as_str().unwrap()));
    assert_eq!((rewards(&rest), rest.get("next")), (vec![0.0, 1.0], None));
    assert_eq!(rewards(&fixture.get_json(&last)).len(), 6);
    for wrong in ["limit=0", "limit=1001", "cursor=x"] {
        assert_eq!(fixture.get(&format!("{last}?{wrong}")).error(), "INVALID_REQUEST", "{wrong}");
    }

    // A cursor must be a step of the same path, so that ids of other searches are of no use.
    let other = fixture.step(&json!({"snapshot": id, "action": "another search", "reward": 9}));
    let after =
        fixture.step(&json!({"snapshot": id, "parent": steps[5]["id"], "action": "after", "reward": 6}));
    let middle = format!("episodes/{}/path", steps[3]["id"].as_str().unwrap());
    for wrong in [&other, &after, &steps[4]] {
        let refused = fixture.get(&format!("{middle}?cursor={}", wrong["id"].as_str().unwrap()));
        assert_eq!(refused.error(), "INVALID_REQUEST", "{wrong}");
    }
    assert_eq!(
        fixture.call("DELETE", &format!("episodes/{}", after["id"].as_str().unwrap())).send().status,
        204
    );

    // More bytes than a page may have, but fewer steps than the limit.
    let data = json!({"x": large});
    for reward in 0..80 {
        let step =
            json!({"snapshot": id, "parent": steps[5]["id"], "action": "a", "reward": reward, "data": data});
        fixture.step(&step);
    }
    let children = format!("episodes/{}/children?limit=1000", steps[5]["id"].as_str().unwrap());
    let (mut found, mut pages, mut next) = (Vec::new(), 0, String::new());
    loop {
        let page = fixture.get_json(&format!("{children}{next}"));
        assert!(page.to_string().len() < (1 << 20) + (64 << 10));
        assert_eq!(page["total"], 80);
        found.extend(rewards(&page));
        pages += 1;
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!((found, pages), ((0..80).map(f64::from).collect::<Vec<_>>(), 5));
}
