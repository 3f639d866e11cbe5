//! Cache of replies to calls that may have another result when they are executed again.
//!
//! A client that has lost its connection sends its calls again. A REMOVE that was done must not fail with NOENT then.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of replies that are kept.
const REPLIES_MAX: usize = 8192;

/// Time for which a repeated call waits for the first one.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Cache of replies.
#[derive(Debug, Default)]
pub(crate) struct ReplayCache {
    entries: Mutex<Entries>,
    finished: Condvar,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Entries {
    replies: HashMap<Key, Option<Box<[u8]>>>,
    order: VecDeque<Key>,
    /// Repeated calls that wait for the first one.
    waiting: usize,
}

/// Client and call. The port is not part of it, because a new connection may have another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    client: IpAddr,
    xid: u32,
    record: u64,
}

/// Call as the cache knows it.
pub(super) enum Seen<'a> {
    /// It is new. The reply must be given to the ticket.
    New(Ticket<'a>),
    /// It was executed before, with this reply.
    Before(Box<[u8]>),
    /// The first call goes on for too long.
    InProgress,
}

/// Call that is executed. When it is dropped without a reply, the call counts as not made.
pub(super) struct Ticket<'a> {
    cache: &'a ReplayCache,
    key: Key,
}

impl ReplayCache {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a call by all of its record, and enters it if it is new. Waits while it is executed, after a call of
    /// `before_waiting`.
    pub(super) fn begin(
        &self,
        client: IpAddr,
        xid: u32,
        record: &[u8],
        before_waiting: &mut dyn FnMut(),
    ) -> Seen<'_> {
        let key = Key { client, xid, record: self.hasher.hash_one(record) };
        let mut entries = self.lock();
        if matches!(entries.replies.get(&key), Some(None)) {
            drop(entries);
            before_waiting();
            entries = self.wait(self.lock(), &key);
        }
        match entries.replies.get(&key) {
            Some(Some(reply)) => Seen::Before(reply.clone()),
            Some(None) => Seen::InProgress,
            None => {
                entries.replies.insert(key, None);
                Seen::New(Ticket { cache: self, key })
            }
        }
    }

    fn wait<'a>(&self, mut entries: MutexGuard<'a, Entries>, key: &Key) -> MutexGuard<'a, Entries> {
        entries.waiting += 1;
        let is_running = |entries: &mut Entries| matches!(entries.replies.get(key), Some(None));
        let waited = self.finished.wait_timeout_while(entries, FIRST_CALL_TIMEOUT, is_running);
        let mut entries = waited.unwrap_or_else(PoisonError::into_inner).0;
        entries.waiting -= 1;
        entries
    }
}

impl Ticket<'_> {
    /// Keeps the reply.
    pub(super) fn finish(self, reply: &[u8]) {
        let mut entries = self.cache.lock();
        entries.replies.insert(self.key, Some(reply.into()));
        entries.order.push_back(self.key);
        if entries.order.len() > REPLIES_MAX
            && let Some(oldest) = entries.order.pop_front()
        {
            entries.replies.remove(&oldest);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut entries = self.cache.lock();
        if matches!(entries.replies.get(&self.key), Some(None)) {
            entries.replies.remove(&self.key);
        }
        if entries.waiting > 0 {
            self.cache.finished.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn is_new(cache: &ReplayCache, xid: u32, record: &[u8]) -> bool {
        matches!(begin(cache, xid, record), Seen::New(_))
    }

    fn begin<'a>(cache: &'a ReplayCache, xid: u32, record: &[u8]) -> Seen<'a> {
        cache.begin(CLIENT, xid, record, &mut || {})
    }

    #[test]
    fn the_first_reply_is_given_again() {
        let cache = ReplayCache::default();
        let Seen::New(ticket) = begin(&cache, 1, b"remove a") else { panic!("it is new") };
        ticket.finish(b"done");
        assert!(matches!(begin(&cache, 1, b"remove a"), Seen::Before(reply) if &*reply == b"done"));
        assert!(is_new(&cache, 1, b"remove b"), "an id may be used again for another call");
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
        let Seen::New(first) = begin(&cache, 1, b"remove a") else { panic!("it is new") };
        std::thread::scope(|scope| {
            let second = scope.spawn(|| matches!(begin(&cache, 1, b"remove a"), Seen::Before(_)));
            first.finish(b"done");
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn old_replies_are_forgotten() {
        let cache = ReplayCache::default();
        for xid in 0..=u32::try_from(REPLIES_MAX).unwrap() {
            let Seen::New(ticket) = begin(&cache, xid, b"remove a") else { panic!("it is new") };
            ticket.finish(b"done");
        }
        assert!(is_new(&cache, 0, b"remove a"));
        assert!(!is_new(&cache, 1, b"remove a"));
        assert_eq!(cache.lock().replies.len(), REPLIES_MAX);
    }
}
