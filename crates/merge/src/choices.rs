//! What a conflict would become: by each rule, and by each other strategy.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::file::{Author, Input, Outcome, Side};
use crate::kinds;
use crate::merge::winner;
use crate::policy::{FileRule, OnConflict};
use crate::strategy::{Strategies, Strategy, UnknownStrategy};
use crate::text_strategy::Text;

/// Longer content is not serialised: its size tells that it is there.
const SHOWN_MAX: usize = 64 << 10;

/// One way out of a conflict, and who would take it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// The rules that lead here.
    pub on_conflict: Vec<OnConflict>,
    /// Strategies that would have merged the file to this, if a rule had named them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<&'static str>,
    /// What would be in the tree.
    #[serde(flatten)]
    pub result: Chosen,
}

/// What a choice leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// What a side has, or that it is gone.
    Version(Side),
    /// Content: what is not in conflict is of both sides.
    Content(Vec<u8>),
}

impl Serialize for Chosen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Chosen", 2)?;
        match self {
            Self::Version(side) => fields.serialize_field("version", side)?,
            Self::Content(content) => {
                fields.serialize_field("size", &content.len())?;
                let is_shown = content.len() <= SHOWN_MAX && !content.contains(&0);
                if let Some(text) = str::from_utf8(content).ok().filter(|_| is_shown) {
                    fields.serialize_field("content", text)?;
                }
            }
        }
        fields.end()
    }
}

/// What a conflict of a file would become, each result once.
///
/// Nothing of this is needed to merge: it is for whoever decides.
pub fn choices(
    strategies: &Strategies,
    rule: &FileRule,
    input: &Input<'_>,
) -> Result<Vec<Choice>, UnknownStrategy> {
    let chosen = strategies.choose(input, rule)?;
    let mut choices =
        by_rules(&input.ours, &input.theirs, |side| Chosen::Content(chosen.settle(input, rule, side)));
    let versions = &input.versions;
    let is_text =
        [versions.base.unwrap_or_default(), versions.ours, versions.theirs].iter().all(|v| kinds::is_text(v));
    if !is_text {
        return Ok(choices);
    }
    let merged_by = |strategy: &dyn Strategy| match strategy.merge(input, rule) {
        Outcome::Merged(merged) => Some(merged.content),
        Outcome::Conflict(_) => None,
    };
    let by_lines = merged_by(&Text);
    let own = [Text.name(), kinds::strategy_for(input)];
    let others = strategies.all().filter(|other| other.name() != chosen.name() && !other.wants_review());
    for other in others {
        // What merges lines because it cannot read the file has nothing to say of its own.
        let merged = merged_by(other);
        let says_nothing = !own.contains(&other.name()) && merged == by_lines;
        if let Some(content) = merged.filter(|_| !says_nothing) {
            entry(&mut choices, Chosen::Content(content)).strategies.push(other.name());
        }
    }
    Ok(choices)
}

/// What the rules would take of two versions of anything.
pub(crate) fn by_rules(ours: &Author, theirs: &Author, result: impl Fn(Side) -> Chosen) -> Vec<Choice> {
    let mut choices = Vec::new();
    let results = [Side::Ours, Side::Theirs].map(result);
    for rule in [OnConflict::Ours, OnConflict::Theirs, OnConflict::Lww, OnConflict::Priority] {
        let side = winner(ours, theirs, rule).unwrap_or(Side::Ours);
        let result = results[usize::from(side == Side::Theirs)].clone();
        entry(&mut choices, result).on_conflict.push(rule);
    }
    choices
}

fn entry(choices: &mut Vec<Choice>, result: Chosen) -> &mut Choice {
    let at = choices.iter().position(|choice| choice.result == result).unwrap_or_else(|| {
        choices.push(Choice { on_conflict: Vec::new(), strategies: Vec::new(), result });
        choices.len() - 1
    });
    &mut choices[at]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Versions;

    fn of<'a>(path: &'a str, versions: [&'a str; 3]) -> Input<'a> {
        let [base, ours, theirs] = versions.map(str::as_bytes);
        Input::new(path, Versions { base: Some(base), ours, theirs })
    }

    fn shown(input: &Input<'_>) -> Vec<(Vec<OnConflict>, Vec<&'static str>, String)> {
        let choices = choices(&Strategies::default(), &FileRule::default(), input).unwrap();
        let shown = |choice: Choice| {
            let Chosen::Content(content) = choice.result else { panic!("a file has content") };
            (choice.on_conflict, choice.strategies, String::from_utf8(content).unwrap())
        };
        choices.into_iter().map(shown).collect()
    }

    #[test]
    fn every_rule_tells_what_it_would_give() {
        use OnConflict::{Lww, Ours, Priority, Theirs};
        let mut input = of("a.txt", ["1\n2\n3\n4\n", "one\n2\n3\nfour\n", "uno\n2\n3\n4\n"]);
        let (ours, theirs) = ("one\n2\n3\nfour\n", "uno\n2\n3\nfour\n");
        let expected =
            [(vec![Ours], vec![], ours.to_owned()), (vec![Theirs, Lww, Priority], vec![], theirs.to_owned())];
        assert_eq!(shown(&input), expected);
        (input.ours.priority, input.theirs.time) = (1, 1);
        let expected =
            [(vec![Ours, Priority], vec![], ours.to_owned()), (vec![Theirs, Lww], vec![], theirs.to_owned())];
        assert_eq!(shown(&input), expected);
    }

    #[test]
    fn strategies_that_would_have_merged_are_named() {
        // Nothing but the CRDT merges two values of one field.
        let input = of("a.json", ["{\"n\": 1}", "{\"n\": 2}", "{\"n\": 3}"]);
        let merged: Vec<_> =
            shown(&input).into_iter().filter(|(_, strategies, _)| !strategies.is_empty()).collect();
        assert!(matches!(&merged[..], [(_, strategies, _)] if strategies == &["crdt"]), "{merged:?}");
        // Lines that were appended conflict as text, and would not as a log.
        let input = of("a.txt", ["1\n", "1\n2\n", "1\n3\n"]);
        let expected = (vec![], vec!["log"], "1\n2\n3\n".to_owned());
        assert_eq!(shown(&input).last(), Some(&expected));
    }

    #[test]
    fn content_that_is_long_or_no_text_is_told_by_its_size() {
        let json = |content: &[u8]| serde_json::to_value(Chosen::Content(content.to_vec())).unwrap();
        assert_eq!(json(b"a"), serde_json::json!({"size": 1, "content": "a"}));
        assert_eq!(json(&[0xff]), serde_json::json!({"size": 1}));
        assert_eq!(json(&vec![b'a'; SHOWN_MAX + 1]), serde_json::json!({"size": SHOWN_MAX + 1}));
    }
}
