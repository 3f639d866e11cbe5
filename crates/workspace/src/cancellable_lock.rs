//! Locking of mutexes that may be held for a long time, with cancellation.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use workspace_state::{Cancel, StoreError};

use crate::error::Result;

/// Time between two looks at `cancel`.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Locks a mutex that may be held for a long time. When `cancel` is set, stops waiting and fails with
/// [`StoreError::Cancelled`].
pub(crate) fn lock_cancellable<'a, T>(mutex: &'a Mutex<T>, cancel: &Cancel) -> Result<MutexGuard<'a, T>> {
    loop {
        if let Some(guard) = mutex.try_lock_for(CANCEL_POLL_INTERVAL) {
            return Ok(guard);
        }
        cancel.check().map_err(StoreError::from)?;
    }
}
