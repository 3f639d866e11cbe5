//! Cancellation of long operations.

use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cancellation flag, shared by its clones. Long operations check the flag between their steps, and fail with
/// [`Cancelled`] once it is set.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    set: AtomicBool,
    /// Flag that also cancels this one; see [`Cancel::child`].
    parent: Option<Cancel>,
}

/// Error of a cancelled operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operation was cancelled")]
pub struct Cancelled;

impl Cancel {
    /// Creates a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a flag that counts as set once it, or `self`, is set.
    pub fn child(&self) -> Self {
        Self(Arc::new(Flag { set: AtomicBool::new(false), parent: Some(self.clone()) }))
    }

    /// Sets the flag permanently.
    pub fn cancel(&self) {
        self.0.set.store(true, Ordering::Release);
    }

    /// Returns true if the flag, or one of its ancestors, is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.set.load(Ordering::Acquire) || self.0.parent.as_ref().is_some_and(Self::is_cancelled)
    }

    /// Fails if the flag, or one of its ancestors, is set.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }

    /// Returns a guard that sets the flag when the guard is dropped, unless [`CancelOnDrop::disarm`] was called. For
    /// futures: dropping a future that holds the guard cancels the work that it has started.
    pub fn drop_guard(&self) -> CancelOnDrop {
        CancelOnDrop(Some(self.clone()))
    }

    /// Wraps a reader. The result fails once the flag is set.
    pub fn reader<R: Read>(&self, input: R) -> CancelReader<R> {
        CancelReader { input, cancel: self.clone() }
    }
}

impl From<Cancelled> for io::Error {
    fn from(cancelled: Cancelled) -> Self {
        Self::other(cancelled)
    }
}

impl Cancelled {
    /// Returns true if an I/O error was made from a [`Cancelled`].
    pub fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<Self>)
    }
}

/// Guard made by [`Cancel::drop_guard`].
#[derive(Debug)]
#[must_use = "dropping the guard cancels the work"]
pub struct CancelOnDrop(Option<Cancel>);

impl CancelOnDrop {
    /// Drops the guard without setting the flag.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

/// Reader made by [`Cancel::reader`].
#[derive(Debug)]
pub struct CancelReader<R> {
    input: R,
    cancel: Cancel,
}

impl<R: Read> Read for CancelReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check()?;
        self.input.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_cancelled_with_its_parent_but_not_the_reverse() {
        let parent = Cancel::new();
        let (one, other) = (parent.child(), parent.child());
        one.cancel();
        assert!(one.is_cancelled() && !other.is_cancelled() && !parent.is_cancelled());
        parent.cancel();
        assert_eq!(other.check(), Err(Cancelled));
    }

    #[test]
    fn a_dropped_guard_cancels_unless_it_was_disarmed() {
        let cancel = Cancel::new();
        cancel.drop_guard().disarm();
        assert!(!cancel.is_cancelled());
        drop(cancel.drop_guard());
        let error = cancel.reader(&b"x"[..]).read(&mut [0]).unwrap_err();
        assert!(Cancelled::is_cause_of(&error));
    }
}
