//! How much input is on its way to a command.
//!
//! What a command does not read waits in its guest, so the server gives no more than a little before it hears that
//! some of it was taken. Whoever writes faster than the command reads waits, and is told when that takes too long.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

/// How much may wait for a command to read it.
const WINDOW: u64 = 1 << 20;
/// How much is given at once.
pub(crate) const PIECE: usize = 256 << 10;

/// The input of one command.
#[derive(Debug, Default)]
pub(crate) struct Input {
    counted: watch::Sender<Counted>,
    /// Held by who gives some, so that nobody's is torn.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct Counted {
    sent: u64,
    received: u64,
    taken: u64,
    closed: bool,
    /// The line on which its guest told last how much came.
    connected: u64,
}

/// What is waited for: all that was sent up to now, on this connection.
#[derive(Debug)]
pub(crate) struct Awaited {
    sent: u64,
    connected: u64,
}

/// What became of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The guest has it.
    All,
    /// The command takes none any more.
    Closed,
    /// The guest connected anew, and so many bytes did not come.
    Lost(usize),
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

    pub(crate) fn try_reserve(&self, size: u64) -> Option<Result<(), NoInput>> {
        let mut done = None;
        self.counted.send_if_modified(|counted| {
            if counted.closed {
                done = Some(Err(NoInput::Closed));
            } else if counted.sent.saturating_sub(counted.taken) + size <= WINDOW {
                // A guest may have said that more came than can be counted.
                counted.sent = counted.sent.saturating_add(size);
                done = Some(Ok(()));
            }
            false
        });
        done
    }

    /// Waits for the others who give some, until the command has read nothing for as long as patience lasts.
    pub(crate) async fn turn(&self, patience: Duration) -> Result<MutexGuard<'_, ()>, NoInput> {
        let mut turn = pin!(self.turn.lock());
        loop {
            let taken = self.counted.borrow().taken;
            match timeout(patience, turn.as_mut()).await {
                Ok(turn) => return Ok(turn),
                Err(_) if self.counted.borrow().taken == taken => return Err(NoInput::Full),
                Err(_) => {}
            }
        }
    }

    /// Waits until the guest has told on this line, or a later one, how much came before it. False if it does not in
    /// time.
    pub(crate) async fn told_on(&self, line: u64, patience: Duration) -> bool {
        let mut counted = self.counted.subscribe();
        let told = timeout(patience, counted.wait_for(|counted| counted.connected >= line));
        matches!(told.await, Ok(Ok(_)))
    }

    pub(crate) fn awaited(&self) -> Awaited {
        let counted = self.counted.borrow();
        Awaited { sent: counted.sent, connected: counted.connected }
    }

    /// What became of all that was sent up to then. None if nobody says in time.
    pub(crate) async fn arrived(&self, awaited: &Awaited, patience: Duration) -> Option<Arrival> {
        let mut counted = self.counted.subscribe();
        let known = |counted: &Counted| {
            counted.received >= awaited.sent || counted.closed || counted.connected != awaited.connected
        };
        timeout(patience, counted.wait_for(known)).await.ok()?.ok()?;
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

    /// Whether it is closed; false if the guest connected anew and it is not. None if nobody says in time.
    pub(crate) async fn closed(&self, awaited: &Awaited, patience: Duration) -> Option<bool> {
        let mut counted = self.counted.subscribe();
        let known = |counted: &Counted| counted.closed || counted.connected != awaited.connected;
        let found = timeout(patience, counted.wait_for(known)).await.ok()?.ok()?;
        Some(found.closed)
    }

    /// Nothing more is taken.
    pub(crate) fn close(&self) {
        self.counted.send_modify(|counted| counted.closed = true);
    }

    /// What the guest says.
    pub(crate) fn told(&self, received: u64, taken: u64, closed: bool) {
        self.counted.send_if_modified(|counted| {
            let news = received > counted.received || taken > counted.taken || (closed && !counted.closed);
            counted.received = counted.received.max(received);
            counted.taken = counted.taken.max(taken);
            counted.closed |= closed;
            news
        });
    }

    /// What the guest says that connected anew: what it did not get was lost on the way.
    pub(crate) fn received(&self, received: u64, line: u64) {
        self.counted.send_modify(|counted| {
            (counted.sent, counted.received) = (received, received);
            counted.connected = line;
        });
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
        let read = async { input.told(0, 1, false) };
        assert_eq!(tokio::join!(more, read).0, Ok(()));
        input.received(0, 1);
        assert_eq!(input.reserve(WINDOW, SHORT).await, Ok(()), "what was lost does not wait");
        input.close();
        assert_eq!(input.reserve(1, SHORT).await, Err(NoInput::Closed));
    }

    #[tokio::test]
    async fn what_was_on_a_lost_line_is_told() {
        let input = Input::default();
        input.reserve(10, SHORT).await.unwrap();
        let awaited = input.awaited();
        assert_eq!(input.arrived(&awaited, SHORT).await, None, "nobody said anything");
        input.told(4, 0, false);
        assert_eq!(input.arrived(&awaited, SHORT).await, None, "not all of it came");
        assert!(!input.told_on(2, SHORT).await, "the guest has not told on that line yet");
        input.received(6, 2);
        assert!(input.told_on(2, SHORT).await);
        assert_eq!(input.arrived(&awaited, SHORT).await, Some(Arrival::Lost(4)));
        let awaited = input.awaited();
        input.told(10, 0, false);
        assert_eq!(input.arrived(&awaited, SHORT).await, Some(Arrival::All));
        input.reserve(1, SHORT).await.unwrap();
        let awaited = input.awaited();
        assert_eq!(input.closed(&awaited, SHORT).await, None);
        input.told(10, 0, true);
        assert_eq!(input.arrived(&awaited, SHORT).await, Some(Arrival::Closed));
        assert_eq!(input.closed(&awaited, SHORT).await, Some(true));
    }

    #[tokio::test]
    async fn who_waits_for_his_turn_waits_while_the_command_reads_and_no_longer() {
        let input = Input::default();
        let patience = Duration::from_millis(500);
        let other = input.turn(SHORT).await.unwrap();
        assert_eq!(input.turn(SHORT).await.err(), Some(NoInput::Full), "nothing is read");
        let reading = async {
            for taken in 1..=12 {
                tokio::time::sleep(patience / 10).await;
                input.told(0, taken, false);
            }
            drop(other);
        };
        let (mine, ()) = tokio::join!(input.turn(patience), reading);
        assert!(mine.is_ok(), "it is read slowly");
    }
}
