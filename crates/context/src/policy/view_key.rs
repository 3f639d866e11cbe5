//! Read rules: the rules of an agent reduced to readable or not. They decide the agent's view: the part of a tree that
//! it may read. Agents with equal read rules share their views. The key of a view is the hash of these rules.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::matcher::{Matcher, State};
use super::pattern::{Pattern, names};

/// Context string of the hash of read rules. Its version must change when the canonical form changes.
const KEY_DOMAIN: &str = "elevo workspace view key v1";

/// Maximum number of pairs of rules that are compared. After that, rules that could be dropped are kept.
const COMPARISONS_MAX: usize = 20_000;

/// Pattern of a rule, and true if the paths that it matches are readable.
type ReadRule = (Arc<Pattern>, bool);

/// Identity of a view: the hash of the read rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewKey([u8; 32]);

impl ViewKey {
    /// Returns the bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ViewKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for ViewKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ViewKey({self})")
    }
}

/// Rules that say which paths are readable, in canonical form.
#[derive(Debug)]
pub(crate) struct ReadRules {
    /// Rules; true means readable.
    matcher: Matcher<bool>,
    /// State at the root of a tree.
    start: Arc<State<bool>>,
    /// Hash of the rules.
    key: ViewKey,
}

impl ReadRules {
    /// Creates read rules from the rules of an agent, the most specific first. `default` is true if paths that no rule
    /// matches are readable.
    pub(crate) fn new(rules: impl Iterator<Item = (Arc<Pattern>, bool)>, default: bool) -> Self {
        let rules = reduce(rules, default);
        let key = hash(&rules, default);
        let matcher = Matcher::new(rules, default);
        let start = matcher.start();
        Self { matcher, start, key }
    }

    pub(crate) fn key(&self) -> ViewKey {
        self.key
    }

    /// Returns true if every path is readable.
    pub(crate) fn allow_everything(&self) -> bool {
        self.start.is_everywhere(true)
    }

    /// Returns the state at the root of a tree.
    pub(crate) fn start(&self) -> Arc<State<bool>> {
        Arc::clone(&self.start)
    }

    /// Returns true if the rules show a path and everything that could be below it.
    pub(crate) fn shows_whole(&self, path: &[u8]) -> bool {
        self.at(path).is_everywhere(true)
    }

    /// Returns the state at a path.
    pub(crate) fn at(&self, path: &[u8]) -> Arc<State<bool>> {
        names(path).fold(self.start(), |state, name| self.matcher.descend(&state, name))
    }

    pub(crate) fn matcher(&self) -> &Matcher<bool> {
        &self.matcher
    }
}

/// Reduces rules to a canonical form, so that agents which differ only in their rights to write have the same view key.
/// `rules` are in order of precedence.
///
/// Drops a rule if an earlier rule has the same path. Also drops a rule with the value of the default if no later rule
/// with the other value overlaps it. The order of adjacent rules with the same value makes no difference, so they are
/// sorted.
fn reduce(rules: impl Iterator<Item = (Arc<Pattern>, bool)>, default: bool) -> Vec<ReadRule> {
    let mut seen = HashSet::new();
    let mut rules: Vec<ReadRule> = rules.filter(|(pattern, _)| seen.insert(Arc::clone(pattern))).collect();
    let mut later_rules = LaterRules::default();
    rules.reverse();
    rules.retain(|(pattern, readable)| {
        if *readable == default {
            return later_rules.may_overlap(pattern);
        }
        later_rules.add(pattern);
        true
    });
    rules.reverse();
    for run in rules.chunk_by_mut(|a, b| a.1 == b.1) {
        run.sort_by(|a, b| a.0.text().cmp(b.0.text()));
    }
    rules
}

/// Rules after the one that [`reduce`] looks at whose value is not the default, indexed by their first component.
#[derive(Default)]
struct LaterRules {
    all: Vec<Arc<Pattern>>,
    by_first_component: HashMap<Box<[u8]>, Vec<Arc<Pattern>>>,
    /// Rules whose first component has wildcards.
    with_first_wildcard: Vec<Arc<Pattern>>,
    /// Number of comparisons so far.
    comparisons: usize,
}

impl LaterRules {
    fn add(&mut self, pattern: &Arc<Pattern>) {
        self.all.push(Arc::clone(pattern));
        match pattern.first_name() {
            Some(name) => self.by_first_component.entry(name.into()).or_default().push(Arc::clone(pattern)),
            None => self.with_first_wildcard.push(Arc::clone(pattern)),
        }
    }

    /// Returns true if a path may match `pattern` and one of these rules, or after [`COMPARISONS_MAX`] comparisons.
    fn may_overlap(&mut self, pattern: &Pattern) -> bool {
        let (named, others) = match pattern.first_name() {
            Some(name) => (self.by_first_component.get(name), &self.with_first_wildcard),
            None => (None, &self.all),
        };
        let mut candidates = named.into_iter().flatten().chain(others);
        candidates.any(|other| {
            self.comparisons += 1;
            self.comparisons > COMPARISONS_MAX || pattern.overlaps(other)
        })
    }
}

fn hash(rules: &[(Arc<Pattern>, bool)], default: bool) -> ViewKey {
    let mut hasher = blake3::Hasher::new_derive_key(KEY_DOMAIN);
    hasher.update(&[u8::from(default)]);
    for (pattern, readable) in rules {
        let text = pattern.text().as_bytes();
        hasher.update(&[u8::from(*readable)]).update(&(text.len() as u64).to_le_bytes()).update(text);
    }
    ViewKey(*hasher.finalize().as_bytes())
}
