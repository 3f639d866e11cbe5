//! The steps of a search over HTTP.

use serde_json::{Value, json};

use super::Shop;
use super::archive::Archive;

impl Shop {
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
fn a_search_is_kept_step_by_step() {
    let mut shop = Shop::new();
    shop.key = shop.key_of("alice", "user");
    let start = shop.made(&Archive::new().file("lib.rs", "fn a() {}\n"));
    let next = shop.made(&Archive::new().file("lib.rs", "fn a() {}\nfn b() {}\n").program("run.sh", "x"));
    let root = shop.step(&json!({"snapshot": start, "action": "begin", "reward": 0}));
    assert_eq!(
        (&root["visits"], &root["parent"], root.get("insight"), root.get("data")),
        (&1.into(), &Value::Null, None, None)
    );
    let child = |reward: f64, visits: u64, parent: &Value| {
        let body = json!({
            "snapshot": next, "parent": parent["id"], "action": "add b", "reward": reward, "visits": visits,
            "data": {"model": "m", "tokens": [1, 2]}, "insight": true,
        });
        shop.step(&body)
    };
    let (low, high) = (child(0.25, 9, &root), child(0.75, 1, &root));
    let last = child(0.5, 1, &high);
    assert_eq!((&low["data"]["tokens"][1], &low["visits"]), (&2.into(), &9.into()));
    assert_eq!(
        (&low["insight"]["totals"]["lines_added"], &low["insight"]["truncated"]),
        (&2.into(), &false.into())
    );
    assert_eq!(low["insight"]["entries"][1]["notes"][0]["code"], "became_executable");

    let at = |step: &Value, end: &str| shop.found(&format!("episodes/{}{end}", step["id"].as_str().unwrap()));
    assert_eq!(at(&low, ""), low);
    assert_eq!(rewards(&at(&last, "/path")), [0.0, 0.75, 0.5]);
    let children = at(&root, "/children");
    assert_eq!((rewards(&children), &children["total"]), (vec![0.25, 0.75], &2.into()));
    assert_eq!(rewards(&at(&root, "/children?limit=1&page=2")), [0.75]);
    assert_eq!(rewards(&at(&last, "/children")), [0.0; 0]);
    // The better one is not the last of its line.
    assert_eq!(at(&root, "/best")["id"], last["id"]);
    assert_eq!(at(&low, "/best")["id"], low["id"]);

    // What a removed snapshot led to is gone with it, for its owner.
    assert_eq!(shop.call("DELETE", &format!("snapshots/{start}")).send().status, 204);
    assert_eq!(rewards(&at(&last, "/path")), [0.75, 0.5]);
    let gone = shop.get(&format!("episodes/{}", root["id"].as_str().unwrap()));
    assert_eq!(gone.error(), "EPISODE_NOT_FOUND");
}

#[test]
fn steps_that_make_no_sense_are_refused() {
    let shop = Shop::new();
    let id = shop.made(&Archive::new().file("a", "b"));
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
        assert_eq!(shop.post("episodes", &body).error(), name, "{body}");
    }
    let huge = format!(r#"{{"snapshot":"{id}","action":"a","reward":1e999}}"#);
    assert_eq!(shop.call("POST", "episodes").json(&huge).send().error(), "INVALID_REQUEST");
    for end in ["", "/path", "/children", "/best"] {
        for wrong in [unknown, "x"] {
            assert_eq!(shop.get(&format!("episodes/{wrong}{end}")).error(), "EPISODE_NOT_FOUND");
        }
    }
    let step = shop.step(&json!({"snapshot": id, "action": "a", "reward": 1}));
    let children = format!("episodes/{}/children?limit=0", step["id"].as_str().unwrap());
    assert_eq!(shop.get(&children).error(), "INVALID_REQUEST");
}
