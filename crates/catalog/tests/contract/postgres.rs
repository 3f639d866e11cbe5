//! A PostgreSQL of the test's own, gone when the test is.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const KEEPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contract/postgres.sh");

/// A running server. Dropping it, or dying, closes the keeper's standard input, and the keeper ends the rest.
pub(crate) struct Postgres {
    keeper: Child,
    directory: PathBuf,
}

impl Postgres {
    /// Starts a server, or says what the machine lacks.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                "this test needs PostgreSQL, and CI=true"
            );
            eprintln!("skipped: PostgreSQL is not installed");
            return None;
        };
        // The keeper removes it: after the death of this process nobody else could.
        let directory = tempfile::tempdir().unwrap().keep();
        let mut keeper = Command::new(KEEPER)
            .args([&directory, &programs])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "PostgreSQL did not start");
        Some(Self { keeper, directory })
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.directory.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Debian keeps the server's programs away from PATH, by version.
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
