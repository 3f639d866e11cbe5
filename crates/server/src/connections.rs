//! Limits on the connections to the API: in total, per address and per owner.
//!
//! A connection is *unauthenticated* until a request with a valid key arrives over it. At a limit, the unauthenticated
//! connection that has been idle longest is closed for a new one, so connections that are opened and left idle do not keep
//! others out. An authenticated connection is closed only while it is idle, and only for another one of the same owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv6Net;
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::settings::Settings;

/// Idle timeout of a connection that has not authenticated.
const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections above the limit that are being closed.
const CLOSING_MAX: usize = 16;
/// Limit of open files that is assumed if the system has none.
const FILES_MAX: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard limit, and returns the effective limit. Sandboxes get limits of their
/// own, and other child processes get the original limit.
pub(crate) fn raise_open_files() -> u64 {
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
    /// Maximum number of connections.
    total: usize,
    /// Maximum number of connections from one address.
    per_address: usize,
    /// Maximum number of connections of one owner.
    per_owner: usize,
}

impl Limits {
    /// Returns the limits of the settings, capped at half of the open file limit in total, and half of that per owner.
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        let half = usize::try_from(open_files() / 2).unwrap_or(usize::MAX).max(1);
        let total = half.min(settings.max_connections as usize);
        let per_owner = (settings.max_connections_per_owner as usize).min(total / 2).max(1);
        Self { total, per_address: settings.max_connections_per_address as usize, per_owner }
    }
}

/// Registry of all connections. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    limits: Limits,
    inner: Arc<Mutex<Inner>>,
    /// Notified when a connection has released its descriptor.
    released: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Number of connections with a descriptor, including those that are being closed.
    descriptors: usize,
    /// Last id of a connection, or last sequence number of becoming idle: both are taken from this counter.
    last_sequence: u64,
    /// Connections by id, without those that are being closed.
    open: HashMap<u64, OpenConnection>,
    /// Ids of idle unauthenticated connections, keyed by the sequence number at which they became idle.
    unauthenticated: BTreeMap<u64, u64>,
    addresses: HashMap<IpAddr, Address>,
    owners: HashMap<String, Owner>,
}

/// Connections of one owner: those whose last request had a key of that owner.
#[derive(Debug, Default)]
struct Owner {
    open: usize,
    /// Ids of idle connections, keyed by the sequence number at which they became idle.
    idle: BTreeMap<u64, u64>,
}

/// Connections from one address.
#[derive(Debug, Default)]
struct Address {
    open: usize,
    /// Keys in [`Inner::unauthenticated`].
    unauthenticated: BTreeSet<u64>,
}

#[derive(Debug)]
struct OpenConnection {
    address: IpAddr,
    /// Number of requests in progress.
    requests: usize,
    /// True once a request had a valid key.
    authenticated: bool,
    /// Owner of the last key; `None` for an admin key, and before the first key.
    owner: Option<String>,
    /// Key in [`Owner::idle`], while it is idle.
    owner_idle: Option<u64>,
    /// Key in [`Inner::unauthenticated`] and start of the idle time, while it is idle and unauthenticated.
    idle: Option<(u64, Instant)>,
    /// Notified when the connection must close.
    close: Arc<Notify>,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, inner: Arc::default(), released: Arc::default() }
    }

    /// Waits until at most [`CLOSING_MAX`] connections above the limit are being closed, so that closing keeps up with
    /// accepting.
    pub(crate) async fn wait_for_closing(&self) {
        loop {
            let released = self.released.notified();
            if self.inner().descriptors <= self.limits.total + CLOSING_MAX {
                return;
            }
            released.await;
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Registers a connection, and closes an idle unauthenticated one if a limit is reached. Returns `None` if a limit
    /// is reached and no connection can be closed: then the new one must be refused.
    pub(crate) fn register(&self, address: IpAddr) -> Option<Connection> {
        let address = counted_address(address);
        // All clients of a proxy on this machine come from loopback.
        let per_address = if address.is_loopback() { self.limits.total } else { self.limits.per_address };
        let mut inner = self.inner();
        let from_address = inner.addresses.get(&address).map_or(0, |found| found.open);
        if from_address >= per_address {
            let first =
                inner.addresses.get(&address).and_then(|found| found.unauthenticated.first().copied())?;
            inner.close_unauthenticated(first);
        } else if inner.open.len() >= self.limits.total {
            let first = *inner.unauthenticated.first_key_value()?.0;
            inner.close_unauthenticated(first);
        }
        let (id, close) = (inner.next_sequence(), Arc::new(Notify::new()));
        let open = OpenConnection {
            address,
            requests: 0,
            authenticated: false,
            owner: None,
            owner_idle: None,
            idle: None,
            close: close.clone(),
        };
        inner.open.insert(id, open);
        inner.descriptors += 1;
        inner.addresses.entry(address).or_default().open += 1;
        inner.update_idle(id);
        Some(Connection { registration: Arc::new(Registration { id, close, registry: self.clone() }) })
    }

    /// Closes the unauthenticated connection that has been idle longest, if there is one.
    pub(crate) fn close_idle_unauthenticated(&self) {
        let mut inner = self.inner();
        if let Some((first, _)) = inner.unauthenticated.first_key_value() {
            let first = *first;
            inner.close_unauthenticated(first);
        }
    }
}

/// Returns the address that connections are counted by: the /64 network of an IPv6 address, because one client usually
/// has a whole one.
fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Net::new_assert(address, 64).network())
        }
        address => address,
    }
}

