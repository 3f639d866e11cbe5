//! Hostile clients and local processes: malformed input, excess of connections, and races.

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Void};
use workspace_nfs::{Export, Identity, RefusalReason};
use workspace_test_support::wait_until;

use crate::client::{Client, NFS, at, decode_all, mode, next_xid, record};
use crate::fixture::{Fixture, open};

#[test]
fn many_pipelined_requests_are_all_answered() {
    const REQUESTS: usize = 1500;
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), vec![5; 64 * 1024]).unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.lookup(&root, "file").unwrap().0;
    let xids: HashSet<u32> = (0..REQUESTS).map(|_| next_xid()).collect();
    let mut sender = Client { stream: client.stream.try_clone().unwrap() };
    let calls: Vec<Vec<u8>> = xids
        .iter()
        .map(|xid| record(*xid, NFS, 6, &READ3args { file: file.clone(), offset: 0, count: 64 * 1024 }))
        .collect();
    std::thread::scope(|scope| {
        scope.spawn(move || calls.iter().for_each(|call| sender.send(call)));
        let mut answered = HashSet::new();
        for _ in 0..REQUESTS {
            let (xid, result) = client.receive_result();
            let read: Nfs3Result<READ3resok<'_>, READ3resfail> = decode_all(&result);
            assert_eq!(read.unwrap().data.len(), 64 * 1024);
            assert!(answered.insert(xid), "a request is answered once");
        }
        assert_eq!(answered, xids);
    });
    client.null();
}

#[test]
fn a_record_that_is_not_a_call_closes_only_its_connection() {
    let fixture = Fixture::new();
    let (mut good, root) = fixture.mount();
    let garbage: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 64],
        &[0x80, 0, 0, 4, 0, 0, 0, 1],
        &[0x80, 0, 0, 0],
        &[0; 4 * 100],
    ];
    for data in garbage {
        let mut bad = fixture.connect();
        bad.send(data);
        assert!(bad.receive().is_none(), "{data:?}");
        good.getattr(&root).unwrap();
    }
    let refusals = fixture.recorder.refusals.lock();
    assert_eq!(*refusals, [RefusalReason::MalformedRecord; 5]);
}

#[test]
fn cut_and_mangled_arguments_are_answered_or_close_the_connection() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let whole = record(
        next_xid(),
        NFS,
        8,
        &CREATE3args { where_: at(&root, b"file"), how: createhow3::GUARDED(mode(0o644)) },
    );
    for cut in 4..whole.len() {
        let mut bad = fixture.connect();
        bad.send(&crate::client::marked(&whole[4..cut]));
        bad.receive();
    }
    for at in 4..whole.len() {
        let mut mangled = whole.clone();
        mangled[at] ^= 0x81;
        let mut bad = fixture.connect();
        bad.send(&mangled);
        bad.receive();
    }
    client.getattr(&root).unwrap();
}

#[test]
fn calls_with_foreign_or_invalid_handles_displace_no_kept_replies() {
    let fixture = Fixture::new();
    let other = fixture.outside().join("other");
    fs::create_dir(&other).unwrap();
    fixture.server.add_export(Export::new("other", open(&other), Identity::own())).unwrap();
    let (mut client, root) = fixture.mount();
    client.create(&root, "file").unwrap();
    let remove = record(next_xid(), NFS, 12, &REMOVE3args { object: at(&root, b"file") });
    client.send(&remove);
    let first = client.receive().unwrap();
    let stale = {
        let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
        client.rmdir(&root, "dir").unwrap();
        dir
    };
    let other = client.mount("/other").unwrap();
    let forged = nfs_fh3 { data: Opaque::owned(vec![7; 32]) };
    // More calls than the server keeps replies.
    for (handle, status) in [
        (forged, nfsstat3::NFS3ERR_BADHANDLE),
        (stale, nfsstat3::NFS3ERR_STALE),
        (other, nfsstat3::NFS3ERR_NOENT),
    ] {
        for _ in 0..9000 {
            assert_eq!(client.remove(&handle, "none").unwrap_err(), status);
        }
        client.send(&remove);
        assert_eq!(client.receive().unwrap(), first, "{status}");
    }
}

