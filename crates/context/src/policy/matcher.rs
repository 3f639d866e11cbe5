//! Lookup of the first matching rule of an ordered list, name by name from the root of a tree.
//!
//! The state at a directory has only the rules that can still match below the directory, so a rule for `a/**` costs
//! nothing in `b`. The rules are indexed by the next name that they match: even with many rules, the cost of a step
//! grows only with the number of rules that match the name.
//!
//! A rule that matches every path below a directory ends the list of the state there, because no later rule can decide.
//! Without such a rule, the default decides paths that no rule matches. Rules directly before the end of the list make
//! no difference if they have the same value as that last rule, or as the default; they are dropped. If no rule remains
//! before the end, all paths below have the same value.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::glob::{Alternative, Tokens, extension_of};
use super::pattern::{Component, Pattern, bits};

/// Value of a rule.
pub(crate) trait Value: Copy + Eq + fmt::Debug {
    /// Returns a byte that identifies the value in fingerprints.
    fn fingerprint_byte(self) -> u8;
}

/// Ordered rules with their values. The first rule that matches a path decides its value.
#[derive(Debug)]
pub(crate) struct Matcher<V> {
    rules: Box<[(Arc<Pattern>, V)]>,
    /// Value of a path that no rule matches.
    default: V,
}

/// State of a [`Matcher`] at a path.
#[derive(Debug)]
pub(crate) struct State<V> {
    /// Value of the path itself.
    value: V,
    /// Rule that decides the path itself; `None` for the default.
    decided_by: Option<u32>,
    /// Rules that can match below, in order of precedence.
    active: Box<[ActiveRule]>,
    /// Value of every path below; `None` if a rule can make a difference there.
    value_of_all_below: Option<V>,
    /// Transitions to the entries of the directory, made on first use.
    transitions: OnceLock<Transitions<V>>,
    /// See [`Matcher::fingerprint`].
    fingerprint: OnceLock<[u8; 32]>,
}

/// Rule that can match below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ActiveRule {
    /// Index in [`Matcher::rules`].
    rule: u32,
    /// Bit set of the components of the pattern that can match the next name. The bit after the last component means
    /// that the pattern has matched.
    positions: u64,
}

/// Transitions from the state at a directory to those at its entries: the rules that stay active, with their new
/// positions, indexed by the name of the entry.
#[derive(Debug)]
struct Transitions<V> {
    /// Rules that stay active after any name.
    always: Vec<ActiveRule>,
    /// Transitions by name.
    literals: HashMap<Box<[u8]>, LiteralTransition<V>>,
    /// Rules that stay active after a name `*.ext`, by extension: the bytes after the last dot of the name.
    extensions: HashMap<Box<[u8]>, Vec<ActiveRule>>,
    /// Other globs, each with the rule that stays active after a name that matches. The key is the first byte of all
    /// matching names; `None` if these start with different bytes.
    globs: HashMap<Option<u8>, Vec<(Tokens, ActiveRule)>>,
    /// State after a name that `literals`, `extensions` and `globs` do not match; `None` if the state does not change.
    after_other_name: Option<Arc<State<V>>>,
}

/// Transition for one name.
#[derive(Debug)]
struct LiteralTransition<V> {
    /// Rules that stay active after the name, in addition to [`Transitions::always`].
    targets: Vec<ActiveRule>,
    /// State after the name, made on first use. Not used if wildcards match the name, too.
    state: OnceLock<Arc<State<V>>>,
}

impl<V> Default for LiteralTransition<V> {
    fn default() -> Self {
        Self { targets: Vec::new(), state: OnceLock::new() }
    }
}

impl<V: Value> State<V> {
    /// Returns the value of the path itself.
    pub(crate) fn value(&self) -> V {
        self.value
    }

    /// Returns the value of every path below; `None` if a rule can make a difference there.
    pub(crate) fn value_of_all_below(&self) -> Option<V> {
        self.value_of_all_below
    }

    /// Returns true if the path itself and every path below it have this value.
    pub(crate) fn is_everywhere(&self, value: V) -> bool {
        self.value == value && self.value_of_all_below == Some(value)
    }
}

