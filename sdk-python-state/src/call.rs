//! Calls into the state engine: without the GIL, and without panics that reach Python.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use workspace_state::Cancel;

use crate::error::{Failure, Result};
use crate::fork;

/// Interval at which a long call looks for signals, such as that of Ctrl-C.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` without the GIL. A panic becomes an error.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    fork::check()?;
    py.detach(|| guarded(work))
}

/// Runs `work` in a thread, and handles signals meanwhile. If a handler raises an exception, as that of Ctrl-C does, the
/// flag that `work` was given is set, and the exception is raised when `work` has ended.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Cancel) -> Result<T> + Send,
) -> Result<T> {
    fork::check()?;
    let cancel = Cancel::new();
    let for_work = cancel.clone();
    thread::scope(|scope| {
        let (done, result) = sync_channel(1);
        let result = Mutex::new(result);
        let wait = |timeout| {
            py.detach(|| result.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(timeout))
        };
        let worker = thread::Builder::new().name("workspace-call".to_owned());
        worker
            .spawn_scoped(scope, move || done.send(guarded(|| work(for_work))))
            .map_err(Failure::NoThread)?;
        loop {
            match wait(SIGNAL_POLL_INTERVAL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::Internal("no result".to_owned())),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Err(interrupt) = py.check_signals() {
                cancel.cancel();
                drop(wait(Duration::MAX));
                return Err(interrupt.into());
            }
        }
    })
}

/// Runs `work`. A panic becomes an error.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // State that a panic interrupted stays behind its lock, which is poisoned then.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Failure::Internal(message_of(&*panic))))
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "unknown".to_owned(),
    }
}
