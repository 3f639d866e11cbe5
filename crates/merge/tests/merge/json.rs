//! Merges of JSON files, value by value.

use workspace_merge::{ConflictLocation, FileMerge, FileSettings, OnConflict};

use crate::documents::{clean, conflicts, merged, merged_by};

/// Merges JSON, and fails on a conflict.
fn json(base: &str, ours: &str, theirs: &str) -> String {
    clean("a.json", Some(base), ours, theirs)
}

/// Merges JSON, and returns the paths of the conflicting values.
fn paths(base: &str, ours: &str, theirs: &str) -> Vec<String> {
    conflicts("a.json", Some(base), ours, theirs)
}

#[test]
fn two_fields_on_one_line_are_merged() {
    let base = r#"{"count":1,"name":"old"}"#;
    let (ours, theirs) = (r#"{"count":2,"name":"old"}"#, r#"{"count":1,"name":"new"}"#);
    assert_eq!(json(base, ours, theirs), r#"{"count":2,"name":"new"}"#);
    let theirs = r#"{"count":3,"name":"new"}"#;
    let merged = merged("a.json", Some(base), ours, theirs);
    assert_eq!(merged.strategy, Some("json"));
    let conflict = merged.conflict.unwrap();
    let ConflictLocation::Value(value) = &conflict.locations[0] else { panic!("{conflict:?}") };
    assert_eq!(value.path, "count");
    assert_eq!(
        [&value.base, &value.ours, &value.theirs].map(|text| text.as_deref().unwrap()),
        ["1", "2", "3"]
    );
    assert_eq!((conflict.strategy, conflict.locations.len()), ("json", 1));
    assert_eq!(merged.merged.content, ours.as_bytes(), "ours is kept until the conflict is resolved");
}

#[test]
fn conflict_rules_keep_other_changes_of_both_sides() {
    let base = "{\n  \"a\": 1, \"b\": 1, \"c\": 1 // c\n}\n";
    let ours = "{\n  \"a\": 2, \"b\": 2, \"c\": 1 // c\n}\n";
    let theirs = "{\n  \"a\": 3, \"b\": 1, \"c\": 3 // c\n}\n";
    let merge_by = |on_conflict| {
        let settings = FileSettings { on_conflict, ..FileSettings::default() };
        let FileMerge { merged, conflict, .. } = merged_by(&settings, "a.json", Some(base), ours, theirs);
        assert_eq!(conflict.unwrap().locations.len(), 1);
        String::from_utf8(merged.content).unwrap()
    };
    assert_eq!(merge_by(OnConflict::Ours), "{\n  \"a\": 2, \"b\": 2, \"c\": 3 // c\n}\n");
    assert_eq!(merge_by(OnConflict::Theirs), "{\n  \"a\": 3, \"b\": 2, \"c\": 3 // c\n}\n");
    assert_eq!(merge_by(OnConflict::Review), ours);
}

#[test]
fn line_merge_with_the_same_value_is_preferred() {
    // Writing the merged values into our text would lose the spaces before the 2.
    let base = "{\n\"a\": 1,\n\n\n\"b\":  1\n}\n";
    let (ours, theirs) = ("{\n\"a\": 2,\n\n\n\"b\":  1\n}\n", "{\n\"a\": 1,\n\n\n\"b\":      2\n}\n");
    assert_eq!(json(base, ours, theirs), "{\n\"a\": 2,\n\n\n\"b\":      2\n}\n");
}

#[test]
fn line_merge_that_is_invalid_json_is_rejected() {
    // Both sides add a member: a merge of lines would duplicate a key or miss a comma.
    let base = "{\n  \"a\": 1,\n  \"m\": [\n    1\n  ],\n  \"z\": 1\n}\n";
    let ours = "{\n  \"new\": 1,\n  \"a\": 1,\n  \"m\": [\n    1\n  ],\n  \"z\": 1\n}\n";
    let theirs = "{\n  \"a\": 1,\n  \"m\": [\n    1\n  ],\n  \"z\": 1,\n  \"new\": 1\n}\n";
    assert_eq!(json(base, ours, theirs), ours);
}

#[test]
fn both_sides_append_members() {
    let base = "{\n  \"a\": 1\n}\n";
    let ours = "{\n  \"a\": 1,\n  \"b\": 2\n}\n";
    let theirs = "{\n  \"a\": 1,\n  \"c\": {\n    \"d\": 3\n  }\n}\n";
    assert_eq!(json(base, ours, theirs), "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": {\n    \"d\": 3\n  }\n}\n");
    assert_eq!(json("{}", "{\"a\":1}", "{\"b\":1}"), "{\"a\":1,\"b\":1}");
    assert_eq!(json("{\"z\": 1}", "{}", "{\"z\": 1, \"b\": 1}"), "{\"b\": 1}");
}

#[test]
fn members_are_removed_and_changed() {
    let base = r#"{"a": 1, "b": 2, "c": 3}"#;
    assert_eq!(json(base, r#"{"b": 2, "c": 3}"#, r#"{"a": 1, "b": 2}"#), r#"{"b": 2}"#);
    assert_eq!(json(base, r#"{"b": 2, "c": 3}"#, r#"{"a": 1, "c": 3}"#), r#"{"c": 3}"#);
    assert_eq!(json(base, r#"{"c": 3, "b": 2}"#, r#"{"a": 1, "b": 2, "c": 4}"#), r#"{"c": 4, "b": 2}"#);
    assert_eq!(json("[{\"a\": 1}, 2, 3]", "[{}, 2, 3]", "[{\"a\": 1}, 2, 4]"), "[{}, 2, 4]");
    assert_eq!(paths(base, r#"{"a": 1, "b": 2}"#, r#"{"a": 1, "b": 2, "c": 4}"#), ["c"]);
    assert_eq!(paths(base, r#"{"a": 1, "b": 2, "c": {}}"#, r#"{"a": 1, "b": 2, "c": []}"#), ["c"]);
}

#[test]
fn members_added_by_both_are_merged_or_conflict() {
    assert_eq!(json("{}", r#"{"a": {"b": 1}}"#, r#"{"a": {"c": 1}}"#), r#"{"a": {"b": 1, "c": 1}}"#);
    assert_eq!(paths("{}", r#"{"a": {"b": 1}}"#, r#"{"a": {"b": 2}}"#), ["a.b"]);
    assert_eq!(paths("{}", r#"{"a.b": [1]}"#, r#"{"a.b": [2]}"#), [r#""a.b""#]);
    assert_eq!(clean("a.json", None, r#"{"a": 1}"#, r#"{"b": 2}"#), r#"{"a": 1, "b": 2}"#);
    assert_eq!(conflicts("a.json", None, "1", "2"), [""]);
}

#[test]
fn numbers_are_compared_as_written() {
    assert_eq!(paths("[1]", "[1.0]", "[1.00]"), [""]);
    assert_eq!(paths(r#"{"a": 1}"#, r#"{"a": 1.0}"#, r#"{"a": 1e0}"#), ["a"]);
    let long = "9".repeat(400);
    let ours = format!("{{\"a\": {long}, \"b\": 0}}");
    assert_eq!(
        json(r#"{"a": 1, "b": 0}"#, &ours, r#"{"a": 1, "b": 1e999}"#),
        format!("{{\"a\": {long}, \"b\": 1e999}}")
    );
}

#[test]
fn named_elements_are_merged_by_name() {
    let base = r#"[{"id": 1, "a": 1}, {"id": 2, "a": 1}]"#;
    let ours = r#"[{"id": 1, "a": 1}, {"id": 2, "a": 2}, {"id": 3}]"#;
    let theirs = r#"[{"id": 0}, {"id": 2, "a": 1, "b": 1}]"#;
    assert_eq!(json(base, ours, theirs), r#"[{"id": 0}, {"id": 2, "a": 2, "b": 1}, {"id": 3}]"#);
    assert_eq!(
        paths(base, r#"[{"id": 1, "a": 2}, {"id": 2, "a": 2}]"#, r#"[{"id": 2, "a": 3}]"#),
        ["[id=1]", "[id=2].a"]
    );
    let base = r#"{"x": {"y": [{"name": "a b", "v": 1}]}}"#;
    let with_value = |value: &str| base.replace("1", value);
    assert_eq!(paths(base, &with_value("2"), &with_value("3")), [r#"x.y[name="a b"].v"#]);
}

#[test]
fn rules_set_the_key_fields() {
    let base = r#"[{"slug": "a", "id": 1, "n": 1, "m": 1}]"#;
    let ours = r#"[{"slug": "a", "id": 2, "n": 2, "m": 1}]"#;
    let theirs = r#"[{"slug": "a", "id": 1, "n": 1, "m": 2}]"#;
    let settings = FileSettings { keys: vec!["slug".to_owned()], ..FileSettings::default() };
    let merged = merged_by(&settings, "a.json", Some(base), ours, theirs);
    assert_eq!(merged.merged.content, br#"[{"slug": "a", "id": 2, "n": 2, "m": 2}]"#);
    assert_eq!(
        paths(base, ours, theirs),
        ["[id=1]"],
        "matched by `id`, the element was removed by one side and changed by the other"
    );
}

#[test]
fn reordering_of_named_elements_is_kept() {
    let array = |names: &[(&str, u8)]| {
        let elements: Vec<String> =
            names.iter().map(|(name, value)| format!("{{\"name\": \"{name}\", \"v\": {value}}}")).collect();
        format!("[{}]", elements.join(", "))
    };
    let base = array(&[("a", 1), ("b", 1), ("c", 1)]);
    let changed = array(&[("a", 1), ("b", 2), ("c", 1)]);
    let moved = array(&[("c", 1), ("b", 1), ("a", 1)]);
    let both = array(&[("c", 1), ("b", 2), ("a", 1)]);
    assert_eq!(json(&base, &changed, &moved), both);
    assert_eq!(json(&base, &moved, &changed), both);
    assert_eq!(paths(&base, &moved, &array(&[("b", 1), ("a", 1), ("c", 1)])), [""]);
}

#[test]
fn unnamed_elements_are_merged_as_a_sequence() {
    assert_eq!(json("[1, 2, 3, 4]", "[0, 1, 2, 3, 4]", "[1, 2, 3]"), "[0, 1, 2, 3]");
    assert_eq!(json("[1, 2, 3]", "[1, 3]", "[1, 2, 3, 4]"), "[1, 3, 4]");
    assert_eq!(json("[1, 2, 3]", "[1, 2, 3, 4]", "[0, 1, 2, 3, 4]"), "[0, 1, 2, 3, 4]");
    assert_eq!(paths(r#"{"a": [1]}"#, r#"{"a": [1, 2]}"#, r#"{"a": [1, 3]}"#), ["a"]);
    // Elements with a duplicate name are not matched by name.
    let twice = r#"[{"id": 1}, {"id": 1}, {"id": 2}]"#;
    assert_eq!(
        json(twice, r#"[{"id": 1}, {"id": 1}, {"id": 2}, {"id": 3}]"#, r#"[{"id": 1}, {"id": 2}]"#),
        r#"[{"id": 1}, {"id": 2}, {"id": 3}]"#
    );
}

#[test]
fn adjacent_elements_do_not_conflict() {
    assert_eq!(json("[1, 2, 3]", "[10, 2, 3]", "[1, 20, 3]"), "[10, 20, 3]");
    assert_eq!(json("[1, 2, 3]", "[10, 2, 30]", "[1, 20, 3]"), "[10, 20, 30]");
    assert_eq!(paths("[1, 2, 3]", "[10, 2, 3]", "[11, 20, 3]"), [""]);
    assert_eq!(paths("[1, 2, 3]", "[2, 4, 3]", "[1, 5, 3]"), [""]);
}

#[test]
fn edits_within_elements_merge_like_git() {
    // Both sides changed the same unnamed element, on lines that are not adjacent.
    let array = |a: u8, z: u8, first: &str| {
        format!("[\n{first}  {{\n    \"a\": {a},\n    \"m\": [\n      0\n    ],\n    \"z\": {z}\n  }}\n]\n")
    };
    assert_eq!(json(&array(1, 1, ""), &array(2, 1, ""), &array(1, 2, "")), array(2, 2, ""));
    let new = "  {\n    \"new\": 1\n  },\n";
    assert_eq!(json(&array(1, 1, ""), &array(1, 1, new), &array(1, 2, "")), array(1, 2, new));
    let with_key = |text: &str, key: u8| format!("{{\n\"l\":\n{text},\n\n\n\"k\": {key}\n}}\n");
    let (base, ours, theirs) = (array(1, 1, ""), array(2, 1, ""), array(1, 2, ""));
    assert_eq!(paths(&with_key(&base, 1), &with_key(&ours, 2), &with_key(&theirs, 3)), ["l", "k"]);
}

#[test]
fn comments_indentation_and_line_endings_are_kept() {
    let base = "\u{feff}// head\r\n{\r\n\t/* a */ \"a\": 1, // one\r\n\t// about b\r\n\t\"b\": [ 1,2 ],\r\n}";
    let ours = base.replace("\"a\": 1", "\"a\": 10").replace("\"b\": [ 1,2 ]", "\"b\": [ 1,2 ], \"o\": true");
    let theirs = "{\n  \"a\": 1,\n  \"b\": [1, 2, 3],\n  // new\n  \"t\": [\n    1\n  ] // t\n}\n";
    let merged = clean("a.jsonc", Some(base), &ours, theirs);
    let expected = "\u{feff}// head
{
	/* a */ \"a\": 10, // one
	// about b
	\"b\": [ 1,2,3 ], \"o\": true,
	// new
	\"t\": [
	  1
	], // t
}";
    assert_eq!(merged, expected.replace('\n', "\r\n"));
}

#[test]
fn losing_a_comment_is_a_conflict() {
    // Our side removes a value to which their side added a comment.
    let base = "{\n  \"a\": 1,\n  \"b\": 2\n}\n";
    let ours = "{\n  \"a\": 1\n}\n";
    let theirs = "{\n  \"a\": 1,\n  // do not remove\n  \"b\": 2\n}\n";
    let merged = merged("a.jsonc", Some(base), ours, theirs);
    assert_eq!(merged.conflict.unwrap().strategy, "text");
}

#[test]
fn comments_of_both_sides_are_kept() {
    let base = "{\n  \"a\": 1\n}\n";
    let commented = "{\n  // one\n  \"a\": 1 // two\n}\n";
    let changed = "{\n  \"a\": 2\n}\n";
    for (ours, theirs) in [(commented, changed), (changed, commented)] {
        assert_eq!(clean("a.jsonc", Some(base), ours, theirs), "{\n  // one\n  \"a\": 2 // two\n}\n");
    }
}

#[test]
fn json_with_lone_carriage_returns_is_merged_as_text() {
    let [base, ours, theirs] =
        ["{\"a\": 1, // x\r\"b\": 1}", "{\"a\": 2, // x\r\"b\": 1}", "{\"a\": 1, // x\r\"b\": 2}"];
    let merge = merged("a.json", Some(base), ours, theirs);
    assert_eq!(merge.conflict.map(|conflict| conflict.strategy), Some("text"));
}
