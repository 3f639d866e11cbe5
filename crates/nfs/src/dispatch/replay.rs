//! Cache of replies to calls that may have another result when they are executed again.
//!
//! A client that has lost its connection sends its calls again. A REMOVE that was done must not fail with NOENT then.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of replies that are kept over all exports. Each export may have an equal part of them.
const REPLIES_MAX: usize = 8192;

/// Number of replies that each export may have, however many exports there are.
const SHARE_MIN: usize = 64;

/// Time for which a repeated call waits for the first one.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Cache of replies. The clients of an export displace replies of this export alone.
#[derive(Debug, Default)]
pub(crate) struct ReplayCache {
    shares: Mutex<Shares>,
    finished: Condvar,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Shares {
    /// By the generation of the export.
    by_generation: HashMap<u64, Share>,
    /// Repeated calls that wait for the first one.
    waiting: usize,
}

/// Calls on one export.
#[derive(Debug, Default)]
struct Share {
    /// `None` while a call is executed.
    replies: HashMap<Key, Option<Box<[u8]>>>,
    order: VecDeque<Key>,
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
    generation: u64,
    key: Key,
}

impl Shares {
    fn get(&self, generation: u64, key: &Key) -> Option<&Option<Box<[u8]>>> {
        self.by_generation.get(&generation)?.replies.get(key)
    }

    fn is_running(&self, generation: u64, key: &Key) -> bool {
        matches!(self.get(generation, key), Some(None))
    }
}

impl ReplayCache {
    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a call by all of its record, and enters it if it is new. Waits while it is executed, after a call of
    /// `before_waiting`.
    ///
    /// `generation` is that of the first handle in the record, which must be a handle of this server: whatever is
    /// entered takes memory.
    pub(super) fn begin(
        &self,
        generation: u64,
        client: IpAddr,
        xid: u32,
        record: &[u8],
        before_waiting: &mut dyn FnMut(),
    ) -> Seen<'_> {
        let key = Key { client, xid, record: self.hasher.hash_one(record) };
        let mut shares = self.lock();
        if shares.is_running(generation, &key) {
            drop(shares);
            before_waiting();
            shares = self.wait(self.lock(), generation, &key);
        }
        match shares.get(generation, &key) {
            Some(Some(reply)) => Seen::Before(reply.clone()),
            Some(None) => Seen::InProgress,
            None => {
                shares.by_generation.entry(generation).or_default().replies.insert(key, None);
                Seen::New(Ticket { cache: self, generation, key })
            }
        }
    }

    fn wait<'a>(
        &self,
        mut shares: MutexGuard<'a, Shares>,
        generation: u64,
        key: &Key,
    ) -> MutexGuard<'a, Shares> {
        shares.waiting += 1;
        let is_running = |shares: &mut Shares| shares.is_running(generation, key);
        let waited = self.finished.wait_timeout_while(shares, FIRST_CALL_TIMEOUT, is_running);
        let mut shares = waited.unwrap_or_else(PoisonError::into_inner).0;
        shares.waiting -= 1;
        shares
    }

    /// Forgets all calls on exports that are not served any more.
    pub(crate) fn retain(&self, is_served: impl Fn(u64) -> bool) {
        self.lock().by_generation.retain(|generation, _| is_served(*generation));
    }
}

impl Ticket<'_> {
    /// Keeps the reply.
    pub(super) fn finish(self, reply: &[u8]) {
        let mut shares = self.cache.lock();
        let count = shares.by_generation.len();
        // The export may have been removed in the meantime.
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

impl Drop for Ticket<'_> {
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
        matches!(begin(cache, xid, record), Seen::New(_))
    }

    fn begin<'a>(cache: &'a ReplayCache, xid: u32, record: &[u8]) -> Seen<'a> {
        begin_on(cache, 1, xid, record)
    }

    fn begin_on<'a>(cache: &'a ReplayCache, generation: u64, xid: u32, record: &[u8]) -> Seen<'a> {
        cache.begin(generation, CLIENT, xid, record, &mut || {})
    }

    fn execute(cache: &ReplayCache, generation: u64, xid: u32) {
        let Seen::New(ticket) = begin_on(cache, generation, xid, b"remove a") else { panic!("it is new") };
        ticket.finish(b"done");
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
            execute(&cache, 1, xid);
        }
        assert!(is_new(&cache, 0, b"remove a"));
        assert!(!is_new(&cache, 1, b"remove a"));
        assert_eq!(cache.lock().by_generation[&1].replies.len(), REPLIES_MAX);
    }

    #[test]
    fn calls_on_one_export_displace_no_replies_of_another() {
        let cache = ReplayCache::default();
        let has = |generation, xid| matches!(begin_on(&cache, generation, xid, b"remove a"), Seen::Before(_));
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
    fn calls_on_a_removed_export_leave_nothing() {
        let cache = ReplayCache::default();
        execute(&cache, 1, 1);
        execute(&cache, 2, 1);
        let Seen::New(running) = begin(&cache, 2, b"remove a") else { panic!("it is new") };
        drop(begin_on(&cache, 3, 1, b"remove a"));
        cache.retain(|generation| generation == 2);
        running.finish(b"done");
        assert_eq!(cache.lock().by_generation.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(cache.lock().by_generation[&2].replies.len(), 1);
    }
}
