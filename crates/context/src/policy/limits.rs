//! Limits of the size of policies.

/// Maximum number of rules.
pub(super) const RULES_MAX: usize = 10_000;
/// Maximum number of groups.
pub(super) const GROUPS_MAX: usize = 1_000;
/// Maximum number of members of all groups together.
pub(super) const MEMBERS_MAX: usize = 20_000;
/// Maximum length in bytes of the name of a group, of a name or glob of agents or reviewers, and of an entry of `keys`
/// or a name in `schema` (settings of a rule for merges of structured files).
pub(super) const NAME_MAX: usize = 256;
/// Maximum number of entries in each of the settings `keys`, `schema` and `reviewers` of a rule.
pub(super) const LIST_MAX: usize = 1_000;
