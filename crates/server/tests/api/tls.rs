//! TLS with a self-signed certificate.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use workspace_server::start;

use crate::support::{Answer, Server, settings};

fn openssl(arguments: &[&str], directory: &Path) -> std::process::Output {
    let output = Command::new("openssl").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

pub(crate) fn certificate(directory: &Path) -> [String; 2] {
    let names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    let make =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let files = ["-keyout", "key.pem", "-out", "cert.pem"];
    openssl(&[&make[..], &names[..], &files[..]].concat(), directory);
    ["cert.pem", "key.pem"].map(|name| directory.join(name).to_str().unwrap().to_owned())
}

#[test]
fn a_client_that_trusts_the_certificate_can_connect_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = certificate(directory.path());
    let server = Server::with(&[("TLS_CERT", &cert), ("TLS_KEY", &key)]);
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-servername", "localhost", "-verify_hostname"])
        .args(["localhost", "-CAfile", &cert, "-connect", &server.address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    client.stdin.as_mut().unwrap().write_all(request).unwrap();
    let answer = Answer::parse(&client.wait_with_output().unwrap().stdout);
    assert_eq!(answer.json()["status"], "ok");
    assert!(answer.header("strict-transport-security").is_some());
}

#[test]
fn the_server_refuses_to_start_with_unusable_tls_files() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = certificate(directory.path());
    let other = directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let [_, other_key] = certificate(&other);
    let nothing = directory.path().join("nothing.pem").to_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (cert, key, expected) in [
        (&nothing, &key, "TLS_CERT"),
        (&cert, &nothing, "TLS_KEY"),
        (&key, &key, "no certificate"),
        (&cert, &cert, "TLS_KEY"),
        (&cert, &other_key, "cannot be used"),
    ] {
        let data = tempfile::tempdir().unwrap();
        let settings = settings(&data, &[("TLS_CERT", cert), ("TLS_KEY", key)]);
        let error = runtime.block_on(start(settings, |_| Vec::new())).err().unwrap().to_string();
        assert!(error.contains(expected), "{expected} in {error}");
    }
}
