//! Invalid and unusual input: such files are merged as lines or as binary, in bounded time.

use workspace_merge::{ConflictLocation, FileMerge, FileSettings};

use crate::documents::{conflicts, merged, merged_bytes};

const PATHS: [&str; 3] = ["a.json", "a.toml", "a.yaml"];

/// Merges bytes with the default settings.
fn bytes(path: &str, base: &[u8], ours: &[u8], theirs: &[u8]) -> FileMerge {
    merged_bytes(&FileSettings::default(), path, Some(base), ours, theirs)
}

/// Returns the name of the strategy that reported the conflict.
fn reporting_strategy(merged: &FileMerge) -> &'static str {
    merged.conflict.as_ref().expect("a conflict").strategy
}

#[test]
fn invalid_utf8_is_merged_as_lines() {
    for path in PATHS {
        let merged = bytes(path, b"\xff1\n2\n3\n4\n", b"\xff0\n2\n3\n4\n", b"\xff1\n2\n3\n5\n");
        assert_eq!(merged.merged.content, b"\xff0\n2\n3\n5\n", "{path}");
        assert_eq!(reporting_strategy(&bytes(path, b"\xff1\n", b"\xff2\n", b"\xff3\n")), "text");
    }
}

#[test]
fn files_with_nul_are_binary() {
    for path in PATHS {
        let merged = bytes(path, b"a\0\nb\nc\nd\n", b"A\0\nb\nc\nd\n", b"a\0\nb\nc\nD\n");
        assert_eq!(reporting_strategy(&merged), "binary", "{path}");
        assert_eq!(merged.merged.content, b"A\0\nb\nc\nd\n");
    }
}

#[test]
fn empty_files_are_merged_as_lines() {
    for path in PATHS {
        for text in [&b""[..], b" \n", b"\xef\xbb\xbf"] {
            let merged = bytes(path, text, b"a: 1\n", b"b: 1\n");
            assert!(["text", "toml"].contains(&reporting_strategy(&merged)), "{path}");
            assert_eq!(merged.merged.content, b"a: 1\n");
        }
    }
    // An empty file is valid TOML.
    let merged = merged("a.toml", Some(""), "a = 1\n", "b = 1\n");
    assert_eq!((merged.conflict, merged.merged.content), (None, b"a = 1\nb = 1\n".to_vec()));
}

