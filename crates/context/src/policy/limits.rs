//! Limits of policies.

/// Maximum number of rules.
pub(super) const RULES_MAX: usize = 10_000;
/// Maximum number of groups.
pub(super) const GROUPS_MAX: usize = 1_000;
/// Maximum number of members of all groups together.
pub(super) const MEMBERS_MAX: usize = 20_000;
/// Maximum length of a name or glob of an agent, group, key or reviewer, in bytes.
pub(super) const NAME_MAX: usize = 256;
/// Maximum number of keys, schema entries or reviewers of a rule.
pub(super) const LIST_MAX: usize = 1_000;
