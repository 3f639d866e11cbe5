//! Settings for conflicts at a path, and their use by a merge. A conflict that no setting resolves, and every change of
//! a critical path, becomes a review: it waits for the decision of a reviewer.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use workspace_merge::{FileSettings, SettingsSource};

use super::agent::AgentPolicy;
use super::compile::ApplicableRule;
use super::document::Rule;
use super::timeout::ReviewTimeout;

/// Merge strategy that leaves every change to a review.
const REVIEW_STRATEGY: &str = "critical";

/// Settings for conflicts at a path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConflictSettings {
    /// Merge strategy, conflict rule (the resolution of conflicts), keys and schema.
    #[serde(flatten)]
    pub file: FileSettings,
    /// Priority of the agent; 0 if no rule sets it.
    pub priority: i64,
    /// True if every change needs a review, whatever the strategy is.
    pub critical: bool,
    /// Names or globs of the agents and people that may resolve reviews; `None` if no rule restricts them.
    pub reviewers: Option<Vec<String>>,
    /// Time for the decision of a review; `None` if no rule limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review_timeout: Option<ReviewTimeout>,
    /// Name or glob of agents and people that may also resolve a review that was not decided in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalate_to: Option<String>,
}

/// Setting of a rule that is decided independently of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Setting {
    /// Access.
    Access,
    /// Merge strategy.
    Strategy,
    /// Resolution of conflicts.
    OnConflict,
    /// Fields that identify array elements.
    Keys,
    /// CRDT type of each field that the strategy `crdt` merges as one, such as `counter`.
    Schema,
    /// Priority of the agent.
    Priority,
    /// Review of every change.
    Critical,
    /// Agents and people that may resolve reviews.
    Reviewers,
    /// Time for the decision of a review.
    ReviewTimeout,
    /// Agents and people that may also resolve reviews that were not decided in time.
    EscalateTo,
}

impl Setting {
    /// All settings for conflicts.
    pub const CONFLICT: [Self; 9] = [
        Self::Strategy,
        Self::OnConflict,
        Self::Keys,
        Self::Schema,
        Self::Priority,
        Self::Critical,
        Self::Reviewers,
        Self::ReviewTimeout,
        Self::EscalateTo,
    ];

    /// Returns true if a rule has this setting.
    pub(super) fn is_in(self, rule: &Rule) -> bool {
        match self {
            Self::Access => rule.access.is_some(),
            Self::Strategy => rule.strategy.is_some(),
            Self::OnConflict => rule.on_conflict.is_some(),
            Self::Keys => rule.keys.is_some(),
            Self::Schema => rule.schema.is_some(),
            Self::Priority => rule.priority.is_some(),
            Self::Critical => rule.critical.is_some(),
            Self::Reviewers => rule.reviewers.is_some(),
            Self::ReviewTimeout => rule.review_timeout.is_some(),
            Self::EscalateTo => rule.escalate_to.is_some(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Access => "access",
            Self::Strategy => "strategy",
            Self::OnConflict => "onConflict",
            Self::Keys => "keys",
            Self::Schema => "schema",
            Self::Priority => "priority",
            Self::Critical => "critical",
            Self::Reviewers => "reviewers",
            Self::ReviewTimeout => "reviewTimeout",
            Self::EscalateTo => "escalateTo",
        })
    }
}

impl AgentPolicy {
    /// Returns the settings for conflicts at a path. Each is taken from the most specific rule that has it.
    pub fn conflict_settings(&self, path: &[u8]) -> ConflictSettings {
        self.conflict_settings_of(&self.matching(path))
    }

    /// Returns the settings for conflicts from the rules that match a path, the most specific first.
    pub(super) fn conflict_settings_of(&self, matching: &[&ApplicableRule]) -> ConflictSettings {
        let mut settings = ConflictSettings::default();
        let decided = |setting| self.deciding_rule(setting, matching).map(|rule| self.rule(rule.index));
        if let Some(rule) = decided(Setting::Strategy) {
            settings.file.strategy.clone_from(&rule.strategy);
        }
        if let Some(on_conflict) = decided(Setting::OnConflict).and_then(|rule| rule.on_conflict) {
            settings.file.on_conflict = on_conflict;
        }
        if let Some(keys) = decided(Setting::Keys).and_then(|rule| rule.keys.as_ref()) {
            settings.file.keys.clone_from(keys);
        }
        if let Some(schema) = decided(Setting::Schema).and_then(|rule| rule.schema.as_ref()) {
            settings.file.schema.clone_from(schema);
        }
        settings.priority = decided(Setting::Priority).and_then(|rule| rule.priority).unwrap_or_default();
        settings.critical = decided(Setting::Critical).and_then(|rule| rule.critical).unwrap_or_default();
        settings.reviewers = decided(Setting::Reviewers).and_then(|rule| rule.reviewers.clone());
        settings.review_timeout =
            decided(Setting::ReviewTimeout).and_then(|rule| rule.review_timeout.clone());
        settings.escalate_to = decided(Setting::EscalateTo).and_then(|rule| rule.escalate_to.clone());
        settings
    }

