//! Merges of YAML files: value by value if all syntax in them is supported, or else as text.

use crate::documents::{clean, conflicts, merged};

/// Merges YAML, and fails on a conflict.
fn yaml(base: &str, ours: &str, theirs: &str) -> String {
    clean("a.yaml", Some(base), ours, theirs)
}

const BASE: &str = "\
# head
name: app   # the name
on: [push]
services:
  # the first
  - name: web
    ports: [80, 443]
    env: {A: 1, B: 'two'}
  - name: db
    image: \"pg\"   # newest
text: |
  one
   two

# about the end
end: ~
# last
";

#[test]
fn adjacent_changes_are_merged_without_reformatting() {
    let ours = BASE.replace("app ", "ours ").replace("A: 1", "A: 2").replace("\"pg\"", "\"pg:16\"");
    let theirs = BASE
        .replace("[push]", "[push, pull]")
        .replace("'two'", "'2'")
        .replace("    image", "    restart: always\n    image")
        .replace("end: ~", "end: 1\nmore:\n  deep:\n    - 1 # one");
    let expected = BASE
        .replace("app ", "ours ")
        .replace("A: 1", "A: 2")
        .replace("\"pg\"", "\"pg:16\"")
        .replace("[push]", "[push, pull]")
        .replace("'two'", "'2'")
        .replace("    image", "    restart: always\n    image")
        .replace("end: ~", "end: 1\nmore:\n  deep:\n    - 1 # one");
    assert_eq!(yaml(BASE, &ours, &theirs), expected);
}

#[test]
fn value_changed_by_both_conflicts() {
    let (ours, theirs) = (BASE.replace("\"pg\"", "a"), BASE.replace("\"pg\"", "b"));
    assert_eq!(conflicts("a.yml", Some(BASE), &ours, &theirs), ["services[name=db].image"]);
    assert_eq!(conflicts("a.yml", Some("a: 1\n"), "a: 1.0\n", "a: 1.00\n"), ["a"]);
    assert_eq!(conflicts("a.yml", Some("a: 1\nb: 1\n"), "a: 1\n", "a: 1\nb: 2\n"), ["b"]);
}

#[test]
fn blocks_are_inserted_and_removed() {
    let base = "a:\n  b: 1\n  c: 2\nd:\n  - 1\n  - 2\n";
    assert_eq!(
        yaml(
            base,
            "a:\n  b: 2\n  c: 2\nd:\n  - 1\n  - 2\n",
            "a:\n  c: 2\nd:\n  - 1\n  - 2\n".replace("c: 2", "b: 1\n  c:\n    x: 1").as_str()
        ),
        "a:\n  b: 2\n  c:\n    x: 1\nd:\n  - 1\n  - 2\n"
    );
    assert_eq!(yaml("a: 1\nb: 2\nc: 3\n", "b: 2\nc: 3\n", "a: 1\nb: 2\n"), "b: 2\n");
    assert_eq!(yaml("a:\n  b: 1\nc: 1\n", "a: {}\nc: 1\n", "a:\n  b: 1\nc: 2\n"), "a: {}\nc: 2\n");
    assert_eq!(yaml("- 1\n- 2\n- 3\n", "- 0\n- 1\n- 2\n- 3\n", "- 1\n- 2\n"), "- 0\n- 1\n- 2\n");
    // One side replaces a value by a block, next to a value that the other side changed.
    assert_eq!(yaml("a: 1\nb: 1\n", "a: 2\nb: 1\n", "a: 1\nb:\n- x\n- y\n"), "a: 2\nb:\n- x\n- y\n");
    assert_eq!(yaml("a:\nb: 1\n", "a:\nb: 2\n", "a: 3\nb: 1\n"), "a: 3\nb: 2\n");
    assert_eq!(yaml("a: 3\nb: 1\n", "a: 3\nb: 2\n", "a:\nb: 1\n"), "a:\nb: 2\n");
}

#[test]
fn inserted_blocks_are_reindented() {
    let base = "a:\n    b: 1\n    c: 1\n";
    let ours = "a:\n    b: 2\n    c: 1\n";
    let theirs = "a:\n  b: 1\n  c: 1\n  d:\n    - |\n      text\n       more\n    - x\n";
    assert_eq!(
        yaml(base, ours, theirs),
        "a:\n    b: 2\n    c: 1\n    d:\n      - |\n        text\n         more\n      - x\n"
    );
}

