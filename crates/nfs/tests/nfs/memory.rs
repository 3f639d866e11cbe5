//! Tests of the bound of the memory for large requests and replies.
//!
//! The server needs a *permit* to hold a large request or its reply in memory. Their number is limited, in total and
//! for each client address.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Opaque;
use workspace_nfs::Limits;
use workspace_test_support::wait_until;

use crate::client::{Client, NFS, decode_all, next_xid, record};
use crate::fixture::Fixture;

/// Maximum length of the content of a READ or WRITE, in bytes.
const IO_MAX: usize = 1 << 20;

/// Addresses of two clients.
const CLIENTS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];

/// Encodes a READ of 1 MiB, with its record mark.
fn long_read(file: &nfs_fh3) -> Vec<u8> {
    let arguments = READ3args { file: file.clone(), offset: 0, count: 1 << 20 };
    record(next_xid(), NFS, 6, &arguments)
}

/// Encodes a WRITE of 1 MiB, with its record mark.
fn long_write(file: &nfs_fh3) -> Vec<u8> {
    let data = Opaque::owned(vec![7; IO_MAX]);
    let (count, stable) = (1 << 20, stable_how::UNSTABLE);
    record(next_xid(), NFS, 7, &WRITE3args { file: file.clone(), offset: 0, count, stable, data })
}

/// Server with a file of 1 MiB.
struct Server {
    fixture: Fixture,
    file: nfs_fh3,
}

impl Server {
    fn start(set: impl FnOnce(&mut Limits)) -> Self {
        let fixture = Fixture::with_limits(set);
        fs::write(fixture.path("file"), vec![5; IO_MAX]).unwrap();
        let (mut client, root) = fixture.mount();
        let file = client.lookup(&root, "file").unwrap().0;
        Self { fixture, file }
    }

    fn connect_from(&self, source: Ipv4Addr) -> Client {
        Client::connect_from(source, self.fixture.server.get_server_info().port)
    }

    /// Connects a client that sends only the first `sent` bytes of a long WRITE.
    fn stall(&self, sent: usize) -> Client {
        let mut client = self.fixture.connect();
        // The server may have closed the connection before all was sent.
        client.stream.write_all(&long_write(&self.file)[..sent]).ok();
        client
    }

    /// Returns the number of permits that are held.
    fn large_requests(&self) -> usize {
        self.fixture.server.large_requests()
    }

    fn wait_until_released(&self) {
        wait_until("all permits are released", || self.large_requests() == 0);
    }

    /// Waits until all permits are released, and checks that another large request succeeds.
    fn assert_all_released(&self) {
        self.wait_until_released();
        let (read, _) = self.fixture.connect().read(&self.file, 0, 1 << 20).unwrap();
        assert_eq!(read.len(), IO_MAX);
    }
}

/// Allows three permits, and two for each client address. Sets timeouts so long that stalled clients keep theirs.
fn never_time_out(limits: &mut Limits) {
    limits.large_requests = 3;
    limits.large_requests_per_client = 2;
    limits.transfer_timeout = Duration::from_secs(3600);
    limits.transfer_total_timeout = Duration::from_secs(3600);
}

#[test]
fn stalled_clients_of_one_address_take_only_their_share() {
    let server = Server::start(never_time_out);
    let stalled: Vec<Client> = (0..6).map(|_| server.stall(1000)).collect();
    wait_until("the share is taken", || server.large_requests() == 2);
    let mut other = server.connect_from(CLIENTS[1]);
    for byte in 0..3 {
        let content = vec![byte; IO_MAX];
        other.write(&server.file, 0, &content).unwrap();
        assert!(other.read(&server.file, 0, 1 << 20).unwrap().0 == content);
    }
    server.fixture.connect().getattr(&server.file).unwrap();
    wait_until("only the share is taken", || server.large_requests() == 2);
    drop(stalled);
    server.assert_all_released();
}

#[test]
fn clients_that_read_no_replies_take_only_their_share() {
    let server = Server::start(never_time_out);
    let mut greedy: Vec<Client> = (0..3).map(|_| server.fixture.connect()).collect();
    let calls = long_read(&server.file).repeat(100);
    greedy.iter_mut().for_each(|client| client.send(&calls));
    wait_until("the share is taken", || server.large_requests() == 2);
    let mut other = server.connect_from(CLIENTS[1]);
    other.write(&server.file, 0, &vec![1; IO_MAX]).unwrap();
    assert!(other.read(&server.file, 0, 1 << 20).unwrap().0 == vec![1; IO_MAX]);
    drop(greedy);
    server.assert_all_released();
}

#[test]
fn a_stalled_record_closes_its_connection_and_an_idle_one_stays() {
    let server = Server::start(|limits| limits.transfer_timeout = Duration::from_millis(50));
    let mut idle = server.fixture.connect();
    idle.null();
    // 16 KiB are as much as the server requests when it does not know the length of the record.
    for sent in [1, 3, 4, 20, 1000, 16 * 1024, 20_000, 600_000] {
        assert!(server.stall(sent).receive().is_none(), "{sent} bytes were sent");
    }
    // This connection had no request for longer than `transfer_timeout`, but it stopped between two records.
    idle.null();
    server.wait_until_released();
}

