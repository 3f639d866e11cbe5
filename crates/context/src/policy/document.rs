//! Serialised form of a policy: rules for the access of agents to paths, and for conflicts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use workspace_merge::{CrdtType, OnConflict};

use super::access::Access;
use super::timeout::ReviewTimeout;

/// A policy as it is written and stored: the form that clients set and read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyDocument {
    /// Members of each group: names or globs of agents.
    pub groups: BTreeMap<String, Vec<String>>,
    /// Rules in any order: the most specific one that matches decides.
    pub rules: Vec<Rule>,
    /// Access where no rule decides.
    pub default: Access,
}

/// One rule. Each setting that is present is decided independently of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Name or glob of the agents that the rule applies to. A rule with neither agent nor group applies to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Group that the rule applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Glob of the paths that the rule applies to. `dir/**` matches `dir` too.
    pub path: String,
    /// Access to matching paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Name of the merge strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Resolution of conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    /// Fields that identify array elements in structured files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// CRDT types of values in `.crdt.json` files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<BTreeMap<String, CrdtType>>,
    /// Priority of the agent in conflicts that are resolved by priority; the higher wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// True if every change needs a review: it waits for the decision of a reviewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical: Option<bool>,
    /// Names or globs of the agents and people that may resolve reviews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewers: Option<Vec<String>>,
    /// Time for the decision of a review. After it, the review is escalated (one more agent or person may decide it) or
    /// expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review_timeout: Option<ReviewTimeout>,
    /// Name or glob of agents and people that may also resolve a review that was not decided in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate_to: Option<String>,
}

impl Rule {
    /// Returns true if the rule sets anything.
    pub(crate) fn has_effect(&self) -> bool {
        self.access.is_some() || self.has_conflict_settings()
    }

    /// Returns true if the rule has a setting for conflicts.
    pub(crate) fn has_conflict_settings(&self) -> bool {
        self.strategy.is_some()
            || self.on_conflict.is_some()
            || self.keys.is_some()
            || self.schema.is_some()
            || self.priority.is_some()
            || self.critical.is_some()
            || self.reviewers.is_some()
            || self.review_timeout.is_some()
            || self.escalate_to.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_round_trip_and_unknown_fields_are_rejected() {
        let text = r#"{"groups": {"writers": ["w-*"]}, "default": "R", "rules": [
            {"group": "writers", "path": "docs/**", "access": "RW-", "onConflict": "lww"},
            {"path": "**", "critical": true, "reviewers": ["alice"], "schema": {"n": "counter"}}]}"#;
        let document: PolicyDocument = serde_json::from_str(text).unwrap();
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["rules"][0]["access"], "RW-");
        assert_eq!(json["rules"][0].get("agent"), None);
        assert_eq!(serde_json::from_value::<PolicyDocument>(json).unwrap(), document);
        assert_eq!(serde_json::from_str::<PolicyDocument>("{}").unwrap().default, Access::Full);
        for text in [r#"{"rule": []}"#, r#"{"rules": [{"path": "a", "acces": "R"}]}"#, r#"{"rules": [{}]}"#] {
            assert!(serde_json::from_str::<PolicyDocument>(text).is_err(), "{text}");
        }
    }
}
