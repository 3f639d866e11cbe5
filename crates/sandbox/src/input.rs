//! How much input is on its way to a command.
//!
//! What a command does not read waits in its guest, so the server gives no more than a little before it hears that
//! some of it was taken. Whoever writes faster than the command reads waits, and is told when that takes too long.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How much may wait for a command to read it.
const WINDOW: u64 = 1 << 20;
/// How much is given at once.
pub(crate) const PIECE: usize = 256 << 10;

/// The input of one command.
#[derive(Debug, Default)]
pub(crate) struct Input {
    counted: watch::Sender<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    sent: u64,
    taken: u64,
    closed: bool,
}

/// Why nothing more is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoInput {
    /// The command takes none, or none any more.
    Closed,
    /// It has not read what it was given.
    Full,
}

impl Input {
    /// Waits until there is room for so much more, and takes it.
    pub(crate) async fn reserve(&self, size: u64, patience: Duration) -> Result<(), NoInput> {
        let mut counted = self.counted.subscribe();
        let waiting = async {
            loop {
                counted.borrow_and_update();
                if let Some(done) = self.try_reserve(size) {
                    return done;
                }
                if counted.changed().await.is_err() {
                    return Err(NoInput::Closed);
                }
            }
        };
        timeout(patience, waiting).await.unwrap_or(Err(NoInput::Full))
    }

    fn try_reserve(&self, size: u64) -> Option<Result<(), NoInput>> {
        let mut done = None;
        self.counted.send_if_modified(|counted| {
            if counted.closed {
                done = Some(Err(NoInput::Closed));
            } else if counted.sent.saturating_sub(counted.taken) + size <= WINDOW {
                counted.sent += size;
                done = Some(Ok(()));
            }
            false
        });
        done
    }

    /// Nothing more is taken.
    pub(crate) fn close(&self) {
        self.counted.send_modify(|counted| counted.closed = true);
    }

    /// What the guest says.
    pub(crate) fn told(&self, taken: u64, closed: bool) {
        self.counted.send_if_modified(|counted| {
            let news = taken > counted.taken || (closed && !counted.closed);
            counted.taken = counted.taken.max(taken);
            counted.closed |= closed;
            news
        });
    }

    /// What the guest says that connected anew: what it did not get was lost on the way.
    pub(crate) fn received(&self, received: u64) {
        self.counted.send_modify(|counted| counted.sent = received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn no_more_is_given_than_may_wait() {
        let input = Input::default();
        assert_eq!(input.reserve(WINDOW - 1, SHORT).await, Ok(()));
        assert_eq!(input.reserve(2, SHORT).await, Err(NoInput::Full));
        let more = async { input.reserve(2, Duration::from_secs(10)).await };
        let read = async { input.told(1, false) };
        assert_eq!(tokio::join!(more, read).0, Ok(()));
        input.received(0);
        assert_eq!(input.reserve(WINDOW, SHORT).await, Ok(()), "what was lost does not wait");
        input.close();
        assert_eq!(input.reserve(1, SHORT).await, Err(NoInput::Closed));
    }
}
