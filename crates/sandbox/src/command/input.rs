//! Flow control of the input of a command.
//!
//! Input that a command does not read waits in the guest agent, so the server sends no more than a window
//! before the agent confirms some of it. A client that writes faster than the command reads waits, and gets
//! an error after a timeout.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

/// Bytes that may wait for a command to read them.
const WINDOW: u64 = 1 << 20;
/// Bytes that are sent at once.
pub(crate) const PIECE: usize = 256 << 10;

/// The input of one command.
#[derive(Debug, Default)]
pub(crate) struct Input {
    counted: watch::Sender<Counted>,
    /// Held while one client writes, so that input of several is not interleaved.
    write_lock: Mutex<()>,
}

#[derive(Debug, Default)]
struct Counted {
    sent: u64,
    received: u64,
    taken: u64,
    closed: bool,
    /// Id of the stream on which the agent last reported how much it received.
    stream: u64,
}

/// Input that is awaited: all that was sent so far, on this stream.
#[derive(Debug)]
pub(crate) struct Awaited {
    sent: u64,
    stream: u64,
}

/// Outcome of sent input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The agent received it.
    All,
    /// The command takes no more input.
    Closed,
    /// The agent reconnected, and so many bytes were lost.
    Lost(usize),
}

/// Reason why no input is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoInput {
    /// The command takes no input, or no more.
    Closed,
    /// It has not read former input.
    Full,
}

impl Input {
    /// Waits until the window has room for `size` bytes, and takes it.
    pub(crate) async fn reserve(&self, size: u64, limit: Duration) -> Result<(), NoInput> {
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
        timeout(limit, waiting).await.unwrap_or(Err(NoInput::Full))
    }

    pub(crate) fn try_reserve(&self, size: u64) -> Option<Result<(), NoInput>> {
        let mut done = None;
        self.counted.send_if_modified(|counted| {
            if counted.closed {
                done = Some(Err(NoInput::Closed));
            } else if counted.sent.saturating_sub(counted.taken) + size <= WINDOW {
                // An agent may have confirmed more than can be counted.
                counted.sent = counted.sent.saturating_add(size);
                done = Some(Ok(()));
            }
            false
        });
        done
    }

