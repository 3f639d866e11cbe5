//! The connections to the API: how many there are in all, from each address and of each owner, and which are closed to
//! make room.
//!
//! A connection over which no request with a good key came yet is a *stranger's*. When there is no room for one more,
//! the stranger that has been idle longest is closed, so connections that are opened and left keep nobody out. A
//! connection with a good key is closed only for another one of the same owner, and only while it is idle.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::Ipv6Net;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::settings::Settings;

/// Idle timeout of a connection that has not authenticated.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that may be on their way to be closed.
const CLOSING_MAX: usize = 16;
/// Limit of open files where the system sets none.
const FILES_MAX: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard one, and returns the limit in force. Sandboxes are not affected: their
/// limits are set when they are started. Other programs that the server starts get the limit that it was started with.
pub fn raise_open_files() -> u64 {
    if let Err(error) = workspace_host::limits::raise_open_files_limit() {
        tracing::warn!(%error, "failed to raise the limit of open files");
    }
    open_files()
}

fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(FILES_MAX)
}

/// Limits on the number of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Largest number of connections.
    all: usize,
    /// From one address.
    each: usize,
    /// Largest number of connections of one owner.
    own: usize,
}

impl Limits {
    /// Returns the limits of the settings, but at most half of the open file limit, and half of that for one
    /// owner.
    pub(crate) fn of(settings: &Settings) -> Self {
        let half = usize::try_from(open_files() / 2).unwrap_or(usize::MAX).max(1);
        let all = half.min(settings.max_connections as usize);
        let own = (settings.max_connections_per_owner as usize).min(all / 2).max(1);
        Self { all, each: settings.max_connections_per_address as usize, own }
    }
}

/// All connections. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    limits: Limits,
    inner: Arc<Mutex<Inner>>,
    /// Woken when a connection is gone.
    gone: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Connections that have a descriptor, also those that are being closed.
    descriptors: usize,
    last: u64,
    open: HashMap<u64, Open>,
    /// Idle strangers, the one that became so first at the front. Keyed by a number that grows with every change.
    strangers: BTreeMap<u64, u64>,
    addresses: HashMap<IpAddr, Address>,
    owners: HashMap<String, Owner>,
}

/// The connections over which the last request came with a key of one owner.
#[derive(Debug, Default)]
struct Owner {
    open: usize,
    /// Idle connections in the order in which they became idle, numbered like strangers.
    idle: BTreeMap<u64, u64>,
}

/// The connections from one address.
#[derive(Debug, Default)]
struct Address {
    open: usize,
    /// Keys of its strangers in [`Inner::strangers`].
    strangers: BTreeSet<u64>,
}

#[derive(Debug)]
struct Open {
    address: IpAddr,
    /// Requests under way.
    busy: usize,
    /// True once a request had a valid key.
    known: bool,
    /// Owner of the key; `None` for an admin's.
    owner: Option<String>,
    /// Its key in [`Owner::idle`].
    idle_of_owner: Option<u64>,
    /// Its key in [`Inner::strangers`], and since when it is idle.
    idle: Option<(u64, Instant)>,
    close: Arc<Notify>,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, inner: Arc::default(), gone: Arc::default() }
    }

    /// Waits while many connections that were told to close are still there, so that closing keeps up with accepting.
    pub(crate) async fn wait_for_closing(&self) {
        loop {
            let gone = self.gone.notified();
            if self.inner().descriptors <= self.limits.all + CLOSING_MAX {
                return;
            }
            gone.await;
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection from this address, and closes an unauthenticated one for it if necessary.
    /// `None` if all connections are authenticated or have a request in progress.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<Connection> {
        let address = network(address);
        // Everything on this machine, a proxy included, comes from loopback.
        let each = if address.is_loopback() { self.limits.all } else { self.limits.each };
        let mut inner = self.inner();
        let own = inner.addresses.get(&address).map_or(0, |found| found.open);
        if own >= each {
            let first = inner.addresses.get(&address).and_then(|found| found.strangers.first().copied())?;
            inner.close(first);
        } else if inner.open.len() >= self.limits.all {
            let first = *inner.strangers.first_key_value()?.0;
            inner.close(first);
        }
        let (id, close) = (inner.number(), Arc::new(Notify::new()));
        let close_it = close.clone();
        let (owner, idle_of_owner) = (None, None);
        let open = Open { address, busy: 0, known: false, owner, idle_of_owner, idle: None, close: close_it };
        inner.open.insert(id, open);
        inner.descriptors += 1;
        inner.addresses.entry(address).or_default().open += 1;
        inner.settle(id);
        Some(Connection { place: Arc::new(Place { id, close, of: self.clone() }) })
    }

    /// Closes the stranger that has been idle longest, if there is one.
    pub(crate) fn close_idle_unauthenticated(&self) {
        let mut inner = self.inner();
        if let Some((first, _)) = inner.strangers.first_key_value() {
            let first = *first;
            inner.close(first);
        }
    }
}

