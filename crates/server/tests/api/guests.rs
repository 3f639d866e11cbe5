//! TLS on the port for guest agents.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use workspace_server::{StartError, StartedServer, start};

use crate::support::settings;
use crate::tls::certificate;

/// Server with a port for guest agents. It needs no Docker daemon.
async fn begin(data: &TempDir, more: &[(&str, &str)]) -> Result<StartedServer, StartError> {
    let nowhere = format!("unix://{}/docker.sock", data.path().display());
    let usual = [
        ("RUNTIME", "docker"),
        ("DOCKER_HOST", &nowhere),
        ("GUEST_TRANSPORT", "tcp"),
        ("GRPC_PORT", "0"),
        ("GRPC_ADVERTISE", "server.example:50051"),
    ];
    let usual = usual.into_iter().filter(|(name, _)| more.iter().all(|(other, _)| other != name));
    let variables: Vec<_> = usual.chain(more.iter().copied()).collect();
    start(settings(data, &variables), |_| Vec::new()).await
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Runs the server while `work` runs.
fn serving(data: &TempDir, more: &[(&str, &str)], work: impl FnOnce(SocketAddr)) {
    let runtime = runtime();
    let StartedServer { app, server, guests, lock, .. } = runtime.block_on(begin(data, more)).unwrap();
    let running = runtime.spawn(server.run());
    let address = guests.unwrap();
    work(address);
    app.shutdown.begin();
    runtime.block_on(running).unwrap();
    drop(lock);
    assert!(TcpStream::connect(address).is_err(), "it is closed when the server has stopped");
}

/// Returns the certificate of the port in PEM; empty if it is not trusted by `trusted`.
fn presented_certificate(address: SocketAddr, trusted: &Path) -> String {
    let connect = address.to_string();
    let output = Command::new("openssl")
        .args(["s_client", "-tls1_3", "-alpn", "h2", "-verify_return_error", "-connect", &connect, "-CAfile"])
        .arg(trusted)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let from = text.find("-----BEGIN").filter(|_| output.status.success());
    let to = text.find("-----END CERTIFICATE-----");
    from.zip(to).map(|(from, to)| text[from..to].to_owned()).unwrap_or_default()
}

#[test]
fn the_certificate_is_created_once_with_private_permissions() {
    let data = tempfile::tempdir().unwrap();
    let kept = data.path().join("guests.pem");
    let mut first = String::new();
    serving(&data, &[], |address| first = presented_certificate(address, &kept));
    let text = std::fs::read_to_string(&kept).unwrap();
    assert!(!first.is_empty() && text.replace('\r', "").contains(&first), "{first}");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    serving(&data, &[("GRPC_ADVERTISE", "another.example:1")], |address| {
        assert_eq!(presented_certificate(address, &kept), first);
    });
    std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = runtime().block_on(begin(&data, &[])).err().unwrap().to_string();
    assert!(refused.contains("chmod 600"), "{refused}");
}

#[test]
fn a_certificate_can_be_configured() {
    let (data, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [cert, key] = certificate(directory.path());
    serving(&data, &[("GRPC_TLS_CERT", &cert), ("GRPC_TLS_KEY", &key)], |address| {
        assert!(!presented_certificate(address, Path::new(&cert)).is_empty());
    });
    assert!(!data.path().join("guests.pem").exists());
}

#[test]
fn plaintext_connections_are_refused() {
    let data = tempfile::tempdir().unwrap();
    serving(&data, &[], |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // The connection is closed or reset at once.
        let ended = stream.read_to_end(&mut answer);
        let waited = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!waited && !answer.starts_with(b"HTTP"));
    });
}

#[test]
fn the_server_refuses_to_start_with_unusable_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = certificate(directory.path());
    let nothing = directory.path().join("nothing").to_str().unwrap().to_owned();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (cert, key, nothing) = (cert.as_str(), key.as_str(), nothing.as_str());
    let tls_files = |cert, key| vec![("GRPC_TLS_CERT", cert), ("GRPC_TLS_KEY", key)];
    let cases: [(Vec<(&str, &str)>, &str); 5] = [
        (vec![("GRPC_PORT", &port)], "hint: GRPC_PORT sets another port"),
        (tls_files(nothing, key), "GRPC_TLS_CERT /"),
        (tls_files(cert, cert), "the private key cannot be read"),
        (tls_files(key, key), "the certificate chain contains no certificate"),
        (
            [tls_files(cert, key), vec![("GRPC_TLS_CA", key)]].concat(),
            "the CA bundle contains no certificate",
        ),
    ];
    for (variables, expected) in cases {
        let data = tempfile::tempdir().unwrap();
        let error = runtime().block_on(begin(&data, &variables)).err().unwrap().to_string();
        assert!(error.contains(expected), "{expected} in {error}");
    }
}
