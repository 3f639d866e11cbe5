//! Temporary PostgreSQL server.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{requires, skip};

const SUPERVISOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/postgres.sh");

/// Running PostgreSQL server. Its supervisor stops it when its standard input is closed: on drop, or when the test
/// process dies.
pub struct Postgres {
    supervisor: Child,
    directory: PathBuf,
}

impl Postgres {
    /// Starts a server; `None` if PostgreSQL is not installed, or this user cannot start it.
    pub fn start() -> Option<Self> {
        let has_name = Command::new("id").arg("-un").output().is_ok_and(|output| output.status.success());
        if !has_name || File::open(SUPERVISOR).is_err() {
            skip(
                "PostgreSQL cannot be started by a user without a name, or without access to this repository",
            );
            return None;
        }
        let programs = programs();
        requires(programs.is_some(), "PostgreSQL");
        let programs = programs?;
        // The supervisor removes the directory, also if it cannot start the server: it may outlive this process.
        let directory = tempfile::tempdir().expect("a temporary directory").keep();
        let mut supervisor = Command::new(SUPERVISOR)
            .args([&directory, &programs])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the supervisor can be executed");
        let mut line = String::new();
        let output = supervisor.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("the supervisor writes text");
        assert_eq!(line, "ready\n", "PostgreSQL did not start");
        Some(Self { supervisor, directory })
    }

    /// Returns the URL of a database. The database `postgres` exists from the start.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.directory.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// Returns the directory of the server programs; `None` if none has all of them. Debian installs them outside of PATH,
/// in a directory per version.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_server_that_cannot_be_started_is_removed() {
        if File::open(SUPERVISOR).is_err() {
            skip("the test needs access to this repository");
            return;
        }
        let directory = tempfile::tempdir().expect("a temporary directory").keep();
        let programs = directory.join("no-programs");
        let mut supervisor = Command::new(SUPERVISOR);
        supervisor.args([&directory, &programs]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = supervisor.stdin(Stdio::null()).output().expect("the supervisor can be executed");
        assert!(!directory.exists(), "{output:?}");
    }
}