#[test]
fn a_record_that_comes_byte_by_byte_closes_its_connection() {
    let server = Server::start(|limits| limits.transfer_total_timeout = Duration::from_millis(100));
    for length in [1000_u32, 30_000, 1 << 20] {
        let mut slow = server.fixture.connect();
        slow.stream.write_all(&(length | 1 << 31).to_be_bytes()).unwrap();
        wait_until("the connection is closed", || slow.stream.write_all(&[0]).is_err());
    }
    server.assert_all_released();
}

#[test]
fn a_reply_that_is_not_read_closes_the_connection() {
    let server = Server::start(|limits| limits.transfer_timeout = Duration::from_millis(50));
    wait_until("the first client is gone", || server.fixture.server.connections() == 0);
    let mut greedy = server.fixture.connect();
    greedy.stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    let call = long_read(&server.file);
    wait_until("the connection is closed", || greedy.stream.write_all(&call.repeat(100)).is_err());
    wait_until("the server has closed it", || server.fixture.server.connections() == 0);
    server.wait_until_released();
}

#[test]
fn more_large_requests_than_permits_all_succeed() {
    for (total, per_client) in [(1, 1), (3, 2)] {
        let server = Server::start(|limits| {
            limits.large_requests = total;
            limits.large_requests_per_client = per_client;
        });
        thread::scope(|scope| {
            for client in 0..8 {
                let server = &server;
                scope.spawn(move || read_and_write(server, CLIENTS[client % 2], client));
            }
        });
        server.assert_all_released();
    }
}

/// Connects a client that writes and reads a file of its own, 1 MiB at a time.
fn read_and_write(server: &Server, source: Ipv4Addr, client: usize) {
    let mut connection = server.connect_from(source);
    let root = connection.mount(&format!("/{}", crate::fixture::NAME)).unwrap();
    let file = connection.create(&root, format!("file-{client}")).unwrap();
    for round in 0..4 {
        let content = vec![(16 * client + round) as u8; IO_MAX];
        let offset = (round * IO_MAX) as u64;
        assert_eq!(connection.write(&file, offset, &content).unwrap().count, 1 << 20);
        assert!(connection.read(&file, offset, 1 << 20).unwrap().0 == content);
    }
}

#[test]
fn pipelined_large_requests_of_one_connection_all_succeed() {
    const READS: usize = 40;
    for (large_requests, extra_threads) in [(1, 512), (2, 0), (4, 2)] {
        let server = Server::start(|limits| {
            limits.large_requests = large_requests;
            limits.extra_threads = extra_threads;
        });
        let mut client = server.fixture.connect();
        client.send(&(0..READS).flat_map(|_| long_read(&server.file)).collect::<Vec<u8>>());
        for _ in 0..READS {
            let (_, result) = client.receive_result();
            let read: Nfs3Result<READ3resok<'_>, READ3resfail> = decode_all(&result);
            assert_eq!(read.unwrap().data.len(), IO_MAX);
            assert!(server.large_requests() <= large_requests);
        }
        server.assert_all_released();
    }
}

#[test]
fn a_record_in_fragments_takes_a_permit_when_it_becomes_large() {
    let server = Server::start(|limits| limits.large_requests = 1);
    let mut client = server.fixture.connect();
    let long = long_write(&server.file);
    let (first, rest) = long[4..].split_at(200);
    client.send(&[&200_u32.to_be_bytes(), first].concat());
    assert_eq!(server.large_requests(), 0, "a small fragment needs no permit");
    client.send(&(rest.len() as u32 | 1 << 31).to_be_bytes());
    wait_until("the record has a permit", || server.large_requests() == 1);
    client.send(rest);
    let (_, result) = client.receive_result();
    let written: Nfs3Result<WRITE3resok, WRITE3resfail> = decode_all(&result);
    assert_eq!(written.unwrap().count, 1 << 20);
    server.assert_all_released();
}

#[test]
fn a_server_stops_while_clients_wait_for_permits() {
    let server = Server::start(|limits| limits.large_requests = 1);
    let stalled = server.stall(1000);
    wait_until("the permit is taken", || server.large_requests() == 1);
    let mut waiting: Vec<Client> = (0..4).map(|_| server.stall(1000)).collect();
    for _ in 0..4 {
        let mut client = server.fixture.connect();
        client.send(&long_read(&server.file));
        waiting.push(client);
    }
    server.fixture.server.stop().unwrap();
    assert_eq!(server.large_requests(), 0, "all connections have ended when the server has stopped");
    assert!(waiting.iter_mut().all(|client| client.receive().is_none()));
    drop(stalled);
    server.fixture.server.start().unwrap();
    server.assert_all_released();
}
