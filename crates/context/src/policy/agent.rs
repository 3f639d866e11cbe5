//! Rules of a policy that apply to one agent, and the access that they give.

use std::fmt;
use std::sync::Arc;

use super::access::Access;
use super::compile::{ApplicableRule, Policy};
use super::document::Rule;
use super::matcher::{Matcher, State, Value};
use super::pattern::names;
use super::view_key::{ReadRules, ViewKey};

/// Rules of a policy that apply to one agent. Cloning is cheap.
#[derive(Clone)]
pub struct AgentPolicy(Arc<AgentRules>);

struct AgentRules {
    agent: String,
    policy: Policy,
    /// Rules that apply to the agent, the most specific first.
    rules: Vec<ApplicableRule>,
    /// Lookup of the access by path.
    access: Arc<Matcher<Access>>,
    /// State of `access` at the root of a tree.
    start: Arc<State<Access>>,
    /// Rules reduced to readable or not. They select the view of the agent: the part of a tree that it may read.
    read: Arc<ReadRules>,
}

/// Access at a path of a tree and below it. [`Self::descend`] moves down by one name, so that a walk through a tree
/// considers only the rules that can still match.
#[derive(Debug, Clone)]
pub struct PathState {
    matcher: Arc<Matcher<Access>>,
    state: Arc<State<Access>>,
}

impl Policy {
    /// Returns the rules that apply to an agent. The cost grows with the number of rules, so use the result for several
    /// paths.
    pub fn for_agent(&self, agent: &str) -> AgentPolicy {
        AgentPolicy::new(self.clone(), agent)
    }
}

impl AgentPolicy {
    fn new(policy: Policy, agent: &str) -> Self {
        let rules = policy.applicable(agent);
        let mut by_access: Vec<(&ApplicableRule, Access)> =
            rules.iter().filter_map(|rule| Some((rule, policy.rule(rule.index).access?))).collect();
        // Among equally specific rules the strictest is first. The sort is stable.
        by_access.sort_by(|(a, a_access), (b, b_access)| {
            a.compare_specificity(b).reverse().then(a_access.cmp(b_access))
        });
        let ordered = by_access.iter().map(|(rule, access)| (Arc::clone(&rule.pattern), *access));
        let access = Arc::new(Matcher::new(ordered.clone(), policy.default_access()));
        let visible = ordered.map(|(pattern, access)| (pattern, access.can_read()));
        let read = Arc::new(ReadRules::new(visible, policy.default_access().can_read()));
        let start = access.start();
        Self(Arc::new(AgentRules { agent: agent.to_owned(), policy, rules, access, start, read }))
    }

    /// Returns the name of the agent.
    pub fn agent(&self) -> &str {
        &self.0.agent
    }

    /// Returns the access at the root of a tree, from which a walk descends.
    pub fn root(&self) -> PathState {
        PathState { matcher: Arc::clone(&self.0.access), state: Arc::clone(&self.0.start) }
    }

    /// Returns the access at a path. Components are separated by `/`; empty ones are ignored.
    pub fn access(&self, path: &[u8]) -> Access {
        self.at(path).access()
    }

    /// Returns the state at a path.
    pub fn at(&self, path: &[u8]) -> PathState {
        names(path).fold(self.root(), |state, name| state.descend(name))
    }

    /// Returns the key of the agent's view (the part of a tree that it may read). Agents with the same rules for
    /// reading have the same key.
    pub fn view_key(&self) -> ViewKey {
        self.0.read.key()
    }

    /// Returns true if the agent may read every path.
    pub fn reads_everything(&self) -> bool {
        self.0.read.allow_everything()
    }

    /// Returns true if the agent may read, add, change and delete every path.
    pub fn has_full_access_everywhere(&self) -> bool {
        self.root().access_of_all_below() == Some(Access::Full)
    }

    /// Returns true if the agent may not add, change or delete any path. May return false for such an agent, if
    /// stricter or more specific rules override each rule that allows changes.
    pub fn is_read_only(&self) -> bool {
        for rule in self.applicable().iter().map(|rule| self.rule(rule.index)) {
            match rule.access {
                Some(access) if access.can_add() => return false,
                // This rule matches every path, so less specific rules and the default decide nothing.
                Some(_) if rule.path == "**" => return true,
                _ => {}
            }
        }
        !self.0.policy.default_access().can_add()
    }

    pub(crate) fn read_rules(&self) -> &ReadRules {
        &self.0.read
    }

    pub(super) fn applicable(&self) -> &[ApplicableRule] {
        &self.0.rules
    }

    pub(super) fn rule(&self, index: usize) -> &Rule {
        self.0.policy.rule(index)
    }

    pub(super) fn default_access(&self) -> Access {
        self.0.policy.default_access()
    }

    /// Returns the rules that match a path, the most specific first.
    pub(super) fn matching(&self, path: &[u8]) -> Vec<&ApplicableRule> {
        let names: Vec<&[u8]> = names(path).collect();
        self.0.rules.iter().filter(|rule| rule.pattern.is_match(&names)).collect()
    }
}

impl fmt::Debug for AgentPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = out.debug_struct("AgentPolicy");
        debug.field("agent", &self.0.agent).field("policy", self.0.policy.document()).finish()
    }
}

impl PathState {
    /// Returns the state of the entry `name` of this directory.
    #[must_use]
    pub fn descend(&self, name: &[u8]) -> Self {
        let state = self.matcher.descend(&self.state, name);
        Self { matcher: Arc::clone(&self.matcher), state }
    }

    /// Returns the access at the path itself.
    pub fn access(&self) -> Access {
        self.state.value()
    }

    /// Returns the access at every path below; `None` if a rule can make a difference there.
    pub fn access_of_all_below(&self) -> Option<Access> {
        self.state.value_of_all_below()
    }
}

impl Value for Access {
    fn fingerprint_byte(self) -> u8 {
        self as u8
    }
}
