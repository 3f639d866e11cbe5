//! Explanations of a policy (rules for the access of agents to paths, and for conflicts): the rules that decide, and
//! why.

use serde::Serialize;

use super::access::Access;
use super::agent::AgentPolicy;
use super::compile::{ApplicableRule, SubjectKind};
use super::conflicts::{ConflictSettings, Setting};

/// Effect of a policy on one path for one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Access at the path.
    pub access: Access,
    /// Rule that decides the access.
    pub access_decision: SettingDecision,
    /// Settings for conflicts at the path.
    pub conflicts: ConflictSettings,
    /// Rules that decide the settings for conflicts. Settings that no rule has are not listed.
    pub conflict_decisions: Vec<SettingDecision>,
    /// Matching rules that do not decide, for each setting that they have. Per setting the most specific rule is first.
    pub outranked: Vec<OutrankedRule>,
}

/// Rule that decides a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingDecision {
    /// The setting.
    pub setting: Setting,
    /// Index of the rule in the document, counted from 0; `None` if the default applies.
    pub rule: Option<usize>,
    /// Reason in words.
    pub why: String,
}

/// Rule that matches and has a setting, which another rule decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutrankedRule {
    /// Index of the rule in the document, counted from 0.
    pub rule: usize,
    /// Setting that another rule decides.
    pub setting: Setting,
    /// Index of the rule that decides it, counted from 0.
    pub decided_by: usize,
    /// Reason in words.
    pub why: String,
}

impl AgentPolicy {
    /// Explains the effect of the policy on a path.
    pub fn explain(&self, path: &[u8]) -> Explanation {
        let matching = self.matching(path);
        let decide = |setting| self.deciding_rule(setting, &matching);
        let access = decide(Setting::Access).and_then(|rule| self.rule(rule.index).access);
        let conflict_decisions = Setting::CONFLICT
            .into_iter()
            .filter_map(|setting| decide(setting).map(|rule| self.decision(setting, Some(rule), &matching)));
        let mut outranked = Vec::new();
        for setting in [Setting::Access].into_iter().chain(Setting::CONFLICT) {
            if let Some(winner) = decide(setting) {
                outranked.extend(self.outranked(setting, winner, &matching));
            }
        }
        Explanation {
            access: access.unwrap_or(self.default_access()),
            access_decision: self.decision(Setting::Access, decide(Setting::Access), &matching),
            conflicts: self.conflict_settings_of(&matching),
            conflict_decisions: conflict_decisions.collect(),
            outranked,
        }
    }

    /// Returns the reason why `winner` decides a setting; `None` stands for the default.
    fn decision(
        &self,
        setting: Setting,
        winner: Option<&ApplicableRule>,
        matching: &[&ApplicableRule],
    ) -> SettingDecision {
        let Some(winner) = winner else {
            let why = "no rule with this setting matches, so the default applies".to_owned();
            return SettingDecision { setting, rule: None, why };
        };
        let mut others = self.outranked(setting, winner, matching);
        let why = match others.next() {
            None => format!("{} is the only matching rule with this setting", self.describe(winner)),
            Some(other) => format!("{} matches, {}", self.describe(winner), other.why),
        };
        SettingDecision { setting, rule: Some(winner.index), why }
    }

    /// Iterates over the other matching rules with a setting that `winner` decides.
    fn outranked<'a>(
        &'a self,
        setting: Setting,
        winner: &'a ApplicableRule,
        matching: &'a [&'a ApplicableRule],
    ) -> impl Iterator<Item = OutrankedRule> + 'a {
        let others = matching.iter().filter(move |rule| rule.index != winner.index);
        others.filter(move |rule| setting.is_in(self.rule(rule.index))).map(move |rule| OutrankedRule {
            rule: rule.index,
            setting,
            decided_by: winner.index,
            why: self.reason(setting, winner, rule),
        })
    }

    /// Describes a rule: its index, subject and path.
    fn describe(&self, rule: &ApplicableRule) -> String {
        let (index, written) = (rule.index, self.rule(rule.index));
        let subject = match (rule.subject, &written.agent, &written.group) {
            (SubjectKind::Group, _, Some(group)) => format!("group `{group}`"),
            (_, Some(agent), _) => format!("agent `{agent}`"),
            _ => "everybody".to_owned(),
        };
        format!("rules[{index}] for {subject} at `{}`", written.path)
    }

    /// Returns the reason why a rule outranks another.
    fn reason(&self, setting: Setting, winner: &ApplicableRule, loser: &ApplicableRule) -> String {
        let other = format!("rules[{}]", loser.index);
        let (path, loser_path) = (&self.rule(winner.index).path, &self.rule(loser.index).path);
        if winner.specificity != loser.specificity {
            return format!("and its path `{path}` is more specific than `{loser_path}` of {other}");
        }
        if winner.subject != loser.subject {
            let name = |subject| match subject {
                SubjectKind::Everybody => "everybody",
                SubjectKind::Group => "a group",
                SubjectKind::Glob => "a glob of agents",
                SubjectKind::Name => "the name of the agent",
            };
            let (subject, other_subject) = (name(winner.subject), name(loser.subject));
            return format!("and {subject} is more specific than {other_subject}, to which {other} applies");
        }
        let is_stricter = match setting {
            Setting::Access => self.rule(winner.index).access < self.rule(loser.index).access,
            Setting::Critical => self.rule(winner.index).critical > self.rule(loser.index).critical,
            _ => false,
        };
        if is_stricter {
            format!("and it is stricter than {other}, which is as specific")
        } else {
            format!("and it comes before {other}, which is as specific")
        }
    }
}
