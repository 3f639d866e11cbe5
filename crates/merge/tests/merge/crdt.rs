//! Merges of `.crdt.json` files: concurrent changes never conflict, and the result does not depend on the order in
//! which sides are merged. The history of a version is the state that the CRDT stores with it.

use workspace_merge::{CrdtType, FileSettings, Histories, Input, Strategies, Versions, merge_file};

use crate::git::Rng;

/// Content of a version with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    content: Vec<u8>,
    history: Option<Vec<u8>>,
}

impl Version {
    /// Creates a version without a history.
    fn plain(text: &str) -> Self {
        Self { content: text.as_bytes().to_vec(), history: None }
    }

    fn text(&self) -> String {
        String::from_utf8(self.content.clone()).unwrap()
    }
}

/// Merges their version into ours, and returns the result with its new history. Fails on a conflict.
fn merge_by(settings: &FileSettings, base: &Version, ours: &Version, theirs: &str) -> Version {
    let versions = Versions { base: Some(&base.content), ours: &ours.content, theirs: theirs.as_bytes() };
    let histories = Histories { base: base.history.as_deref(), ours: ours.history.as_deref() };
    let input = Input { histories, ..Input::new("tasks.crdt.json", versions) };
    let merged = merge_file(&Strategies::default(), settings, &input).unwrap();
    assert_eq!((merged.strategy, merged.conflict), (Some("crdt"), None));
    Version { content: merged.merged.content, history: merged.merged.history }
}

/// Merges with the default settings.
fn merge(base: &Version, ours: &Version, theirs: &str) -> Version {
    merge_by(&FileSettings::default(), base, ours, theirs)
}

/// Returns the content without whitespace.
fn compact(version: &Version) -> String {
    version.text().split_whitespace().collect()
}