/// Addresses that belong together: an IPv6 address stands for its network, because whoever has one has all of it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Net::new_assert(address, 64).network())
        }
        address => address,
    }
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Notes whether a connection is an idle stranger now, or an idle one of an owner.
    fn settle(&mut self, id: u64) {
        let number = self.number();
        let Some(open) = self.open.get_mut(&id) else { return };
        let strangers = &mut self.addresses.entry(open.address).or_default().strangers;
        if let Some((old, _)) = open.idle.take() {
            self.strangers.remove(&old);
            strangers.remove(&old);
        }
        if open.busy == 0 && !open.known {
            open.idle = Some((number, Instant::now()));
            self.strangers.insert(number, id);
            strangers.insert(number);
        }
        if let Some(owner) = open.owner.as_ref().and_then(|owner| self.owners.get_mut(owner)) {
            if let Some(old) = open.idle_of_owner.take() {
                owner.idle.remove(&old);
            }
            if open.busy == 0 {
                open.idle_of_owner = Some(number);
                owner.idle.insert(number, id);
            }
        }
    }

    /// Counts a connection as one of `owner`, for which an idle one of the same is closed if need be. `false` when the owner
    /// has as many as it may and each has a request under way.
    fn own(&mut self, id: u64, owner: Option<&str>, most: usize) -> bool {
        if self.open.get(&id).is_none_or(|open| open.owner.as_deref() == owner) {
            return true;
        }
        let has = owner.and_then(|owner| self.owners.get(owner));
        if has.is_some_and(|has| has.open >= most) {
            let Some((_, first)) = has.and_then(|has| has.idle.first_key_value()) else { return false };
            let first = *first;
            self.end(first);
        }
        self.disown(id);
        if let (Some(owner), Some(open)) = (owner, self.open.get_mut(&id)) {
            open.owner = Some(owner.to_owned());
            self.owners.entry(owner.to_owned()).or_default().open += 1;
        }
        true
    }

    fn disown(&mut self, id: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(name) = open.owner.take() else { return };
        let idle = open.idle_of_owner.take();
        let Some(owner) = self.owners.get_mut(&name) else { return };
        owner.open -= 1;
        if let Some(idle) = idle {
            owner.idle.remove(&idle);
        }
        if owner.open == 0 {
            self.owners.remove(&name);
        }
    }

    /// Closes an idle stranger. Its place is free at once.
    fn close(&mut self, stranger: u64) {
        if let Some(id) = self.strangers.get(&stranger).copied() {
            self.end(id);
        }
    }

    fn end(&mut self, id: u64) {
        if let Some(open) = self.open.get(&id) {
            open.close.notify_one();
        }
        self.leave(id);
    }

    fn leave(&mut self, id: u64) {
        self.disown(id);
        let Some(open) = self.open.remove(&id) else { return };
        let mut is_last = false;
        if let Some(address) = self.addresses.get_mut(&open.address) {
            address.open -= 1;
            is_last = address.open == 0;
            if let Some((stranger, _)) = open.idle {
                address.strangers.remove(&stranger);
            }
        }
        if let Some((stranger, _)) = open.idle {
            self.strangers.remove(&stranger);
        }
        if is_last {
            self.addresses.remove(&open.address);
        }
    }
}

/// A connection. Its place is free when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    id: u64,
    close: Arc<Notify>,
    of: Connections,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.of.inner();
        inner.leave(self.id);
        inner.descriptors -= 1;
        drop(inner);
        self.of.gone.notify_one();
    }
}

impl Connection {
    /// Notes that a request came with a good key: of this owner, or of an admin. An error with the limit when the owner has as
    /// many connections as it may.
    pub(crate) fn set_known(&self, owner: Option<&str>) -> Result<(), usize> {
        let (mut inner, own) = (self.place.of.inner(), self.place.of.limits.own);
        if !inner.own(self.place.id, owner, own) {
            return Err(own);
        }
        if let Some(open) = inner.open.get_mut(&self.place.id) {
            open.known = true;
            inner.settle(self.place.id);
        }
        Ok(())
    }

    /// Returns true if a request came with a valid key.
    pub(crate) fn is_known(&self) -> bool {
        self.place.of.inner().open.get(&self.place.id).is_some_and(|open| open.known)
    }

    /// Counts a request as under way for as long as the guard lives.
    pub(crate) fn begin(&self) -> Busy {
        self.count(|busy| busy + 1);
        Busy(self.clone())
    }

    fn count(&self, change: impl FnOnce(usize) -> usize) {
        let mut inner = self.place.of.inner();
        if let Some(open) = inner.open.get_mut(&self.place.id) {
            open.busy = change(open.busy);
            inner.settle(self.place.id);
        }
    }