impl<V: Value> Matcher<V> {
    /// Creates a matcher from rules in order of precedence.
    pub(crate) fn new(rules: impl IntoIterator<Item = (Arc<Pattern>, V)>, default: V) -> Self {
        Self { rules: rules.into_iter().collect(), default }
    }

    /// Returns the state of the root.
    pub(crate) fn start(&self) -> Arc<State<V>> {
        let rules = self.rules.iter().zip(0..);
        let active = rules.map(|((pattern, _), rule)| ActiveRule { rule, positions: pattern.start() });
        Arc::new(self.state(&active.collect::<Vec<_>>()))
    }

    /// Returns the state of an entry of a directory.
    pub(crate) fn descend(&self, state: &Arc<State<V>>, name: &[u8]) -> Arc<State<V>> {
        let transitions = self.transitions(state);
        let (literal, wildcards) = transitions.targets(name);
        let next = |targets: &[ActiveRule]| Arc::new(self.state(&merge(&transitions.always, targets)));
        match (literal, wildcards.is_empty()) {
            (None, true) => Arc::clone(transitions.after_other_name.as_ref().unwrap_or(state)),
            (Some(literal), true) => Arc::clone(literal.state.get_or_init(|| next(&literal.targets))),
            (None, false) => next(&wildcards),
            (Some(literal), false) => next(&[&wildcards[..], &literal.targets[..]].concat()),
        }
    }

    /// Returns the value of an entry of a directory, without its state.
    pub(crate) fn value_of(&self, state: &Arc<State<V>>, name: &[u8]) -> V {
        let transitions = self.transitions(state);
        let (literal, wildcards) = transitions.targets(name);
        let decided_by_always = transitions.after_other_name.as_ref().unwrap_or(state).decided_by;
        let targets = wildcards.iter().chain(literal.into_iter().flat_map(|literal| &literal.targets));
        let accepting = targets.filter(|target| self.accepts(target)).map(|target| target.rule);
        let decided = accepting.chain(decided_by_always).min();
        decided.map_or(self.default, |rule| self.rules[rule as usize].1)
    }

    /// Returns a hash of everything that decides the values of the path itself and of the paths below it. Equal states
    /// of different matchers have the same fingerprint.
    pub(crate) fn fingerprint(&self, state: &State<V>) -> [u8; 32] {
        *state.fingerprint.get_or_init(|| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&[self.default.fingerprint_byte(), state.value.fingerprint_byte()]);
            for active in &state.active {
                let (pattern, value) = &self.rules[active.rule as usize];
                hasher.update(&[value.fingerprint_byte()]).update(&active.positions.to_le_bytes());
                hasher.update(&(pattern.text().len() as u64).to_le_bytes()).update(pattern.text().as_bytes());
            }
            *hasher.finalize().as_bytes()
        })
    }

    fn pattern(&self, active: &ActiveRule) -> &Pattern {
        &self.rules[active.rule as usize].0
    }

    fn value(&self, active: &ActiveRule) -> V {
        self.rules[active.rule as usize].1
    }

    /// Returns true if the pattern of a rule has matched the whole path.
    fn accepts(&self, active: &ActiveRule) -> bool {
        self.pattern(active).is_end(active.positions)
    }

    /// Creates a state from the rules that have not failed at the path, in order, with their positions.
    fn state(&self, reached: &[ActiveRule]) -> State<V> {
        let decided_by = reached.iter().find(|active| self.accepts(active)).map(|active| active.rule);
        let value = decided_by.map_or(self.default, |rule| self.rules[rule as usize].1);
        let mut active = Vec::new();
        // Rule that matches every path below.
        let mut catch_all = None;
        for it in reached {
            let below = ActiveRule { positions: self.pattern(it).without_end(it.positions), ..*it };
            if self.pattern(it).matches_all_below(it.positions) {
                catch_all = Some(below);
                break;
            }
            if below.positions != 0 {
                active.push(below);
            }
        }
        let fallback = catch_all.as_ref().map_or(self.default, |rule| self.value(rule));
        while active.last().is_some_and(|it| self.value(it) == fallback) {
            active.pop();
        }
        let value_of_all_below = active.is_empty().then_some(fallback);
        if fallback != self.default {
            active.extend(catch_all);
        }
        let (transitions, fingerprint) = (OnceLock::new(), OnceLock::new());
        State { value, decided_by, active: active.into(), value_of_all_below, transitions, fingerprint }
    }

    fn transitions<'s>(&self, state: &'s State<V>) -> &'s Transitions<V> {
        state.transitions.get_or_init(|| self.index(state))
    }

    /// Indexes the transitions from a state.
    fn index(&self, state: &State<V>) -> Transitions<V> {
        let mut transitions = Transitions::default();
        for active in &state.active {
            let pattern = self.pattern(active);
            let target =
                |to: u32| ActiveRule { rule: active.rule, positions: pattern.epsilon_closure(1 << to) };
            for position in bits(active.positions) {
                match pattern.component(position) {
                    None => {}
                    Some(Component::Recursive) => transitions.always.push(target(position)),
                    Some(Component::Literal(name)) => transitions.add_literal(name, target(position + 1)),
                    Some(Component::Wildcard(glob)) => {
                        glob.alternatives().iter().for_each(|it| transitions.add(it, target(position + 1)));
                    }
                }
            }
        }
        transitions.always = merge(&transitions.always, &[]);
        let after_other_name = self.state(&transitions.always);
        // A state must not hold a reference to itself, or it would never be freed.
        let is_same = (after_other_name.value, after_other_name.decided_by, &after_other_name.active)
            == (state.value, state.decided_by, &state.active);
        transitions.after_other_name = (!is_same).then(|| Arc::new(after_other_name));
        transitions
    }
}

