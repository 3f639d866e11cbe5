//! Progress bars on a terminal, for work that takes more than a second.

use std::fmt;
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;
use workspace_state::Progress;

/// Delay before a bar is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Draws one bar for each step of the work, on stderr when that is a terminal.
pub(crate) struct Bars {
    is_terminal: bool,
    bar: Mutex<Option<Bar>>,
}

impl Bars {
    pub(crate) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), bar: Mutex::default() }
    }

    /// Starts a bar, which replaces that of the step before.
    fn show(&self, what: &'static str, unit: Unit, total: Option<u64>) {
        if self.is_terminal {
            let bar = Bar::start(what, unit, total);
            drop(self.bar.lock().replace(bar));
        }
    }
}

/// Bar of one step, hidden until [`PROGRESS_DELAY`] has passed.
struct Bar {
    bar: ProgressBar,
    /// Dropped when the step ends, which wakes the thread that waits to show the bar.
    done: Option<Sender<()>>,
    /// Shows the bar after [`PROGRESS_DELAY`].
    show_thread: Option<JoinHandle<()>>,
}

impl Bar {
    fn start(what: &'static str, unit: Unit, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        bar.set_style(style(unit, total.is_some()));
        bar.set_message(what);
        let (done, waiting) = mpsc::channel::<()>();
        let shown = bar.clone();
        let show_thread = thread::spawn(move || {
            if waiting.recv_timeout(PROGRESS_DELAY) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(TICK_INTERVAL);
            }
        });
        Self { bar, done: Some(done), show_thread: Some(show_thread) }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(show_thread) = self.show_thread.take() {
            // The thread only draws, so a panic in it is ignored.
            drop(show_thread.join());
        }
        self.bar.finish_and_clear();
    }
}

/// Unit of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Items; the message names them.
    Count,
    Bytes,
}

/// Returns the template of a bar: amount and speed; also the total and the time left if the total is known.
fn template(unit: Unit, with_total: bool) -> &'static str {
    match (unit, with_total) {
        (Unit::Count, true) => "{spinner} {msg} [{bar:30}] {human_pos}/{human_len}, {per_sec}, {eta} left",
        (Unit::Count, false) => "{spinner} {msg}: {human_pos}, {per_sec}",
        (Unit::Bytes, true) => {
            "{spinner} {msg} [{bar:30}] {binary_bytes}/{binary_total_bytes}, {binary_bytes_per_sec}, {eta} left"
        }
        (Unit::Bytes, false) => "{spinner} {msg}: {binary_bytes}, {binary_bytes_per_sec}",
    }
}

fn style(unit: Unit, with_total: bool) -> ProgressStyle {
    let plain = ProgressStyle::with_template(template(unit, with_total));
    let plain = plain.unwrap_or_else(|_| ProgressStyle::default_bar());
    // The library's own rate has four decimals.
    let plain = plain.with_key("per_sec", |state: &ProgressState, out: &mut dyn fmt::Write| {
        let rate = state.per_sec();
        let digits = usize::from(rate < 10.0);
        // Writing to memory does not fail.
        let _ = write!(out, "{rate:.digits$}/s");
    });
    plain.progress_chars("=> ").tick_chars("-\\|/ ")
}

impl Progress for Bars {
    fn begin(&self, what: &'static str, total: Option<u64>) {
        self.show(what, Unit::Count, total);
    }

    fn begin_bytes(&self, what: &'static str, total: Option<u64>) {
        self.show(what, Unit::Bytes, total);
    }

    fn advance(&self, by: u64) {
        if !self.is_terminal {
            return;
        }
        if let Some(bar) = &*self.bar.lock() {
            bar.bar.inc(by);
        }
    }

    fn end(&self) {
        drop(self.bar.lock().take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_shows_amount_and_rate_and_where_known_total_and_time_left() {
        for unit in [Unit::Count, Unit::Bytes] {
            for with_total in [false, true] {
                let template = template(unit, with_total);
                assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
                assert!(template.contains("per_sec}"), "{template}");
                assert_eq!(template.contains("binary_bytes}"), unit == Unit::Bytes, "{template}");
                for part in ["{bar:", "{eta}"] {
                    assert_eq!(template.contains(part), with_total, "{template}");
                }
            }
        }
    }
}
