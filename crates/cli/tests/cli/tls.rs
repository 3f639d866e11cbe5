//! A server with TLS, trusted or not.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::Server;
use crate::support::Ran;

/// Certificate authority for a test.
struct Authority(tempfile::TempDir);

impl Authority {
    /// Creates an authority. Each needs a name of its own, because clients identify it by its name.
    fn new(name: &str) -> Self {
        let subject = format!("/CN={name}");
        let authority = Self(tempfile::tempdir().unwrap());
        authority.openssl(
            &["req", "-x509", "-nodes", "-days", "2", "-subj", &subject],
            &["-keyout", "ca-key.pem", "-out", "ca.pem"],
        );
        authority
    }

    /// Creates a certificate for that name, and its key.
    fn certificate(&self, name: &str) -> [String; 2] {
        let (cert, key) =
            (format!("{name}.pem").replace(':', "-"), format!("{name}-key.pem").replace(':', "-"));
        let (names, subject) = (format!("subjectAltName={name}"), "/CN=server");
        self.openssl(
            &["req", "-x509", "-nodes", "-days", "2", "-subj", subject, "-addext", &names],
            &[
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca-key.pem",
                "-keyout",
                &key,
                "-out",
                &cert,
            ],
        );
        [cert, key].map(|file| self.path(&file))
    }

    fn path(&self, file: &str) -> String {
        self.0.path().join(file).to_str().unwrap().to_owned()
    }

    fn openssl(&self, words: &[&str], more: &[&str]) {
        let kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        let mut command = Command::new("openssl");
        let output = command.args(words).args(kind).args(more).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Runs a command that trusts the certificates in a file.
fn ask(server: &Server, url: &str, trusted: &Path) -> Ran {
    let mut command = server.workspace(&["ps"]);
    Ran::of(&command.env("WORKSPACE_SERVER", url).env("SSL_CERT_FILE", trusted).output().unwrap())
}

#[test]
fn commands_run_over_tls_with_a_certificate_that_is_trusted() {
    let authority = Authority::new("authority");
    let [cert, key] = authority.certificate("IP:127.0.0.1");
    let trusted = authority.path("ca.pem");
    let variables = [("TLS_CERT", &*cert), ("TLS_KEY", &key), ("SSL_CERT_FILE", &trusted)];
    let Some(server) = Server::start_with(&variables) else { return };
    assert!(server.url().starts_with("https://"));
    assert_eq!(server.ok(&["run", "--", "echo", "hello"]), "hello\n");
    let id = server.sandbox("over-tls");
    assert_eq!(server.ok(&["exec", &id, "--", "sh", "-c", "seq 1 3"]), "1\n2\n3\n");
    assert!(server.ok(&["status"]).contains(&server.url()));
}

#[test]
fn an_untrusted_server_is_explained() {
    let authority = Authority::new("authority");
    let [cert, key] = authority.certificate("DNS:localhost");
    let trusted = authority.path("ca.pem");
    let named = [("TLS_CERT", &*cert), ("TLS_KEY", &key), ("SSL_CERT_FILE", &trusted)];
    let server = Server::without_sandboxes(&named);
    let by_name = server.url().replace("127.0.0.1", "localhost");
    assert_eq!(ask(&server, &by_name, Path::new(&trusted)).status, 0);

    let stranger = Authority::new("stranger");
    let missing = PathBuf::from(authority.path("nothing.pem"));
    for (url, trusted, expected) in [
        (&by_name, Path::new(&stranger.path("ca.pem")), "UnknownIssuer"),
        (&server.url(), Path::new(&trusted), "not valid for name"),
        (&by_name, &missing, "nothing.pem"),
    ] {
        let ran = ask(&server, url, trusted);
        assert_eq!((ran.status, &*ran.stdout), (1, ""), "{}", ran.stderr);
        assert!(
            ran.stderr.contains(&format!("error: the server at {url} is not trusted: ")),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains(expected), "{expected} in {}", ran.stderr);
        assert!(ran.stderr.contains("hint: set SSL_CERT_FILE"), "{}", ran.stderr);
    }
}

#[test]
fn a_server_without_tls_has_an_error_of_its_own() {
    let server = Server::without_sandboxes(&[]);
    let authority = Authority::new("authority");
    let url = server.url().replace("http:", "https:");
    let ran = ask(&server, &url, Path::new(&authority.path("ca.pem")));
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("does not support TLS") && ran.stderr.contains("http://"), "{}", ran.stderr);
}
