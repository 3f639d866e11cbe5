//! Progress reporting of long operations.

/// Receives the progress of a long operation, from any thread.
pub trait Progress: Sync {
    /// Starts a stage; `total` is `None` if it is unknown.
    ///
    /// `what` names the work and its unit, such as `reading entries`.
    fn begin(&self, _what: &'static str, _total: Option<u64>) {}
    /// Starts a stage that counts bytes.
    fn begin_bytes(&self, what: &'static str, total: Option<u64>) {
        self.begin(what, total);
    }
    /// Adds `by` to the finished part of the stage.
    fn advance(&self, _by: u64) {}
    /// Ends the stage.
    fn end(&self) {}
}

/// Implementation of [`Progress`] that does nothing, for callers without a progress display.
pub struct NoProgress;

impl Progress for NoProgress {}
