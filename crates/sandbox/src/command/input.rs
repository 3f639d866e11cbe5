//! Flow control of the input of a command.
//!
//! Input that a command does not read waits in the guest agent, so the server sends no more than a window
//! before the agent confirms some of it. A client that writes faster than the command reads waits, and gets
//! an error after a timeout.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

/// Maximum number of bytes that wait for a command to read them.
const WINDOW: u64 = 1 << 20;
/// Maximum number of bytes in one message.
pub(crate) const PIECE_MAX: usize = 256 << 10;

/// The input of one command.
#[derive(Debug, Default)]
pub(crate) struct Input {
    counters: watch::Sender<InputCounters>,
    /// Held while one client writes, so that input of several is not interleaved.
    write_lock: Mutex<()>,
}

#[derive(Debug, Default)]
struct InputCounters {
    /// Bytes that the server sent to the agent.
    sent: u64,
    /// Bytes that the agent received.
    received: u64,
    /// Bytes that the command read.
    taken: u64,
    /// True if the command accepts no more input.
    closed: bool,
    /// Id of the stream on which the agent last reported how much it received.
    stream: u64,
}

/// End of the input that was sent so far, and the stream on which the agent last reported.
#[derive(Debug)]
pub(crate) struct InputPosition {
    sent: u64,
    stream: u64,
}

/// Result of sending input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The agent received it.
    All,
    /// The command does not accept more input.
    Closed,
    /// The agent reconnected, and this number of bytes was lost.
    Lost(usize),
}

/// Reason why no input can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoInput {
    /// The command does not accept input, or its input is closed.
    Closed,
    /// The command has not read earlier input.
    Full,
}

impl Input {
    /// Waits until the window has space for `size` bytes, and takes it. Fails with [`NoInput::Full`] after
    /// the timeout.
    pub(crate) async fn reserve(&self, size: u64, limit: Duration) -> Result<(), NoInput> {
        let mut counters = self.counters.subscribe();
        let waiting = async {
            loop {
                counters.borrow_and_update();
                if let Some(done) = self.try_reserve(size) {
                    return done;
                }
                if counters.changed().await.is_err() {
                    return Err(NoInput::Closed);
                }
            }
        };
        timeout(limit, waiting).await.unwrap_or(Err(NoInput::Full))
    }

    pub(crate) fn try_reserve(&self, size: u64) -> Option<Result<(), NoInput>> {
        let mut done = None;
        self.counters.send_if_modified(|counters| {
            if counters.closed {
                done = Some(Err(NoInput::Closed));
            } else if counters.sent.saturating_sub(counters.taken) + size <= WINDOW {
                // Saturates, because the agent may report any number.
                counters.sent = counters.sent.saturating_add(size);
                done = Some(Ok(()));
            }
            false
        });
        done
    }

    /// Waits for other clients that write. Fails when the command has read nothing for the timeout.
    pub(crate) async fn lock(&self, limit: Duration) -> Result<MutexGuard<'_, ()>, NoInput> {
        let mut guard = pin!(self.write_lock.lock());
        loop {
            let taken = self.counters.borrow().taken;
            match timeout(limit, guard.as_mut()).await {
                Ok(guard) => return Ok(guard),
                Err(_) if self.counters.borrow().taken == taken => return Err(NoInput::Full),
                Err(_) => {}
            }
        }
    }

    /// Waits until the agent has reported on this stream, or a later one, how much it received before.
    /// Returns false after the timeout.
    pub(crate) async fn wait_for_report(&self, stream: u64, limit: Duration) -> bool {
        let mut counters = self.counters.subscribe();
        let reported = timeout(limit, counters.wait_for(|counters| counters.stream >= stream));
        matches!(reported.await, Ok(Ok(_)))
    }

    pub(crate) fn position(&self) -> InputPosition {
        let counters = self.counters.borrow();
        InputPosition { sent: counters.sent, stream: counters.stream }
    }

    /// Waits until the agent has received the input up to a position, or it is lost. `None` after the
    /// timeout.
    pub(crate) async fn wait_for_arrival(
        &self,
        position: &InputPosition,
        limit: Duration,
    ) -> Option<Arrival> {
        let mut counters = self.counters.subscribe();
        let is_settled = |counters: &InputCounters| {
            counters.received >= position.sent || counters.closed || counters.stream != position.stream
        };
        timeout(limit, counters.wait_for(is_settled)).await.ok()?.ok()?;
        let mut arrival = Arrival::All;
        self.counters.send_if_modified(|counters| {
            let missing = position.sent.saturating_sub(counters.received);
            if missing > 0 && counters.closed {
                arrival = Arrival::Closed;
            } else if missing > 0 {
                counters.sent = position.sent;
                arrival = Arrival::Lost(usize::try_from(missing).unwrap_or(usize::MAX));
            }
            false
        });
        Some(arrival)
    }

    /// Waits until the input is closed. Returns false if the agent reconnected and the input is still open,
    /// `None` after the timeout.
    pub(crate) async fn wait_for_close(&self, position: &InputPosition, limit: Duration) -> Option<bool> {
        let mut counters = self.counters.subscribe();
        let is_settled = |counters: &InputCounters| counters.closed || counters.stream != position.stream;
        let counters = timeout(limit, counters.wait_for(is_settled)).await.ok()?.ok()?;
        Some(counters.closed)
    }

    pub(crate) fn close(&self) {
        self.counters.send_modify(|counters| counters.closed = true);
    }

    /// Records a report of the agent.
    pub(crate) fn report(&self, received: u64, taken: u64, closed: bool) {
        self.counters.send_if_modified(|counters| {
            let has_changed =
                received > counters.received || taken > counters.taken || (closed && !counters.closed);
            counters.received = counters.received.max(received);
            counters.taken = counters.taken.max(taken);
            counters.closed |= closed;
            has_changed
        });
    }

    /// Records the report of an agent that reconnected: input that it did not receive is lost.
    pub(crate) fn record_reconnect(&self, received: u64, stream: u64) {
        self.counters.send_modify(|counters| {
            (counters.sent, counters.received) = (received, received);
            counters.stream = stream;
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
        input.record_reconnect(0, 1);
        assert_eq!(input.reserve(WINDOW, SHORT).await, Ok(()), "what was lost does not wait");
        input.close();
        assert_eq!(input.reserve(1, SHORT).await, Err(NoInput::Closed));
    }

    #[tokio::test]
    async fn input_lost_with_a_stream_is_reported() {
        let input = Input::default();
        input.reserve(10, SHORT).await.unwrap();
        let position = input.position();
        assert_eq!(input.wait_for_arrival(&position, SHORT).await, None, "there is no report");
        input.report(4, 0, false);
        assert_eq!(input.wait_for_arrival(&position, SHORT).await, None, "not all of it came");
        assert!(!input.wait_for_report(2, SHORT).await, "there is no report on that stream yet");
        input.record_reconnect(6, 2);
        assert!(input.wait_for_report(2, SHORT).await);
        assert_eq!(input.wait_for_arrival(&position, SHORT).await, Some(Arrival::Lost(4)));
        let position = input.position();
        input.report(10, 0, false);
        assert_eq!(input.wait_for_arrival(&position, SHORT).await, Some(Arrival::All));
        input.reserve(1, SHORT).await.unwrap();
        let position = input.position();
        assert_eq!(input.wait_for_close(&position, SHORT).await, None);
        input.report(10, 0, true);
        assert_eq!(input.wait_for_arrival(&position, SHORT).await, Some(Arrival::Closed));
        assert_eq!(input.wait_for_close(&position, SHORT).await, Some(true));
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