impl Inner {
    fn next_sequence(&mut self) -> u64 {
        self.last_sequence += 1;
        self.last_sequence
    }

    /// Updates the idle lists after a change of a connection.
    fn update_idle(&mut self, id: u64) {
        let sequence = self.next_sequence();
        let Some(open) = self.open.get_mut(&id) else { return };
        let of_address = &mut self.addresses.entry(open.address).or_default().unauthenticated;
        if let Some((old, _)) = open.idle.take() {
            self.unauthenticated.remove(&old);
            of_address.remove(&old);
        }
        if open.requests == 0 && !open.authenticated {
            open.idle = Some((sequence, Instant::now()));
            self.unauthenticated.insert(sequence, id);
            of_address.insert(sequence);
        }
        if let Some(owner) = open.owner.as_ref().and_then(|owner| self.owners.get_mut(owner)) {
            if let Some(old) = open.owner_idle.take() {
                owner.idle.remove(&old);
            }
            if open.requests == 0 {
                open.owner_idle = Some(sequence);
                owner.idle.insert(sequence, id);
            }
        }
    }

    /// Assigns a connection to an owner. If the owner already has `max` connections, the one that has been idle longest
    /// is closed. Returns false if none is idle.
    fn set_owner(&mut self, id: u64, owner: Option<&str>, max: usize) -> bool {
        if self.open.get(&id).is_none_or(|open| open.owner.as_deref() == owner) {
            return true;
        }
        let current = owner.and_then(|owner| self.owners.get(owner));
        if current.is_some_and(|current| current.open >= max) {
            let first = current.and_then(|current| current.idle.first_key_value());
            let Some((_, first)) = first else { return false };
            let first = *first;
            self.close(first);
        }
        self.clear_owner(id);
        if let (Some(owner), Some(open)) = (owner, self.open.get_mut(&id)) {
            open.owner = Some(owner.to_owned());
            self.owners.entry(owner.to_owned()).or_default().open += 1;
        }
        true
    }

    fn clear_owner(&mut self, id: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(name) = open.owner.take() else { return };
        let idle = open.owner_idle.take();
        let Some(owner) = self.owners.get_mut(&name) else { return };
        owner.open -= 1;
        if let Some(idle) = idle {
            owner.idle.remove(&idle);
        }
        if owner.open == 0 {
            self.owners.remove(&name);
        }
    }

    /// Closes the connection with that key in [`Inner::unauthenticated`].
    fn close_unauthenticated(&mut self, key: u64) {
        if let Some(id) = self.unauthenticated.get(&key).copied() {
            self.close(id);
        }
    }

