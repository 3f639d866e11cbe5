//! Progress bars, for work that takes more than a second and a person who watches.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use workspace_state::Progress;

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// Draws one bar for each step of the work, on stderr when that is a terminal.
pub(crate) struct Bars {
    watched: bool,
    bar: Mutex<Option<Bar>>,
}

impl Bars {
    pub(crate) fn new() -> Self {
        Self { watched: std::io::stderr().is_terminal(), bar: Mutex::default() }
    }
}

struct Bar {
    bar: ProgressBar,
    /// Dropped when the step ends, which wakes the thread that waits to show the bar.
    done: Option<Sender<()>>,
    shows: Option<JoinHandle<()>>,
}

impl Bar {
    fn start(what: &'static str, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        bar.set_style(style(total.is_some()));
        bar.set_message(what);
        let (done, waiting) = mpsc::channel::<()>();
        let shown = bar.clone();
        let shows = thread::spawn(move || {
            if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(TICK);
            }
        });
        Self { bar, done: Some(done), shows: Some(shows) }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(shows) = self.shows.take() {
            // It only draws; nothing depends on how it ended.
            drop(shows.join());
        }
        self.bar.finish_and_clear();
    }
}

fn style(with_total: bool) -> ProgressStyle {
    let template = if with_total {
        "{spinner} {msg} [{bar:30}] {human_pos}/{human_len}, {eta} left"
    } else {
        "{spinner} {msg} {human_pos}"
    };
    let plain = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    plain.progress_chars("=> ").tick_chars("-\\|/ ")
}

impl Progress for Bars {
    fn begin(&self, what: &'static str, total: Option<u64>) {
        if self.watched {
            let bar = Bar::start(what, total);
            drop(self.bar.lock().unwrap_or_else(PoisonError::into_inner).replace(bar));
        }
    }

    fn advance(&self, by: u64) {
        if !self.watched {
            return;
        }
        if let Some(bar) = &*self.bar.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.bar.inc(by);
        }
    }

    fn end(&self) {
        drop(self.bar.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
