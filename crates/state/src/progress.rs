//! How long work tells what it is doing.

/// Hears about the progress of long work, from any thread.
pub trait Progress: Sync {
    /// A stage begins; `total` where it is known.
    ///
    /// `what` names what is done and counted, such as `reading entries`.
    fn begin(&self, _what: &'static str, _total: Option<u64>) {}
    /// A stage begins that counts bytes.
    fn begin_bytes(&self, what: &'static str, total: Option<u64>) {
        self.begin(what, total);
    }
    /// So much more of the stage is done.
    fn advance(&self, _by: u64) {}
    /// The stage has ended.
    fn end(&self) {}
}

/// Says nothing.
pub struct Quiet;

impl Progress for Quiet {}
