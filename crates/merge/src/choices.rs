//! Possible resolutions of a conflict, for a person who decides: the result of each conflict rule ([`OnConflict`]) and
//! of each merge strategy other than the one that found the conflict.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::file::{Author, Input, Outcome, Side};
use crate::file_settings::{FileSettings, OnConflict};
use crate::file_type;
use crate::merge::winner;
use crate::registry::{Strategies, UnknownStrategy};
use crate::strategy::Strategy;
use crate::text_strategy::Text;

/// Maximum number of bytes of content in a serialised choice. Longer content is represented by its size.
const INLINE_CONTENT_MAX: usize = 64 << 10;

/// Possible resolution of a conflict, with the conflict rules and strategies that give this result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// Conflict rules that give this result.
    pub on_conflict: Vec<OnConflict>,
    /// Strategies that merge the file to this result without a conflict. They exclude the strategy of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<&'static str>,
    /// Version or content of the file after this choice.
    #[serde(flatten)]
    pub result: ChoiceResult,
}

/// Version or content of a file after a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceResult {
    /// Whole version of one side. If that side removed the entry, the choice removes it.
    Version(Side),
    /// Merged content with the conflicts resolved. It may differ from the versions of both sides.
    Content(Vec<u8>),
}

impl Serialize for ChoiceResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ChoiceResult", 2)?;
        match self {
            Self::Version(side) => fields.serialize_field("version", side)?,
            Self::Content(content) => {
                fields.serialize_field("size", &content.len())?;
                let is_inline = content.len() <= INLINE_CONTENT_MAX && !content.contains(&0);
                if let Some(text) = str::from_utf8(content).ok().filter(|_| is_inline) {
                    fields.serialize_field("content", text)?;
                }
            }
        }
        fields.end()
    }
}

/// Lists the possible resolutions of a file's conflict, without duplicates.
///
/// Merging does not need this list: it is for reviewers.
pub fn choices(
    strategies: &Strategies,
    settings: &FileSettings,
    input: &Input<'_>,
) -> Result<Vec<Choice>, UnknownStrategy> {
    let chosen = strategies.choose(input, settings)?;
    let mut choices = by_conflict_rules(&input.our_author, &input.their_author, |side| {
        ChoiceResult::Content(chosen.resolve(input, settings, side))
    });
    let versions = &input.versions;
    let is_text = [versions.base.unwrap_or_default(), versions.ours, versions.theirs]
        .iter()
        .all(|v| file_type::is_text(v));
    if !is_text {
        return Ok(choices);
    }
    let merged_by = |strategy: &dyn Strategy| match strategy.merge(input, settings) {
        Outcome::Merged(merged) => Some(merged.content),
        Outcome::Conflict(_) => None,
    };
    let by_lines = merged_by(&Text);
    // Strategies whose result is listed even if it equals the merge by lines.
    let always_listed = [Text.name(), file_type::strategy_for(input)];
    // A strategy that requires a review of every change resolves nothing, so running it would only cost time.
    let others = strategies.all().filter(|other| other.name() != chosen.name() && !other.requires_review());
    for other in others {
        // A strategy that cannot parse the file falls back to a merge by lines, which is listed already.
        let merged = merged_by(other);
        let is_fallback = !always_listed.contains(&other.name()) && merged == by_lines;
        if let Some(content) = merged.filter(|_| !is_fallback) {
            choice_with(&mut choices, ChoiceResult::Content(content)).strategies.push(other.name());
        }
    }
    Ok(choices)
}

