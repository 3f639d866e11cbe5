//! Registry of merge strategies: algorithms that merge the three versions of a file, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::file::Input;
use crate::file_settings::FileSettings;
use crate::json::Json;
use crate::notebook::Notebooks;
use crate::strategy::Strategy;
use crate::structured::Structured;
use crate::toml::Toml;
use crate::yaml::Yaml;
use crate::{crdt, file_type, text_strategy, unparsed_strategies};

/// Registry of strategies by name.
#[derive(Clone)]
pub struct Strategies(BTreeMap<&'static str, Arc<dyn Strategy>>);

impl Default for Strategies {
    /// Returns a registry with the strategies of this crate.
    fn default() -> Self {
        let mut registry = Self(BTreeMap::new());
        registry.add(Arc::new(text_strategy::Text));
        registry.add(Arc::new(unparsed_strategies::Binary));
        registry.add(Arc::new(unparsed_strategies::AlwaysReview));
        registry.add(Arc::new(unparsed_strategies::Log));
        // For `.crdt.json` files: JSON that is merged as a conflict-free replicated data type (CRDT).
        registry.add(Arc::new(crdt::CrdtJson));
        registry.add(Arc::new(Notebooks));
        registry.add(Arc::new(Structured(Json)));
        registry.add(Arc::new(Structured(Toml)));
        registry.add(Arc::new(Structured(Yaml)));
        registry
    }
}

impl Strategies {
    /// Adds a strategy; replaces one of the same name.
    pub fn add(&mut self, strategy: Arc<dyn Strategy>) {
        self.0.insert(strategy.name(), strategy);
    }

    /// Returns the strategy with this name; `None` if it is not registered.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Strategy>> {
        self.0.get(name)
    }

    /// Iterates over all strategies, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = &dyn Strategy> {
        self.0.values().map(|strategy| &**strategy)
    }

    /// Iterates over the names of all strategies, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Returns the strategy that the settings name, or else the one for the type of the file.
    pub(crate) fn choose(
        &self,
        input: &Input<'_>,
        settings: &FileSettings,
    ) -> Result<&Arc<dyn Strategy>, UnknownStrategy> {
        self.get_or_unknown(settings.strategy.as_deref().unwrap_or_else(|| file_type::strategy_for(input)))
    }

    /// Returns the strategy of this name, or an error that lists the known ones.
    pub fn get_or_unknown(&self, name: &str) -> Result<&Arc<dyn Strategy>, UnknownStrategy> {
        self.get(name).ok_or_else(|| UnknownStrategy { name: name.to_owned(), known: self.names().collect() })
    }
}

impl fmt::Debug for Strategies {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

/// Error for the name of a strategy that is not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown strategy `{name}`; known strategies: {}", known.join(", "))]
pub struct UnknownStrategy {
    name: String,
    known: Vec<&'static str>,
}
