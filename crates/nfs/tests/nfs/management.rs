//! Tests of the functions that manage a server: start, stop, and changes of its exports.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use workspace_nfs::{Export, Identity, NfsError, NfsMode, NfsServer, NoObserver, Settings};

use crate::client::Client;
use crate::fixture::{Fixture, NAME, open};

#[test]
fn a_server_is_started_and_stopped() {
    let fixture = Fixture::new();
    let server = &fixture.server;
    assert!(server.is_running());
    assert!(matches!(server.start(), Err(NfsError::AlreadyRunning)));
    let info = server.get_server_info();
    assert_eq!((info.mode, info.host.as_str()), (NfsMode::Embedded, "127.0.0.1"));
    let (mut client, root) = fixture.mount();
    server.stop().unwrap();
    server.stop().unwrap();
    assert!(!server.is_running());
    assert!(client.receive().is_none(), "the connection is closed");
    server.start().unwrap();
    assert_eq!(server.get_server_info().port, info.port, "the server listens on its former port");
    fixture.connect().getattr(&root).unwrap();
}

#[test]
fn the_next_configured_port_is_used_if_one_is_taken() {
    let first = Fixture::new();
    let taken = first.server.get_server_info().port;
    let second = Fixture::without_export(|mut settings| {
        settings.ports = vec![taken, 0];
        settings.advertised_host = Some("nfs.example.org".to_owned());
        settings
    });
    let info = second.server.get_server_info();
    assert_ne!(info.port, taken);
    assert_eq!(info.host, "nfs.example.org");
    let mut settings = Settings::new(second.outside().join("third"));
    settings.ports = vec![taken];
    let third = NfsServer::new(settings, Arc::new(NoObserver)).unwrap();
    assert!(matches!(third.start(), Err(NfsError::CannotListen { .. })));
    assert!(!third.is_running());
}

#[test]
fn exports_are_added_listed_and_removed() {
    let fixture = Fixture::without_export(|settings| settings);
    let server = &fixture.server;
    let info = server.add_export(fixture.export()).unwrap();
    let port = server.get_server_info().port;
    assert_eq!(
        info.mount_command,
        format!("mount -t nfs -o vers=3,tcp,nolock,port={port},mountport={port} 127.0.0.1:/{NAME} /mnt")
    );
    assert_eq!(server.export_info(NAME), Some(info));
    assert!(matches!(server.add_export(fixture.export()), Err(NfsError::ExportExists { .. })));
    assert_eq!(server.exports().len(), 1);
    server.remove_export(NAME).unwrap();
    assert_eq!(server.export_info(NAME), None);
    assert!(!fixture.outside().join("state/tables").join(NAME).exists());
    assert!(matches!(
        server.replace_root(NAME, open(&fixture.root()), ""),
        Err(NfsError::NoSuchExport { .. })
    ));
}

#[test]
fn names_and_roots_are_checked() {
    let fixture = Fixture::without_export(|settings| settings);
    fs::write(fixture.path("file"), b"").unwrap();
    let add = |name: &str, root: OwnedFd| fixture.server.add_export(Export::new(name, root, Identity::own()));
    for name in ["", "a/b", "..", "a.b", "a b", &"x".repeat(129)] {
        assert!(matches!(add(name, open(&fixture.root())), Err(NfsError::InvalidName { .. })), "{name}");
    }
    assert!(matches!(add("file", open(&fixture.path("file"))), Err(NfsError::UnusableRoot { .. })));
    assert!(fixture.server.exports().is_empty());
}

#[test]
fn exports_are_added_and_removed_while_clients_use_them() {
    let fixture = Fixture::new();
    let is_done = AtomicBool::new(false);
    let port = fixture.server.get_server_info().port;
    thread::scope(|scope| {
        for worker in 0..4 {
            let is_done = &is_done;
            scope.spawn(move || {
                let mut client = Client::connect(port);
                while !is_done.load(Ordering::Relaxed) {
                    let Ok(root) = client.mount("/sbx-1") else { continue };
                    for number in 0..20 {
                        let Ok(file) = client.create(&root, format!("{worker}-{number}")) else { continue };
                        client.write(&file, 0, b"x").ok();
                        client.remove(&root, format!("{worker}-{number}")).ok();
                    }
                }
            });
        }
        for round in 0..30 {
            match round % 3 {
                0 => fixture.server.remove_export(NAME).unwrap(),
                1 => drop(fixture.server.add_export(fixture.export()).unwrap()),
                _ => {
                    fixture.server.replace_root(NAME, open(&fixture.root()), &round.to_string()).unwrap();
                }
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    fixture.mount();
}