#[test]
fn clients_that_stop_within_a_record_do_not_stop_others() {
    let fixture = Fixture::new();
    let call = record(next_xid(), NFS, 0, &Void);
    let stalled: Vec<Client> = (1..call.len())
        .map(|cut| {
            let mut client = fixture.connect();
            client.send(&call[..cut]);
            client
        })
        .collect();
    let (mut client, root) = fixture.mount();
    client.getattr(&root).unwrap();
    drop(stalled);
    client.getattr(&root).unwrap();
}

#[test]
fn at_the_limit_the_oldest_connection_that_has_used_no_export_is_closed() {
    let fixture = Fixture::with_limits(|limits| limits.connections_per_client = 3);
    let (mut mounted, root) = fixture.mount();
    mounted.getattr(&root).unwrap();
    let mut open: Vec<Client> = (0..2).map(|_| fixture.connect()).collect();
    open.iter_mut().for_each(Client::null);
    for count in 1..=20 {
        let mut new = fixture.connect();
        new.null();
        open.push(new);
        assert!(open[count - 1].receive().is_none(), "the oldest was closed");
        mounted.getattr(&root).unwrap();
    }
    // The server closes a connection before it reports that to the observer.
    wait_until("the refusals are reported", || {
        *fixture.recorder.refusals.lock() == [RefusalReason::Connections; 20]
    });
}

#[test]
fn connections_that_are_opened_and_dropped_leave_no_descriptors() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let port = fixture.server.get_server_info().port;
    let count = if std::env::var_os("WORKSPACE_TEST_FULL").is_some() { 100_000 } else { 3000 };
    for _ in 0..count {
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
    }
    client.getattr(&root).unwrap();
    let fds = || fs::read_dir("/proc/self/fd").unwrap().count();
    wait_until("all descriptors are closed", || fds() < 200);
}

#[test]
fn an_idle_connection_is_closed() {
    let fixture = Fixture::with_limits(|limits| limits.idle_timeout = Duration::from_millis(50));
    assert!(fixture.connect().receive().is_none());
}

#[test]
fn a_client_that_reads_no_replies_stops_no_others() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), vec![5; 1 << 20]).unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.lookup(&root, "file").unwrap().0;
    let mut greedy = fixture.connect();
    greedy.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let call = record(next_xid(), NFS, 6, &READ3args { file: file.clone(), offset: 0, count: 1 << 20 });
    let mut sent = 0_u64;
    while std::io::Write::write_all(&mut greedy.stream, &call).is_ok() {
        sent += call.len() as u64;
        assert!(sent < 256 << 20, "the server reads requests without end");
    }
    assert_eq!(client.read(&file, 0, 10).unwrap().0, [5; 10]);
}

/// A local process replaces directories and files in the export by symlinks to the outside, again and again.
#[test]
fn symlink_races_do_not_lead_outside() {
    let fixture = Fixture::new();
    let outside = fixture.outside().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), b"secret").unwrap();
    fs::create_dir(fixture.path("dir")).unwrap();
    fs::write(fixture.path("dir/file"), b"inside").unwrap();
    symlink(&outside, fixture.path("trap")).unwrap();
    symlink(outside.join("file"), fixture.path("dir/trap")).unwrap();
    let (mut client, root) = fixture.mount();
    let is_done = AtomicBool::new(false);
    let swap = |one: &str, other: &str| {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        let (one, other) = (fixture.path(one), fixture.path(other));
        // An entry may be missing, because another swap has moved the directory.
        rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, flags).ok();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                swap("dir", "trap");
                swap("dir/file", "dir/trap");
                swap("trap/file", "trap/trap");
            }
        });
        for round in 0..2000 {
            let Ok((dir, _)) = client.lookup(&root, "dir") else { continue };
            let Ok((file, _)) = client.lookup(&dir, "file") else { continue };
            if let Ok((content, _)) = client.read(&file, 0, 100) {
                assert_ne!(content, b"secret");
            }
            if round % 4 == 0 {
                client.write(&file, 0, b"inside").ok();
                client.setattr(&file, mode(0o600 + round % 8)).ok();
                client.create(&dir, format!("new-{round}")).ok();
                client.remove(&dir, format!("new-{round}")).ok();
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    let permissions = fs::metadata(outside.join("file")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, 0o644);
}
