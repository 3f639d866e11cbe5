//! Policies: rules that give agents access to paths, and settings for conflicts.
//!
//! A [`PolicyDocument`] is compiled to a [`Policy`], which gives each agent its [`AgentPolicy`]. Among the rules that
//! match a path, the most specific one decides:
//!
//! 1. The paths of the rules are compared component by component. From most to least specific: a name, a component
//!    with wildcards and other text, `*`, `**`. A longer path is more specific than its beginning, unless it only adds
//!    a last `**`.
//! 2. Rules with equally specific paths are ranked by subject (the agents that a rule is for): a name, a glob, a group,
//!    everybody.
//! 3. Among equally specific rules, the stricter access wins.

mod access;
mod agent;
mod compile;
mod conflicts;
mod document;
mod error;
mod explain;
mod glob;
mod limits;
mod matcher;
mod pattern;
mod timeout;
mod view_key;

pub use access::Access;
pub use agent::{AgentPolicy, PathState};
pub use compile::Policy;
pub use conflicts::{ConflictSettings, Setting};
pub use document::{PolicyDocument, Rule};
pub use error::{NameError, PolicyError};
pub use explain::{Explanation, OutrankedRule, SettingDecision};
pub use glob::GlobError;
pub use pattern::PatternError;
pub use timeout::ReviewTimeout;
pub use view_key::ViewKey;

pub(crate) use compile::name_matches;
pub(crate) use matcher::State;
pub(crate) use view_key::ReadRules;
