//! What is done with which files.

use std::collections::BTreeMap;

use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Serialize};

use crate::kinds::BY_ENDING;
use crate::strategy::{Strategies, UnknownStrategy};

/// What becomes of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Ours stays until somebody has decided.
    #[default]
    Review,
    /// Ours wins.
    Ours,
    /// Theirs wins.
    Theirs,
    /// Whoever wrote last wins.
    Lww,
    /// Whoever has the higher priority wins; among equals, whoever wrote last.
    Priority,
}

/// How a value of a `.crdt.json` is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Crdt {
    /// A number to which everybody's differences are added.
    Counter,
    /// An array without order, each value once.
    Set,
    /// One value; of two, the same one wins everywhere.
    Register,
}

/// How a file is merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FileRule {
    /// By which strategy; by the type of the file, when not said.
    pub strategy: Option<String>,
    /// What becomes of conflicts.
    pub on_conflict: OnConflict,
    /// Fields that tell elements of an array from each other; the first one that all elements have counts.
    pub keys: Vec<String>,
    /// How values of a CRDT are joined, by path: keys joined by dots, `*` for any.
    pub schema: BTreeMap<String, Crdt>,
}

impl Default for FileRule {
    fn default() -> Self {
        Self {
            strategy: None,
            on_conflict: OnConflict::default(),
            keys: ["id", "key", "name"].map(str::to_owned).to_vec(),
            schema: BTreeMap::new(),
        }
    }
}

/// A rule and the files it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenRule")]
pub struct PathRule {
    /// Which: a pattern such as `docs/**/*.md`. `*` and `?` do not match `/`.
    pub path: String,
    /// How they are merged.
    #[serde(flatten)]
    pub rule: FileRule,
}

/// A rule as it is read: what is flattened would let fields through that nobody knows, and with them every typing error.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenRule {
    path: String,
    strategy: Option<String>,
    #[serde(default)]
    on_conflict: OnConflict,
    keys: Option<Vec<String>>,
    #[serde(default)]
    schema: BTreeMap<String, Crdt>,
}

impl From<WrittenRule> for PathRule {
    fn from(written: WrittenRule) -> Self {
        let WrittenRule { path, strategy, on_conflict, keys, schema } = written;
        let keys = keys.unwrap_or_else(|| FileRule::default().keys);
        Self { path, rule: FileRule { strategy, on_conflict, keys, schema } }
    }
}

/// How the files of a tree are merged: the first rule that matches a path counts.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<(GlobMatcher, FileRule)>,
    rest: FileRule,
}

/// A pattern that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is no pattern of paths: {reason}")]
pub struct BadPattern {
    pattern: String,
    reason: String,
}

impl Policy {
    /// Rules in order of precedence.
    pub fn new(rules: impl IntoIterator<Item = PathRule>) -> Result<Self, BadPattern> {
        let compiled = rules.into_iter().map(|rule| {
            if rule.path.is_empty() || rule.path.starts_with('/') {
                let reason = "it matches no path: paths of a tree have no `/` before them".to_owned();
                return Err(BadPattern { pattern: rule.path, reason });
            }
            let glob = globset::GlobBuilder::new(&rule.path).literal_separator(true).build();
            let glob =
                glob.map_err(|error| BadPattern { pattern: rule.path, reason: error.kind().to_string() })?;
            Ok((Glob::compile_matcher(&glob), rule.rule))
        });
        Ok(Self { rules: compiled.collect::<Result<_, _>>()?, rest: FileRule::default() })
    }

    /// Whether it matters to a rule who made a version, or when.
    pub fn goes_by_author(&self) -> bool {
        let mut all = self.rules.iter().map(|(_, rule)| rule).chain([&self.rest]);
        all.any(|rule| matches!(rule.on_conflict, OnConflict::Lww | OnConflict::Priority))
    }

    /// Whether somebody has to look at every change of some files.
    pub(crate) fn wants_review(&self, strategies: &Strategies) -> bool {
        let named = self.rules.iter().filter_map(|(_, rule)| rule.strategy.as_deref());
        let mut used = named.chain(BY_ENDING.map(|(_, strategy)| strategy));
        used.any(|name| strategies.get(name).is_some_and(|strategy| strategy.wants_review()))
    }

    /// Fails if a rule names a strategy that is not there.
    pub fn check(&self, strategies: &Strategies) -> Result<(), UnknownStrategy> {
        let mut named = self.rules.iter().filter_map(|(_, rule)| rule.strategy.as_deref());
        named.try_for_each(|name| strategies.named(name).map(drop))
    }

    /// How a file is merged.
    pub fn rule(&self, path: &str) -> &FileRule {
        let found = self.rules.iter().find(|(glob, _)| glob.is_match(path));
        found.map_or(&self.rest, |(_, rule)| rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rule = |path: &str, strategy: &str| PathRule {
            path: path.to_owned(),
            rule: FileRule { strategy: Some(strategy.to_owned()), ..FileRule::default() },
        };
        let policy = Policy::new([rule("docs/*.md", "critical"), rule("**/*.md", "log")]).unwrap();
        let strategy = |path: &str| policy.rule(path).strategy.clone();
        assert_eq!(strategy("docs/a.md").as_deref(), Some("critical"));
        assert_eq!(strategy("docs/deep/a.md").as_deref(), Some("log"));
        assert_eq!(strategy("a.md").as_deref(), Some("log"));
        assert_eq!(strategy("a.txt"), None);
        assert!(Policy::new([rule("a[", "text")]).unwrap_err().to_string().contains("`a[`"));
        for pattern in ["", "/**"] {
            assert!(
                Policy::new([rule(pattern, "text")]).unwrap_err().to_string().contains("matches no path")
            );
        }
    }

    #[test]
    fn rules_are_read_as_they_are_written_and_nothing_else_is() {
        let read =
            |text: &str| serde_json::from_str::<Vec<PathRule>>(text).map_err(|error| error.to_string());
        let rules =
            read(r#"[{"path": "*", "strategy": "json", "onConflict": "lww", "schema": {"n": "counter"}}]"#);
        let rules = rules.unwrap();
        assert_eq!(rules[0].rule.keys, ["id", "key", "name"]);
        assert_eq!(rules[0].rule.on_conflict, OnConflict::Lww);
        assert_eq!(
            serde_json::from_value::<PathRule>(serde_json::to_value(&rules[0]).unwrap()).unwrap(),
            rules[0]
        );
        assert!(read(r#"[{"path": "*", "onconflict": "lww"}]"#).unwrap_err().contains("`onconflict`"));
        assert!(read(r#"[{"path": "*", "onConflict": "first"}]"#).unwrap_err().contains("`first`"));
    }

    #[test]
    fn strategies_that_are_not_there_are_found_before_anything_is_merged() {
        let rules: Vec<PathRule> = serde_json::from_str(r#"[{"path": "*", "strategy": "guess"}]"#).unwrap();
        let error = Policy::new(rules).unwrap().check(&Strategies::default()).unwrap_err();
        assert!(error.to_string().contains("`guess`; there are: binary, crdt, critical"), "{error}");
    }
}
