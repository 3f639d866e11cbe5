//! Open connections, within the limits.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::settings::Limits;

/// Generation of no export.
const NO_EXPORT: u64 = 0;

/// Generation of the export that a connection used last, with a valid handle or the mount secret. It is
/// [`NO_EXPORT`] for a client that may be anybody.
#[derive(Debug, Default)]
pub(crate) struct UsedExport(AtomicU64);

impl UsedExport {
    pub(crate) fn set(&self, generation: u64) {
        if self.get() != generation {
            self.0.store(generation, Ordering::Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Open connections.
#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<OpenConnections>,
    changed: Condvar,
}

#[derive(Default)]
struct OpenConnections {
    /// By number; the oldest has the lowest.
    streams: BTreeMap<u64, Counted>,
    next: u64,
    is_stopping: bool,
}

/// Connection that counts towards the limits.
struct Counted {
    stream: Arc<TcpStream>,
    client: SocketAddr,
    used_export: Arc<UsedExport>,
}

/// Connection that counts towards the limits until it is dropped, or closed in favour of another.
pub(crate) struct OpenConnection {
    number: u64,
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) used_export: Arc<UsedExport>,
    connections: Arc<Connections>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.lock().streams.remove(&self.number);
        self.connections.changed.notify_all();
    }
}

#[cfg(test)]
impl OpenConnection {
    /// Returns the only connection of a server.
    pub(crate) fn only(stream: TcpStream, client: SocketAddr) -> Self {
        let opened = Arc::<Connections>::default().open(stream, client, &Limits::default());
        opened.connection.expect("there are no others")
    }
}

/// Result of an attempt to count one more connection.
pub(super) struct Opened {
    /// The connection; `None` if it exceeds a limit.
    pub(super) connection: Option<OpenConnection>,
    /// Client whose connection was closed in favour of the new one.
    pub(super) closed: Option<SocketAddr>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection. At a limit, closes one of the export that has most of them, so that one tenant cannot
    /// lock out the others: their clients connect again by themselves.
    pub(super) fn open(self: &Arc<Self>, stream: TcpStream, client: SocketAddr, limits: &Limits) -> Opened {
        let mut open = self.lock();
        let of_client = |ip: IpAddr| move |counted: &Counted| counted.client.ip() == ip;
        let count_of_client = open.streams.values().filter(|it| of_client(client.ip())(it)).count();
        let closed = if count_of_client >= limits.connections_per_client {
            open.close_one(of_client(client.ip()))
        } else if open.streams.len() >= limits.connections {
            open.close_one(|_| true)
        } else {
            None
        };
        let has_room = closed.is_some()
            || count_of_client < limits.connections_per_client && open.streams.len() < limits.connections;
        if !has_room || open.is_stopping {
            return Opened { connection: None, closed };
        }
        let number = open.next;
        open.next += 1;
        let (stream, used_export) = (Arc::new(stream), Arc::<UsedExport>::default());
        let counted = Counted { stream: stream.clone(), client, used_export: used_export.clone() };
        open.streams.insert(number, counted);
        let connection = OpenConnection { number, stream, used_export, connections: self.clone() };
        Opened { connection: Some(connection), closed }
    }

    pub(super) fn count(&self) -> usize {
        self.lock().streams.len()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Closes all connections, and accepts no more.
    pub(super) fn stop(&self) {
        let mut open = self.lock();
        open.is_stopping = true;
        open.streams.values().for_each(Counted::close);
        self.changed.notify_all();
    }

    /// Waits until the server is to stop. Returns false after the timeout.
    pub(super) fn wait_stopping(&self, max_wait: Duration) -> bool {
        let is_running = |open: &mut OpenConnections| !open.is_stopping;
        let waited = self.changed.wait_timeout_while(self.lock(), max_wait, is_running);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_stopping
    }

    /// Waits until all connections have ended. Returns false after the timeout.
    pub(super) fn wait_closed(&self, max_wait: Duration) -> bool {
        let has_open = |open: &mut OpenConnections| !open.streams.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), max_wait, has_open);
        waited.unwrap_or_else(PoisonError::into_inner).0.streams.is_empty()
    }
}