#[test]
fn deep_nesting_is_merged_as_lines() {
    let depth = 10_000;
    // Path, and the text before and after the innermost value.
    let documents = [
        ("a.json", "[".repeat(depth), "]".repeat(depth)),
        ("a.json", "{\"a\":".repeat(depth), "}".repeat(depth)),
        ("a.json", "[".repeat(depth), String::new()),
        ("a.yaml", "[".repeat(depth), "]".repeat(depth)),
        ("a.yaml", "{a: ".repeat(depth), "}".repeat(depth)),
        ("a.yaml", "- ".repeat(depth), String::new()),
        ("a.yaml", "? ".repeat(depth), String::new()),
        ("a.yaml", (0..1000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(), String::new()),
        ("a.toml", format!("[{}a]\n", "a.".repeat(200_000)), String::new()),
        ("a.toml", format!("a = {}", "[".repeat(depth)), "]".repeat(depth)),
        ("a.toml", format!("a = {}", "{a=".repeat(depth)), "}".repeat(depth)),
        ("a.toml", format!("[{}a]\n", "a.".repeat(depth)), String::new()),
        ("a.toml", format!("[{}a]\n", "\"a\" . ".repeat(depth)), String::new()),
        ("a.toml", format!("[[{}a]]\n", "'a'.".repeat(depth)), String::new()),
        ("a.toml", format!("{}a = 1\n", "a.".repeat(depth)), String::new()),
        ("a.toml", format!("a = {{ {}a = 1 }}\n", "a.".repeat(depth)), String::new()),
    ];
    for (path, open, close) in &documents {
        let with_comment = |text: &str| format!("# {text}\n\n\n{open}{close}\n\n\n# {text}\n");
        let merged = merged(path, Some(&with_comment("1")), &with_comment("2"), &with_comment("3"));
        assert_eq!(reporting_strategy(&merged), "text", "{path} {}", &open[..12]);
    }
}

#[test]
fn duplicate_keys_are_merged_as_lines() {
    for (path, text) in [
        ("a.json", "{\"a\": 1, \"a\": 1}"),
        ("a.json", "{\"a\": 1, \"\\u0061\": 1}"),
        ("a.yaml", "a: 1\na: 1\n"),
        ("a.toml", "a = 1\na = 1\n"),
    ] {
        let merged = merged(path, Some(text), &text.replacen('1', "2", 1), &text.replacen('1', "3", 1));
        assert_eq!(reporting_strategy(&merged), "text", "{path}");
    }
    let many: Vec<String> = (0..100).map(|number| format!("\"{}\": 1", number % 99)).collect();
    let many = format!("{{{}}}", many.join(","));
    assert_eq!(reporting_strategy(&merged("a.json", Some(&many), &many.replacen('1', "2", 1), "{}")), "text");
}

#[test]
fn huge_numbers_keep_their_digits() {
    let digits = "1".repeat(400);
    for (path, separator) in [("a.json", "\": "), ("a.yaml", "\": ")] {
        let document = |number: &str| format!("{{\"a{separator}{number}, \"b{separator}0}}");
        let longer = format!("{digits}1");
        let merged = merged(
            path,
            Some(&document("1e999")),
            &document(&digits),
            &document("1e999").replace('0', "-0.0e-9"),
        );
        assert_eq!(merged.conflict, None, "{path}");
        let expected = document(&digits).replace("0}", "-0.0e-9}");
        assert_eq!(String::from_utf8(merged.merged.content).unwrap(), expected);
        assert_eq!(conflicts(path, Some(&document("1e999")), &document(&digits), &document(&longer)), ["a"]);
    }
}

#[test]
fn mixed_line_endings_are_kept() {
    let base = "{\r\n  \"a\": 1,\n  \"b\": 1,\r\n  \"c\": 1\n}\r\n";
    let ours = base.replace("\"a\": 1", "\"a\": 2");
    let theirs = base.replace("\"b\": 1", "\"b\": 2").replace("\"a\": 1", "\"a\":1");
    let merged = merged("a.json", Some(base), &ours, &theirs);
    assert_eq!(merged.conflict, None);
    let expected = base.replace("\"a\": 1", "\"a\": 2").replace("\"b\": 1", "\"b\": 2");
    assert_eq!(String::from_utf8(merged.merged.content).unwrap(), expected);
}

#[test]
fn long_lines_and_many_values_merge_in_linear_time() {
    // Our side changes every value with an even number, their side all others.
    let document = |even: usize, odd: usize| {
        let members = (0..40_000).map(|number| {
            let value = if number % 2 == 0 { even } else { odd };
            format!("\"k{number}\":{{\n\"v\":{value}}}")
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    for one_line in [true, false] {
        let [base, ours, theirs, both] = [document(1, 1), document(2, 1), document(1, 2), document(2, 2)]
            .map(|text| if one_line { text.replace('\n', "") } else { text });
        let merged = merged("a.json", Some(&base), &ours, &theirs);
        assert_eq!(merged.conflict, None);
        assert!(merged.merged.content == both.as_bytes());
    }
}

#[test]
fn arrays_of_equal_values_merge_in_linear_time() {
    let array = |count: usize, last: &str| format!("[{}{last}]", "0,".repeat(count));
    let merged = merged("a.json", Some(&array(50_000, "1")), &array(60_000, "1"), &array(50_000, "2"));
    let locations = merged.conflict.map(|conflict| conflict.locations).unwrap_or_default();
    assert!(
        locations
            .iter()
            .all(|location| matches!(location, ConflictLocation::Value(value) if value.path.is_empty()))
    );
}
