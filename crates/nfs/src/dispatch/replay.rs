//! Cache of replies to calls that may have another result when they are executed a second time.
//!
//! A client that has lost its connection sends its calls again. A REMOVE that was executed must not fail with NOENT
//! then, so the client gets the first reply again. The replies are kept by export. An export is identified by its
//! generation: a random number in all of its file handles.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Maximum number of replies that are kept for all exports together. Each export may have an equal share.
const REPLIES_MAX: usize = 8192;

/// Number of replies that each export may have, even if its equal share is smaller.
const SHARE_MIN: usize = 64;

/// Time for which a repeated call waits for the end of the first one.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Cache of replies. A reply displaces only older replies of the same export.
#[derive(Debug, Default)]
pub(crate) struct ReplayCache {
    shares: Mutex<Shares>,
    /// Notified when a call ends.
    finished: Condvar,
    /// Hash function for records.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Shares {
    /// Calls by the generation of their export.
    by_generation: HashMap<u64, Share>,
    /// Number of repeated calls that wait for the end of the first one.
    waiting: usize,
}

/// Calls on one export.
#[derive(Debug, Default)]
struct Share {
    /// Replies by call; `None` while the call is executed.
    replies: HashMap<CallKey, Option<Box<[u8]>>>,
    /// Calls with a reply, the oldest first.
    order: VecDeque<CallKey>,
}

/// Identity of a call. The client's port is not part of it, because a new connection may have another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    client: IpAddr,
    xid: u32,
    /// Hash of the whole record.
    record: u64,
}

/// State of a call in the cache.
pub(super) enum CallState<'a> {
    /// The call was not sent before. The caller executes it and passes the reply to [`PendingReply::finish`].
    New(PendingReply<'a>),
    /// The call was executed before, with this reply.
    Answered(Box<[u8]>),
    /// The first call was not finished within [`FIRST_CALL_TIMEOUT`].
    InProgress,
}

/// Entry of a call that is executed. A drop without a reply removes the entry, so the call can be executed again.
pub(super) struct PendingReply<'a> {
    cache: &'a ReplayCache,
    generation: u64,
    key: CallKey,
}

impl Shares {
    fn get(&self, generation: u64, key: &CallKey) -> Option<&Option<Box<[u8]>>> {
        self.by_generation.get(&generation)?.replies.get(key)
    }

    fn is_running(&self, generation: u64, key: &CallKey) -> bool {
        matches!(self.get(generation, key), Some(None))
    }
}

impl ReplayCache {
    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock()
    }

    /// Looks up a call by the content of its record, and adds it if it is new. If the first call is being executed,
    /// calls `before_waiting` and waits for its end, at most [`FIRST_CALL_TIMEOUT`].
    ///
    /// `generation` is that of the first handle in the record. The caller has checked that the handle is not forged,
    /// because each new generation takes memory.
    pub(super) fn begin(
        &self,
        generation: u64,
        client: IpAddr,
        xid: u32,
        record: &[u8],
        before_waiting: &mut dyn FnMut(),
    ) -> CallState<'_> {
        let key = CallKey { client, xid, record: self.hasher.hash_one(record) };
        let mut shares = self.lock();
        if shares.is_running(generation, &key) {
            drop(shares);
            before_waiting();
            shares = self.wait(self.lock(), generation, &key);
        }
        match shares.get(generation, &key) {
            Some(Some(reply)) => CallState::Answered(reply.clone()),
            Some(None) => CallState::InProgress,
            None => {
                shares.by_generation.entry(generation).or_default().replies.insert(key, None);
                CallState::New(PendingReply { cache: self, generation, key })
            }
        }
    }

    /// Waits until a call is not executed any more, at most [`FIRST_CALL_TIMEOUT`].
    fn wait<'a>(
        &self,
        mut shares: MutexGuard<'a, Shares>,
        generation: u64,
        key: &CallKey,
    ) -> MutexGuard<'a, Shares> {
        shares.waiting += 1;
        let is_running = |shares: &mut Shares| shares.is_running(generation, key);
        self.finished.wait_while_for(&mut shares, is_running, FIRST_CALL_TIMEOUT);
        shares.waiting -= 1;
        shares
    }

    /// Removes all calls on exports for whose generation `is_served` returns false.
    pub(crate) fn retain(&self, is_served: impl Fn(u64) -> bool) {
        self.lock().by_generation.retain(|generation, _| is_served(*generation));
    }
}

