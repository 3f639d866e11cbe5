//! Errors of policies.

use workspace_merge::UnknownStrategy;

use super::glob::GlobError;
use super::limits::{GROUPS_MAX, LIST_MAX, MEMBERS_MAX, NAME_MAX, RULES_MAX};
use super::pattern::PatternError;

/// Reason why a policy is invalid. Rules are named by their index in the document, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PolicyError {
    #[error(
        "the policy has {count} rules: at most {RULES_MAX} are allowed, so join some with globs or groups"
    )]
    TooManyRules { count: usize },
    #[error("the policy has {count} groups: at most {GROUPS_MAX} are allowed, so join some")]
    TooManyGroups { count: usize },
    #[error("the groups have {count} members: at most {MEMBERS_MAX} are allowed, so join some with globs")]
    TooManyMembers { count: usize },
    #[error("groups.{group}: the name is empty or longer than {NAME_MAX} bytes: choose another")]
    GroupName { group: String },
    #[error("groups.{group}[{member}]: `{glob}`: {source}")]
    Member { group: String, member: usize, glob: String, source: NameError },
    #[error("rules[{rule}]: `agent` and `group` are both set: remove one, or write two rules")]
    TwoSubjects { rule: usize },
    #[error("rules[{rule}].agent: `{glob}`: {source}")]
    Agent { rule: usize, glob: String, source: NameError },
    #[error("rules[{rule}].group: there is no group `{group}`: add it to `groups`, or use one of: {known}")]
    UnknownGroup { rule: usize, group: String, known: String },
    #[error("rules[{rule}].path: `{path}`: {source}")]
    Path { rule: usize, path: String, source: PatternError },
    #[error(
        "rules[{rule}]: the rule sets nothing: add `access` or a setting for conflicts, or remove the rule"
    )]
    NoEffect { rule: usize },
    #[error("rules[{rule}].strategy: {source}")]
    Strategy { rule: usize, source: UnknownStrategy },
    #[error("rules[{rule}].{field}: at most {LIST_MAX} entries are allowed: remove some")]
    LongList { rule: usize, field: &'static str },
    #[error("rules[{rule}].{field}: an entry is empty or longer than {NAME_MAX} bytes: correct or remove it")]
    Entry { rule: usize, field: &'static str },
    #[error("rules[{rule}].reviewers[{reviewer}]: `{glob}`: {source}")]
    Reviewer { rule: usize, reviewer: usize, glob: String, source: NameError },
    #[error(
        "rules[{rule}].reviewTimeout: it is no time: write seconds, or a text such as `90s`, `5m`, `2h` or `1d`"
    )]
    ReviewTimeout { rule: usize },
    #[error("rules[{rule}].escalateTo: `{glob}`: {source}")]
    EscalateTo { rule: usize, glob: String, source: NameError },
}

/// Reason why a name or glob of agents is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NameError {
    #[error("it is empty: write `*` for every agent")]
    Empty,
    #[error("it is longer than {NAME_MAX} bytes: use a shorter one")]
    TooLong,
    #[error(transparent)]
    Glob(#[from] GlobError),
}
