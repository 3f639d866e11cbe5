//! Comments in JSON, YAML and TOML: each value keeps its comments, and the comments of both sides are merged.

use crate::documents::{clean, merged};
use crate::git::Rng;

/// Syntax of a format for an object whose members have comments.
struct Format {
    /// Path whose extension selects the format.
    path: &'static str,
    /// Start of a line comment.
    comment_prefix: &'static str,
    /// Text before the first member.
    open: &'static str,
    /// Text after the last member.
    close: &'static str,
}

const FORMATS: [Format; 3] = [
    Format { path: "a.yaml", comment_prefix: "#", open: "", close: "" },
    Format { path: "a.toml", comment_prefix: "#", open: "", close: "" },
    Format { path: "a.jsonc", comment_prefix: "//", open: "{\n", close: "}\n" },
];

/// Member of an object with its comments. A comment is written as its position and a number.
#[derive(Debug, Clone, PartialEq)]
struct Member {
    value: usize,
    /// Number of the comment on the line above.
    above: Option<usize>,
    /// Number of the comment behind the value on the same line.
    trailing: Option<usize>,
}

impl Format {
    /// Writes an object. The keys of its members are `k0`, `k1` and so on.
    fn write(&self, members: &[Member]) -> String {
        let mut text = self.open.to_owned();
        for (number, Member { value, above, trailing }) in members.iter().enumerate() {
            let comma = if number + 1 < members.len() { "," } else { "" };
            if let Some(above) = above {
                text += &format!("  {} above {above}\n", self.comment_prefix);
            }
            text += &match self.path {
                "a.yaml" => format!("  k{number}: {value}"),
                "a.toml" => format!("  k{number} = {value}"),
                _ => format!("  \"k{number}\": {value}{comma}"),
            };
            text += &trailing
                .map_or(String::new(), |trailing| format!(" {} trailing {trailing}", self.comment_prefix));
            text.push('\n');
        }
        text + self.close
    }
}

/// Merges a value or a comment as the tested merge should; `None` if both sides changed it differently.
fn expected_merge<T: PartialEq + Clone>(base: &T, ours: &T, theirs: &T) -> Option<T> {
    match (ours == base, theirs == base) {
        (true, _) => Some(theirs.clone()),
        (_, true) => Some(ours.clone()),
        _ => (ours == theirs).then(|| ours.clone()),
    }
}

#[test]
fn values_keep_their_own_comments() {
    for format in &FORMATS {
        let write = |values: [usize; 2]| {
            format.write(&values.map(|value| Member { value, above: None, trailing: Some(value) }))
        };
        let result = clean(format.path, Some(&write([1, 1])), &write([2, 1]), &write([1, 2]));
        assert_eq!(result, write([2, 2]));
    }
}

#[test]
fn comments_of_elements_with_equal_ids_are_merged_by_their_names() {
    let write = |a: &str, b: &str| {
        format!(
            "[\n  {{\"id\": 1, \"name\": \"a\", \"v\": 1}}, // {a}\n  {{\"id\": 1, \"name\": \"b\", \"v\": 1}} // {b}\n]\n"
        )
    };
    let (base, ours, theirs) = (write("one", "two"), write("eins", "two"), write("one", "zwei"));
    assert_eq!(clean("a.jsonc", Some(&base), &ours, &theirs), write("eins", "zwei"));
}

#[test]
fn members_with_the_comma_on_the_next_line_keep_their_comments_when_they_are_inserted() {
    let write = |inserted: &str| format!("{{ \"a\": 1 // one\n{inserted}, \"z\": 2 // two\n}}\n");
    let (ours, theirs) = (write(", \"m\": 4 // mine\n"), write(", \"n\": 5 // new\n"));
    let result = clean("a.jsonc", Some(&write("")), &ours, &theirs);
    for kept in ["\"a\": 1 // one", "\"m\": 4 // mine", "\"n\": 5, // new", "\"z\": 2 // two"] {
        assert!(result.contains(kept), "{kept}\n{result}");
    }
}

#[test]
fn a_comment_after_a_scalar_root_is_not_moved_before_it() {
    let result = merged("a.jsonc", Some("1\n"), "2\n", "1\n// note\n");
    assert!(result.conflict.is_some(), "{result:?}");
    let kept = clean("a.jsonc", Some("1\n"), "1\n", "1\n// note\n");
    assert_eq!(kept, "1\n// note\n");
}

#[test]
fn comments_are_merged_per_value() {
    // Number of clean merges, and of merges that can be clean.
    let (mut clean, mut mergeable) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng(seed);
        // There are few different comments, so that many values have the same comment.
        let random_comment = |rng: &mut Rng| (rng.below(3) > 0).then(|| rng.below(3));
        let base: Vec<Member> = (0..2 + rng.below(5))
            .map(|_| Member {
                value: rng.below(3),
                above: random_comment(&mut rng),
                trailing: random_comment(&mut rng),
            })
            .collect();
        // Sides remove no comments here. A removal would not be merged, since programs that rewrite a document often
        // drop comments.
        let other_comment = |rng: &mut Rng, old: Option<usize>| match old {
            Some(_) => Some(rng.below(3)),
            None => random_comment(rng),
        };
        let mut side = || {
            let mut side = base.clone();
            for member in &mut side {
                match rng.below(6) {
                    0 => member.value = 10 + rng.below(3),
                    1 => {
                        *member = Member {
                            value: 10 + rng.below(3),
                            trailing: other_comment(&mut rng, member.trailing),
                            ..member.clone()
                        }
                    }
                    2 => {
                        *member = Member {
                            value: 10 + rng.below(3),
                            above: other_comment(&mut rng, member.above),
                            ..member.clone()
                        }
                    }
                    3 => member.trailing = other_comment(&mut rng, member.trailing),
                    _ => {}
                }
            }
            side
        };
        let (ours, theirs) = (side(), side());
        let expected: Option<Vec<Member>> = (0..base.len())
            .map(|index| {
                let (base, ours, theirs) = (&base[index], &ours[index], &theirs[index]);
                Some(Member {
                    value: expected_merge(&base.value, &ours.value, &theirs.value)?,
                    above: expected_merge(&base.above, &ours.above, &theirs.above)?,
                    trailing: expected_merge(&base.trailing, &ours.trailing, &theirs.trailing)?,
                })
            })
            .collect();
        for format in &FORMATS {
            let [base, ours, theirs] = [&base, &ours, &theirs].map(|members| format.write(members));
            let result = merged(format.path, Some(&base), &ours, &theirs);
            mergeable += usize::from(expected.is_some());
            if result.conflict.is_some() {
                continue;
            }
            let text = String::from_utf8(result.merged.content).unwrap();
            let expected = expected.as_ref().map(|members| format.write(members));
            assert_eq!(Some(text), expected, "seed {seed}\n{base}---\n{ours}---\n{theirs}");
            clean += 1;
        }
    }
    assert!(clean * 10 > mergeable * 9, "{clean} of {mergeable} are merged");
}
