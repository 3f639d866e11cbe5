//! Limits of policies.

/// Largest number of rules.
pub(super) const RULES_MAX: usize = 10_000;
/// Largest number of groups.
pub(super) const GROUPS_MAX: usize = 1_000;
/// Largest number of members of all groups together.
pub(super) const MEMBERS_MAX: usize = 20_000;
/// Longest name or glob of an agent, group, key or reviewer in bytes.
pub(super) const NAME_MAX: usize = 256;
/// Largest number of keys, schema entries or reviewers of a rule.
pub(super) const LIST_MAX: usize = 1_000;