#[test]
fn changes_of_both_sides_are_merged() {
    let base = Version::plain(r#"{"tasks": ["one"], "owner": "a", "done": 1}"#);
    let first = merge(&base, &base, r#"{"tasks": ["zero", "one"], "owner": "a", "done": 2}"#);
    let second = merge(&base, &first, r#"{"tasks": ["one", "two"], "done": 1, "more": {"x": 1.50}}"#);
    assert_eq!(compact(&second), r#"{"done":2,"more":{"x":1.50},"tasks":["zero","one","two"]}"#);
    // The next merge has the last version as its base.
    let third = merge(&second, &second, &second.text().replace("\"two\"", "\"TWO\""));
    let fourth = merge(&second, &third, &second.text().replace("\"zero\",", ""));
    assert_eq!(compact(&fourth), r#"{"done":2,"more":{"x":1.50},"tasks":["one","TWO"]}"#);
}

#[test]
fn schema_selects_counters_and_sets() {
    let schema = [("votes.*", CrdtType::Counter), ("tags", CrdtType::Set)];
    let schema = schema.map(|(path, kind)| (path.to_owned(), kind)).into_iter().collect();
    let settings = FileSettings { schema, ..FileSettings::default() };
    let base = Version::plain(r#"{"votes": {"a": 5}, "tags": ["x", "y"]}"#);
    let first = merge_by(&settings, &base, &base, r#"{"votes": {"a": 7}, "tags": ["y", "z"]}"#);
    let second = merge_by(&settings, &base, &first, r#"{"votes": {"a": 4}, "tags": ["z", "x", "y"]}"#);
    assert_eq!(compact(&second), r#"{"tags":["y","z"],"votes":{"a":6}}"#);
}

/// Returns settings with CRDT types by path.
fn settings_of(schema: &[(&str, CrdtType)]) -> FileSettings {
    let schema = schema.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect();
    FileSettings { schema, ..FileSettings::default() }
}

/// Merges sides one after another onto the base, each with the history of the previous merge.
fn merge_all(settings: &FileSettings, base: &str, sides: &[&str]) -> String {
    let base = Version::plain(base);
    let merged = sides.iter().fold(base.clone(), |head, side| merge_by(settings, &base, &head, side));
    compact(&merged)
}

#[test]
fn equal_increments_of_a_counter_add_up() {
    let settings = settings_of(&[
        ("n", CrdtType::Counter),
        ("votes.*", CrdtType::Counter),
        ("items.*.n", CrdtType::Counter),
    ]);
    let merge = |base: &str, sides: &[&str]| merge_all(&settings, base, sides);
    assert_eq!(merge(r#"{"n":5}"#, &[r#"{"n":6}"#, r#"{"n":6}"#]), r#"{"n":7}"#);
    assert_eq!(merge(r#"{"n":0}"#, &[r#"{"n":1}"#; 3]), r#"{"n":3}"#);
    assert_eq!(merge(r#"{"n":9}"#, &[r#"{"n":4}"#, r#"{"n":4}"#, r#"{"n":10}"#]), r#"{"n":0}"#);
    // Without stored histories.
    let [base, side] = [r#"{"n":5}"#, r#"{"n":6}"#].map(Version::plain);
    assert_eq!(compact(&merge_by(&settings, &base, &side, &side.text())), r#"{"n":7}"#);
    // Equal changes of other values count once.
    let base = r#"{"votes":{"a":1},"list":[1]}"#;
    let side = r#"{"votes":{"a":3},"list":[1,2],"x":"y"}"#;
    assert_eq!(merge(base, &[side; 2]), r#"{"list":[1,2],"votes":{"a":5},"x":"y"}"#);
    // Counters in array elements belong to their elements, also after another element was inserted before them.
    let base = r#"{"items":[{"id":1,"n":1},{"id":2,"n":1}]}"#;
    let one = r#"{"items":[{"id":0,"n":7},{"id":1,"n":2},{"id":2,"n":1}]}"#;
    let other = r#"{"items":[{"id":1,"n":2},{"id":2,"n":4}]}"#;
    let expected = r#"{"items":[{"id":0,"n":7},{"id":1,"n":3},{"id":2,"n":4}]}"#;
    assert_eq!(merge(base, &[one, other]), expected);
}

#[test]
fn counters_created_by_both_sides_are_summed() {
    let settings = settings_of(&[("n", CrdtType::Counter), ("votes.*", CrdtType::Counter)]);
    let merge = |base: &str, sides: &[&str]| merge_all(&settings, base, sides);
    assert_eq!(merge("{}", &[r#"{"n":1}"#, r#"{"n":2}"#]), r#"{"n":3}"#);
    assert_eq!(merge("{}", &[r#"{"n":1}"#; 3]), r#"{"n":3}"#);
    assert_eq!(merge("{}", &[r#"{"votes":{"a":1}}"#, r#"{"votes":{"a":2}}"#]), r#"{"votes":{"a":3}}"#);
    assert_eq!(merge(r#"{"n":5}"#, &["{}", r#"{"n":6}"#]), "{}");
    // A counter that was removed and created again starts at 0.
    let base = Version::plain(r#"{"n":5}"#);
    let removed = merge_by(&settings, &base, &base, "{}");
    let first = merge_by(&settings, &removed, &removed, r#"{"n":1}"#);
    assert_eq!(compact(&merge_by(&settings, &removed, &first, r#"{"n":2}"#)), r#"{"n":3}"#);
}

#[test]
fn a_change_by_one_side_is_the_result_even_if_it_replaces_elements_with_counters() {
    let settings = settings_of(&[("items.*.n", CrdtType::Counter), ("items.*.deep.*.n", CrdtType::Counter)]);
    let with_counter = r#"{"items":[{"n":5}]}"#;
    for base in [r#"{"items":["todo"]}"#, r#"{"items":[[1]]}"#, r#"{"items":["x","y"]}"#, "{}"] {
        assert_eq!(merge_all(&settings, base, &[with_counter]), with_counter, "{base}");
    }
    let deep = r#"{"items":[{"deep":[{"n":1},{"n":2}],"n":5}]}"#;
    assert_eq!(merge_all(&settings, r#"{"items":["todo"]}"#, &[deep]), deep);
    let settings = settings_of(&[
        ("p.*", CrdtType::Counter),
        ("q.*.*", CrdtType::Counter),
        ("r.*.*.*", CrdtType::Counter),
        ("s.*.*", CrdtType::Set),
    ]);
    for seed in 2000..2400 {
        let mut rng = Rng(seed);
        let (base, side) = (object(&mut rng, 4), object(&mut rng, 4));
        // The side in canonical format.
        let expected = merge_all(&settings, &side, &[&side]);
        assert_eq!(merge_all(&settings, &base, &[&side]), expected, "{seed}: {base} {side}");
    }
}

#[test]
fn counters_do_not_overflow() {
    let settings = settings_of(&[("n", CrdtType::Counter)]);
    let (max, min) = (i64::MAX, i64::MIN);
    let document = |number: i128| format!(r#"{{"n":{number}}}"#);
    let sides = [document(max.into()), document(max.into())];
    let sides = [sides[0].as_str(), &sides[1]];
    assert_eq!(merge_all(&settings, &document(0), &sides), document(2 * i128::from(max)));
    let sum = 2 * i128::from(max) - i128::from(min);
    assert_eq!(merge_all(&settings, &document(min.into()), &sides), document(sum));
    // A counter over the range of 64 bits can still be incremented.
    let incremented = document(2 * i128::from(max) + 1);
    assert_eq!(
        merge_all(&settings, &document(2 * i128::from(max)), &[incremented.as_str(); 2]),
        document(2 * i128::from(max) + 2)
    );
}

#[test]
fn documents_over_the_value_limit_conflict() {
    let large = format!("[{}1]", "1,".repeat(500_000));
    let versions = Versions { base: Some(b"[]"), ours: b"[2]", theirs: large.as_bytes() };
    let input = Input::new("new.crdt.json", versions);
    let merged = merge_file(&Strategies::default(), &FileSettings::default(), &input).unwrap();
    assert!(merged.conflict.unwrap().reason.contains("theirs has more than 500000 values"));
    assert_eq!(merged.merged.content, b"[2]");
    let versions = Versions { ours: b"[]", ..versions };
    let input = Input::new("new.crdt.json", versions);
    let merged = merge_file(&Strategies::default(), &FileSettings::default(), &input).unwrap();
    assert_eq!((merged.conflict, merged.merged.content), (None, large.into_bytes()));
}

#[test]
fn large_documents_are_merged() {
    let count = 40_000;
    // The values whose index modulo 1,000 is `changed` are changed; none for 1,000.
    let member = |index: usize, changed: usize| {
        format!("\"k{index}\":{}", if index % 1_000 == changed { index + count } else { index })
    };
    let element = |index: usize, changed: usize| {
        format!("{{\"at\":{}}}", if index % 1_000 == changed { index + count } else { index })
    };
    let text = |changed: usize, more: &str| {
        let members: Vec<_> = (0..count).map(|index| member(index, changed)).collect();
        let elements: Vec<_> = (0..count / 4).map(|index| element(index, changed)).collect();
        format!("{{\"map\":{{{}}},\"list\":[{}{more}]}}", members.join(","), elements.join(","))
    };
    let base = Version::plain(&text(1_000, ""));
    let ours = Version::plain(&text(3, ",{\"by\":\"ours\"}"));
    let merged = merge(&base, &ours, &text(7, ""));
    let merged: serde_json::Value = serde_json::from_str(&merged.text()).unwrap();
    let expected =
        |index: usize| if index % 1_000 == 3 || index % 1_000 == 7 { index + count } else { index };
    for index in 0..count {
        assert_eq!(merged["map"][format!("k{index}")], expected(index));
    }
    let list = merged["list"].as_array().unwrap();
    assert_eq!(list.len(), count / 4 + 1);
    assert!(list.iter().take(count / 4).enumerate().all(|(index, element)| element["at"] == expected(index)));
    assert_eq!(list[count / 4]["by"], "ours");
}

#[test]
fn counters_and_sets_do_not_depend_on_merge_order() {
    let settings = settings_of(&[
        ("p", CrdtType::Counter),
        ("q.*", CrdtType::Counter),
        ("r.*.*", CrdtType::Counter),
        ("s", CrdtType::Set),
    ]);
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for seed in 1000..1060 {
        let mut rng = Rng(seed);
        let base = object(&mut rng, 3);
        let mut sides: Vec<String> = (0..3).map(|_| object(&mut rng, 3)).collect();
        if seed % 3 == 0 {
            sides[2] = sides[0].clone();
        }
        let results =
            orders.map(|order| merge_all(&settings, &base, &order.map(|index| sides[index].as_str())));
        for result in &results {
            assert_eq!(*result, results[0], "{seed}: {base} {sides:?}");
        }
    }
}

#[test]
fn numbers_and_strings_round_trip() {
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
fn files_added_by_both_sides_are_merged() {
    let versions = Versions { base: None, ours: br#"{"a":1}"#, theirs: br#"{"b":2}"# };
    let input = Input::new("new.crdt.json", versions);
    let merged = merge_file(&Strategies::default(), &FileSettings::default(), &input).unwrap();
    assert_eq!(merged.merged.content, b"{\n  \"a\": 1,\n  \"b\": 2\n}\n");
}

#[test]
fn invalid_json_conflicts() {
    let versions = Versions { base: Some(b"{}"), ours: b"{}", theirs: b"{" };
    let input = Input::new("new.crdt.json", versions);
    let merged = merge_file(&Strategies::default(), &FileSettings::default(), &input).unwrap();
    assert!(merged.conflict.unwrap().reason.contains("theirs is not valid JSON"));
}

#[test]
fn mismatched_history_is_ignored() {
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

/// Returns a random JSON value with at most `depth` levels of arrays and objects.
fn random(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 3 } else { 5 }) {
        0 => rng.below(4).to_string(),
        1 => format!("\"{}\"", ["a", "b", "c"][rng.below(3)]),
        2 => "null".to_owned(),
        3 => {
            let elements: Vec<_> = (0..rng.below(4)).map(|_| random(rng, depth - 1)).collect();
            format!("[{}]", elements.join(","))
        }
        _ => object(rng, depth),
    }
}

/// Returns a random JSON object with at most `depth` levels.
fn object(rng: &mut Rng, depth: usize) -> String {
    let keys = ["p", "q", "r", "s"];
    let keys: Vec<_> = keys.iter().filter(|_| rng.below(3) > 0).collect();
    let members: Vec<_> =
        keys.into_iter().map(|key| format!("\"{key}\":{}", random(rng, depth - 1))).collect();
    format!("{{{}}}", members.join(","))
}

#[test]
fn result_does_not_depend_on_merge_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let base = Version::plain(&object(&mut rng, 3));
        let sides: Vec<String> = (0..3).map(|_| object(&mut rng, 3)).collect();
        let results: Vec<String> = orders
            .iter()
            .map(|order| {
                let mut head = base.clone();
                for index in order {
                    head = merge(&base, &head, &sides[*index]);
                }
                head.text()
            })
            .collect();
        assert!(
            results.windows(2).all(|pair| pair[0] == pair[1]),
            "{seed}: {} {sides:?} {results:?}",
            base.text()
        );
    }
}
