//! Temporary PostgreSQL server.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use workspace_test_support::requires;

const SUPERVISOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contract/postgres.sh");

/// Running server. Its supervisor stops it when its standard input is closed: on drop, or when the test
/// process dies.
pub(crate) struct Postgres {
    supervisor: Child,
    directory: PathBuf,
}

impl Postgres {
    /// Starts a server; `None` with a message if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        let programs = programs();
        requires(programs.is_some(), "PostgreSQL");
        let programs = programs?;
        // The supervisor removes it, since it outlives this process.
        let directory = tempfile::tempdir().unwrap().keep();
        let mut supervisor = Command::new(SUPERVISOR)
            .args([&directory, &programs])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(supervisor.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "PostgreSQL did not start");
        Some(Self { supervisor, directory })
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.directory.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// Returns the directory of the server programs, which Debian installs outside of PATH, by version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let complete = |bin: &PathBuf| ["initdb", "postgres", "pg_isready"].iter().all(|it| is_file(bin, it));
    debian.chain(std::env::split_paths(&path)).find(complete)
}

fn is_file(directory: &Path, name: &str) -> bool {
    directory.join(name).is_file()
}
