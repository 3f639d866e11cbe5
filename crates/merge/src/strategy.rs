//! Ways to merge files.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::file::{Input, Outcome, Side};
use crate::json::Json;
use crate::notebook::Notebooks;
use crate::policy::FileRule;
use crate::structured::Structured;
use crate::toml::Toml;
use crate::yaml::Yaml;
use crate::{crdt, kinds, simple, text_strategy};

/// A way to merge files of one kind.
pub trait Strategy: Send + Sync {
    /// What policies call it.
    fn name(&self) -> &'static str;

    /// Merges three versions.
    fn merge(&self, input: &Input<'_>, rule: &FileRule) -> Outcome;

    /// The content if all that is in conflict were settled for one side: what is not in conflict is merged.
    fn settle(&self, input: &Input<'_>, rule: &FileRule, side: Side) -> Vec<u8> {
        let _ = rule;
        input.versions.of(side).to_vec()
    }

    /// Ours and theirs with all that could be merged in both, so that they differ only where they are in conflict. None if
    /// lines tell that.
    fn in_conflict(&self, input: &Input<'_>, rule: &FileRule) -> Option<[Vec<u8>; 2]> {
        let _ = (input, rule);
        None
    }

    /// Whether it is asked even if only one side changed the file, or both did the same.
    fn is_always_asked(&self) -> bool {
        false
    }

    /// Whether changes of both sides add up even if they are equal, as entries of a log do. Such a strategy is asked if both sides
    /// made the same of a file.
    fn accumulates(&self, rule: &FileRule) -> bool {
        let _ = rule;
        false
    }

    /// Whether somebody has to look at every change of theirs.
    fn wants_review(&self) -> bool {
        false
    }
}

/// All strategies, by name.
#[derive(Clone)]
pub struct Strategies(BTreeMap<&'static str, Arc<dyn Strategy>>);

impl Default for Strategies {
    /// Those that come with this crate.
    fn default() -> Self {
        let mut all = Self(BTreeMap::new());
        all.add(Arc::new(text_strategy::Text));
        all.add(Arc::new(simple::Binary));
        all.add(Arc::new(simple::Critical));
        all.add(Arc::new(simple::Log));
        all.add(Arc::new(crdt::CrdtJson));
        all.add(Arc::new(Notebooks));
        all.add(Arc::new(Structured(Json)));
        all.add(Arc::new(Structured(Toml)));
        all.add(Arc::new(Structured(Yaml)));
        all
    }
}

impl Strategies {
    /// Adds one, or replaces the one of the same name.
    pub fn add(&mut self, strategy: Arc<dyn Strategy>) {
        self.0.insert(strategy.name(), strategy);
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Strategy>> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &dyn Strategy> {
        self.0.values().map(|strategy| &**strategy)
    }

    /// The names of all.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// The one that a rule names, else the one for the type of the file.
    pub(crate) fn choose(
        &self,
        input: &Input<'_>,
        rule: &FileRule,
    ) -> Result<&Arc<dyn Strategy>, UnknownStrategy> {
        self.named(rule.strategy.as_deref().unwrap_or_else(|| kinds::strategy_for(input)))
    }

    /// The one of this name, which a rule has written.
    pub(crate) fn named(&self, name: &str) -> Result<&Arc<dyn Strategy>, UnknownStrategy> {
        self.get(name).ok_or_else(|| UnknownStrategy { name: name.to_owned(), known: self.names().collect() })
    }
}

impl fmt::Debug for Strategies {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

/// A rule names a strategy that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no strategy `{name}`; there are: {}", known.join(", "))]
pub struct UnknownStrategy {
    name: String,
    known: Vec<&'static str>,
}
