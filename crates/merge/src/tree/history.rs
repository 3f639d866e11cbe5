//! Access to the state that strategies store with versions.

use std::fmt;
use std::sync::Arc;

use super::conflict::TreeVersion;

/// Lookup of the state that a strategy stored with a version of a file, such as the history of a CRDT.
///
/// A merge returns new state in [`MergedFile::history`](super::MergedFile::history); the caller stores it
/// with the version that it creates. Strategies work without stored state, and derive it from the version
/// itself.
#[derive(Clone, Default)]
pub struct HistorySource(Option<Arc<Source>>);

type Source = dyn Fn(&TreeVersion) -> Option<Vec<u8>> + Send + Sync;

impl HistorySource {
    /// Creates a source from a function that returns the state of a version.
    pub fn new(source: impl Fn(&TreeVersion) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(source)))
    }

    /// Returns whether there is a source at all.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn of(&self, version: Option<&TreeVersion>) -> Option<Vec<u8>> {
        self.0.as_ref()?(version?)
    }
}

impl fmt::Debug for HistorySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_there() { "HistorySource" } else { "no HistorySource" })
    }
}