    /// Requests a connection to close. It no longer counts against the limits.
    fn close(&mut self, id: u64) {
        if let Some(open) = self.open.get(&id) {
            open.close.notify_one();
        }
        self.remove(id);
    }

    fn remove(&mut self, id: u64) {
        self.clear_owner(id);
        let Some(open) = self.open.remove(&id) else { return };
        let mut is_last = false;
        if let Some(address) = self.addresses.get_mut(&open.address) {
            address.open -= 1;
            is_last = address.open == 0;
            if let Some((key, _)) = open.idle {
                address.unauthenticated.remove(&key);
            }
        }
        if let Some((key, _)) = open.idle {
            self.unauthenticated.remove(&key);
        }
        if is_last {
            self.addresses.remove(&open.address);
        }
    }
}

/// Registered connection. It is removed from the registry when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    registration: Arc<Registration>,
}

#[derive(Debug)]
struct Registration {
    id: u64,
    close: Arc<Notify>,
    registry: Connections,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut inner = self.registry.inner();
        inner.remove(self.id);
        inner.descriptors -= 1;
        drop(inner);
        self.registry.released.notify_one();
    }
}

impl Connection {
    /// Records that a request had a valid key; `owner` is `None` for an admin key. Fails with the limit if the
    /// owner has that many connections, none of them idle.
    pub(crate) fn set_authenticated(&self, owner: Option<&str>) -> Result<(), usize> {
        let mut inner = self.registration.registry.inner();
        let max = self.registration.registry.limits.per_owner;
        if !inner.set_owner(self.registration.id, owner, max) {
            return Err(max);
        }
        if let Some(open) = inner.open.get_mut(&self.registration.id) {
            open.authenticated = true;
            inner.update_idle(self.registration.id);
        }
        Ok(())
    }

    /// Returns true once a request had a valid key.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.registration
            .registry
            .inner()
            .open
            .get(&self.registration.id)
            .is_some_and(|open| open.authenticated)
    }

    /// Counts a request as in progress until the guard is dropped.
    pub(crate) fn begin_request(&self) -> RequestGuard {
        self.update_requests(|requests| requests + 1);
        RequestGuard(self.clone())
    }

    fn update_requests(&self, change: impl FnOnce(usize) -> usize) {
        let mut inner = self.registration.registry.inner();
        if let Some(open) = inner.open.get_mut(&self.registration.id) {
            open.requests = change(open.requests);
            inner.update_idle(self.registration.id);
        }
    }

    /// Waits until the connection must be closed: for another one, or because it was idle and unauthenticated for
    /// [`UNAUTHENTICATED_TIMEOUT`].
    pub(crate) async fn close_requested(&self) {
        loop {
            let idle =
                self.registration.registry.inner().open.get(&self.registration.id).map(|open| open.idle);
            let Some(idle) = idle else { return };
            // A connection that is not idle now is checked again after the timeout.
            let since = idle.map_or_else(Instant::now, |(_, since)| since);
            let until = since + UNAUTHENTICATED_TIMEOUT;
            if idle.is_some() && until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = self.registration.close.notified() => return,
                () = sleep_until(until) => {}
            }
        }
    }
}

/// Guard of a request in progress.
#[derive(Debug)]
pub(crate) struct RequestGuard(Connection);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.update_requests(|requests| requests.saturating_sub(1));
    }
}

/// Reserved file descriptor. When the process is out of descriptors, it is closed so that a pending connection can be
/// accepted and refused; otherwise the client would wait.
#[derive(Debug)]
pub(crate) struct ReservedDescriptor(Option<File>);

impl ReservedDescriptor {
    pub(crate) fn new() -> Self {
        Self(open_null().ok())
    }

    /// Closes the descriptor, calls `work`, and opens it again.
    pub(crate) fn release_during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.0 = None;
        let result = work();
        // If another thread took the descriptor, the next call opens it again.
        self.0 = open_null().ok();
        result
    }
}

