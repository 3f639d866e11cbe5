//! Flow control of the input of a command.
//!
//! Input that a command does not read waits in the guest agent, so the server has at most one window of input
//! outstanding that the command has not read. A client that writes faster than the command reads waits, and gets
//! an error after a timeout.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

/// Window: maximum number of bytes that wait for a command to read them.
const WINDOW: u64 = 1 << 20;
/// Maximum number of bytes in one message.
pub(crate) const PIECE_MAX: usize = 256 << 10;

/// The input of one command.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Numbers of bytes that were sent, received and read.
    counters: watch::Sender<InputCounters>,
    /// Held while one client writes, so that input of several is not interleaved.
    write_lock: Mutex<()>,
}

#[derive(Debug, Default)]
struct InputCounters {
    /// Bytes that the server sent to the guest agent.
    sent: u64,
    /// Bytes that the guest agent received.
    received: u64,
    /// Bytes that the command read.
    consumed: u64,
    /// True if the command accepts no more input.
    closed: bool,
    /// Id of the gRPC stream on which the guest agent last reported how much it received.
    agent_stream: u64,
}

/// End of the input that was sent so far, and the gRPC stream on which the guest agent last reported.
#[derive(Debug)]
pub(crate) struct InputPosition {
    /// Offset after the last byte that was sent.
    sent: u64,
    /// Id of the gRPC stream.
    agent_stream: u64,
}

/// Fate of input that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The guest agent received it.
    Received,
    /// The command does not accept more input.
    Closed,
    /// The guest agent reconnected, and this number of bytes was lost.
    Lost(usize),
}

/// Reason why no input can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputRefused {
    /// The command does not accept input, or its input is closed.
    Closed,
    /// The command has not read earlier input.
    WindowFull,
}

impl Input {
    /// Waits until the window has space for `size` bytes, and reserves it. Fails with
    /// [`InputRefused::WindowFull`] after the timeout.
    pub(crate) async fn reserve(&self, size: u64, max_wait: Duration) -> Result<(), InputRefused> {
        let mut counters = self.counters.subscribe();
        let waiting = async {
            loop {
                counters.borrow_and_update();
                if let Some(done) = self.try_reserve(size) {
                    return done;
                }
                if counters.changed().await.is_err() {
                    return Err(InputRefused::Closed);
                }
            }
        };
        timeout(max_wait, waiting).await.unwrap_or(Err(InputRefused::WindowFull))
    }

    /// Reserves space for `size` bytes like [`Self::reserve`]; `None` if the window is full.
    pub(crate) fn try_reserve(&self, size: u64) -> Option<Result<(), InputRefused>> {
        let mut done = None;
        self.counters.send_if_modified(|counters| {
            if counters.closed {
                done = Some(Err(InputRefused::Closed));
            } else if counters.sent.saturating_sub(counters.consumed).saturating_add(size) <= WINDOW {
                // Both sums saturate, because the guest agent may report any number.
                counters.sent = counters.sent.saturating_add(size);
                done = Some(Ok(()));
            }
            false
        });
        done
    }

