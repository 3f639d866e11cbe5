//! `.crdt.json` never conflicts, and everybody gets the same.

use workspace_merge::{Crdt, FileRule, Histories, Input, Strategies, Versions, merge_file};

use crate::git::Rng;

/// A version and what stands beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    content: Vec<u8>,
    history: Option<Vec<u8>>,
}

impl Version {
    fn plain(text: &str) -> Self {
        Self { content: text.as_bytes().to_vec(), history: None }
    }

    fn text(&self) -> String {
        String::from_utf8(self.content.clone()).unwrap()
    }
}

fn merge_by(rule: &FileRule, base: &Version, ours: &Version, theirs: &str) -> Version {
    let versions = Versions { base: Some(&base.content), ours: &ours.content, theirs: theirs.as_bytes() };
    let histories = Histories { base: base.history.as_deref(), ours: ours.history.as_deref() };
    let input = Input { histories, ..Input::new("tasks.crdt.json", versions) };
    let merged = merge_file(&Strategies::default(), rule, &input).unwrap();
    assert_eq!((merged.strategy, merged.conflict), (Some("crdt"), None));
    Version { content: merged.merged.content, history: merged.merged.history }
}

fn merge(base: &Version, ours: &Version, theirs: &str) -> Version {
    merge_by(&FileRule::default(), base, ours, theirs)
}

fn compact(version: &Version) -> String {
    version.text().split_whitespace().collect()
}

#[test]
fn what_both_did_is_there() {
    let base = Version::plain(r#"{"tasks": ["one"], "owner": "a", "done": 1}"#);
    let first = merge(&base, &base, r#"{"tasks": ["zero", "one"], "owner": "a", "done": 2}"#);
    let second = merge(&base, &first, r#"{"tasks": ["one", "two"], "done": 1, "more": {"x": 1.50}}"#);
    assert_eq!(compact(&second), r#"{"done":2,"more":{"x":1.50},"tasks":["zero","one","two"]}"#);
    // On from there, by somebody who has the last version as base.
    let third = merge(&second, &second, &second.text().replace("\"two\"", "\"TWO\""));
    let fourth = merge(&second, &third, &second.text().replace("\"zero\",", ""));
    assert_eq!(compact(&fourth), r#"{"done":2,"more":{"x":1.50},"tasks":["one","TWO"]}"#);
}

#[test]
fn counters_and_sets_are_joined_by_their_schema() {
    let schema = [("votes.*", Crdt::Counter), ("tags", Crdt::Set)];
    let schema = schema.map(|(path, kind)| (path.to_owned(), kind)).into_iter().collect();
    let rule = FileRule { schema, ..FileRule::default() };
    let base = Version::plain(r#"{"votes": {"a": 5}, "tags": ["x", "y"]}"#);
    let first = merge_by(&rule, &base, &base, r#"{"votes": {"a": 7}, "tags": ["y", "z"]}"#);
    let second = merge_by(&rule, &base, &first, r#"{"votes": {"a": 4}, "tags": ["z", "x", "y"]}"#);
    assert_eq!(compact(&second), r#"{"tags":["y","z"],"votes":{"a":6}}"#);
}

#[test]
fn numbers_and_strings_come_back_as_they_were_written() {
    let text = r#"{"a":1e999,"b":-0.0,"c":123456789012345678901234567890,"d":"\u0000\"\\/é😀\n","e":[],"f":{},"g":null,"h":[true,false]}"#;
    let base = Version::plain("{}");
    let merged = merge(&base, &base, text);
    let again = merge(&merged, &merged, text);
    assert_eq!(merged.content, again.content);
    let shown = compact(&merged);
    for part in [
        "\"a\":1e999",
        "\"b\":-0.0",
        "\"c\":123456789012345678901234567890",
        "\\\"\\\\/é😀\\n",
        "\"e\":[]",
        "\"g\":null",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[test]
fn both_may_add_the_file() {
    let versions = Versions { base: None, ours: br#"{"a":1}"#, theirs: br#"{"b":2}"# };
    let input = Input::new("new.crdt.json", versions);
    let merged = merge_file(&Strategies::default(), &FileRule::default(), &input).unwrap();
    assert_eq!(merged.merged.content, b"{\n  \"a\": 1,\n  \"b\": 2\n}\n");
}

#[test]
fn what_is_no_json_is_left_to_people() {
    let versions = Versions { base: Some(b"{}"), ours: b"{}", theirs: b"{" };
    let input = Input::new("new.crdt.json", versions);
    let merged = merge_file(&Strategies::default(), &FileRule::default(), &input).unwrap();
    assert!(merged.conflict.unwrap().reason.contains("theirs is no JSON"));
}

#[test]
fn a_history_that_is_not_of_its_version_does_no_harm() {
    let base = Version::plain(r#"{"a": 1}"#);
    let first = merge(&base, &base, r#"{"a": 1, "b": 2}"#);
    for history in [Some(b"rubbish".to_vec()), first.history.clone(), None] {
        let base = Version { history: history.clone(), ..base.clone() };
        for ours in [Some(b"rubbish".to_vec()), None, first.history.clone()] {
            let ours = Version { history: ours, ..first.clone() };
            let merged = merge(&base, &ours, r#"{"a": 3}"#);
            assert_eq!(compact(&merged), r#"{"a":3,"b":2}"#, "{history:?}");
        }
    }
}

fn random(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 3 } else { 5 }) {
        0 => rng.below(4).to_string(),
        1 => format!("\"{}\"", ["a", "b", "c"][rng.below(3)]),
        2 => "null".to_owned(),
        3 => {
            let all: Vec<_> = (0..rng.below(4)).map(|_| random(rng, depth - 1)).collect();
            format!("[{}]", all.join(","))
        }
        _ => object(rng, depth),
    }
}

fn object(rng: &mut Rng, depth: usize) -> String {
    let keys = ["p", "q", "r", "s"];
    let taken: Vec<_> = keys.iter().filter(|_| rng.below(3) > 0).collect();
    let all: Vec<_> = taken.into_iter().map(|key| format!("\"{key}\":{}", random(rng, depth - 1))).collect();
    format!("{{{}}}", all.join(","))
}

#[test]
fn every_order_gives_the_same() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let base = Version::plain(&object(&mut rng, 3));
        let agents: Vec<String> = (0..3).map(|_| object(&mut rng, 3)).collect();
        let results: Vec<String> = orders
            .iter()
            .map(|order| {
                let mut head = base.clone();
                for agent in order {
                    head = merge(&base, &head, &agents[*agent]);
                }
                head.text()
            })
            .collect();
        assert!(
            results.windows(2).all(|pair| pair[0] == pair[1]),
            "{seed}: {} {agents:?} {results:?}",
            base.text()
        );
    }
}
