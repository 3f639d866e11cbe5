//! Open TCP connections of a server, and the limits of their number.
//!
//! An export is identified here by its generation: a random number that is part of all file handles of the export.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::settings::Limits;

/// Value in place of a generation for a connection that has used no export. No export has it as its generation.
const NO_EXPORT: u64 = 0;

/// Generation of the export that a connection used last. It is [`NO_EXPORT`] until the client has sent a valid file
/// handle or has mounted an export.
#[derive(Debug, Default)]
pub(crate) struct UsedExport(AtomicU64);

impl UsedExport {
    /// Sets the generation. Writes only a changed value, because every request calls this.
    pub(crate) fn set(&self, generation: u64) {
        if self.get() != generation {
            self.0.store(generation, Ordering::Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Open connections of a server.
#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<OpenConnections>,
    /// Notified when a connection ends and when the server is to stop.
    changed: Condvar,
}

#[derive(Default)]
struct OpenConnections {
    /// Connections by number. Numbers ascend, so the oldest connection has the lowest.
    streams: BTreeMap<u64, TrackedConnection>,
    /// Number of the next connection.
    next: u64,
    is_stopping: bool,
}

/// Entry in the list of open connections, which the limits count.
struct TrackedConnection {
    stream: Arc<TcpStream>,
    client: SocketAddr,
    used_export: Arc<UsedExport>,
}

/// Guard of an open connection. When it is dropped, the connection is removed from the list that the limits count.
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
    /// Returns a connection in a list of its own, as the only one of a server.
    pub(crate) fn only(stream: TcpStream, client: SocketAddr) -> Self {
        let opened = Arc::<Connections>::default().open(stream, client, &Limits::default());
        opened.connection.expect("there are no others")
    }
}

/// Result of [`Connections::open`].
pub(super) struct Opened {
    /// The new connection; `None` if it would exceed a limit, or the server is to stop.
    pub(super) connection: Option<OpenConnection>,
    /// Client whose connection was closed to make room for the new one; `None` if none was closed.
    pub(super) closed: Option<SocketAddr>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock()
    }

    /// Adds a connection. At a limit, first closes the oldest connection of the export with the most connections, so
    /// that the clients of one export cannot lock out those of others. A client whose connection is closed connects
    /// again.
    pub(super) fn open(self: &Arc<Self>, stream: TcpStream, client: SocketAddr, limits: &Limits) -> Opened {
        let mut open = self.lock();
        let is_from = |ip: IpAddr| move |tracked: &TrackedConnection| tracked.client.ip() == ip;
        let count_of_client = open.streams.values().filter(|it| is_from(client.ip())(it)).count();
        let closed = if count_of_client >= limits.connections_per_client {
            open.close_one(is_from(client.ip()))
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
        let tracked = TrackedConnection { stream: stream.clone(), client, used_export: used_export.clone() };
        open.streams.insert(number, tracked);
        let connection = OpenConnection { number, stream, used_export, connections: self.clone() };
        Opened { connection: Some(connection), closed }
    }

    pub(super) fn count(&self) -> usize {
        self.lock().streams.len()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Shuts down the sockets of all connections, and adds no more connections.
    pub(super) fn stop(&self) {
        let mut open = self.lock();
        open.is_stopping = true;
        open.streams.values().for_each(TrackedConnection::close);
        self.changed.notify_all();
    }

    /// Waits until [`stop`](Self::stop) is called. Returns false after the timeout.
    pub(super) fn wait_stopping(&self, max_wait: Duration) -> bool {
        let is_running = |open: &mut OpenConnections| !open.is_stopping;
        let mut open = self.lock();
        self.changed.wait_while_for(&mut open, is_running, max_wait);
        open.is_stopping
    }

    /// Waits until all connections have ended. Returns false after the timeout.
    pub(super) fn wait_closed(&self, max_wait: Duration) -> bool {
        let has_open = |open: &mut OpenConnections| !open.streams.is_empty();
        let mut open = self.lock();
        self.changed.wait_while_for(&mut open, has_open, max_wait);
        open.streams.is_empty()
    }
}

impl OpenConnections {
    /// Counts the connections for which `matches` returns true, by export. Closes the oldest connection of the export
    /// with the most, and returns its client. Connections that have used no export count as one export, and the
    /// connection that needs room is one of these. Returns `None` and closes nothing if no export has more than one.
    fn close_one(&mut self, matches: impl Fn(&TrackedConnection) -> bool) -> Option<SocketAddr> {
        let mut counts = HashMap::from([(NO_EXPORT, 1)]);
        for tracked in self.streams.values().filter(|it| matches(it)) {
            *counts.entry(tracked.used_export.get()).or_insert(0_usize) += 1;
        }
        let largest = counts.into_iter().filter(|(_, count)| *count > 1);
        let (export, _) = largest.max_by_key(|(export, count)| (*count, *export == NO_EXPORT))?;
        let is_of_export =
            |tracked: &TrackedConnection| matches(tracked) && tracked.used_export.get() == export;
        let (number, _) = self.streams.iter().find(|(_, tracked)| is_of_export(tracked))?;
        let number = *number;
        let tracked = self.streams.remove(&number)?;
        tracked.close();
        Some(tracked.client)
    }
}

impl TrackedConnection {
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

        /// Connects a client that uses the export with this generation. Returns the client's side of the connection,
        /// and the server's side unless it was refused.
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
    fn clients_without_an_export_close_only_connections_of_each_other() {
        let fixture = Fixture::new(Limits { connections: 4, ..Limits::default() });
        let mut with_export: Vec<_> = [7, 8].map(|export| fixture.connect(export)).into();
        let without_export: Vec<_> = (0..50).map(|_| fixture.connect(NO_EXPORT)).collect();
        assert!(without_export.iter().all(|(_, opened)| opened.is_some()));
        assert!(with_export.iter_mut().all(|(client, _)| !is_closed(client)));
        assert_eq!(fixture.connections.count(), 4);
    }

    #[test]
    fn at_the_limit_a_connection_is_refused_if_every_export_has_only_one() {
        let fixture = Fixture::new(Limits { connections: 3, ..Limits::default() });
        let mut open: Vec<_> = [7, 8, 9].map(|export| fixture.connect(export)).into();
        assert!(fixture.connect(NO_EXPORT).1.is_none());
        assert!(open.iter_mut().all(|(client, _)| !is_closed(client)));
    }
}
