//! Runs the example as described in its README.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const KEY: &str = "0123456789012345678901234567890123456789";

fn check(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("again, by another way"), "a tree is recognised when it comes again: {said}");
    let path = said.lines().find_map(|line| line.strip_prefix("best path: ")).unwrap();
    for fix in ["subtract in sub", "take the larger in max", "begin with one in fact"] {
        assert!(path.contains(fix), "{path}");
    }
    assert!(path.ends_with("(1.00)"), "{path}");
    said
}

#[test]
fn in_rust_it_repairs_the_sample() {
    let run = || check(&Command::new(env!("CARGO_BIN_EXE_mcts")).arg("1").output().unwrap());
    assert_eq!(run(), run(), "the same seed gives the same search");
}

/// Server for these tests.
struct Server {
    child: Child,
    address: String,
    _home: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let program: PathBuf = Path::new(env!("CARGO_BIN_EXE_mcts")).with_file_name("workspace-server");
        assert!(program.is_file(), "build {} first", program.display());
        let home = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program)
            .env("DATA_DIR", home.path().join("data"))
            .env("API_PORT", port.to_string())
            .env("API_KEY", KEY)
            .env("RATE_LIMIT", "off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, address: format!("http://127.0.0.1:{port}"), _home: home }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = self.child.id().to_string();
        drop(Command::new("kill").args(["-TERM", &id]).status());
        drop(self.child.wait());
    }
}

#[test]
fn in_python_it_repairs_the_sample_over_http() {
    let server = Server::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/search.py");
    let mut command = Command::new("python3");
    command.arg(script).args(["--seed", "1", "--server", &server.address]).env("WORKSPACE_API_KEY", KEY);
    check(&command.output().unwrap());
}
