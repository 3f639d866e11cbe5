//! Large buffers, which are used again: new ones cost a page fault for every 4 KiB.

use std::sync::{Mutex, PoisonError};

/// Capacity of a large buffer: that of the longest request or reply.
const LARGE: usize = crate::wire::RECORD_MAX;

/// Capacity above which a thread does not keep a buffer for itself.
const SMALL_MAX: usize = 64 * 1024;

/// Maximum number of large buffers that wait for use.
const POOLED_MAX: usize = 32;

/// Returns true if a request or a reply of this length needs a large buffer.
pub(crate) fn is_large(length: usize) -> bool {
    length > SMALL_MAX
}

/// Large buffers that wait for use.
#[derive(Debug, Default)]
pub(crate) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// Makes room for this many bytes in total. Keeps the content.
    pub(crate) fn reserve(&self, buffer: &mut Vec<u8>, length: usize) {
        if length <= buffer.capacity() {
            return;
        }
        if !is_large(length) || length > LARGE {
            buffer.reserve_exact(length - buffer.len());
            return;
        }
        let pooled = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut large = pooled.unwrap_or_else(|| Vec::with_capacity(LARGE));
        large.extend_from_slice(buffer);
        *buffer = large;
    }

    /// Empties a buffer. A large one goes back to the pool.
    pub(crate) fn recycle(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        if is_large(buffer.capacity()) {
            let large = std::mem::take(buffer);
            let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if pool.len() < POOLED_MAX && large.capacity() >= LARGE {
                pool.push(large);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_used_again_and_small_ones_kept() {
        let pool = BufferPool::default();
        let mut buffer = b"head".to_vec();
        pool.reserve(&mut buffer, 1 << 20);
        assert_eq!(buffer, b"head");
        let address = buffer.as_ptr();
        pool.recycle(&mut buffer);
        assert_eq!(buffer.capacity(), 0);
        pool.reserve(&mut buffer, 100);
        let small = buffer.as_ptr();
        pool.recycle(&mut buffer);
        assert_eq!((buffer.as_ptr(), buffer.len()), (small, 0));
        pool.reserve(&mut buffer, 100_000);
        assert_eq!(buffer.as_ptr(), address);
    }
}