    /// Returns the rule that decides a setting. `matching` are the rules that match a path, the most specific first.
    /// Among equally specific rules, the strictest wins for [`Setting::Access`], `critical: true` wins for
    /// [`Setting::Critical`], and the first rule wins for other settings.
    pub(super) fn deciding_rule<'m>(
        &self,
        setting: Setting,
        matching: &[&'m ApplicableRule],
    ) -> Option<&'m ApplicableRule> {
        let mut candidates = matching.iter().filter(|rule| setting.is_in(self.rule(rule.index)));
        let first = candidates.next()?;
        let equal = candidates.take_while(|rule| rule.compare_specificity(first).is_eq());
        // `min_by_key` returns the first of several minima.
        [first]
            .into_iter()
            .chain(equal)
            .min_by_key(|rule| {
                let rule = self.rule(rule.index);
                match setting {
                    Setting::Access => rule.access.map_or(0, |access| access as u8),
                    Setting::Critical => u8::from(rule.critical == Some(false)),
                    _ => 0,
                }
            })
            .copied()
    }

    /// Returns the settings for merges of changes by this agent: those of each path, and the priority of the agent
    /// there.
    pub fn merge_rules(&self) -> workspace_merge::PathRules {
        self.merge_rules_with(Reviews::Required)
    }

    /// Returns the settings of [`Self::merge_rules`] without the review of critical changes, for a merge whose result
    /// stays in the workspace of the agent.
    pub fn merge_rules_without_reviews(&self) -> workspace_merge::PathRules {
        self.merge_rules_with(Reviews::Omitted)
    }

    fn merge_rules_with(&self, reviews: Reviews) -> workspace_merge::PathRules {
        let rules = self.applicable().iter().map(|rule| self.rule(rule.index));
        let rules = rules.filter(|rule| rule.has_conflict_settings());
        let all_settings = rules.map(|rule| strategy_and_conflict_rule(rule, reviews)).collect();
        workspace_merge::PathRules::from_source(AgentSettingsSource {
            policy: self.clone(),
            reviews,
            all_settings,
        })
    }
}

/// Treatment of critical changes in a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reviews {
    /// Each critical change is a conflict that waits for a review.
    Required,
    /// Critical changes are merged like others.
    Omitted,
}

impl Reviews {
    /// Returns the strategy for a file; `own` is the strategy that the policy sets for it.
    fn strategy(self, own: Option<String>, is_critical: bool) -> Option<String> {
        match self {
            Self::Required if is_critical => Some(REVIEW_STRATEGY.to_owned()),
            Self::Required => own,
            Self::Omitted => own.filter(|name| name != REVIEW_STRATEGY),
        }
    }
}

/// Settings of an agent, as a merge looks them up.
#[derive(Debug)]
struct AgentSettingsSource {
    policy: AgentPolicy,
    /// Treatment of critical changes.
    reviews: Reviews,
    /// Strategies and conflict rules that any rule of the agent has.
    all_settings: Vec<FileSettings>,
}

impl SettingsSource for AgentSettingsSource {
    fn settings(&self, path: &[u8]) -> Cow<'_, FileSettings> {
        let ConflictSettings { mut file, critical, .. } = self.policy.conflict_settings(path);
        file.strategy = self.reviews.strategy(file.strategy.take(), critical);
        Cow::Owned(file)
    }

    fn priority(&self, path: &[u8]) -> Option<i64> {
        Some(self.policy.conflict_settings(path).priority)
    }

    fn all_settings(&self) -> &[FileSettings] {
        &self.all_settings
    }
}

/// Returns the strategy and the conflict rule of a rule of the policy, for [`SettingsSource::all_settings`].
fn strategy_and_conflict_rule(rule: &Rule, reviews: Reviews) -> FileSettings {
    FileSettings {
        strategy: reviews.strategy(rule.strategy.clone(), rule.critical == Some(true)),
        on_conflict: rule.on_conflict.unwrap_or_default(),
        ..FileSettings::default()
    }
}
