//! How long work tells what it is doing.

/// Hears about the progress of long work, from any thread.
pub trait Progress: Sync {
    /// A stage begins; `total` where it is known.
    fn begin(&self, _what: &'static str, _total: Option<u64>) {}
    /// So much more of the stage is done.
    fn advance(&self, _by: u64) {}
    /// The stage has ended.
    fn end(&self) {}
}

/// Says nothing.
pub struct Quiet;

impl Progress for Quiet {}