    /// Waits for other clients that write, until the command has read nothing for the timeout.
    pub(crate) async fn lock(&self, limit: Duration) -> Result<MutexGuard<'_, ()>, NoInput> {
        let mut guard = pin!(self.write_lock.lock());
        loop {
            let taken = self.counted.borrow().taken;
            match timeout(limit, guard.as_mut()).await {
                Ok(guard) => return Ok(guard),
                Err(_) if self.counted.borrow().taken == taken => return Err(NoInput::Full),
                Err(_) => {}
            }
        }
    }

    /// Waits until the agent has reported on this stream, or a later one, how much it received before.
    /// Returns false after the timeout.
    pub(crate) async fn reported_on(&self, stream: u64, limit: Duration) -> bool {
        let mut counted = self.counted.subscribe();
        let reported = timeout(limit, counted.wait_for(|counted| counted.stream >= stream));
        matches!(reported.await, Ok(Ok(_)))
    }

    pub(crate) fn awaited(&self) -> Awaited {
        let counted = self.counted.borrow();
        Awaited { sent: counted.sent, stream: counted.stream }
    }

    /// Waits for the outcome of the awaited input. `None` after the timeout.
    pub(crate) async fn arrived(&self, awaited: &Awaited, limit: Duration) -> Option<Arrival> {
        let mut counted = self.counted.subscribe();
        let known = |counted: &Counted| {
            counted.received >= awaited.sent || counted.closed || counted.stream != awaited.stream
        };
        timeout(limit, counted.wait_for(known)).await.ok()?.ok()?;
        let mut arrival = Arrival::All;
        self.counted.send_if_modified(|counted| {
            let missing = awaited.sent.saturating_sub(counted.received);
            if missing > 0 && counted.closed {
                arrival = Arrival::Closed;
            } else if missing > 0 {
                counted.sent = awaited.sent;
                arrival = Arrival::Lost(usize::try_from(missing).unwrap_or(usize::MAX));
            }
            false
        });
        Some(arrival)
    }

    /// Waits until the input is closed. Returns false if the agent reconnected and it is not, `None` after
    /// the timeout.
    pub(crate) async fn closed(&self, awaited: &Awaited, limit: Duration) -> Option<bool> {
        let mut counted = self.counted.subscribe();
        let known = |counted: &Counted| counted.closed || counted.stream != awaited.stream;
        let found = timeout(limit, counted.wait_for(known)).await.ok()?.ok()?;
        Some(found.closed)
    }

    /// Closes the input.
    pub(crate) fn close(&self) {
        self.counted.send_modify(|counted| counted.closed = true);
    }

    /// Records a report of the agent.
    pub(crate) fn report(&self, received: u64, taken: u64, closed: bool) {
        self.counted.send_if_modified(|counted| {
            let news = received > counted.received || taken > counted.taken || (closed && !counted.closed);
            counted.received = counted.received.max(received);
            counted.taken = counted.taken.max(taken);
            counted.closed |= closed;
            news
        });
    }

    /// Records the report of an agent that reconnected: input that it did not receive is lost.
    pub(crate) fn reconnected(&self, received: u64, stream: u64) {
        self.counted.send_modify(|counted| {
            (counted.sent, counted.received) = (received, received);
            counted.stream = stream;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn input_is_limited_by_the_window() {
        let input = Input::default();
        assert_eq!(input.reserve(WINDOW - 1, SHORT).await, Ok(()));
        assert_eq!(input.reserve(2, SHORT).await, Err(NoInput::Full));
        let more = async { input.reserve(2, Duration::from_secs(10)).await };
        let read = async { input.report(0, 1, false) };
        assert_eq!(tokio::join!(more, read).0, Ok(()));
        input.reconnected(0, 1);
        assert_eq!(input.reserve(WINDOW, SHORT).await, Ok(()), "what was lost does not wait");
        input.close();
        assert_eq!(input.reserve(1, SHORT).await, Err(NoInput::Closed));
    }

    #[tokio::test]
    async fn input_lost_with_a_stream_is_reported() {
        let input = Input::default();
        input.reserve(10, SHORT).await.unwrap();
        let awaited = input.awaited();
        assert_eq!(input.arrived(&awaited, SHORT).await, None, "there is no report");
        input.report(4, 0, false);
        assert_eq!(input.arrived(&awaited, SHORT).await, None, "not all of it came");
        assert!(!input.reported_on(2, SHORT).await, "there is no report on that stream yet");
        input.reconnected(6, 2);
        assert!(input.reported_on(2, SHORT).await);
        assert_eq!(input.arrived(&awaited, SHORT).await, Some(Arrival::Lost(4)));
        let awaited = input.awaited();
        input.report(10, 0, false);
        assert_eq!(input.arrived(&awaited, SHORT).await, Some(Arrival::All));
        input.reserve(1, SHORT).await.unwrap();
        let awaited = input.awaited();
        assert_eq!(input.closed(&awaited, SHORT).await, None);
        input.report(10, 0, true);
        assert_eq!(input.arrived(&awaited, SHORT).await, Some(Arrival::Closed));
        assert_eq!(input.closed(&awaited, SHORT).await, Some(true));
    }

    #[tokio::test]
    async fn writer_waits_while_the_command_reads_and_no_longer() {
        let input = Input::default();
        let limit = Duration::from_millis(500);
        let other = input.lock(SHORT).await.unwrap();
        assert_eq!(input.lock(SHORT).await.err(), Some(NoInput::Full), "nothing is read");
        let reading = async {
            for taken in 1..=12 {
                tokio::time::sleep(limit / 10).await;
                input.report(0, taken, false);
            }
            drop(other);
        };
        let (mine, ()) = tokio::join!(input.lock(limit), reading);
        assert!(mine.is_ok(), "it is read slowly");
    }
}
