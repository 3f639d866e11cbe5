//! Merges of TOML files, value by value.

use crate::documents::{clean, conflicts, merged};

/// Merges TOML, and fails on a conflict.
fn toml(base: &str, ours: &str, theirs: &str) -> String {
    clean("a.toml", Some(base), ours, theirs)
}

const BASE: &str = "\
# head
[package]
name = \"a\" # the name
version = \"1.0\"

# what is needed
[dependencies]
one = { version = \"1\", features = [\"a\", \"b\"] } # one
two.version = \"2\"

[[bin]]
name = \"x\"
path = 'x.rs'

[[bin]]
name = \"y\"
# last
";

#[test]
fn adjacent_changes_are_merged_without_reformatting() {
    // Applies the changes of both sides.
    let with_all_changes = |text: &str| {
        text.replace("\"1.0\"", "\"2.0\"")
            .replace("\"1\"", "\"1.1\"")
            .replace("[\"a\", \"b\"]", "[\"a\", \"b\", \"c\"]")
            .replace("\"x\"\n", "\"x\"\nours = 1979-05-27\n")
            .replace("'x.rs'", "'z.rs'")
    };
    let ours = BASE
        .replace("\"1.0\"", "\"2.0\"")
        .replace("\"1\"", "\"1.1\"")
        .replace("\"x\"\n", "\"x\"\nours = 1979-05-27\n");
    let theirs = BASE.replace("[\"a\", \"b\"]", "[\"a\", \"b\", \"c\"]").replace("'x.rs'", "'z.rs'");
    assert_eq!(toml(BASE, &ours, &theirs), with_all_changes(BASE));
    assert_eq!(toml(BASE, &theirs, &ours), with_all_changes(BASE));
}

#[test]
fn value_changed_by_both_conflicts() {
    let with_value = |value: &str| BASE.replace("\"1\"", value).replace("'x.rs'", value);
    assert_eq!(
        conflicts("Cargo.toml", Some(BASE), &with_value("\"3\""), &with_value("\"4\"")),
        ["dependencies.one.version", "bin[name=x].path"]
    );
    assert_eq!(conflicts("a.toml", Some("a = 1\n"), "a = 1.0\n", "a = 1.00\n"), ["a"]);
    assert_eq!(conflicts("a.toml", Some("[a]\nb = 1\n"), "", "[a]\nb = 2\n"), ["a"]);
}

#[test]
fn tables_are_inserted_and_removed() {
    let base = "[a]\nx = 1\n[b]\ny = 1\n";
    let ours = "[a]\nx = 1\n[b]\ny = 1\nz = 1\n\n# new\n[ours]\nz = 1\n";
    let theirs = "[b]\ny = 2\n\n[theirs]\nz = 1\n";
    assert_eq!(toml(base, ours, theirs), "[b]\ny = 2\nz = 1\n\n# new\n[ours]\nz = 1\n\n[theirs]\nz = 1\n");
    // Before the merge, `a` exists only because it has subtables.
    assert_eq!(toml("[a.b]\n[a.c]\n", "[a.b]\n", "[a.c]\n"), "[a]\n");
    let base = "[[a]]\nid = 1\n\n[[a]]\nid = 2\n";
    assert_eq!(toml(base, "[[a]]\nid = 1\n", "[[a]]\nid = 2\n"), "a = []\n");
    assert_eq!(toml("a = 1\nb = 1\n", "a = 2\nb = 1\n", "a = 1\n[b]\nc = 1\n"), "a = 2\n[b]\nc = 1\n");
    assert_eq!(toml("a = 1\n[b]\nc = 1\n", "a = 2\n[b]\nc = 1\n", "a = 1\nb = 1\n"), "a = 2\nb = 1\n");
}

#[test]
fn both_sides_append_to_a_table() {
    let base = "[dependencies]\nserde = \"1\"\n\n[features]\n";
    let ours = "[dependencies]\nserde = \"1\"\nours = \"1\"\n\n[features]\n";
    let theirs = "[dependencies]\nserde = \"1\"\n# why\ntheirs = { version = \"1\" } # so\n\n[features]\n";
    assert_eq!(
        toml(base, ours, theirs),
        "[dependencies]\nserde = \"1\"\nours = \"1\"\n# why\ntheirs = { version = \"1\" } # so\n\n[features]\n"
    );
}

#[test]
fn elements_of_arrays_of_tables_are_merged_by_name() {
    let base = "[[a]]\nid = 1\nv = 1\n\n[[a]]\nid = 2\nv = 1\n\n[b]\nc = 1\n";
    let ours = base.replace("id = 1\nv = 1", "id = 1\nv = 2").replace("[b]", "[[a]]\nid = 3\n\n[b]");
    let theirs = base
        .replace("id = 1\nv = 1", "id = 1\nv = 1\nw = 1")
        .replace("[b]", "[[a]]\nid = 4\n[a.sub]\nx = 1\n\n[b]");
    assert_eq!(
        toml(base, &ours, &theirs),
        "[[a]]\nid = 1\nv = 2\nw = 1\n\n[[a]]\nid = 2\nv = 1\n\n[[a]]\nid = 3\n\n[[a]]\nid = 4\n[a.sub]\nx = 1\n\n[b]\nc = 1\n"
    );
}

#[test]
fn tables_and_inline_tables_compare_equal() {
    let base = "a = [{ x = 1 }]\nb = 1\n";
    let (ours, theirs) = ("a = [{ x = 1 }]\nb = 2\n", "b = 1\n[[a]]\nx = 1\n[[a]]\nx = 2\n");
    assert_eq!(toml(base, ours, theirs), "b = 2\n[[a]]\nx = 1\n[[a]]\nx = 2\n");
    assert_eq!(toml(base, theirs, ours), "b = 2\n[[a]]\nx = 1\n[[a]]\nx = 2\n");
}

#[test]
fn line_endings_and_byte_order_marks_are_kept() {
    let base = "\u{feff}a = 1\r\nb = 1";
    assert_eq!(toml(base, "\u{feff}a = 2\r\nb = 1", "\u{feff}a = 1\r\nb = 2"), "\u{feff}a = 2\r\nb = 2");
    let long = "a = '''\r\n#x\"\r\n'''\r\nb = 1\r\n";
    assert_eq!(
        toml(long, &long.replace("#x", "#y"), &long.replace("b = 1", "b = 2")),
        long.replace("#x", "#y").replace("b = 1", "b = 2")
    );
}

#[test]
fn invalid_toml_is_merged_as_text() {
    for base in [
        "a = 1\na = 1\nb = 1\n",
        "a = \nb = 1\n",
        "a = {b.c = 1}\nb = 1\n",
        "[a]\n[a]\nb = 1\n",
        "a = \u{0}\nb = 1\n",
    ] {
        let merged =
            merged("a.toml", Some(base), &base.replace("b = 1", "b = 2"), &base.replace("b = 1", "b = 3"));
        assert_ne!(merged.conflict.expect(base).strategy, "toml", "{base}");
    }
}