#[test]
fn multi_line_scalars_are_merged_as_a_whole() {
    let base = "a: 1\nt: |\n  one\nb: 1\n";
    let theirs = "a: 1\nt: |\n  one\n  two\nb: 1\n";
    assert_eq!(yaml(base, "a: 2\nt: |\n  one\nb: 2\n", theirs), "a: 2\nt: |\n  one\n  two\nb: 2\n");
    assert_eq!(
        yaml("a: \"x\n  y\"\nb: 1\n", "a: \"x\n  y\"\nb: 2\n", "a: \"x\n  z\"\nb: 1\n"),
        "a: \"x\n  z\"\nb: 2\n"
    );
}

#[test]
fn line_endings_and_byte_order_marks_are_kept() {
    let base = "\u{feff}---\r\na: é\r\nb: 1";
    assert_eq!(
        yaml(base, "\u{feff}---\r\na: ü\r\nb: 1", "\u{feff}---\r\na: é\r\nb: 2"),
        "\u{feff}---\r\na: ü\r\nb: 2"
    );
}

#[test]
fn unsupported_syntax_is_merged_as_text() {
    for base in [
        "a: &x 1\nb: *x\n",
        "a: &x {c: 1}\nb:\n  <<: *x\n",
        "a: 1\nb:\n  <<: {c: 1}\n",
        "a: !!str 1\nb: 1\n",
        "a: 1\n---\nb: 1\n",
        "%YAML 1.2\n---\na: 1\nb: 1\n",
        "? a\n: 1\nb: 1\n",
        "{a: 1}: 1\nb: 1\n",
        "a: 1\na: 1\nb: 1\n",
        "1: 1\n\"1\": 1\nb: 1\n",
        "a: [x: 1]\nb: 1\n",
        "a: {x}\nb: 1\n",
        "a: [1\nb: 1\n",
        "a: \"1\nb: 1\n",
        "a: \u{1}\nb: 1\n",
    ] {
        let theirs = base.replace("b: 1", "b: 2").replace("b: *x", "b: 2").replace("c: 1", "c: 2");
        let ours = base.replace("b: 1", "b: 3").replace("b: *x", "b: 3").replace("c: 1", "c: 3");
        assert_ne!(theirs, base);
        let merged = merged("a.yaml", Some(base), &ours, &theirs);
        assert_eq!(merged.strategy, Some("yaml"));
        let strategy = merged.conflict.expect(base).strategy;
        assert_eq!(strategy, "text", "{base}");
    }
}

#[test]
fn comments_after_quoted_values_and_block_headers_are_kept() {
    for quoted in ["\"1\"", "'1'", "'it''s'", "\"a\\\"b\""] {
        let (base, ours) = (format!("x: {quoted}\n"), format!("x: {quoted} # why\n"));
        assert_eq!(clean("a.yaml", Some(&base), &ours, "x: \"m\"\n"), "x: \"m\" # why\n");
        assert_eq!(clean("a.yaml", Some(&base), "x: \"m\"\n", &ours), "x: \"m\" # why\n");
        let theirs = format!("x: {quoted} # because\n");
        assert!(merged("a.yaml", Some(&base), &ours, &theirs).conflict.is_some());
    }
    let [base, ours, theirs] = ["c: |\n  x\nd: 1\n", "c: | # o\n  x\nd: 1\n", "c: |\n  y\nd: 1\n"];
    let merge = merged("a.yaml", Some(base), ours, theirs);
    let text = String::from_utf8(merge.merged.content).unwrap();
    assert!(merge.conflict.is_some() || text.contains("# o"), "{text}");
}

#[test]
fn comment_after_a_bracket_stays_with_it() {
    for (path, comment_prefix) in [("a.yaml", "#"), ("a.json", "//"), ("a.toml", "#")] {
        let text = |one: u8, two: u8| {
            let array = format!("[ {comment_prefix} why\n  {one},\n  {two},\n  3,\n]\n");
            match path {
                "a.json" => array,
                "a.yaml" => format!("c: {array}"),
                _ => format!("c = {array}"),
            }
        };
        assert_eq!(clean(path, Some(&text(1, 2)), &text(1, 5), &text(4, 2)), text(4, 5));
        assert_eq!(clean(path, Some(&text(1, 2)), &text(4, 2), &text(1, 5)), text(4, 5));
    }
}
