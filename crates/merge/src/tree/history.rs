//! Lookup of stored histories: merge state, such as the operations of a CRDT, of earlier versions of files.

use std::fmt;
use std::sync::Arc;

use super::conflict::TreeVersion;

/// Lookup of the history that a strategy stored with a version of a file, such as the operations of a CRDT.
///
/// A merge returns new histories in [`MergedFile::history`](super::MergedFile::history), and the caller
/// stores each with the version that it creates. For a version without a stored history, strategies derive a
/// history from the content.
#[derive(Clone, Default)]
pub struct HistorySource(Option<Arc<Source>>);

/// Function that returns the history of a version; `None` if none is stored.
type Source = dyn Fn(&TreeVersion) -> Option<Vec<u8>> + Send + Sync;

impl HistorySource {
    /// Creates a source from a function that returns the history of a version.
    pub fn new(source: impl Fn(&TreeVersion) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(source)))
    }

    /// Returns true if a lookup function is set.
    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the history of a version; `None` without a version, a lookup function or a stored history.
    pub(super) fn of(&self, version: Option<&TreeVersion>) -> Option<Vec<u8>> {
        self.0.as_ref()?(version?)
    }
}

impl fmt::Debug for HistorySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_set() { "HistorySource" } else { "no HistorySource" })
    }
}
