//! Lookup of the first matching rule of an ordered list, name by name from the root of a tree.
//!
//! The state after the names of a directory holds only the rules that can still match below it, so a rule for
//! `a/**` costs nothing in `b`. The next names of these rules are indexed: with many rules, a step costs as
//! much as the rules that match the name. A rule that matches everything below ends the list, and rules at its
//! end that agree with what follows are dropped. A state without rules decides everything below it at once.

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

/// Ordered rules with their values. The first that matches a path decides.
#[derive(Debug)]
pub(crate) struct Matcher<V> {
    rules: Box<[(Arc<Pattern>, V)]>,
    default: V,
}

/// State of a [`Matcher`] after the names of a path.
#[derive(Debug)]
pub(crate) struct State<V> {
    /// Value of the path itself.
    value: V,
    /// Rule that decides the path itself; `None` for the default.
    decided_by: Option<u32>,
    /// Rules that can match below, in order.
    live: Box<[Live]>,
    /// Value of everything below, if no rule can make a difference.
    uniform: Option<V>,
    moves: OnceLock<Moves<V>>,
    fingerprint: OnceLock<[u8; 32]>,
}

/// Rule that can match below a path, with the positions that its pattern has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Live {
    rule: u32,
    positions: u64,
}

/// Steps from a state, indexed by name.
#[derive(Debug)]
struct Moves<V> {
    /// Steps by any name.
    always: Vec<Live>,
    literals: HashMap<Box<[u8]>, LiteralMove<V>>,
    extensions: HashMap<Box<[u8]>, Vec<Live>>,
    /// Other globs, by the byte that their names start with.
    globs: HashMap<Option<u8>, Vec<(Tokens, Live)>>,
    /// State after a name that only `always` matches; `None` for the same state again.
    miss: Option<Arc<State<V>>>,
}

#[derive(Debug)]
struct LiteralMove<V> {
    steps: Vec<Live>,
    /// State after the name, if no wildcard matches it.
    state: OnceLock<Arc<State<V>>>,
}

impl<V> Default for LiteralMove<V> {
    fn default() -> Self {
        Self { steps: Vec::new(), state: OnceLock::new() }
    }
}

impl<V: Value> State<V> {
    /// Returns the value of the path itself.
    pub(crate) fn value(&self) -> V {
        self.value
    }

    /// Returns the value of everything below, if no rule can make a difference.
    pub(crate) fn uniform(&self) -> Option<V> {
        self.uniform
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
        let live = rules.map(|((pattern, _), rule)| Live { rule, positions: pattern.start() });
        Arc::new(self.state(&live.collect::<Vec<_>>()))
    }

    /// Returns the state of an entry of a directory.
    pub(crate) fn descend(&self, state: &Arc<State<V>>, name: &[u8]) -> Arc<State<V>> {
        let moves = self.moves(state);
        let (literal, wildcards) = moves.hits(name);
        let steps = |hits: &[Live]| Arc::new(self.state(&merge(&moves.always, hits)));
        match (literal, wildcards.is_empty()) {
            (None, true) => Arc::clone(moves.miss.as_ref().unwrap_or(state)),
            (Some(literal), true) => Arc::clone(literal.state.get_or_init(|| steps(&literal.steps))),
            (None, false) => steps(&wildcards),
            (Some(literal), false) => steps(&[&wildcards[..], &literal.steps[..]].concat()),
        }
    }

    /// Returns the value of an entry of a directory, without its state.
    pub(crate) fn value_of(&self, state: &Arc<State<V>>, name: &[u8]) -> V {
        let moves = self.moves(state);
        let (literal, wildcards) = moves.hits(name);
        let missed = moves.miss.as_ref().unwrap_or(state).decided_by;
        let hits = wildcards.iter().chain(literal.into_iter().flat_map(|literal| &literal.steps));
        let decided = hits.filter(|hit| self.accepts(hit)).map(|hit| hit.rule).chain(missed).min();
        decided.map_or(self.default, |rule| self.rules[rule as usize].1)
    }

