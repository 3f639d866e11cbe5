//! Pool of large buffers for requests and replies. Reuse is cheaper than allocation: a newly allocated buffer costs a
//! page fault for every 4 KiB that are written to it.

use parking_lot::Mutex;

/// Capacity of a large buffer in bytes: the length of the longest request or reply.
const LARGE_CAPACITY: usize = crate::wire::RECORD_MAX;

/// Maximum capacity in bytes of a buffer that a thread keeps for its next request. Larger ones go to the pool.
const SMALL_MAX: usize = 64 * 1024;

/// Maximum number of unused large buffers in the pool. Further ones are freed.
const POOLED_MAX: usize = 32;

/// Returns true if a request or a reply of this length in bytes needs a large buffer.
pub(crate) fn is_large(length: usize) -> bool {
    length > SMALL_MAX
}

/// Pool of large buffers that no thread uses.
#[derive(Debug, Default)]
pub(crate) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// Grows a buffer to a capacity of at least `length` bytes and keeps its content. Takes a buffer from the pool if a
    /// large one is needed.
    pub(crate) fn reserve(&self, buffer: &mut Vec<u8>, length: usize) {
        if length <= buffer.capacity() {
            return;
        }
        if !is_large(length) || length > LARGE_CAPACITY {
            buffer.reserve_exact(length - buffer.len());
            return;
        }
        let pooled = self.0.lock().pop();
        let mut large = pooled.unwrap_or_else(|| Vec::with_capacity(LARGE_CAPACITY));
        large.extend_from_slice(buffer);
        *buffer = large;
    }

    /// Empties a buffer. If it is large, moves it to the pool and leaves a buffer without capacity.
    pub(crate) fn recycle(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        if is_large(buffer.capacity()) {
            let large = std::mem::take(buffer);
            let mut pool = self.0.lock();
            if pool.len() < POOLED_MAX && large.capacity() >= LARGE_CAPACITY {
                pool.push(large);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_go_to_the_pool_and_small_ones_stay() {
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