impl<V> Default for Transitions<V> {
    fn default() -> Self {
        Self {
            always: Vec::new(),
            literals: HashMap::new(),
            extensions: HashMap::new(),
            globs: HashMap::new(),
            after_other_name: None,
        }
    }
}

impl<V> Transitions<V> {
    fn add_literal(&mut self, name: &[u8], target: ActiveRule) {
        self.literals.entry(name.into()).or_default().targets.push(target);
    }

    fn add(&mut self, alternative: &Alternative, target: ActiveRule) {
        match alternative {
            Alternative::Any => self.always.push(target),
            Alternative::Literal(name) => self.add_literal(name, target),
            Alternative::Extension(extension) => {
                self.extensions.entry(extension.clone()).or_default().push(target);
            }
            Alternative::Tokens(tokens) => {
                let first = tokens.first_byte();
                self.globs.entry(first).or_default().push((tokens.clone(), target));
            }
        }
    }

    /// Returns the rules that stay active after a name, in addition to `always`: those with the name as a literal, and
    /// those with a wildcard that matches the name.
    fn targets(&self, name: &[u8]) -> (Option<&LiteralTransition<V>>, Vec<ActiveRule>) {
        let mut wildcards = Vec::new();
        if !self.extensions.is_empty() {
            // A name has one extension: the bytes after its last dot. A name without a dot has none.
            let targets = extension_of(name).and_then(|extension| self.extensions.get(extension));
            wildcards.extend(targets.into_iter().flatten());
        }
        let starts = [None, name.first().copied()].into_iter().take(1 + usize::from(!name.is_empty()));
        let globs = starts.filter_map(|start| self.globs.get(&start)).flatten();
        wildcards.extend(globs.filter(|(tokens, _)| tokens.is_match(name)).map(|(_, target)| target));
        (self.literals.get(name), wildcards)
    }
}

/// Joins two lists into one, sorted by rule. A rule that is in both lists gets the positions of both.
fn merge(a: &[ActiveRule], b: &[ActiveRule]) -> Vec<ActiveRule> {
    let mut all = [a, b].concat();
    all.sort_by_key(|active| active.rule);
    all.dedup_by(|next, first| {
        let is_same = next.rule == first.rule;
        if is_same {
            first.positions |= next.positions;
        }
        is_same
    });
    all
}