impl PendingReply<'_> {
    /// Keeps the reply, and removes the oldest replies of the export beyond its share.
    pub(super) fn finish(self, reply: &[u8]) {
        let mut shares = self.cache.lock();
        let count = shares.by_generation.len();
        // The calls on the export may have been removed in the meantime.
        let Some(share) = shares.by_generation.get_mut(&self.generation) else { return };
        let Some(kept) = share.replies.get_mut(&self.key) else { return };
        *kept = Some(reply.into());
        share.order.push_back(self.key);
        while share.order.len() > SHARE_MIN.max(REPLIES_MAX / count) {
            if let Some(oldest) = share.order.pop_front() {
                share.replies.remove(&oldest);
            }
        }
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        let mut shares = self.cache.lock();
        if let Some(share) = shares.by_generation.get_mut(&self.generation) {
            if matches!(share.replies.get(&self.key), Some(None)) {
                share.replies.remove(&self.key);
            }
            if share.replies.is_empty() {
                shares.by_generation.remove(&self.generation);
            }
        }
        if shares.waiting > 0 {
            self.cache.finished.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn is_new(cache: &ReplayCache, xid: u32, record: &[u8]) -> bool {
        matches!(begin(cache, xid, record), CallState::New(_))
    }

    fn begin<'a>(cache: &'a ReplayCache, xid: u32, record: &[u8]) -> CallState<'a> {
        begin_on(cache, 1, xid, record)
    }

    fn begin_on<'a>(cache: &'a ReplayCache, generation: u64, xid: u32, record: &[u8]) -> CallState<'a> {
        cache.begin(generation, CLIENT, xid, record, &mut || {})
    }

    fn execute(cache: &ReplayCache, generation: u64, xid: u32) {
        let CallState::New(pending) = begin_on(cache, generation, xid, b"remove a") else {
            panic!("it is new")
        };
        pending.finish(b"done");
    }

    #[test]
    fn a_repeated_call_gets_the_first_reply() {
        let cache = ReplayCache::default();
        let CallState::New(pending) = begin(&cache, 1, b"remove a") else { panic!("it is new") };
        pending.finish(b"done");
        assert!(matches!(begin(&cache, 1, b"remove a"), CallState::Answered(reply) if &*reply == b"done"));
        assert!(is_new(&cache, 1, b"remove b"), "an xid may be used again for another call");
        assert!(is_new(&cache, 2, b"remove a"));
    }

    #[test]
    fn a_call_without_a_reply_can_be_made_again() {
        let cache = ReplayCache::default();
        drop(begin(&cache, 1, b"remove a"));
        assert!(is_new(&cache, 1, b"remove a"));
    }

    #[test]
    fn a_repeated_call_waits_for_the_first() {
        let cache = ReplayCache::default();
        let CallState::New(first) = begin(&cache, 1, b"remove a") else { panic!("it is new") };
        std::thread::scope(|scope| {
            let second = scope.spawn(|| matches!(begin(&cache, 1, b"remove a"), CallState::Answered(_)));
            first.finish(b"done");
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn the_oldest_replies_are_removed() {
        let cache = ReplayCache::default();
        for xid in 0..=u32::try_from(REPLIES_MAX).unwrap() {
            execute(&cache, 1, xid);
        }
        assert!(is_new(&cache, 0, b"remove a"));
        assert!(!is_new(&cache, 1, b"remove a"));
        assert_eq!(cache.lock().by_generation[&1].replies.len(), REPLIES_MAX);
    }

    #[test]
    fn calls_on_one_export_displace_no_replies_of_another() {
        let cache = ReplayCache::default();
        let has = |generation, xid| {
            matches!(begin_on(&cache, generation, xid, b"remove a"), CallState::Answered(_))
        };
        execute(&cache, 1, 1);
        for xid in 0..2 * u32::try_from(REPLIES_MAX).unwrap() {
            execute(&cache, 2, xid);
        }
        assert!(has(1, 1));
        assert_eq!(cache.lock().by_generation[&2].order.len(), REPLIES_MAX / 2);
        (3..1000).for_each(|generation| execute(&cache, generation, 1));
        (0..1000).for_each(|xid| execute(&cache, 1, 100 + xid));
        assert_eq!(cache.lock().by_generation[&1].order.len(), SHARE_MIN);
        assert!((2..1000).all(|generation| cache.lock().by_generation.contains_key(&generation)));
    }

    #[test]
    fn calls_on_a_removed_export_are_removed() {
        let cache = ReplayCache::default();
        execute(&cache, 1, 1);
        execute(&cache, 2, 1);
        let CallState::New(running) = begin(&cache, 2, b"remove a") else { panic!("it is new") };
        drop(begin_on(&cache, 3, 1, b"remove a"));
        cache.retain(|generation| generation == 2);
        running.finish(b"done");
        assert_eq!(cache.lock().by_generation.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(cache.lock().by_generation[&2].replies.len(), 1);
    }
}