    /// Waits for other clients that write. Fails when the command has read nothing for the timeout.
    pub(crate) async fn lock(&self, max_wait: Duration) -> Result<MutexGuard<'_, ()>, InputRefused> {
        let mut guard = pin!(self.write_lock.lock());
        loop {
            let consumed = self.counters.borrow().consumed;
            match timeout(max_wait, guard.as_mut()).await {
                Ok(guard) => return Ok(guard),
                Err(_) if self.counters.borrow().consumed == consumed => {
                    return Err(InputRefused::WindowFull);
                }
                Err(_) => {}
            }
        }
    }

    /// Waits until the guest agent has reported on this gRPC stream, or a later one, how much it received before.
    /// Returns false after the timeout.
    pub(crate) async fn wait_for_report(&self, agent_stream: u64, max_wait: Duration) -> bool {
        let mut counters = self.counters.subscribe();
        let reported = timeout(max_wait, counters.wait_for(|counters| counters.agent_stream >= agent_stream));
        matches!(reported.await, Ok(Ok(_)))
    }

    /// Returns the number of bytes that were sent to the guest agent, without those that were lost.
    pub(crate) fn sent(&self) -> u64 {
        self.counters.borrow().sent
    }

    pub(crate) fn position(&self) -> InputPosition {
        let counters = self.counters.borrow();
        InputPosition { sent: counters.sent, agent_stream: counters.agent_stream }
    }

    /// Waits until the guest agent has received the input up to a position, or it is lost. `None` after the
    /// timeout.
    pub(crate) async fn wait_for_delivery(
        &self,
        position: &InputPosition,
        max_wait: Duration,
    ) -> Option<Delivery> {
        let mut counters = self.counters.subscribe();
        let is_settled = |counters: &InputCounters| {
            counters.received >= position.sent
                || counters.closed
                || counters.agent_stream != position.agent_stream
        };
        timeout(max_wait, counters.wait_for(is_settled)).await.ok()?.ok()?;
        let mut delivery = Delivery::Received;
        self.counters.send_if_modified(|counters| {
            let missing = position.sent.saturating_sub(counters.received);
            if missing > 0 && counters.closed {
                delivery = Delivery::Closed;
            } else if missing > 0 {
                // The caller sends the lost bytes again without another `reserve`, so they count as sent.
                counters.sent = position.sent;
                delivery = Delivery::Lost(usize::try_from(missing).unwrap_or(usize::MAX));
            }
            false
        });
        Some(delivery)
    }

    /// Waits until the input is closed. Returns false if the guest agent reconnected and the input is still open,
    /// `None` after the timeout.
    pub(crate) async fn wait_for_close(&self, position: &InputPosition, max_wait: Duration) -> Option<bool> {
        let mut counters = self.counters.subscribe();
        let is_settled =
            |counters: &InputCounters| counters.closed || counters.agent_stream != position.agent_stream;
        let counters = timeout(max_wait, counters.wait_for(is_settled)).await.ok()?.ok()?;
        Some(counters.closed)
    }

    pub(crate) fn close(&self) {
        self.counters.send_modify(|counters| counters.closed = true);
    }

    /// Records the progress that the guest agent reported.
    pub(crate) fn record_progress(&self, received: u64, consumed: u64, closed: bool) {
        self.counters.send_if_modified(|counters| {
            let has_changed =
                received > counters.received || consumed > counters.consumed || (closed && !counters.closed);
            counters.received = counters.received.max(received);
            counters.consumed = counters.consumed.max(consumed);
            counters.closed |= closed;
            has_changed
        });
    }

    /// Records the report of a guest agent that reconnected: input that it did not receive is lost.
    pub(crate) fn record_reconnect(&self, received: u64, agent_stream: u64) {
        self.counters.send_modify(|counters| {
            (counters.sent, counters.received) = (received, received);
            counters.agent_stream = agent_stream;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);
    /// Last argument of [`Input::record_progress`].
    const OPEN: bool = false;
    /// Last argument of [`Input::record_progress`].
    const CLOSED: bool = true;

    #[tokio::test]
    async fn input_is_limited_by_the_window() {
        let input = Input::default();
        assert_eq!(input.reserve(WINDOW - 1, SHORT).await, Ok(()));
        assert_eq!(input.reserve(2, SHORT).await, Err(InputRefused::WindowFull));
        let more = async { input.reserve(2, Duration::from_secs(10)).await };
        let read = async { input.record_progress(0, 1, OPEN) };
        assert_eq!(tokio::join!(more, read).0, Ok(()));
        input.record_reconnect(0, 1);
        assert_eq!(input.reserve(WINDOW, SHORT).await, Ok(()), "lost bytes free the window");
        input.close();
        assert_eq!(input.reserve(1, SHORT).await, Err(InputRefused::Closed));
    }

    #[test]
    fn impossible_progress_of_an_agent_fills_the_window() {
        let input = Input::default();
        input.record_reconnect(u64::MAX, 1);
        assert_eq!(input.try_reserve(1), None);
    }

    #[tokio::test]
    async fn input_lost_with_a_connection_is_reported() {
        let input = Input::default();
        input.reserve(10, SHORT).await.unwrap();
        let position = input.position();
        assert_eq!(input.wait_for_delivery(&position, SHORT).await, None, "there is no report");
        input.record_progress(4, 0, OPEN);
        assert_eq!(input.wait_for_delivery(&position, SHORT).await, None, "only a part was received");
        assert!(!input.wait_for_report(2, SHORT).await, "there is no report on that stream yet");
        input.record_reconnect(6, 2);
        assert!(input.wait_for_report(2, SHORT).await);
        assert_eq!(input.wait_for_delivery(&position, SHORT).await, Some(Delivery::Lost(4)));
        let position = input.position();
        input.record_progress(10, 0, OPEN);
        assert_eq!(input.wait_for_delivery(&position, SHORT).await, Some(Delivery::Received));
        input.reserve(1, SHORT).await.unwrap();
        let position = input.position();
        assert_eq!(input.wait_for_close(&position, SHORT).await, None);
        input.record_progress(10, 0, CLOSED);
        assert_eq!(input.wait_for_delivery(&position, SHORT).await, Some(Delivery::Closed));
        assert_eq!(input.wait_for_close(&position, SHORT).await, Some(true));
    }

    #[tokio::test]
    async fn writer_waits_while_the_command_reads_and_no_longer() {
        let input = Input::default();
        let max_wait = Duration::from_millis(500);
        let other = input.lock(SHORT).await.unwrap();
        assert_eq!(input.lock(SHORT).await.err(), Some(InputRefused::WindowFull), "nothing is read");
        let reading = async {
            for consumed in 1..=12 {
                tokio::time::sleep(max_wait / 10).await;
                input.record_progress(0, consumed, OPEN);
            }
            drop(other);
        };
        let (mine, ()) = tokio::join!(input.lock(max_wait), reading);
        assert!(mine.is_ok(), "the command still reads, though slowly");
    }
}
