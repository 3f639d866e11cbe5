//! Read rules: the policy of an agent reduced to readable or not.

use std::fmt;
use std::sync::Arc;

use super::matcher::{Matcher, State};
use super::pattern::{Pattern, names};

/// Domain of the hash of read rules. A change of the canonical form changes its version.
const KEY_DOMAIN: &str = "elevo workspace view key v1";

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
    matcher: Matcher<bool>,
    start: Arc<State<bool>>,
    key: ViewKey,
}

impl ReadRules {
    /// Creates read rules from the rules of an agent in order of precedence.
    ///
    /// Adjacent rules with the same value commute, so each run is sorted. Rules at the end that agree with the
    /// default have no effect and are dropped.
    pub(crate) fn new(rules: impl Iterator<Item = (Arc<Pattern>, bool)>, default: bool) -> Self {
        let mut rules: Vec<(Arc<Pattern>, bool)> = rules.collect();
        while rules.last().is_some_and(|(_, readable)| *readable == default) {
            rules.pop();
        }
        for run in rules.chunk_by_mut(|a, b| a.1 == b.1) {
            run.sort_by(|a, b| a.0.text().cmp(b.0.text()));
        }
        rules.dedup_by(|next, previous| (next.0.text(), next.1) == (previous.0.text(), previous.1));
        let key = hash(&rules, default);
        let matcher = Matcher::new(rules, default);
        let start = matcher.start();
        Self { matcher, start, key }
    }

    pub(crate) fn key(&self) -> ViewKey {
        self.key
    }

    pub(crate) fn allow_everything(&self) -> bool {
        self.start.value() && self.start.uniform() == Some(true)
    }

    pub(crate) fn start(&self) -> Arc<State<bool>> {
        Arc::clone(&self.start)
    }

    /// Returns the state at a path.
    pub(crate) fn at(&self, path: &[u8]) -> Arc<State<bool>> {
        names(path).fold(self.start(), |state, name| self.matcher.descend(&state, name))
    }

    pub(crate) fn matcher(&self) -> &Matcher<bool> {
        &self.matcher
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
