//! Waiting for effects of other processes.

use std::thread;
use std::time::{Duration, Instant};

/// Maximum time to wait: long, because the machine may be busy, and only a failing test waits this long.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until a condition is true. Panics with its description if it is still false after 30 seconds.
#[track_caller]
pub fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {description}");
        thread::sleep(POLL_INTERVAL);
    }
}