fn open_null() -> io::Result<File> {
    File::open("/dev/null")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn limited(total: usize, per_address: usize, per_owner: usize) -> Connections {
        Connections::new(Limits { total, per_address, per_owner })
    }

    fn is_open(connection: &Connection) -> bool {
        connection.registration.registry.inner().open.contains_key(&connection.registration.id)
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_idle_unauthenticated_connection_is_closed_for_a_new_one() {
        let connections = limited(3, 2, 3);
        let authenticated = connections.register(ONE).unwrap();
        authenticated.set_authenticated(None).unwrap();
        let unauthenticated = connections.register(ONE).unwrap();
        let other = connections.register(OTHER).unwrap();
        let next = connections.register(ONE).unwrap();
        assert!(
            is_open(&authenticated) && !is_open(&unauthenticated) && is_open(&other),
            "it had the same address"
        );
        unauthenticated.close_requested().await;
        let busy = next.begin_request();
        assert!(connections.register(ONE).is_none(), "one has a key, the other a request");
        let third = connections.register("10.0.0.3".parse().unwrap()).unwrap();
        assert!(!is_open(&other) && is_open(&third), "the oldest of all");
        drop(busy);
        assert!(connections.register(ONE).is_some_and(|one| is_open(&one)) && !is_open(&next));
        drop((authenticated, unauthenticated, other, next, third));
        assert!(connections.inner().open.is_empty() && connections.inner().addresses.is_empty());
        assert!(connections.inner().unauthenticated.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn only_unauthenticated_connections_have_an_idle_timeout() {
        let connections = limited(3, 3, 3);
        let (authenticated, unauthenticated) =
            (connections.register(ONE).unwrap(), connections.register(ONE).unwrap());
        authenticated.set_authenticated(None).unwrap();
        let began = Instant::now();
        tokio::time::advance(UNAUTHENTICATED_TIMEOUT / 2).await;
        drop(unauthenticated.begin_request());
        unauthenticated.close_requested().await;
        assert_eq!(began.elapsed(), UNAUTHENTICATED_TIMEOUT * 3 / 2, "since its last request");
        let waited =
            tokio::time::timeout(UNAUTHENTICATED_TIMEOUT * 10, authenticated.close_requested()).await;
        assert!(waited.is_err());
    }

    #[test]
    fn loopback_has_no_limit_per_address_and_an_ipv6_network_counts_as_one_address() {
        let connections = limited(4, 1, 4);
        let local: Vec<_> =
            (0..3).map(|_| connections.register("::ffff:127.0.0.1".parse().unwrap())).collect();
        assert!(local.iter().flatten().all(is_open));
        let first = connections.register("2001:db8::1".parse().unwrap()).unwrap();
        let _busy = first.begin_request();
        assert!(connections.register("2001:db8::2".parse().unwrap()).is_none());
        let own = local[0].as_ref().unwrap();
        assert!(connections.register("2001:db8:1::2".parse().unwrap()).is_some() && !is_open(own));
    }

    #[test]
    fn at_its_limit_an_owner_loses_its_own_idle_connections() {
        let connections = limited(10, 10, 2);
        let of = |owner: Option<&str>| {
            let connection = connections.register(ONE).unwrap();
            let busy = connection.begin_request();
            connection.set_authenticated(owner).map(|()| (connection, busy))
        };
        let (first, busy) = of(Some("a")).unwrap();
        let (second, second_busy) = of(Some("a")).unwrap();
        assert_eq!(of(Some("a")).unwrap_err(), 2, "both have a request in progress");
        first.set_authenticated(Some("a")).unwrap();
        let other = of(Some("b")).unwrap();
        let admins: Vec<_> = (0..3).map(|_| of(None).unwrap()).collect();
        drop(busy);
        let third = of(Some("a")).unwrap();
        assert!(!is_open(&first) && is_open(&second) && is_open(&other.0), "the idle one of the same owner");
        assert!(admins.iter().all(|(admin, _)| is_open(admin)));
        drop(second_busy);
        second.set_authenticated(Some("b")).unwrap();
        assert!(of(Some("a")).is_ok(), "connections of a proxy serve several owners");
        drop((first, second, third, other, admins));
        assert!(connections.inner().open.is_empty() && connections.inner().owners.is_empty());
    }
}
