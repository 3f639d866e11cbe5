//! Values keep their comments in every format.

use crate::documents::{clean, merged};
use crate::git::Rng;

/// Format, with its syntax for members with comments.
struct Format {
    path: &'static str,
    sign: &'static str,
    open: &'static str,
    close: &'static str,
}

const FORMATS: [Format; 3] = [
    Format { path: "a.yaml", sign: "#", open: "", close: "" },
    Format { path: "a.toml", sign: "#", open: "", close: "" },
    Format { path: "a.jsonc", sign: "//", open: "{\n", close: "}\n" },
];

/// Member with its comments.
#[derive(Debug, Clone, PartialEq)]
struct Member {
    value: usize,
    above: Option<usize>,
    trailing: Option<usize>,
}

impl Format {
    fn write(&self, members: &[Member]) -> String {
        let mut text = self.open.to_owned();
        for (number, Member { value, above, trailing }) in members.iter().enumerate() {
            let comma = if number + 1 < members.len() { "," } else { "" };
            if let Some(above) = above {
                text += &format!("  {} above {above}\n", self.sign);
            }
            text += &match self.path {
                "a.yaml" => format!("  k{number}: {value}"),
                "a.toml" => format!("  k{number} = {value}"),
                _ => format!("  \"k{number}\": {value}{comma}"),
            };
            text += &trailing.map_or(String::new(), |trailing| format!(" {} trailing {trailing}", self.sign));
            text.push('\n');
        }
        text + self.close
    }
}

/// Merges a value in the model; `None` if both sides changed it differently.
fn merge_in_model<T: PartialEq + Clone>(base: &T, ours: &T, theirs: &T) -> Option<T> {
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
    let (mut clean, mut all) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng(seed);
        // Few different comments, so that many values have the same one.
        let comment = |rng: &mut Rng| (rng.below(3) > 0).then(|| rng.below(3));
        let base: Vec<Member> = (0..2 + rng.below(5))
            .map(|_| Member { value: rng.below(3), above: comment(&mut rng), trailing: comment(&mut rng) })
            .collect();
        // Removed comments are not merged, since programs that rewrite a document drop them: sides remove
        // none here.
        let other = |rng: &mut Rng, was: Option<usize>| match was {
            Some(_) => Some(rng.below(3)),
            None => comment(rng),
        };
        let mut side = || {
            let mut side = base.clone();
            for member in &mut side {
                match rng.below(6) {
                    0 => member.value = 10 + rng.below(3),
                    1 => {
                        *member = Member {
                            value: 10 + rng.below(3),
                            trailing: other(&mut rng, member.trailing),
                            ..member.clone()
                        }
                    }
                    2 => {
                        *member = Member {
                            value: 10 + rng.below(3),
                            above: other(&mut rng, member.above),
                            ..member.clone()
                        }
                    }
                    3 => member.trailing = other(&mut rng, member.trailing),
                    _ => {}
                }
            }
            side
        };
        let (ours, theirs) = (side(), side());
        let expected: Option<Vec<Member>> = (0..base.len())
            .map(|at| {
                let (base, ours, theirs) = (&base[at], &ours[at], &theirs[at]);
                Some(Member {
                    value: merge_in_model(&base.value, &ours.value, &theirs.value)?,
                    above: merge_in_model(&base.above, &ours.above, &theirs.above)?,
                    trailing: merge_in_model(&base.trailing, &ours.trailing, &theirs.trailing)?,
                })
            })
            .collect();
        for format in &FORMATS {
            let [base, ours, theirs] = [&base, &ours, &theirs].map(|members| format.write(members));
            let result = merged(format.path, Some(&base), &ours, &theirs);
            all += usize::from(expected.is_some());
            if result.conflict.is_some() {
                continue;
            }
            let text = String::from_utf8(result.merged.content).unwrap();
            let expected = expected.as_ref().map(|members| format.write(members));
            assert_eq!(Some(text), expected, "seed {seed}\n{base}---\n{ours}---\n{theirs}");
            clean += 1;
        }
    }
    assert!(clean * 10 > all * 9, "{clean} of {all} are merged");
}
