//! Where strategies find what they keep beside versions.

use std::fmt;
use std::sync::Arc;

use super::conflict::TreeVersion;

/// Gives what a strategy has kept beside a version of a file, such as the history of a CRDT.
///
/// It comes with the result of each merge ([`MergedFile::history`](super::MergedFile::history)); whoever makes the result a version
/// keeps it. Where it is missing, strategies make it from the version itself.
#[derive(Clone, Default)]
pub struct HistorySource(Option<Arc<Source>>);

type Source = dyn Fn(&TreeVersion) -> Option<Vec<u8>> + Send + Sync;

impl HistorySource {
    /// Asks a function.
    pub fn new(source: impl Fn(&TreeVersion) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(source)))
    }

    /// Whether anybody keeps anything.
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