/// Lists the results of all conflict rules except `Review`. `result` returns the result if a side wins. Rules with the
/// same result share a choice.
pub(crate) fn by_conflict_rules(
    ours: &Author,
    theirs: &Author,
    result: impl Fn(Side) -> ChoiceResult,
) -> Vec<Choice> {
    let mut choices = Vec::new();
    let results = [Side::Ours, Side::Theirs].map(result);
    for rule in [OnConflict::Ours, OnConflict::Theirs, OnConflict::Lww, OnConflict::Priority] {
        let side = winner(ours, theirs, rule).unwrap_or(Side::Ours);
        let result = results[usize::from(side == Side::Theirs)].clone();
        choice_with(&mut choices, result).on_conflict.push(rule);
    }
    choices
}

/// Returns the choice with this result, and adds it if there is none yet.
fn choice_with(choices: &mut Vec<Choice>, result: ChoiceResult) -> &mut Choice {
    let index = choices.iter().position(|choice| choice.result == result).unwrap_or_else(|| {
        choices.push(Choice { on_conflict: Vec::new(), strategies: Vec::new(), result });
        choices.len() - 1
    });
    &mut choices[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Versions;

    fn input_of<'a>(path: &'a str, versions: [&'a str; 3]) -> Input<'a> {
        let [base, ours, theirs] = versions.map(str::as_bytes);
        Input::new(path, Versions { base: Some(base), ours, theirs })
    }

    /// Returns conflict rules, strategies and content of each choice.
    fn list_choices(input: &Input<'_>) -> Vec<(Vec<OnConflict>, Vec<&'static str>, String)> {
        let choices = choices(&Strategies::default(), &FileSettings::default(), input).unwrap();
        let parts = |choice: Choice| {
            let ChoiceResult::Content(content) = choice.result else { panic!("a file has content") };
            (choice.on_conflict, choice.strategies, String::from_utf8(content).unwrap())
        };
        choices.into_iter().map(parts).collect()
    }

    #[test]
    fn choices_list_the_result_of_every_conflict_rule() {
        use OnConflict::{Lww, Ours, Priority, Theirs};
        let mut input = input_of("a.txt", ["1\n2\n3\n4\n", "one\n2\n3\nfour\n", "uno\n2\n3\n4\n"]);
        let (ours, theirs) = ("one\n2\n3\nfour\n", "uno\n2\n3\nfour\n");
        let expected =
            [(vec![Ours], vec![], ours.to_owned()), (vec![Theirs, Lww, Priority], vec![], theirs.to_owned())];
        assert_eq!(list_choices(&input), expected);
        (input.our_author.priority, input.their_author.time) = (1, 1);
        let expected =
            [(vec![Ours, Priority], vec![], ours.to_owned()), (vec![Theirs, Lww], vec![], theirs.to_owned())];
        assert_eq!(list_choices(&input), expected);
    }

    #[test]
    fn choices_name_strategies_that_merge_cleanly() {
        // Only the CRDT merges two values of one field.
        let input = input_of("a.json", ["{\"n\": 1}", "{\"n\": 2}", "{\"n\": 3}"]);
        let merged: Vec<_> =
            list_choices(&input).into_iter().filter(|(_, strategies, _)| !strategies.is_empty()).collect();
        assert!(matches!(&merged[..], [(_, strategies, _)] if strategies == &["crdt"]), "{merged:?}");
        // Appended lines conflict as text, but not as a log.
        let input = input_of("a.txt", ["1\n", "1\n2\n", "1\n3\n"]);
        let expected = (vec![], vec!["log"], "1\n2\n3\n".to_owned());
        assert_eq!(list_choices(&input).last(), Some(&expected));
    }

    #[test]
    fn long_or_binary_content_is_serialised_as_size() {
        let json = |content: &[u8]| serde_json::to_value(ChoiceResult::Content(content.to_vec())).unwrap();
        assert_eq!(json(b"a"), serde_json::json!({"size": 1, "content": "a"}));
        assert_eq!(json(&[0xff]), serde_json::json!({"size": 1}));
        assert_eq!(
            json(&vec![b'a'; INLINE_CONTENT_MAX + 1]),
            serde_json::json!({"size": INLINE_CONTENT_MAX + 1})
        );
    }
}