impl Value for bool {
    fn fingerprint_byte(self) -> u8 {
        u8::from(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Compiles rules. `default` is the value of paths that no rule matches.
    fn matcher(rules: &[(String, bool)], default: bool) -> Matcher<bool> {
        let compile = |(text, value): &(String, bool)| (Arc::new(Pattern::parse(text).unwrap()), *value);
        Matcher::new(rules.iter().map(compile), default)
    }

    /// Returns the value that the first matching rule gives a path, without states.
    fn expected(matcher: &Matcher<bool>, names: &[&[u8]]) -> bool {
        let first = matcher.rules.iter().find(|(pattern, _)| pattern.is_match(names));
        first.map_or(matcher.default, |(_, value)| *value)
    }

    fn component() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["a", "b", "c", "*", "**", "a*", "*.x", "{a,b}", "?", "[!a]", "{a.x,*}"])
    }

    fn patterns() -> impl Strategy<Value = Vec<(String, bool)>> {
        let pattern = prop::collection::vec(component(), 1..5).prop_map(|names| names.join("/"));
        prop::collection::vec((pattern, any::<bool>()), 0..8)
    }

    fn names() -> impl Strategy<Value = Vec<&'static str>> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "ab", "a.x", "d"]), 0..6)
    }

    proptest! {
        #[test]
        fn steps_decide_like_a_search_of_the_list(rules in patterns(), default: bool, names in names()) {
            let matcher = matcher(&rules, default);
            let mut state = matcher.start();
            let mut value_of_all_below: Option<bool> = None;
            for (depth, name) in names.iter().enumerate() {
                value_of_all_below = value_of_all_below.or(state.value_of_all_below());
                let path: Vec<&[u8]> = names[..=depth].iter().map(|name| name.as_bytes()).collect();
                let expected = expected(&matcher, &path);
                prop_assert_eq!(matcher.value_of(&state, name.as_bytes()), expected);
                state = matcher.descend(&state, name.as_bytes());
                prop_assert_eq!(state.value(), expected);
                let promised = value_of_all_below.unwrap_or(expected);
                prop_assert_eq!(promised, expected, "a path below has another value");
            }
        }

        #[test]
        fn equal_fingerprints_decide_equally(
            rules in patterns(),
            names in prop::collection::vec(names(), 2),
            below in names(),
        ) {
            let matcher = matcher(&rules, true);
            let descend = |names: &[&str]| {
                names.iter().fold(matcher.start(), |state, name| matcher.descend(&state, name.as_bytes()))
            };
            let states = [descend(&names[0]), descend(&names[1])];
            if matcher.fingerprint(&states[0]) == matcher.fingerprint(&states[1]) {
                let values = [0, 1].map(|side: usize| {
                    let path = names[side].iter().chain(&below).map(|name| name.as_bytes());
                    expected(&matcher, &path.collect::<Vec<_>>())
                });
                prop_assert_eq!(values[0], values[1]);
            }
        }
    }

    #[test]
    fn rules_that_cannot_match_below_are_dropped() {
        let rules: Vec<(String, bool)> = (0..1000).map(|n| (format!("d{n}/x/**"), false)).collect();
        let matcher = matcher(&rules, true);
        let state = matcher.descend(&matcher.start(), b"d7");
        assert_eq!(state.active.len(), 1);
        assert_eq!(matcher.descend(&state, b"x").value_of_all_below(), Some(false));
        assert_eq!(matcher.descend(&state, b"y").value_of_all_below(), Some(true));
        assert_eq!(matcher.descend(&matcher.start(), b"other").value_of_all_below(), Some(true));
    }

    #[test]
    fn a_deep_path_of_recursive_rules_needs_one_state() {
        let matcher = matcher(&[("**/secret".to_owned(), false)], true);
        let first = matcher.descend(&matcher.start(), b"d");
        let deep = (0..1000).fold(Arc::clone(&first), |state, _| matcher.descend(&state, b"d"));
        assert!(Arc::ptr_eq(&first, &deep));
    }
}