    /// Returns a hash of everything that decides the path itself and what is below it. Equal states of
    /// different matchers have the same fingerprint.
    pub(crate) fn fingerprint(&self, state: &State<V>) -> [u8; 32] {
        *state.fingerprint.get_or_init(|| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&[self.default.fingerprint_byte(), state.value.fingerprint_byte()]);
            for live in &state.live {
                let (pattern, value) = &self.rules[live.rule as usize];
                hasher.update(&[value.fingerprint_byte()]).update(&live.positions.to_le_bytes());
                hasher.update(&(pattern.text().len() as u64).to_le_bytes()).update(pattern.text().as_bytes());
            }
            *hasher.finalize().as_bytes()
        })
    }

    fn pattern(&self, live: &Live) -> &Pattern {
        &self.rules[live.rule as usize].0
    }

    fn value(&self, live: &Live) -> V {
        self.rules[live.rule as usize].1
    }

    fn accepts(&self, live: &Live) -> bool {
        self.pattern(live).is_end(live.positions)
    }

    /// Creates a state from rules with their positions, in order.
    fn state(&self, reached: &[Live]) -> State<V> {
        let decided_by = reached.iter().find(|live| self.accepts(live)).map(|live| live.rule);
        let value = decided_by.map_or(self.default, |rule| self.rules[rule as usize].1);
        let mut live = Vec::new();
        let mut last = None;
        for it in reached {
            let below = Live { positions: self.pattern(it).without_end(it.positions), ..*it };
            if self.pattern(it).matches_all_below(it.positions) {
                last = Some(below);
                break;
            }
            if below.positions != 0 {
                live.push(below);
            }
        }
        let rest = last.as_ref().map_or(self.default, |last| self.value(last));
        while live.last().is_some_and(|it| self.value(it) == rest) {
            live.pop();
        }
        let uniform = live.is_empty().then_some(rest);
        if rest != self.default {
            live.extend(last);
        }
        let (moves, fingerprint) = (OnceLock::new(), OnceLock::new());
        State { value, decided_by, live: live.into(), uniform, moves, fingerprint }
    }

    fn moves<'s>(&self, state: &'s State<V>) -> &'s Moves<V> {
        state.moves.get_or_init(|| self.index(state))
    }

    /// Indexes the steps from a state.
    fn index(&self, state: &State<V>) -> Moves<V> {
        let mut moves = Moves::default();
        for live in &state.live {
            let pattern = self.pattern(live);
            let step = |to: u32| Live { rule: live.rule, positions: pattern.close(1 << to) };
            for position in bits(live.positions) {
                match pattern.component(position) {
                    None => {}
                    Some(Component::Recursive) => moves.always.push(step(position)),
                    Some(Component::Literal(name)) => moves.add_literal(name, step(position + 1)),
                    Some(Component::Wildcard(glob)) => {
                        glob.alternatives().iter().for_each(|it| moves.add(it, step(position + 1)));
                    }
                }
            }
        }
        moves.always = merge(&moves.always, &[]);
        let miss = self.state(&moves.always);
        // A state that leads to itself must not refer to itself, or it would never be freed.
        let is_same =
            (miss.value, miss.decided_by, &miss.live) == (state.value, state.decided_by, &state.live);
        moves.miss = (!is_same).then(|| Arc::new(miss));
        moves
    }
}

impl<V> Default for Moves<V> {
    fn default() -> Self {
        Self {
            always: Vec::new(),
            literals: HashMap::new(),
            extensions: HashMap::new(),
            globs: HashMap::new(),
            miss: None,
        }
    }
}

impl<V> Moves<V> {
    fn add_literal(&mut self, name: &[u8], step: Live) {
        self.literals.entry(name.into()).or_default().steps.push(step);
    }

    fn add(&mut self, alternative: &Alternative, step: Live) {
        match alternative {
            Alternative::Any => self.always.push(step),
            Alternative::Literal(name) => self.add_literal(name, step),
            Alternative::Extension(extension) => {
                self.extensions.entry(extension.clone()).or_default().push(step);
            }
            Alternative::Tokens(tokens) => {
                let first = tokens.first_byte();
                self.globs.entry(first).or_default().push((tokens.clone(), step));
            }
        }
    }

    /// Returns the steps that a name allows besides those of any name: of literals, and of wildcards.
    fn hits(&self, name: &[u8]) -> (Option<&LiteralMove<V>>, Vec<Live>) {
        let mut wildcards = Vec::new();
        if !self.extensions.is_empty() {
            let steps = extension_of(name).and_then(|extension| self.extensions.get(extension));
            wildcards.extend(steps.into_iter().flatten());
        }
        let starts = [None, name.first().copied()].into_iter().take(1 + usize::from(!name.is_empty()));
        let globs = starts.filter_map(|start| self.globs.get(&start)).flatten();
        wildcards.extend(globs.filter(|(tokens, _)| tokens.is_match(name)).map(|(_, step)| step));
        (self.literals.get(name), wildcards)
    }
}

/// Joins two lists of steps into one with each rule once, in order.
fn merge(a: &[Live], b: &[Live]) -> Vec<Live> {
    let mut all = [a, b].concat();
    all.sort_by_key(|live| live.rule);
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

    fn matcher(rules: &[(String, bool)], default: bool) -> Matcher<bool> {
        let compile = |(text, value): &(String, bool)| (Arc::new(Pattern::parse(text).unwrap()), *value);
        Matcher::new(rules.iter().map(compile), default)
    }

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
            let mut promised: Option<bool> = None;
            for (depth, name) in names.iter().enumerate() {
                promised = promised.or(state.uniform());
                let path: Vec<&[u8]> = names[..=depth].iter().map(|name| name.as_bytes()).collect();
                let expected = expected(&matcher, &path);
                prop_assert_eq!(matcher.value_of(&state, name.as_bytes()), expected);
                state = matcher.descend(&state, name.as_bytes());
                prop_assert_eq!(state.value(), expected);
                prop_assert_eq!(promised.unwrap_or(expected), expected, "a uniform state decided otherwise");
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
        assert_eq!(state.live.len(), 1);
        assert_eq!(matcher.descend(&state, b"x").uniform(), Some(false));
        assert_eq!(matcher.descend(&state, b"y").uniform(), Some(true));
        assert_eq!(matcher.descend(&matcher.start(), b"other").uniform(), Some(true));
    }

    #[test]
    fn a_deep_path_of_recursive_rules_needs_one_state() {
        let matcher = matcher(&[("**/secret".to_owned(), false)], true);
        let first = matcher.descend(&matcher.start(), b"d");
        let deep = (0..1000).fold(Arc::clone(&first), |state, _| matcher.descend(&state, b"d"));
        assert!(Arc::ptr_eq(&first, &deep));
    }
}