impl OpenConnections {
    /// Closes the oldest connection of the export that has most of those that match. Connections without an export
    /// count as one export, and the new one is among them. Returns its client; `None` if no export has more than one.
    fn close_one(&mut self, matches: impl Fn(&Counted) -> bool) -> Option<SocketAddr> {
        let mut counts = HashMap::from([(NO_EXPORT, 1)]);
        for counted in self.streams.values().filter(|it| matches(it)) {
            *counts.entry(counted.used_export.get()).or_insert(0_usize) += 1;
        }
        let largest = counts.into_iter().filter(|(_, count)| *count > 1);
        let (export, _) = largest.max_by_key(|(export, count)| (*count, *export == NO_EXPORT))?;
        let is_of_export = |counted: &Counted| matches(counted) && counted.used_export.get() == export;
        let (number, _) = self.streams.iter().find(|(_, counted)| is_of_export(counted))?;
        let number = *number;
        let counted = self.streams.remove(&number)?;
        counted.close();
        Some(counted.client)
    }
}

impl Counted {
    fn close(&self) {
        if let Err(error) = self.stream.shutdown(Shutdown::Both) {
            tracing::debug!(%error, "NFS connection was closed already");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    struct Fixture {
        listener: TcpListener,
        connections: Arc<Connections>,
        limits: Limits,
    }

    impl Fixture {
        fn new(limits: Limits) -> Self {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            Self { listener, connections: Arc::default(), limits }
        }

        /// Connects a client that uses an export, and returns its side of the connection.
        fn connect(&self, export: u64) -> (TcpStream, Option<OpenConnection>) {
            let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
            let (stream, address) = self.listener.accept().unwrap();
            let opened = self.connections.open(stream, address, &self.limits).connection;
            if let Some(opened) = &opened {
                opened.used_export.set(export);
            }
            (client, opened)
        }
    }

    fn is_closed(stream: &mut TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_export_with_most_connections_loses_its_oldest_to_a_new_one() {
        for limits in [
            Limits { connections: 4, ..Limits::default() },
            Limits { connections_per_client: 4, ..Limits::default() },
        ] {
            let fixture = Fixture::new(limits);
            let mut open: Vec<_> = [7, 8, 8, 8].map(|export| fixture.connect(export)).into();
            let (mut new, opened) = fixture.connect(NO_EXPORT);
            assert!(opened.is_some());
            let closed: Vec<bool> = open.iter_mut().map(|(client, _)| is_closed(client)).collect();
            assert_eq!(closed, [false, true, false, false]);
            assert!(!is_closed(&mut new));
            assert_eq!(fixture.connections.count(), 4);
            drop((opened, open));
            assert_eq!(fixture.connections.count(), 0);
        }
    }

    #[test]
    fn clients_that_have_shown_no_handle_only_displace_each_other() {
        let fixture = Fixture::new(Limits { connections: 4, ..Limits::default() });
        let mut known: Vec<_> = [7, 8].map(|export| fixture.connect(export)).into();
        let unknown: Vec<_> = (0..50).map(|_| fixture.connect(NO_EXPORT)).collect();
        assert!(unknown.iter().all(|(_, opened)| opened.is_some()));
        assert!(known.iter_mut().all(|(client, _)| !is_closed(client)));
        assert_eq!(fixture.connections.count(), 4);
    }

    #[test]
    fn a_connection_too_many_is_refused_if_every_export_has_one() {
        let fixture = Fixture::new(Limits { connections: 3, ..Limits::default() });
        let mut open: Vec<_> = [7, 8, 9].map(|export| fixture.connect(export)).into();
        assert!(fixture.connect(NO_EXPORT).1.is_none());
        assert!(open.iter_mut().all(|(client, _)| !is_closed(client)));
    }
}