    /// Waits until the connection is to be closed: for another, or because it is a stranger that was idle for too long.
    pub(crate) async fn closed(&self) {
        loop {
            let idle = self.place.of.inner().open.get(&self.place.id).map(|open| open.idle);
            let Some(idle) = idle else { return };
            let since = idle.map_or_else(Instant::now, |(_, since)| since);
            let until = since + STRANGER_TIMEOUT;
            if idle.is_some() && until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = self.place.close.notified() => return,
                () = sleep_until(until) => {}
            }
        }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Busy(Connection);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.count(|busy| busy.saturating_sub(1));
    }
}

/// A descriptor that is kept to be given up: with it a connection can be taken and closed when no other is left, so that
/// whoever dials is refused instead of waiting.
#[derive(Debug)]
pub(crate) struct Spare(Option<File>);

impl Spare {
    pub(crate) fn new() -> Self {
        Self(open().ok())
    }

    /// Makes room for one descriptor while `work` is done.
    pub(crate) fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.0 = None;
        let done = work();
        // Where even this one is taken, the next attempt finds it.
        self.0 = open().ok();
        done
    }
}

fn open() -> io::Result<File> {
    File::open("/dev/null")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn limited(all: usize, each: usize, own: usize) -> Connections {
        Connections::new(Limits { all, each, own })
    }

    fn is_open(connection: &Connection) -> bool {
        connection.place.of.inner().open.contains_key(&connection.place.id)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stranger_is_closed_for_a_new_connection_and_nobody_else() {
        let connections = limited(3, 2, 3);
        let known = connections.enter(ONE).unwrap();
        known.set_known(None).unwrap();
        let stranger = connections.enter(ONE).unwrap();
        let other = connections.enter(OTHER).unwrap();
        let next = connections.enter(ONE).unwrap();
        assert!(is_open(&known) && !is_open(&stranger) && is_open(&other), "it was of the same address");
        stranger.closed().await;
        let busy = next.begin();
        assert!(connections.enter(ONE).is_none(), "one has a key, the other a request");
        let third = connections.enter("10.0.0.3".parse().unwrap()).unwrap();
        assert!(!is_open(&other) && is_open(&third), "the oldest of all");
        drop(busy);
        assert!(connections.enter(ONE).is_some_and(|one| is_open(&one)) && !is_open(&next));
        drop((known, stranger, other, next, third));
        assert!(connections.inner().open.is_empty() && connections.inner().addresses.is_empty());
        assert!(connections.inner().strangers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_closed_when_it_was_idle_for_too_long_and_a_known_one_is_not() {
        let connections = limited(3, 3, 3);
        let (known, stranger) = (connections.enter(ONE).unwrap(), connections.enter(ONE).unwrap());
        known.set_known(None).unwrap();
        let began = Instant::now();
        tokio::time::advance(STRANGER_TIMEOUT / 2).await;
        drop(stranger.begin());
        stranger.closed().await;
        assert_eq!(began.elapsed(), STRANGER_TIMEOUT * 3 / 2, "since its last request");
        let waited = tokio::time::timeout(STRANGER_TIMEOUT * 10, known.closed()).await;
        assert!(waited.is_err());
    }

    #[test]
    fn loopback_may_have_all_places_and_a_network_of_ipv6_counts_as_one() {
        let connections = limited(4, 1, 4);
        let local: Vec<_> = (0..3).map(|_| connections.enter("::ffff:127.0.0.1".parse().unwrap())).collect();
        assert!(local.iter().flatten().all(is_open));
        let first = connections.enter("2001:db8::1".parse().unwrap()).unwrap();
        let _busy = first.begin();
        assert!(connections.enter("2001:db8::2".parse().unwrap()).is_none());
        let own = local[0].as_ref().unwrap();
        assert!(connections.enter("2001:db8:1::2".parse().unwrap()).is_some() && !is_open(own));
    }

    #[test]
    fn an_owner_has_its_share_and_makes_room_with_its_own_idle_connections() {
        let connections = limited(10, 10, 2);
        let of = |owner: Option<&str>| {
            let connection = connections.enter(ONE).unwrap();
            let busy = connection.begin();
            connection.set_known(owner).map(|()| (connection, busy))
        };
        let (first, busy) = of(Some("a")).unwrap();
        let (second, second_busy) = of(Some("a")).unwrap();
        assert_eq!(of(Some("a")).unwrap_err(), 2, "both have a request under way");
        first.set_known(Some("a")).unwrap();
        let other = of(Some("b")).unwrap();
        let admins: Vec<_> = (0..3).map(|_| of(None).unwrap()).collect();
        drop(busy);
        let third = of(Some("a")).unwrap();
        assert!(!is_open(&first) && is_open(&second) && is_open(&other.0), "the idle one of the same owner");
        assert!(admins.iter().all(|(admin, _)| is_open(admin)));
        drop(second_busy);
        second.set_known(Some("b")).unwrap();
        assert!(of(Some("a")).is_ok(), "a proxy's connection serves many");
        drop((first, second, third, other, admins));
        assert!(connections.inner().open.is_empty() && connections.inner().owners.is_empty());
    }
}
