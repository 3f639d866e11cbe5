//! Progress reporting of long operations.

/// Receiver of the progress of a long operation. Its methods are called from any thread.
pub trait Progress: Sync {
    /// Starts a stage of the operation. `what` names the work and its unit, such as `reading entries`. `total` is the
    /// number of units; `None` if it is unknown.
    fn begin(&self, _what: &'static str, _total: Option<u64>) {}
    /// Starts a stage that counts bytes.
    fn begin_bytes(&self, what: &'static str, total: Option<u64>) {
        self.begin(what, total);
    }
    /// Adds `by` to the number of finished units of the stage.
    fn advance(&self, _by: u64) {}
    /// Ends the stage.
    fn end(&self) {}
}

/// Implementation of [`Progress`] that does nothing, for callers without a progress display.
pub struct NoProgress;

impl Progress for NoProgress {}
