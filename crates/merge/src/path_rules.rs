//! Rules by path: merge settings (strategy, conflict rule and others) for the files that match a pattern.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Serialize};

use crate::file_settings::{CrdtType, FileSettings, OnConflict};
use crate::file_type::STRATEGY_BY_EXTENSION;
use crate::registry::{Strategies, UnknownStrategy};

/// Settings for the files that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RawPathRule")]
pub struct PathRule {
    /// Glob pattern such as `docs/**/*.md`. `*` and `?` do not match `/`.
    pub path: String,
    /// Settings for matching files.
    #[serde(flatten)]
    pub settings: FileSettings,
}

/// Serialised form of [`PathRule`], with the fields of [`FileSettings`]: serde does not support `deny_unknown_fields`,
/// which reports misspelled fields, together with `flatten`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPathRule {
    path: String,
    strategy: Option<String>,
    #[serde(default)]
    on_conflict: OnConflict,
    keys: Option<Vec<String>>,
    #[serde(default)]
    schema: BTreeMap<String, CrdtType>,
}

impl From<RawPathRule> for PathRule {
    fn from(raw: RawPathRule) -> Self {
        let RawPathRule { path, strategy, on_conflict, keys, schema } = raw;
        let keys = keys.unwrap_or_else(|| FileSettings::default().keys);
        Self { path, settings: FileSettings { strategy, on_conflict, keys, schema } }
    }
}

/// Lookup of settings by path, for callers that do not store their settings as [`PathRule`]s.
pub trait SettingsSource: fmt::Debug + Send + Sync {
    /// Returns the settings for a file.
    fn settings(&self, path: &[u8]) -> Cow<'_, FileSettings>;

    /// Returns the priority at a path of the author of their side; `None` to use [`Author::priority`](crate::Author) of
    /// [`TreeOptions::theirs`](crate::TreeOptions). The priority of our side is recorded with each path.
    fn priority(&self, path: &[u8]) -> Option<i64>;

    /// Returns settings that together contain every strategy and every conflict rule that [`Self::settings`] can
    /// return. The combinations do not matter, and callers read no other fields.
    fn all_settings(&self) -> &[FileSettings];
}

/// Merge settings of all files of a tree, by path. The first rule that matches a path applies, or else the default.
#[derive(Debug, Clone, Default)]
pub struct PathRules {
    /// Compiled patterns with their settings, in order of precedence.
    rules: Vec<(GlobMatcher, FileSettings)>,
    /// Settings for files that no rule matches.
    default: FileSettings,
    /// Lookup that replaces `rules` and `default`; `None` if those two fields apply.
    source: Option<Arc<dyn SettingsSource>>,
}

/// Error for a pattern that is not a valid glob or can match no path.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a valid path pattern: {reason}")]
pub struct InvalidPattern {
    pattern: String,
    reason: String,
}

