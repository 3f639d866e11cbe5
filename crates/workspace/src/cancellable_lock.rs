//! Locking of mutexes that may be held for a long time, with cancellation.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::Duration;

use workspace_state::{Cancel, StoreError};

use crate::error::Result;

/// Time between two attempts to lock.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Locks a mutex that may be held for a long time. When `cancel` is set, stops waiting and fails with
/// [`StoreError::Cancelled`].
pub(crate) fn lock_cancellable<'a, T>(mutex: &'a Mutex<T>, cancel: &Cancel) -> Result<MutexGuard<'a, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => {}
        }
        cancel.check().map_err(StoreError::from)?;
        sleep(POLL_INTERVAL);
    }
}