impl PathRules {
    /// Compiles rules, in order of precedence.
    pub fn new(rules: impl IntoIterator<Item = PathRule>) -> Result<Self, InvalidPattern> {
        let compiled = rules.into_iter().map(|rule| {
            let reason = match rule.path.as_str() {
                "" => Some("it is empty, and matches no path"),
                path if path.starts_with('/') => {
                    Some("it matches no path, since paths in a tree do not start with `/`")
                }
                _ => None,
            };
            if let Some(reason) = reason {
                return Err(InvalidPattern { pattern: rule.path, reason: reason.to_owned() });
            }
            let glob = globset::GlobBuilder::new(&rule.path).literal_separator(true).build();
            let glob = glob
                .map_err(|error| InvalidPattern { pattern: rule.path, reason: error.kind().to_string() })?;
            Ok((Glob::compile_matcher(&glob), rule.settings))
        });
        Ok(Self { rules: compiled.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Creates rules that look settings up in `source`.
    pub fn from_source(source: impl SettingsSource + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..Self::default() }
    }

    /// Iterates over the settings of all rules, and the default settings last.
    fn all_settings(&self) -> impl Iterator<Item = &FileSettings> {
        let sourced = self.source.iter().flat_map(|source| source.all_settings());
        self.rules.iter().map(|(_, settings)| settings).chain(sourced).chain([&self.default])
    }

    /// Returns true if a conflict rule depends on the author or time of a version.
    pub fn depends_on_author(&self) -> bool {
        self.all_settings()
            .any(|settings| matches!(settings.on_conflict, OnConflict::Lww | OnConflict::Priority))
    }

    /// Returns true if a rule or a file extension selects a strategy that requires a review (a decision by a person) of
    /// every change.
    pub(crate) fn requires_review(&self, strategies: &Strategies) -> bool {
        let named = self.all_settings().filter_map(|settings| settings.strategy.as_deref());
        let mut used = named.chain(STRATEGY_BY_EXTENSION.map(|(_, strategy)| strategy));
        used.any(|name| strategies.get(name).is_some_and(|strategy| strategy.requires_review()))
    }

    /// Fails if any settings name an unknown strategy.
    pub fn check(&self, strategies: &Strategies) -> Result<(), UnknownStrategy> {
        let mut named = self.all_settings().filter_map(|settings| settings.strategy.as_deref());
        named.try_for_each(|name| strategies.get_or_unknown(name).map(drop))
    }

    /// Returns the settings for a file.
    pub fn settings(&self, path: &[u8]) -> Cow<'_, FileSettings> {
        if let Some(source) = &self.source {
            return source.settings(path);
        }
        let text = String::from_utf8_lossy(path);
        let matching = self.rules.iter().find(|(glob, _)| glob.is_match(&*text));
        Cow::Borrowed(matching.map_or(&self.default, |(_, settings)| settings))
    }

    /// Returns the priority of the author of their side at a path; `None` if it does not depend on the path.
    pub(crate) fn priority(&self, path: &[u8]) -> Option<i64> {
        self.source.as_ref().and_then(|source| source.priority(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_rule_wins() {
        let rule = |path: &str, strategy: &str| PathRule {
            path: path.to_owned(),
            settings: FileSettings { strategy: Some(strategy.to_owned()), ..FileSettings::default() },
        };
        let rules = PathRules::new([rule("docs/*.md", "critical"), rule("**/*.md", "log")]).unwrap();
        let strategy = |path: &str| rules.settings(path.as_bytes()).strategy.clone();
        assert_eq!(strategy("docs/a.md").as_deref(), Some("critical"));
        assert_eq!(strategy("docs/deep/a.md").as_deref(), Some("log"));
        assert_eq!(strategy("a.md").as_deref(), Some("log"));
        assert_eq!(strategy("a.txt"), None);
        assert!(PathRules::new([rule("a[", "text")]).unwrap_err().to_string().contains("`a[`"));
        for (pattern, reason) in [("", "it is empty"), ("/**", "do not start with `/`")] {
            assert!(PathRules::new([rule(pattern, "text")]).unwrap_err().to_string().contains(reason));
        }
    }

    #[test]
    fn rules_round_trip_and_unknown_fields_are_rejected() {
        let read =
            |text: &str| serde_json::from_str::<Vec<PathRule>>(text).map_err(|error| error.to_string());
        let rules =
            read(r#"[{"path": "*", "strategy": "json", "onConflict": "lww", "schema": {"n": "counter"}}]"#);
        let rules = rules.unwrap();
        assert_eq!(rules[0].settings.keys, ["id", "key", "name"]);
        assert_eq!(rules[0].settings.on_conflict, OnConflict::Lww);
        assert_eq!(
            serde_json::from_value::<PathRule>(serde_json::to_value(&rules[0]).unwrap()).unwrap(),
            rules[0]
        );
        assert!(read(r#"[{"path": "*", "onconflict": "lww"}]"#).unwrap_err().contains("`onconflict`"));
        assert!(read(r#"[{"path": "*", "onConflict": "first"}]"#).unwrap_err().contains("`first`"));
    }

    #[test]
    fn check_reports_unknown_strategies() {
        let rules: Vec<PathRule> = serde_json::from_str(r#"[{"path": "*", "strategy": "guess"}]"#).unwrap();
        let error = PathRules::new(rules).unwrap().check(&Strategies::default()).unwrap_err();
        assert!(error.to_string().contains("`guess`; known strategies: binary, crdt, critical"), "{error}");
    }
}
